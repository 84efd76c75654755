//! Limits over all workers, and what is in use of them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::wire::wire_from;
use wakeq::CanvasId;
use wakeq::limits::{InvalidLimit, Limit, LimitUse, LimitWait, NewLimit, OnFull, Rate};

/// How many events run at a time, and how many start in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PutLimit {
    /// How many events run at a time. Default: any number, if there is a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000, example = 5)]
    pub(crate) concurrency: Option<u32>,
    /// How many events start in a period, retries included. Default: any number, if there is a
    /// concurrency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<RateJson>,
    /// What happens to an event that would start while as many as `concurrency` run. Default:
    /// `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) on_full: Option<OnFullJson>,
    /// How many events may wait for a place of a key: while they do, emits that name it are
    /// refused. Only for keys, and with a concurrency. Default: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000, example = 1000)]
    pub(crate) waiting_max: Option<u32>,
}

/// How many events start in a period. Starts are spread evenly over it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Rate)]
pub(crate) struct RateJson {
    /// Starts in a period, at most one per microsecond.
    #[schema(minimum = 1, maximum = 1_000_000, example = 100)]
    pub(crate) count: u32,
    /// The period, in seconds: a millisecond to 31 days.
    #[schema(minimum = 0, maximum = 2_678_400, example = 60)]
    pub(crate) period_s: f64,
    /// How many may start at once if none started for a while, at most as many as otherwise in 31
    /// days. Default 1.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000, example = 10)]
    pub(crate) burst: Option<u32>,
}

/// What happens to an event that would start while a limit is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OnFull)]
pub(crate) enum OnFullJson {
    /// It waits for a place.
    Wait,
    /// It is cancelled.
    Drop,
    /// It waits, and the oldest of those that wait already is cancelled.
    Replace,
    /// It waits, and the running event that has had its place the longest is cancelled.
    Cancel,
}

/// A limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Limit)]
pub(crate) struct LimitJson {
    /// What it limits: `canvas`, `handler:MODULE/NAME`, a key, or a family of keys.
    #[schema(example = "customer")]
    pub(crate) name: String,
    /// How many events run at a time; null for any number.
    #[schema(minimum = 1, maximum = 1000)]
    pub(crate) concurrency: Option<u32>,
    /// How many events start in a period; null for any number.
    pub(crate) rate: Option<RateJson>,
    pub(crate) on_full: OnFullJson,
    /// How many events may wait for a place of a key; null for any number.
    #[schema(minimum = 1, maximum = 10_000)]
    pub(crate) waiting_max: Option<u32>,
    /// Whether it is the operator's default, which counts because the canvas has no limit of this
    /// name.
    pub(crate) default: bool,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) created_by: String,
    /// When it was last changed.
    pub(crate) updated_at: DateTime<Utc>,
    pub(crate) updated_by: String,
}

/// The result of setting a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PutLimitAnswer {
    /// Whether there was no limit of this name before.
    pub(crate) new: bool,
    /// The limit as it is now.
    pub(crate) limit: LimitJson,
}

/// What is in use of a limit, of a family under one of its keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = LimitUse)]
pub(crate) struct LimitUseJson {
    /// The counted name, which of a family is a key.
    #[schema(example = "customer:7")]
    pub(crate) name: String,
    /// How many events hold a place.
    #[schema(minimum = 0)]
    pub(crate) running: u32,
    /// The first of these events. What an operator counts of other canvases is left out.
    #[schema(max_items = 20)]
    pub(crate) holders: Vec<Uuid>,
    /// How many events wait for a place; 10,000 stands for that many or more.
    #[schema(minimum = 0, maximum = 10_000)]
    pub(crate) waiting: u64,
    /// When the rate lets the next event start; null if one may start now.
    pub(crate) next_start: Option<DateTime<Utc>>,
}

/// The limit that an event waits for: a place of it, or a start that its rate allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = LimitWait)]
pub(crate) struct LimitWaitJson {
    /// The counted name: `canvas`, `handler:MODULE/NAME`, or a key that the emit named.
    #[schema(example = "customer:7")]
    pub(crate) name: String,
    /// Whether it counts the events of all canvases together, as an operator's limit of a handler
    /// does.
    pub(crate) all_canvases: bool,
    /// Since when the event waits.
    pub(crate) since: DateTime<Utc>,
    /// The first of the events on this canvas that hold its places, if it waits for one.
    #[schema(max_items = 20)]
    pub(crate) holders: Vec<Uuid>,
    /// When the rate of the limit lets the event start, after those that wait before it; null if it
    /// may start now.
    pub(crate) next_start: Option<DateTime<Utc>>,
}

impl PutLimit {
    /// The limit, whose bounds are checked where it is set.
    pub(crate) fn read(&self) -> Result<NewLimit, InvalidLimit> {
        let rate = self.rate.map(|rate| -> Result<Rate, InvalidLimit> {
            let period = Duration::try_from_secs_f64(rate.period_s).map_err(|_| InvalidLimit::Period)?;
            let single = Rate::new(rate.count, period);
            Ok(rate.burst.map_or(single, |burst| Rate { burst, ..single }))
        });
        Ok(NewLimit {
            concurrency: self.concurrency,
            rate: rate.transpose()?,
            on_full: self.on_full.map(OnFull::from).unwrap_or_default(),
            waiting_max: self.waiting_max,
        })
    }
}

impl From<Rate> for RateJson {
    fn from(rate: Rate) -> Self {
        let Rate { count, period, burst } = rate;
        Self { count, period_s: period.as_secs_f64(), burst: Some(burst) }
    }
}

