//! What an event costs as one thing grows and all others stay small.
//!
//! Events are emitted in calls of 1,000, or of 4 MiB if that is less, and drained; both is
//! measured.

use std::time::Duration;

use anyhow::Result;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;
use uuid::Uuid;
use wakeq::crons::{CronSchedule, NewCron};
use wakeq::limits::{NewLimit, Rate};
use wakeq::queues::NewQueue;
use wakeq::{Actor, CanvasId, Event, HandlerScope, Handlers, Stop};

use crate::meter::{Meter, Usage};
use crate::own::Own;
use crate::phases::{CALL, PATIENCE, Sizes, until_ended};
use crate::subject::{LIVE, PARKED, Subject};

/// Most bytes of the values in a call.
const CALL_BYTES: u64 = 4 << 20;
/// Most bytes of all values, so that large ones are fewer.
const BYTES: u64 = 1 << 30;
/// Of the worker, or of all workers together.
const CAPACITY: usize = 1_000;
/// A handler that no worker here has.
const ELSEWHERE: &str = "elsewhere";
/// Events that are emitted and drained first: connections are open then, statements prepared, and
/// the quotas measured, which are measured seldom.
const WARMING: u64 = 4_000;
/// Rules are made by this many callers.
const CALLERS: usize = 32;

/// What a deployment may have: nothing, one of these, or all of them.
const FEATURES: [&str; 6] = ["none", "rule", "objects", "queue", "cron", "all"];

/// What limits the events: nothing, nothing beside a limited handler of another canvas, places of
/// their handler, places of one key, starts of one key, or places of a thousand keys. No limit of
/// these is reached, so that what is measured is their cost. The last is `FULL` places of one key,
/// where nearly all events wait for another's end.
const LIMITS: [&str; 7] = ["none", "beside", "handler", "key", "rate", "keys", "full"];
/// A key for each of the limits that needs one.
const KEYS: [Option<&str>; 7] =
    [None, None, None, Some("placed"), Some("rated"), Some("many"), Some("placed")];
const FULL: u32 = 5;
/// How many times fewer events there are where they wait for each other.
const FEWER: u64 = 20;
/// Whose handler is limited beside.
const NEIGHBOR: CanvasId = CanvasId(Uuid::from_u128(7));
/// The most that a rate may have.
const STARTS: u32 = 1_000_000;

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Other events, which wait under a pause.
    Depth,
    /// Handlers of the worker, which share the events.
    Handlers,
    /// Rules on other handlers of the same canvas.
    Rules,
    /// Canvases that share the events.
    Canvases,
    /// Workers with a pool each, which share the capacity.
    Workers,
    /// Bytes of a value.
    Payload,
    /// What else the deployment has, of [`FEATURES`].
    Features,
    /// What limits the events, of [`LIMITS`].
    Limits,
}

