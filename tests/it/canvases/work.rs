//! The victim's own events run as if the attacker were not there, although the attacker has stopped
//! everything with the same names.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use wakeq::{Actor, CanvasId, Event, Execution, HandlerScope, Handlers, Stop, WorkerConfig};

use super::seed::{ATTACKER, VICTIM};
use super::world::{QUEUE, World};
use super::{Findings, upkeep};
use crate::support::receiver::{Receiver, address, calling, target};

/// Longest wait for something that is due at once.
const TIMEOUT: Duration = Duration::from_secs(8);
/// How many events the victim emits in each way.
const EACH: u64 = 3;

/// An event that ran: its canvas, kind and value.
type Ran = (CanvasId, String, u64);

pub(super) async fn goes_on(world: &World) -> Findings {
    let mut findings = Findings::new();
    let stage = &world.service.stage;
    stopped(world).await;
    upkeep::make_due(world).await;
    let (sender, mut ran) = mpsc::channel(10_000);
    let handler = |name: &'static str| {
        let sender = sender.clone();
        move |event: Execution| {
            let value = event.value::<Value>().unwrap_or_default().as_u64();
            let _ = sender.try_send((event.address.scope.canvas, name.to_owned(), value.unwrap_or(u64::MAX)));
            async { Ok(()) }
        }
    };
    let handlers = Handlers::new()
        .on("errand", handler("errand"))
        .on("row", handler("row"))
        .on_queue(QUEUE, handler("copy"));
    let theirs = posted_to(world, ATTACKER.canvas).await;
    let mut receiver = posted_to(world, VICTIM.canvas).await;
    let worker = calling(&stage.store, stage, handlers, WorkerConfig::default());
    // In one batch, so that events behind another one of their object need a wake-up when that is
    // done; the attacker's are in between.
    let between = |value| event("row", value).on("row:1").unwrap();
    let emitted = (0..EACH).flat_map(|value| {
        [
            event("errand", value),
            between(value),
            between(7).canvas(ATTACKER.canvas),
            metered(value),
            metered(7).canvas(ATTACKER.canvas),
        ]
    });
    stage.queue.emit_all(emitted.collect()).await.unwrap();
    let mut seen: Vec<Ran> = Vec::new();
    let all = async {
        while seen.iter().filter(|(canvas, ..)| *canvas == VICTIM.canvas).count() < 3 * EACH as usize {
            let Some(run) = ran.recv().await else { break };
            // Skips copies that were made before.
            if run.2 < u64::MAX {
                seen.push(run);
            }
        }
    };
    let in_time = tokio::time::timeout(TIMEOUT, all).await.is_ok();
    for name in ["errand", "row", "copy"] {
        let own = seen.iter().filter(|(canvas, of, _)| *canvas == VICTIM.canvas && of == name);
        let mut values: Vec<_> = own.map(|(.., value)| *value).collect();
        if name == "errand" {
            values.sort_unstable();
        }
        if values != (0..EACH).collect::<Vec<_>>() {
            findings.push(format!("work: of `{name}` ran {values:?}; in time: {in_time}"));
        }
    }
    let stopped = seen.iter().filter(|(canvas, ..)| *canvas == ATTACKER.canvas);
    findings.extend(stopped.map(|ran| format!("work: {ran:?} ran, although it is stopped")));
    stage.queue.emit(event("posted", 1)).await.unwrap();
    match tokio::time::timeout(TIMEOUT, receiver.next()).await {
        Ok(arrived) => arrived.answer("204 No Content", &[]),
        Err(_) => findings.push("work: nothing came to the victim's target".into()),
    }
    findings.extend(upkeep::findings(world).await);
    drop((theirs, receiver));
    worker.stop().await;
    findings
}

/// Registers a target on the canvas.
async fn posted_to(world: &World, canvas: CanvasId) -> Receiver {
    let (stage, receiver) = (&world.service.stage, Receiver::start().await);
    let (address, target) = (address(canvas, "posted"), target("https://target.example/"));
    stage.admin.put_target(&address, &target, &Actor::user("tests")).await.unwrap();
    // Only tests may deliver to loopback.
    let to = "update wakeq.http_targets set url = $2 where canvas_id = $1 and name = 'posted'";
    sqlx::query(to).bind(canvas.0).bind(&receiver.url).execute(&stage.pool).await.unwrap();
    receiver
}

/// A copy on an object.
fn metered(value: u64) -> Event {
    event("metered", value).module("usage").unwrap().on("row:2").unwrap().only_to_queues()
}

fn event(name: &str, value: u64) -> Event {
    Event::new(name, &value).unwrap().canvas(VICTIM.canvas)
}

/// The attacker's handlers of the same names are paused, its object of the same name is halted, and
/// its facet gets no turns; all of them have something waiting.
async fn stopped(world: &World) {
    let stage = &world.service.stage;
    let by = Actor::user("tests");
    for name in ["errand", "metered"] {
        let module = if name == "metered" { "usage" } else { "WORKER" };
        let (module, name) = (module.parse().unwrap(), name.parse().unwrap());
        let scope = HandlerScope { canvas: ATTACKER.canvas, module, name };
        stage.admin.pause(&scope, &by, &Stop::default()).await.unwrap();
    }
    let settings = "insert into wakeq.facet_settings (queue, canvas_id, weight) values ($1, $2, 0)
                    on conflict (queue, canvas_id) do update set weight = 0";
    sqlx::query(settings).bind(QUEUE).bind(ATTACKER.canvas.0).execute(&stage.pool).await.unwrap();
    let halted = "insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
                  values ($1, 'row:1', 'WORKER', 'row', gen_random_uuid(), 1, 0)";
    sqlx::query(halted).bind(ATTACKER.canvas.0).execute(&stage.pool).await.unwrap();
    for event in [event("errand", 7), event("row", 7).on("row:1").unwrap()] {
        stage.queue.emit(event.canvas(ATTACKER.canvas)).await.unwrap();
    }
}
