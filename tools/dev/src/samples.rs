//! Sample handlers, one for each way an event can go; a sample cron; and a steady trickle of events
//! for them.

use std::time::Duration;

use wakeq::crons::{CronSchedule, NewCron};
use wakeq::targets::{NewSecret, NewTarget, Secret, TargetPolicy};
use wakeq::{
    Actor, Admin, AdminError, CanvasId, Event, Execution, HandlerAddress, HandlerError, HandlerResult,
    HandlerScope, Handlers, Name, Queue, RetryPolicy, Route,
};

use crate::endpoint::{self, Endpoint};
use crate::screen;

/// The time between two emitted events.
const TRICKLE_PERIOD: Duration = Duration::from_millis(1500);
/// Short enough to watch; the default delay is five minutes.
pub(super) const RETRY: RetryPolicy = RetryPolicy {
    retries: 2,
    delay: Duration::from_secs(2),
    factor: 2,
    delay_max: Duration::from_secs(60),
    jitter_percent: 20,
};

/// The name of the sample cron and of its handler.
const CRON: &str = "heartbeat";
/// Twice a minute.
const CRON_EXPRESSION: &str = "*/30 * * * * *";

/// All handlers that this worker runs.
pub(super) fn handlers() -> Handlers {
    Handlers::new()
        .on("greet", greet)
        .on("slow", slow)
        .on(Route::new("flaky").retry(RETRY), flaky)
        .on(Route::new("broken").retry(RETRY), broken)
        .on(Route::new(CRON).module("CRON"), heartbeat)
}

/// Registers what is not a function: a handler that is reached over HTTP, and a cron. The endpoint
/// stops when the returned value is dropped.
pub(super) async fn register(admin: &Admin) -> anyhow::Result<Endpoint> {
    let endpoint = Endpoint::start(Secret::generate()?).await?;
    put_target(admin, &endpoint, CanvasId::DEFAULT, endpoint::HANDLER).await?;
    let schedule = CronSchedule::new(CRON_EXPRESSION, "UTC")?;
    let cron = NewCron::new(CRON, schedule, &())?;
    admin.put_cron(CanvasId::DEFAULT, &cron, &Actor::admin("cargo-dev")).await?;
    Ok(endpoint)
}

/// Sends the events of a handler of a canvas to the endpoint.
pub(super) async fn put_target(
    admin: &Admin,
    endpoint: &Endpoint,
    canvas: CanvasId,
    handler: &str,
) -> anyhow::Result<()> {
    let scope = HandlerScope::worker(canvas, handler)?;
    let address = HandlerAddress { scope, modifier: Name::no_modifier() };
    let RetryPolicy { retries, delay, factor, delay_max, jitter_percent: _ } = RETRY;
    let policy = TargetPolicy { retries, delay, factor, delay_max, ..TargetPolicy::default() };
    let url = endpoint.url.parse()?;
    let secret = NewSecret::Given(endpoint.secret.clone());
    let target = NewTarget { url, policy, audience: None, secret, headers: None };
    admin.put_target(&address, &target, &Actor::admin("cargo-dev")).await?;
    Ok(())
}

/// Ends the ticks, for which another program has no handler.
pub(super) async fn stop_cron(admin: &Admin) -> anyhow::Result<()> {
    match admin.delete_cron(CanvasId::DEFAULT, &CRON.parse()?, &Actor::admin("cargo-dev")).await {
        Ok(()) | Err(AdminError::NoCron(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn greet(event: Execution) -> HandlerResult {
    let name: String = event.value()?;
    screen::event(event.id, "greet", &format!("says: hello, {name}"));
    Ok(())
}

async fn slow(_event: Execution) -> HandlerResult {
    tokio::time::sleep(Duration::from_secs(3)).await;
    Ok(())
}

/// Succeeds on the third attempt.
async fn flaky(event: Execution) -> HandlerResult {
    match event.attempt {
        1 | 2 => Err(HandlerError::operational("the peer closed the connection")),
        _ => Ok(()),
    }
}

async fn heartbeat(event: Execution) -> HandlerResult {
    screen::event(event.id, CRON, &format!("the tick of {}", event.due_at.format("%H:%M:%S UTC")));
    Ok(())
}

async fn broken(_event: Execution) -> HandlerResult {
    Err(HandlerError::operational("the service is down"))
}

/// Emits an event every [`TRICKLE_PERIOD`], for one handler after the other.
pub(super) async fn trickle(queue: Queue) {
    let webhook = endpoint::HANDLER;
    let names = ["greet", webhook, "slow", webhook, "flaky", "greet", "greet", "slow", "greet", "broken"];
    let people = ["Ada", "Grace", "Edsger", "Barbara", "Leslie"];
    let mut ticks = tokio::time::interval(TRICKLE_PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for count in 0_usize.. {
        ticks.tick().await;
        let name = names[count % names.len()];
        let event = match Event::new(name, people[count % people.len()]) {
            Ok(event) => event,
            Err(error) => return screen::line(&format!("no event: {error}")),
        };
        match queue.emit(event).await {
            Ok(emitted) => screen::event(emitted.id, name, "emitted"),
            Err(error) => screen::line(&format!("not emitted: {error}")),
        }
    }
}