impl From<OnFullJson> for OnFull {
    fn from(on_full: OnFullJson) -> Self {
        match on_full {
            OnFullJson::Wait => Self::Wait,
            OnFullJson::Drop => Self::Drop,
            OnFullJson::Replace => Self::Replace,
            OnFullJson::Cancel => Self::Cancel,
        }
    }
}

impl From<OnFull> for OnFullJson {
    fn from(on_full: OnFull) -> Self {
        match on_full {
            OnFull::Wait => Self::Wait,
            OnFull::Drop => Self::Drop,
            OnFull::Replace => Self::Replace,
            OnFull::Cancel => Self::Cancel,
        }
    }
}

impl LimitJson {
    /// The limit as one on this canvas sees it.
    pub(crate) fn on(canvas: CanvasId, limit: Limit) -> Self {
        let NewLimit { concurrency, rate, on_full, waiting_max } = limit.definition;
        Self {
            name: limit.name.to_string(),
            concurrency,
            rate: rate.map(RateJson::from),
            on_full: on_full.into(),
            waiting_max,
            default: limit.canvas != canvas,
            created_at: limit.created_at,
            created_by: limit.created_by,
            updated_at: limit.updated_at,
            updated_by: limit.updated_by,
        }
    }

    /// What the limit allows.
    pub(crate) fn definition(&self) -> Result<NewLimit, InvalidLimit> {
        let Self { concurrency, rate, on_full, waiting_max, .. } = *self;
        PutLimit { concurrency, rate, on_full: Some(on_full), waiting_max }.read()
    }

    /// What is shown as the next start under a name if its rate gives no time: nothing without a
    /// rate, or where a place has to become free first.
    pub(crate) fn start_without_time(&self, used: &LimitUseJson) -> &'static str {
        if self.starts_beside(used.running) { "now" } else { "-" }
    }

    /// Whether a rate that gives no time lets an event start now, beside so many that run.
    pub(crate) fn starts_beside(&self, running: u32) -> bool {
        self.rate.is_some() && self.concurrency.is_none_or(|places| running < places)
    }
}

/// For lists, which have no limit of another canvas.
impl From<Limit> for LimitJson {
    fn from(limit: Limit) -> Self {
        Self::on(limit.canvas, limit)
    }
}

wire_from! { wakeq::limits::PutLimitResult => PutLimitAnswer, |put| {
    new;
    limit: put.limit.into(),
} }

wire_from! { LimitUse => LimitUseJson, |used| {
    running, waiting, next_start;
    name: used.name.to_string(),
    holders: used.holders.into_iter().map(|id| id.0).collect(),
} }

wire_from! { LimitWait => LimitWaitJson, |wait| {
    since;
    name: wait.name.to_string(),
    all_canvases: wait.canvas == CanvasId::OF_QUEUES,
    holders: wait.holders.into_iter().map(|id| id.0).collect(),
    next_start: wait.next,
} }

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(body: Value) -> Result<NewLimit, String> {
        let put: PutLimit = serde_json::from_value(body).map_err(|error| error.to_string())?;
        put.read().map_err(|error| error.to_string())
    }

    #[test]
    fn a_limit_is_read_with_its_defaults() {
        let rate = Rate { burst: 10, ..Rate::new(100, Duration::from_secs(60)) };
        let body = json!({"concurrency": 5, "rate": {"count": 100, "period_s": 60, "burst": 10},
                          "on_full": "drop", "waiting_max": 1000});
        let whole = NewLimit {
            concurrency: Some(5),
            rate: Some(rate),
            on_full: OnFull::Drop,
            waiting_max: Some(1000),
        };
        assert_eq!(read(body), Ok(whole));
        let few = NewLimit { concurrency: Some(5), ..NewLimit::default() };
        let nulls = json!({"concurrency": 5, "rate": null, "on_full": null, "waiting_max": null});
        assert_eq!(read(nulls), Ok(few));
        let slow = Rate::new(1, Duration::from_millis(250));
        let slow = NewLimit { rate: Some(slow), ..NewLimit::default() };
        for rate in
            [json!({"count": 1, "period_s": 0.25}), json!({"count": 1, "period_s": 0.25, "burst": null})]
        {
            assert_eq!(read(json!({ "rate": rate })), Ok(slow));
        }
        assert_eq!(read(json!({})), Ok(NewLimit::default()), "it is refused where it is set");
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for (body, words) in [
            (json!({"concurrency": -1}), "invalid value"),
            (json!({"concurrency": 1, "burst": 2}), "unknown field"),
            (json!({"concurrency": 1, "on_full": "DROP"}), "unknown variant"),
            (json!({"rate": {"count": 1}}), "period_s"),
            (json!({"rate": {"count": 1, "period_s": 1, "period": 1}}), "unknown field"),
            (json!({"rate": {"count": 1, "period_s": -1}}), "a millisecond to 31 days"),
            (json!({"rate": {"count": 1, "period_s": 1e300}}), "a millisecond to 31 days"),
        ] {
            let refused = read(body.clone()).unwrap_err();
            assert!(refused.contains(words), "{body}: {refused}");
        }
    }

    #[test]
    fn every_word_for_a_full_limit_is_the_librarys() {
        for on_full in OnFull::ALL {
            let json = OnFullJson::from(on_full);
            assert_eq!(serde_json::to_value(json).unwrap(), on_full.as_str());
            assert_eq!(OnFull::from(json), on_full);
        }
    }
}