impl Growth {
    pub(crate) const ALL: [Self; 8] = [
        Self::Depth,
        Self::Handlers,
        Self::Rules,
        Self::Canvases,
        Self::Workers,
        Self::Payload,
        Self::Features,
        Self::Limits,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Depth => "depth",
            Self::Handlers => "handlers",
            Self::Rules => "rules",
            Self::Canvases => "canvases",
            Self::Workers => "workers",
            Self::Payload => "payload",
            Self::Features => "features",
            Self::Limits => "limits",
        }
    }

    /// Of a chart.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Depth => "Waiting events, and Postgres CPU of others: µs/event",
            Self::Handlers => "Handlers, and Postgres CPU: µs/event",
            Self::Rules => "Rules on other handlers, and Postgres CPU: µs/event",
            Self::Canvases => "Canvases, and Postgres CPU: µs/event",
            Self::Workers => "Workers, and Postgres CPU: µs/event",
            Self::Payload => "Bytes of a value, and Postgres CPU: µs/event",
            Self::Features => "What other events use, and Postgres CPU: µs/event",
            Self::Limits => "What limits the events, and Postgres CPU: µs/event",
        }
    }

    pub(crate) fn sizes(self) -> &'static [u64] {
        match self {
            Self::Depth => &[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
            Self::Handlers => &[1, 10, 100, 1_000, 10_000],
            Self::Rules => &[0, 1, 100, 10_000],
            Self::Canvases => &[1, 100, 10_000, 100_000],
            Self::Workers => &[1, 2, 4, 8],
            Self::Payload => &[100, 1_024, 16_384, 262_144],
            Self::Features => &[0, 1, 2, 3, 4, 5],
            Self::Limits => &[0, 1, 2, 3, 4, 5, 6],
        }
    }

    /// A size in words.
    pub(crate) fn label(self, size: u64) -> String {
        let words: &[&str] = match self {
            Self::Features => &FEATURES,
            Self::Limits => &LIMITS,
            Self::Depth | Self::Handlers | Self::Rules | Self::Canvases | Self::Workers | Self::Payload => {
                &[]
            }
        };
        words.get(size as usize).map_or_else(|| size.to_string(), |word| (*word).to_owned())
    }

    /// Measures how many events, and what they cost.
    pub(crate) async fn run(
        self,
        size: u64,
        url: &str,
        meter: &Meter,
        sizes: &Sizes,
    ) -> Result<(u64, Usage)> {
        let own = Own::in_memory(url).await?;
        let traffic = Traffic::of(self, size, sizes.events);
        match self {
            Self::Depth => own.park(size).await?,
            Self::Rules => add_rules(&own, size).await?,
            Self::Features => add_feature(&own, FEATURES[size as usize]).await?,
            Self::Limits => add_limit(&own, LIMITS[size as usize]).await?,
            Self::Handlers | Self::Canvases | Self::Workers | Self::Payload => {}
        }
        let mut processes = vec![own];
        while (processes.len() as u64) < traffic.workers {
            processes.push(processes[0].beside(url).await?);
        }
        traffic.pass(&processes, WARMING).await?;
        let running = meter.start().await?;
        traffic.pass(&processes, traffic.events).await?;
        Ok((traffic.events, running.stop().await?))
    }
}

/// The events of a trial, and the workers that run them.
struct Traffic {
    events: u64,
    /// Bytes of each value.
    bytes: u64,
    handlers: u64,
    canvases: u64,
    workers: u64,
    /// The limit that each of them names.
    key: Option<&'static str>,
}

impl Traffic {
    fn of(growth: Growth, size: u64, events: u64) -> Self {
        let small = Self { events, bytes: 100, handlers: 1, canvases: 1, workers: 1, key: None };
        match growth {
            Growth::Handlers => Self { handlers: size, ..small },
            Growth::Canvases => Self { canvases: size, ..small },
            Growth::Workers => Self { workers: size, ..small },
            Growth::Payload => Self { events: events.min(BYTES / size), bytes: size, ..small },
            Growth::Limits if LIMITS[size as usize] == "full" => {
                Self { events: events / FEWER, key: KEYS[size as usize], ..small }
            }
            Growth::Limits => Self { key: KEYS[size as usize], ..small },
            Growth::Depth | Growth::Rules | Growth::Features => small,
        }
    }

    /// Emits this many events, and drains them.
    async fn pass(&self, processes: &[Own], count: u64) -> Result<()> {
        self.emit(&processes[0], count).await?;
        let capacity = CAPACITY / processes.len();
        let workers = processes.iter().map(|process| process.start(self.handlers(), capacity));
        let workers = workers.collect::<Result<Vec<_>>>()?;
        until_ended(&workers, count, PATIENCE).await?;
        for working in workers {
            working.stop().await?;
        }
        Ok(())
    }

