//! Handlers that are reached over HTTP: registering, showing and deleting them, and waking what
//! waited for one.
//!
//! Whether this deployment may call a URL is checked by the caller beforehand (`delivery`); only
//! its form is checked here.

use std::time::Duration;

use super::retries::check_retries;
use super::rules::of_handler;
use super::{Admin, AdminError, Cursor, LIST_MAX, Page, checked};
use crate::event::{
    Actor, CanvasId, HandlerAddress, HandlerScope, Name, RuleKind, SealError, Secret, TargetHeaders,
    TargetPolicy, TargetUrl,
};
use crate::store::{NewTargetRow, PutOutcome, RegisteredTarget, SealedHeaders};

/// Modifiers that are refused, because the paths of the API use these words for other things.
const RESERVED: [&str; 7] = ["pause", "block", "purge", "statistics", "handlers", "pull", "leases"];
/// Shortest and longest timeout of an attempt.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// The answer to a target that moves without its headers.
pub(super) const HEADERS_LEAVE: &str = "the target has headers of its own, and sends them to no other scheme, host or \
                                        port than they were given for: give them again with this URL, or none (`{}`, \
                                        --no-headers) to remove them";

/// A handler to be reached over HTTP.
#[derive(Clone, Debug)]
pub struct NewTarget {
    /// The URL to which its events are sent.
    pub url: TargetUrl,
    /// Retries, timeout and concurrency.
    pub policy: TargetPolicy,
    /// The audience of the OIDC token that is sent with each request: 1 to 500 visible ASCII
    /// characters. Without it no token is sent.
    pub audience: Option<String>,
    /// The secret that its requests are signed with.
    pub secret: NewSecret,
    /// Headers that it adds to its requests, in place of all that it had; `None` to keep these,
    /// which is refused if the URL has another scheme, host or port, since they are secrets. A
    /// target with an audience can't be given an `authorization`, and sends its token in place of
    /// one that it had.
    pub headers: Option<TargetHeaders>,
}

/// Which secret signs from now on. A replaced secret also signs for another 24 hours.
#[derive(Clone, Debug, Default)]
pub enum NewSecret {
    /// The current secret; a new target gets a generated one.
    #[default]
    Keep,
    /// This one.
    Given(Secret),
    /// A newly generated one.
    Rotate,
}

/// The result of registering a target.
#[derive(Clone, Debug)]
pub struct PutTargetResult {
    /// Whether the handler had no target.
    pub new: bool,
    /// The target as it is now.
    pub target: RegisteredTarget,
    /// The secret that was generated; it is shown only this once.
    pub secret: Option<Secret>,
    /// A rule that still holds the handler: registering lifts none.
    pub still: Option<RuleKind>,
    /// Events that had waited for the handler and were published before this call returned.
    pub woken: usize,
    /// Whether waking continues after the call, here or in another process.
    pub waking: bool,
}

