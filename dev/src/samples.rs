//! Sample handlers, one for each way an event can go, and a trickle of events for them.

use std::time::Duration;

use wakeq::{Event, Execution, HandlerError, HandlerResult, Handlers, Queue, RetryPolicy, Route};

use crate::screen;

/// How often an event is emitted.
const TRICKLE_PERIOD: Duration = Duration::from_millis(1500);
/// So short that one sees it happen; the default is five minutes.
const RETRY: RetryPolicy =
    RetryPolicy { retries: 2, delay: Duration::from_secs(2), factor: 2, delay_max: Duration::from_secs(60) };

/// The explicit list of what this worker runs.
pub(super) fn handlers() -> Handlers {
    Handlers::new()
        .on("greet", greet)
        .on("slow", slow)
        .on(Route::new("flaky").retry(RETRY), flaky)
        .on(Route::new("broken").retry(RETRY), broken)
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

/// Succeeds at the third attempt.
async fn flaky(event: Execution) -> HandlerResult {
    match event.attempt {
        1 | 2 => Err(HandlerError::operational("the other side hung up")),
        _ => Ok(()),
    }
}

async fn broken(_event: Execution) -> HandlerResult {
    Err(HandlerError::operational("nobody is at home"))
}

/// Emits an event now and then, one handler after the other.
pub(super) async fn trickle(queue: Queue) {
    let names = ["greet", "greet", "slow", "greet", "flaky", "greet", "greet", "slow", "greet", "broken"];
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