    async fn emit(&self, own: &Own, count: u64) -> Result<()> {
        let call = CALL.min(CALL_BYTES / self.bytes);
        let value = json!("x".repeat(self.bytes as usize - 2)).to_string();
        for from in (0..count).step_by(call as usize) {
            let numbers = from..count.min(from + call);
            let events = numbers.map(|number| self.event(number, &value)).collect::<Result<_>>()?;
            own.queue().emit_all(events).await?;
        }
        Ok(())
    }

    fn event(&self, number: u64, value: &str) -> Result<Event> {
        let canvas = Uuid::from_u128(u128::from(number % self.canvases));
        let event = Event::from_json(&name(number % self.handlers), value)?.canvas(CanvasId(canvas));
        Ok(match self.key {
            None => event,
            Some("many") => event.limit(&format!("many:{}", number % CALL))?,
            Some(key) => event.limit(key)?,
        })
    }

    fn handlers(&self) -> Handlers {
        (0..self.handlers)
            .fold(Handlers::new(), |handlers, number| handlers.on(name(number).as_str(), async |_| Ok(())))
    }
}

fn name(number: u64) -> String {
    format!("{LIVE}_{number}")
}

fn actor() -> Actor {
    Actor::user("bench")
}

async fn add_rules(own: &Own, count: u64) -> Result<()> {
    let pause = async |number: u64| -> Result<()> {
        let scope = HandlerScope::worker(CanvasId::DEFAULT, &format!("{PARKED}_{number}"))?;
        own.admin().pause(&scope, &actor(), &Stop::default()).await?;
        Ok(())
    };
    stream::iter(0..count).map(pause).buffer_unordered(CALLERS).try_collect().await
}

async fn add_feature(own: &Own, feature: &str) -> Result<()> {
    let has = |name| feature == name || feature == "all";
    if has("rule") {
        own.park(0).await?;
    }
    if has("objects") {
        for object in 0..CALL {
            own.queue().emit(Event::new(ELSEWHERE, &())?.on(&format!("object:{object}"))?).await?;
        }
    }
    if has("queue") {
        let queue = NewQueue { patterns: vec![".*:MAIL:.*".parse()?], ..NewQueue::default() };
        own.admin().put_queue(&"mails".parse()?, &queue, &actor()).await?;
    }
    if has("cron") {
        let cron = NewCron::new("yearly", CronSchedule::new("0 0 1 1 *", "UTC")?, &())?;
        own.admin().put_cron(CanvasId::DEFAULT, &cron, &actor()).await?;
    }
    Ok(())
}

/// Of a thousand at a time, or of so many starts that none has to wait, or of a few at a time.
async fn add_limit(own: &Own, limit: &str) -> Result<()> {
    let placed = NewLimit { concurrency: Some(CAPACITY as u32), ..NewLimit::default() };
    let rate = Rate { burst: STARTS, ..Rate::new(STARTS, Duration::from_secs(1)) };
    let canvas = if limit == "beside" { NEIGHBOR } else { CanvasId::DEFAULT };
    let (name, limit) = match limit {
        "full" => ("placed".to_owned(), NewLimit { concurrency: Some(FULL), ..placed }),
        "beside" => (format!("handler:WORKER/{ELSEWHERE}"), placed),
        "handler" => (format!("handler:WORKER/{}", name(0)), placed),
        "key" => ("placed".to_owned(), placed),
        "rate" => ("rated".to_owned(), NewLimit { concurrency: None, rate: Some(rate), ..placed }),
        "keys" => ("many".to_owned(), placed),
        _ => return Ok(()),
    };
    own.admin().put_limit(canvas, &name.parse()?, &limit, &actor()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_are_fewer() {
        assert_eq!(Traffic::of(Growth::Payload, 262_144, 100_000).events, 4_096);
        assert_eq!(Traffic::of(Growth::Payload, 1_024, 100_000).events, 100_000);
        assert_eq!(Traffic::of(Growth::Handlers, 10_000, 100_000).events, 100_000);
        assert_eq!(Traffic::of(Growth::Limits, 6, 100_000).events, 5_000);
    }
}