impl Admin {
    /// Registers a handler that is reached over HTTP, or replaces the one registered at its
    /// address, and wakes the events that waited for it. It takes effect immediately for every
    /// worker with a `Deliverer` (of `wakeq-service`); a worker that has a function for
    /// the address runs that.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::targets::{NewSecret, NewTarget, TargetPolicy};
    /// use wakeq::{Actor, CanvasId, HandlerAddress, HandlerScope, Name};
    ///
    /// let scope = HandlerScope::worker(CanvasId::DEFAULT, "send-email")?;
    /// let address = HandlerAddress { scope, modifier: Name::no_modifier() };
    /// let url = "https://mail.example/events".parse()?;
    /// let (policy, secret) = (TargetPolicy::default(), NewSecret::Keep);
    /// let target = NewTarget { url, policy, audience: None, secret, headers: None };
    /// let registered = admin.put_target(&address, &target, &Actor::user("ada")).await?;
    /// if let Some(secret) = registered.secret {
    ///     println!("verify its signatures with {}", secret.reveal());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn put_target(
        &self,
        address: &HandlerAddress,
        new: &NewTarget,
        actor: &Actor,
    ) -> Result<PutTargetResult, AdminError> {
        checked(actor)?;
        if address.scope.canvas.is_reserved() {
            return Err(AdminError::Invalid(
                "no canvas has this id: the target of a queue is registered with the queue",
            ));
        }
        of_handler(&address.scope)?;
        self.check_target(address, new)?;
        let (row, is_made) = self.target_row(address, new, actor).await?;
        let put = self.store.put_target(&row).await?.ok_or(AdminError::Invalid(HEADERS_LEAVE))?;
        let PutOutcome { new, target, secret_taken, rule, job } = put;
        crate::fault::point("target.registered");
        let (woken, waking) = self.resume(address.scope.canvas, job.into_iter().collect()).await?;
        Ok(PutTargetResult {
            new,
            target,
            secret: (secret_taken && is_made).then_some(row.secret),
            still: rule,
            woken,
            waking,
        })
    }

    /// The row of a target to register, and whether its secret is made here, so that the caller has
    /// to be told it. Refuses the deployment itself, under any name that it is known to have.
    pub(super) async fn target_row<'a>(
        &'a self,
        address: &'a HandlerAddress,
        new: &'a NewTarget,
        actor: &'a Actor,
    ) -> Result<(NewTargetRow<'a>, bool), AdminError> {
        let (url, policy, audience) = (&new.url, &new.policy, new.audience.as_deref());
        self.store.own_deployment().await?.check(url, audience)?;
        let generate = || Secret::generate().map_err(|_| AdminError::NoRandomness);
        let (secret, replaces_secret, is_made) = match &new.secret {
            NewSecret::Keep => (generate()?, false, true),
            NewSecret::Given(secret) => (secret.clone(), true, false),
            NewSecret::Rotate => (generate()?, true, true),
        };
        let keys = self.store.secret_keys();
        let sealed = keys.seal(address, &secret).map_err(not_sealed)?;
        let seal_headers = |headers| SealedHeaders::new(keys, address, headers);
        let headers = new.headers.as_ref().map(seal_headers).transpose().map_err(not_sealed)?;
        let row = NewTargetRow {
            address,
            url,
            policy,
            audience,
            secret,
            sealed,
            keys,
            replaces_secret,
            headers,
            actor,
        };
        Ok((row, is_made))
    }

    /// The target at an address, if any.
    pub async fn target(&self, address: &HandlerAddress) -> Result<Option<RegisteredTarget>, AdminError> {
        let HandlerScope { canvas, module, name } = &address.scope;
        let found =
            self.store.targets(*canvas, Some((module, name)), Some(&address.modifier), None, 1).await?;
        Ok(found.into_iter().next())
    }

    /// The targets of a canvas, or of one handler, by address; up to `limit`, 1 to [`LIST_MAX`].
    pub async fn targets(
        &self,
        canvas: CanvasId,
        scope: Option<&HandlerScope>,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<RegisteredTarget>, AdminError> {
        let handler: Option<(&Name, &Name)> = scope.map(|scope| (&scope.module, &scope.name));
        let after = cursor.map(Cursor::target).transpose()?;
        if let (Some((module, name)), Some(after)) = (handler, &after)
            && (*module != after.0 || *name != after.1)
        {
            return Err(AdminError::Cursor);
        }
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let one_more = limit as i64 + 1;
        let found = self.store.targets(canvas, handler, None, after.as_ref(), one_more).await?;
        Ok(Page::of(found, limit, |last| {
            let HandlerAddress { scope, modifier } = &last.address;
            Cursor::of_target((scope.module.clone(), scope.name.clone(), modifier.clone()))
        }))
    }

    /// Deletes a target. A running attempt continues. From then on its events wait like those of a
    /// handler that no worker knows.
    pub async fn delete_target(&self, address: &HandlerAddress, actor: &Actor) -> Result<(), AdminError> {
        checked(actor)?;
        if self.store.delete_target(address, actor).await? {
            Ok(())
        } else {
            Err(AdminError::NoTarget(Box::new(address.clone())))
        }
    }

    pub(super) fn check_target(&self, address: &HandlerAddress, new: &NewTarget) -> Result<(), AdminError> {
        if RESERVED.contains(&address.modifier.as_str()) {
            return Err(AdminError::Invalid(
                "`pause`, `block`, `purge`, `statistics`, `handlers`, `pull` and `leases` can't be \
                 modifiers of a target: the API's paths use them",
            ));
        }
        check_policy(&new.policy).map_err(AdminError::Invalid)?;
        let visible = |audience: &String| {
            (1..=500).contains(&audience.len()) && audience.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !new.audience.as_ref().is_none_or(visible) {
            return Err(AdminError::Invalid("the audience must have 1 to 500 visible ASCII characters"));
        }
        if new.audience.is_some() && new.headers.as_ref().is_some_and(TargetHeaders::has_authorization) {
            return Err(AdminError::Invalid(
                "a target with an audience sends a token in the header authorization: leave out one of both",
            ));
        }
        Ok(())
    }
}

/// Why nothing was registered, if a secret could not be encrypted.
pub(super) fn not_sealed(unsealed: SealError) -> AdminError {
    match unsealed {
        SealError::NoKey => AdminError::NoSecretKey,
        SealError::NoRandomness(_) => AdminError::NoRandomness,
    }
}

/// What is wrong with a policy, if anything.
fn check_policy(policy: &TargetPolicy) -> Result<(), &'static str> {
    check_retries(policy.retries, (policy.delay, policy.factor, policy.delay_max))?;
    if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&policy.timeout) {
        return Err(
            "the time-out must be 1 s to 600 s: for longer work, answer at once and continue afterwards",
        );
    }
    if !policy.concurrency.is_none_or(|concurrency| (1..=10_000).contains(&concurrency)) {
        return Err("the concurrency must be 1 to 10,000; leave it out for no limit");
    }
    if !policy.keep.is_within_limits() {
        return Err("an event is kept for 90 days at most after it has ended");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Keep;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn a_policy_has_limits() {
        let usual = TargetPolicy::default;
        let longest = TargetPolicy {
            retries: 1000,
            delay: Duration::ZERO,
            factor: 100,
            delay_max: 30 * DAY,
            timeout: TIMEOUT_MAX,
            concurrency: Some(10_000),
            halts: true,
            keep: Keep::all(90 * DAY),
        };
        for good in [usual(), longest.clone()] {
            assert_eq!(check_policy(&good), Ok(()), "{good:?}");
        }
        for (bad, words) in [
            (TargetPolicy { retries: 1001, ..usual() }, "1,000 times"),
            (TargetPolicy { delay_max: 31 * DAY, ..usual() }, "30 days"),
            (TargetPolicy { delay: 2 * DAY, ..usual() }, "first delay"),
            (TargetPolicy { factor: 0, ..usual() }, "factor"),
            (TargetPolicy { factor: 101, ..usual() }, "factor"),
            (TargetPolicy { timeout: Duration::from_millis(999), ..usual() }, "1 s to 600 s"),
            (TargetPolicy { timeout: Duration::from_millis(600_001), ..usual() }, "1 s to 600 s"),
            (TargetPolicy { concurrency: Some(0), ..usual() }, "concurrency"),
            (TargetPolicy { concurrency: Some(10_001), ..usual() }, "concurrency"),
            (TargetPolicy { keep: Keep { failed: 91 * DAY, ..Keep::all(DAY) }, ..usual() }, "90 days"),
        ] {
            let refused = check_policy(&bad).unwrap_err();
            assert!(refused.contains(words), "{bad:?}: {refused}");
        }
    }
}
