//! Targets: handlers that are reached over HTTP.

pub(crate) mod headers;
pub(crate) mod keep;

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::resources::handlers::wire::RuleKind;
use crate::resources::wire::wire_from;
use headers::HeadersText;
use keep::{KeepJson, whole_seconds_schema};
use wakeq::targets::{InvalidHeaders, InvalidSecret, InvalidTargetUrl, TargetPolicy};

/// Modifiers that no target has: the paths of the API use these words for other things, so that
/// deleting the target of the modifier `pause` would lift the pause.
pub(crate) const RESERVED_MODIFIERS: [&str; 7] =
    ["pause", "block", "purge", "statistics", "handlers", "pull", "leases"];

/// An HTTP target to be registered for a handler. It replaces the one at its address.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutTarget {
    /// URL that receives the events: https, or http if the deployment allows it; without user,
    /// password or fragment.
    #[schema(max_length = 2048, example = "https://mail.example/events")]
    pub(crate) url: String,
    /// How the target is called, and how events are retried. Omitted fields have their defaults.
    #[serde(default)]
    pub(crate) policy: Policy,
    /// Audience of a Google OIDC token that is sent with each request: the service at the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 500)]
    pub(crate) audience: Option<String>,
    /// The signing secret: `whsec_` and 24 to 64 bytes in base64. Default: the current secret, or a
    /// generated one. The old secret also signs for 24 more hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^whsec_[A-Za-z0-9+/=]{32,88}$", write_only)]
    pub(crate) secret: Option<SecretText>,
    /// Whether to generate a new secret, in place of the current one. Excludes `secret`.
    #[serde(default)]
    pub(crate) rotate_secret: bool,
    /// Headers that are added to each request, as an object of names and values, in place of all
    /// that the target had: at most 20, of 8,192 bytes together. Default: those that it had, as
    /// long as the URL has the same scheme, host and port. Responses have their names only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<HashMap<String, String>>, write_only, example = json!({"x-api-key": "…"}))]
    pub(crate) headers: Option<HeadersText>,
}

/// A secret in a request or an answer. Its `Debug` output does not reveal it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SecretText(pub(crate) String);

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretText(…)")
    }
}

/// How a target is called, and how events are retried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields, from = "GivenPolicy")]
pub(crate) struct Policy {
    /// Retries after the first failure.
    #[schema(maximum = 1000, default = 2)]
    pub(crate) retries: u32,
    /// Delay after the first failure, in seconds. Default: 300, or `delay_max_s` if shorter.
    #[schema(minimum = 0, maximum = 2_592_000, default = 300)]
    pub(crate) delay_s: f64,
    /// Multiplier of each further delay.
    #[schema(minimum = 1, maximum = 100, default = 1)]
    pub(crate) factor: u32,
    /// Maximum delay, in seconds. A longer `Retry-After` is cut to it, or to a minute if that is
    /// more.
    #[schema(minimum = 0, maximum = 2_592_000, default = 86_400)]
    pub(crate) delay_max_s: f64,
    /// Timeout of a request, in seconds.
    #[schema(minimum = 1, maximum = 600, default = 30)]
    pub(crate) timeout_s: f64,
    /// Maximum concurrent requests per worker. Default: the canvas's share.
    #[schema(minimum = 1, maximum = 10_000)]
    pub(crate) concurrency: Option<u32>,
    /// What happens to later events of an object when one of its events dies.
    pub(crate) on_death: OnDeath,
    /// How long events are kept after they have ended.
    #[serde(skip_serializing_if = "KeepJson::is_nothing")]
    #[schema(schema_with = whole_seconds_schema)]
    pub(crate) keep_s: KeepJson<u32>,
}

/// What happens to later events of an object when one of its events dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnDeath {
    /// They run.
    #[default]
    Skip,
    /// They wait until the dead event is redriven or skipped.
    Halt,
}

impl From<bool> for OnDeath {
    fn from(halts: bool) -> Self {
        if halts { Self::Halt } else { Self::Skip }
    }
}

/// A handler's HTTP target, without its secret and the values of its headers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Target)]
pub(crate) struct TargetJson {
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    #[schema(example = "https://mail.example/events")]
    pub(crate) url: String,
    pub(crate) policy: Policy,
    /// Audience of the OIDC token that is sent with each request.
    pub(crate) audience: Option<String>,
    /// Names of the headers that are added to each request, in lower case; omitted if there are
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) header_names: Vec<String>,
    /// Until when requests are also signed with the previous secret.
    pub(crate) previous_secret_until: Option<DateTime<Utc>>,
    /// Since when nothing is sent there, because it answered 410 Gone; until it is registered again
    /// or a pause of its handler is lifted.
    pub(crate) gone_since: Option<DateTime<Utc>>,
    /// How fast it gets events, because it answered 429 or 503 and has not accepted enough since;
    /// omitted otherwise. Up to a minute old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slowed: Option<SlowedJson>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) created_by: String,
    /// When the target was last changed.
    pub(crate) updated_at: DateTime<Utc>,
    pub(crate) updated_by: String,
}

