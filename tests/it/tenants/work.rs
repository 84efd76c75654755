//! The victim's own events, beside an attacker that has stopped everything of the same names: they run as if it were not there.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use wakeq::{Actor, CanvasId, Event, Execution, HandlerScope, Handlers, Stop};

use super::Findings;
use super::seed::{ATTACKER, VICTIM};
use super::world::{QUEUE, World};

/// Longest wait for something that is due at once.
const PATIENCE: Duration = Duration::from_secs(8);
/// What the victim emits in each way.
const EACH: u64 = 3;

/// A canvas's event ran, with this value.
type Ran = (CanvasId, String, u64);

pub(super) async fn goes_on(world: &World) -> Findings {
    let mut findings = Findings::new();
    let stage = &world.service.stage;
    stopped(world).await;
    let (sender, mut ran) = mpsc::channel(10_000);
    let handler = |name: &'static str| {
        let sender = sender.clone();
        move |event: Execution| {
            let value = event.value::<Value>().unwrap_or_default().as_u64();
            let told = (event.address.scope.canvas, name.to_owned(), value.unwrap_or(u64::MAX));
            let _ = sender.try_send(told);
            async { Ok(()) }
        }
    };
    let handlers = Handlers::new()
        .on("errand", handler("errand"))
        .on("row", handler("row"))
        .on_queue(QUEUE, handler("copy"));
    let worker = stage.worker(handlers);
    for value in 0..EACH {
        let emitted = [
            event("errand", value),
            event("row", value).on("row:1").unwrap(),
            event("metered", value).module("usage").unwrap().only_to_queues(),
        ];
        for event in emitted {
            stage.queue.emit(event).await.unwrap();
        }
    }
    let mut seen: Vec<Ran> = Vec::new();
    let all = async {
        while seen.iter().filter(|(canvas, ..)| *canvas == VICTIM.canvas).count() < 3 * EACH as usize {
            let Some(told) = ran.recv().await else { break };
            // What was copied before is no concern of this.
            if told.2 < u64::MAX {
                seen.push(told);
            }
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, all).await.is_ok();
    for name in ["errand", "row", "copy"] {
        let own = seen.iter().filter(|(canvas, of, _)| *canvas == VICTIM.canvas && of == name);
        let mut values: Vec<_> = own.map(|(.., value)| *value).collect();
        if name != "row" {
            values.sort_unstable();
        }
        if values != (0..EACH).collect::<Vec<_>>() {
            findings.push(format!("work: of `{name}` ran {values:?}; in time: {in_time}"));
        }
    }
    let stopped = seen.iter().filter(|(canvas, ..)| *canvas == ATTACKER.canvas);
    findings.extend(stopped.map(|ran| format!("work: {ran:?} ran, although it is stopped")));
    worker.stop().await;
    findings
}

fn event(name: &str, value: u64) -> Event {
    Event::new(name, &value).unwrap().canvas(VICTIM.canvas)
}

/// The attacker's handlers of the same names are paused, its object of the same name stands still, and it gets nothing of the
/// queue; all of them have something that waits.
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
    let halted = "insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq)
                  values ($1, 'row:1', 'WORKER', 'row', gen_random_uuid(), 1)";
    sqlx::query(halted).bind(ATTACKER.canvas.0).execute(&stage.pool).await.unwrap();
    for event in [
        event("errand", 7),
        event("row", 7).on("row:1").unwrap(),
        event("metered", 7).module("usage").unwrap().only_to_queues(),
    ] {
        stage.queue.emit(event.canvas(ATTACKER.canvas)).await.unwrap();
    }
}
