//! How something leased is released, and what happens to it then.

use std::time::Duration;

use crate::event::Cause;

/// Why a copy, or an event of a pulled handler, is released, and for how long. By default it can be
/// leased again immediately, as if it had not been taken.
///
/// ```no_run
/// # async fn example(admin: wakeq::Admin, event: wakeq::targets::LeasedEvent) -> Result<(), wakeq::AdminError> {
/// use wakeq::queues::{Release, ReleaseResult};
///
/// let failed = Release { error: Some("no route to the mail server".into()), ..Default::default() };
/// match admin.release_event(&event.address.scope, event.id, &event.lease, &failed).await? {
///     ReleaseResult::Again(delay) => println!("again in {delay:?}"),
///     ReleaseResult::Died => println!("it was tried often enough"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The error of a failed attempt, which is counted. Without one nothing is counted.
    pub error: Option<String>,
    /// Least delay until it can be leased again, up to the longest delay of the policy.
    /// After an error the policy's delay applies if that is longer, and jitter makes either up to
    /// 20 % longer. Default: none.
    pub retry: Option<Duration>,
    /// No retry can help: it dies now, with `error` as its error. Default: no.
    pub dead: bool,
}

/// What happened to a released copy or event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseResult {
    /// It can be leased again after this delay.
    Again(Duration),
    /// It had no retries left, or none could help or start in time: it is among the dead events of
    /// its canvas.
    Died,
}

/// What happened to something that was given back, and why it died if it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenBack {
    Again(Duration),
    Died(Cause),
}

impl From<GivenBack> for ReleaseResult {
    fn from(given_back: GivenBack) -> Self {
        match given_back {
            GivenBack::Again(delay) => Self::Again(delay),
            GivenBack::Died(_) => Self::Died,
        }
    }
}