/// How fast a target gets events while it has no capacity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Slowed)]
pub(crate) struct SlowedJson {
    /// How many events per second it gets at most from the workers that it refused, together.
    #[schema(minimum = 0, example = 7)]
    pub(crate) per_second: f64,
    /// Until when one of these workers sends it none; null if each sends it some.
    pub(crate) until: Option<DateTime<Utc>>,
}

/// The result of registering a target.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PutAnswer {
    /// Whether the handler had no target.
    pub(crate) new: bool,
    /// The target as it is now.
    pub(crate) target: TargetJson,
    /// The generated secret, `whsec_…`; shown only once.
    #[schema(value_type = Option<String>)]
    pub(crate) secret: Option<SecretText>,
    /// The kind of the rule that still holds the handler.
    pub(crate) still: Option<RuleKind>,
    /// Number of events woken so far that had waited for the handler.
    #[schema(minimum = 0)]
    pub(crate) woken: usize,
    /// Whether more are woken after this response.
    pub(crate) waking: bool,
}

/// Why a request does not describe a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidTarget {
    #[error(transparent)]
    Url(#[from] InvalidTargetUrl),
    #[error(transparent)]
    Secret(#[from] InvalidSecret),
    #[error(transparent)]
    Headers(#[from] InvalidHeaders),
    #[error("give `secret` or `rotate_secret`, not both")]
    TwoSecrets,
    #[error("`{0}` is not an allowed number of seconds for a target: see /docs for the limits")]
    Seconds(&'static str),
}

impl PutTarget {
    /// The target to be registered.
    pub(crate) fn read(self) -> Result<wakeq::targets::NewTarget, InvalidTarget> {
        let secret = match (self.secret, self.rotate_secret) {
            (Some(_), true) => return Err(InvalidTarget::TwoSecrets),
            (Some(SecretText(text)), false) => wakeq::targets::NewSecret::Given(text.parse()?),
            (None, true) => wakeq::targets::NewSecret::Rotate,
            (None, false) => wakeq::targets::NewSecret::Keep,
        };
        let (url, policy) = (self.url.parse()?, self.policy.read()?);
        let headers = self.headers.map(HeadersText::read).transpose()?;
        Ok(wakeq::targets::NewTarget { url, policy, audience: self.audience, secret, headers })
    }
}

impl Policy {
    fn read(self) -> Result<TargetPolicy, InvalidTarget> {
        let Self { retries, delay_s, factor, delay_max_s, timeout_s, concurrency, on_death, keep_s } = self;
        Ok(TargetPolicy {
            retries,
            delay: duration("delay_s", delay_s)?,
            factor,
            delay_max: duration("delay_max_s", delay_max_s)?,
            timeout: duration("timeout_s", timeout_s)?,
            concurrency,
            halts: on_death == OnDeath::Halt,
            keep: keep_s.read().ok_or(InvalidTarget::Seconds("keep_s"))?,
        })
    }
}

/// As deserialized, with defaults for missing fields.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GivenPolicy {
    retries: u32,
    delay_s: Option<f64>,
    factor: u32,
    delay_max_s: f64,
    timeout_s: f64,
    concurrency: Option<u32>,
    on_death: OnDeath,
    keep_s: KeepJson<u32>,
}

impl Default for GivenPolicy {
    fn default() -> Self {
        let Policy { retries, delay_s: _, factor, delay_max_s, timeout_s, concurrency, on_death, keep_s } =
            Policy::default();
        Self { retries, delay_s: None, factor, delay_max_s, timeout_s, concurrency, on_death, keep_s }
    }
}

impl From<GivenPolicy> for Policy {
    fn from(given: GivenPolicy) -> Self {
        let GivenPolicy { retries, delay_s, factor, delay_max_s, timeout_s, concurrency, on_death, keep_s } =
            given;
        let delay_s = delay_s.unwrap_or_else(|| Self::usual_delay_s(delay_max_s));
        Self { retries, delay_s, factor, delay_max_s, timeout_s, concurrency, on_death, keep_s }
    }
}

impl Policy {
    /// The default delay after the first failure: no longer than the maximum delay.
    pub(crate) fn usual_delay_s(delay_max_s: f64) -> f64 {
        Self::default().delay_s.min(delay_max_s)
    }
}

impl Default for Policy {
    fn default() -> Self {
        TargetPolicy::default().into()
    }
}

impl From<TargetPolicy> for Policy {
    fn from(policy: TargetPolicy) -> Self {
        let TargetPolicy { retries, delay, factor, delay_max, timeout, concurrency, halts, keep } = policy;
        Self {
            retries,
            delay_s: delay.as_secs_f64(),
            factor,
            delay_max_s: delay_max.as_secs_f64(),
            timeout_s: timeout.as_secs_f64(),
            concurrency,
            on_death: halts.into(),
            keep_s: keep.into(),
        }
    }
}

wire_from! { wakeq::targets::RegisteredTarget => TargetJson, |target| {
    url, audience, header_names, previous_secret_until, gone_since, created_at, created_by, updated_at, updated_by;
    module: target.address.scope.module.to_string(),
    name: target.address.scope.name.to_string(),
    modifier: target.address.modifier.to_string(),
    policy: target.policy.into(),
    slowed: target.slowed.map(SlowedJson::from),
} }

wire_from! { wakeq::targets::SlowedTarget => SlowedJson, |slowed| { per_second, until; } }

impl From<wakeq::targets::PutTargetResult> for PutAnswer {
    fn from(registered: wakeq::targets::PutTargetResult) -> Self {
        let wakeq::targets::PutTargetResult { new, target, secret, still, woken, waking } = registered;
        let secret = secret.map(|secret| SecretText(secret.reveal()));
        Self { new, target: target.into(), secret, still: still.map(RuleKind::from), woken, waking }
    }
}

/// Truncated to whole milliseconds, the precision that is stored.
fn duration(field: &'static str, seconds: f64) -> Result<Duration, InvalidTarget> {
    let read = Duration::try_from_secs_f64(seconds).map_err(|_| InvalidTarget::Seconds(field))?;
    let milliseconds = u64::try_from(read.as_millis()).map_err(|_| InvalidTarget::Seconds(field))?;
    Ok(Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<wakeq::targets::NewTarget, InvalidTarget> {
        serde_json::from_str::<PutTarget>(json).unwrap().read()
    }

    #[test]
    fn omitted_fields_get_their_defaults() {
        let read = read(r#"{"url": "https://a.example", "policy": {"retries": 7}}"#).unwrap();
        assert_eq!(read.policy, TargetPolicy { retries: 7, ..TargetPolicy::default() });
        assert_eq!(read.url.as_str(), "https://a.example/");
    }

    #[test]
    fn a_delay_that_is_left_out_is_no_longer_than_the_longest() {
        let delay = |policy: &str| {
            let policy =
                read(&format!(r#"{{"url": "https://a.example", "policy": {policy}}}"#)).unwrap().policy;
            (policy.delay.as_secs(), policy.delay_max.as_secs())
        };
        assert_eq!(delay(r#"{"delay_max_s": 10}"#), (10, 10));
        assert_eq!(delay(r#"{"delay_max_s": 1000}"#), (300, 1000));
        assert_eq!(delay(r#"{"delay_max_s": 10, "delay_s": 60}"#), (60, 10), "to be refused with words");
        let unknown = r#"{"url": "https://a.example", "policy": {"delay": 1}}"#;
        assert!(serde_json::from_str::<PutTarget>(unknown).is_err());
    }

    #[test]
    fn rejects_invalid_targets_without_repeating_secrets() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        for (json, words) in [
            (r#"{"url": "ftp://a.example"}"#.to_owned(), "https://"),
            (format!(r#"{{"url": "https://a.example", "secret": "{secret}!"}}"#), "24 to 64 bytes in base64"),
            (
                format!(r#"{{"url": "https://a.example", "secret": "{secret}", "rotate_secret": true}}"#),
                "not both",
            ),
            (r#"{"url": "https://a.example", "policy": {"delay_s": -1}}"#.to_owned(), "`delay_s`"),
            (r#"{"url": "https://a.example", "policy": {"timeout_s": 1e30}}"#.to_owned(), "`timeout_s`"),
            (r#"{"url": "https://a.example", "headers": {"Host": "MfKQ"}}"#.to_owned(), "header host can't"),
            (
                r#"{"url": "https://a.example", "headers": {"x-a": "MfKQ", "X-A": "MfKQ"}}"#.to_owned(),
                "x-a is given twice",
            ),
        ] {
            let refused = read(&json).unwrap_err().to_string();
            assert!(refused.contains(words) && !refused.contains("MfKQ"), "{json}: {refused}");
        }
        let put: PutTarget =
            serde_json::from_str(&format!(r#"{{"url": "", "secret": "{secret}"}}"#)).unwrap();
        assert!(!format!("{put:?}").contains("MfKQ"));
    }
}
