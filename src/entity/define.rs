//! What the author of a kind of entities writes: a state, the events that change it, and two functions without effects.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::{Event, EventError};

/// The most characters of a rejection.
const REASON_MAX: usize = 1000;

/// A kind of entities. Both functions are synchronous and get nothing but their arguments, so an event that was stored can
/// be applied again at any time, and comes to the same: they must use no clock, no randomness and nothing from outside.
///
/// What has to happen outside, such as a payment, is an event that `apply` has emitted; its handler sends what came of it back
/// as another event of the entity.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use wakeq::{Applied, Entity, Rejection};
///
/// struct Account;
///
/// #[derive(Clone, Default, Serialize, Deserialize)]
/// struct Balance {
///     cents: i64,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// #[serde(rename_all = "snake_case")]
/// enum Change {
///     Deposit { cents: u32 },
///     Withdraw { cents: u32 },
/// }
///
/// impl Entity for Account {
///     const TYPE: &'static str = "account";
///     type State = Balance;
///     type Event = Change;
///
///     fn validate(balance: &Balance, change: &Change) -> Result<(), Rejection> {
///         match change {
///             Change::Withdraw { cents } if i64::from(*cents) > balance.cents => {
///                 Err(Rejection::new(format!("there are only {} cents", balance.cents)))
///             }
///             Change::Withdraw { .. } | Change::Deposit { .. } => Ok(()),
///         }
///     }
///
///     fn apply(balance: Balance, change: &Change) -> Applied<Balance> {
///         let cents = match change {
///             Change::Deposit { cents } => balance.cents + i64::from(*cents),
///             Change::Withdraw { cents } => balance.cents - i64::from(*cents),
///         };
///         Applied::new(Balance { cents }).result(&cents)
///     }
/// }
/// ```
pub trait Entity: Send + Sync + 'static {
    /// The type's name: see [`EntityType`](crate::EntityType).
    const TYPE: &'static str;
    /// Counts how often the state, or what `apply` makes of events, has changed its meaning. Snapshots of another count are not
    /// used: such states are made again from all events.
    const SHAPE: u32 = 1;
    /// What is kept of each entity. A new one has the default.
    type State: Default + Clone + Serialize + DeserializeOwned + Send + 'static;
    /// What happens to it: an enum as `serde` writes it by default, so that its variants are the names of the events, and what
    /// is in them the payloads.
    type Event: DeserializeOwned;

    /// Whether the event may happen now. It must be quick: events of other entities wait for it.
    fn validate(state: &Self::State, event: &Self::Event) -> Result<(), Rejection>;

    /// What the event makes of the state. It was valid, and must be quick as well.
    fn apply(state: Self::State, event: &Self::Event) -> Applied<Self::State>;
}

/// Why an event may not happen. The sender is told; nothing is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Rejection {
    reason: String,
}

impl Rejection {
    /// For this reason, of which the first 1,000 characters are kept.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self { reason: as_kept(&reason.to_string()) }
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// A text as Postgres can hold it: cut, and without NUL.
pub(super) fn as_kept(text: &str) -> String {
    text.chars().filter(|character| *character != '\0').take(REASON_MAX).collect()
}

/// What an event has made of an entity: its new state, the result for the sender, and what is to follow.
#[derive(Debug)]
pub struct Applied<S> {
    pub(super) state: S,
    pub(super) result: Option<String>,
    pub(super) follow_ups: Vec<FollowUp>,
    pub(super) fault: Option<String>,
}

/// An event that is emitted because of another.
#[derive(Clone, Debug)]
pub(super) enum FollowUp {
    /// As it is.
    Emit(Event),
    /// With its value inside a question.
    Ask(Event),
}

impl FollowUp {
    pub(super) fn event(&self) -> &Event {
        match self {
            Self::Emit(event) | Self::Ask(event) => event,
        }
    }
}

impl<S> Applied<S> {
    /// A new state, and nothing else.
    pub fn new(state: S) -> Self {
        Self { state, result: None, follow_ups: Vec::new(), fault: None }
    }

    /// The state.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// What the sender is told. A value that has no JSON form makes the event fail.
    pub fn result(mut self, result: &(impl Serialize + ?Sized)) -> Self {
        match serde_json::to_string(result) {
            Ok(result) => self.result = Some(result),
            Err(error) => self.fault = Some(format!("its result is no JSON: {error}")),
        }
        self
    }

    /// Has an event emitted, in the transaction that stores this one. An event that can't be made makes this one fail.
    pub fn emit(self, event: Result<Event, EventError>) -> Self {
        self.follow(event.map(FollowUp::Emit))
    }

    /// The same for an event whose handler is to answer: it gets what was asked, and whom to answer,
    /// from [`Execution::asked`](crate::Execution::asked).
    pub fn ask(self, event: Result<Event, EventError>) -> Self {
        self.follow(event.map(FollowUp::Ask))
    }

    fn follow(mut self, follow_up: Result<FollowUp, EventError>) -> Self {
        match follow_up {
            Ok(follow_up) => self.follow_ups.push(follow_up),
            Err(error) => {
                self.fault = Some(format!("an event that follows from it can't be emitted: {error}"))
            }
        }
        self
    }
}
