//! The victim's own events run as if the attacker were not there, although the attacker has stopped
//! everything with the same names, or has given it to other programs.

use std::time::Duration;

use serde_json::Value;
use sqlx::AssertSqlSafe;
use tokio::sync::mpsc;
use wakeq::notify::Notification;
use wakeq::{Actor, CanvasId, Event, EventId, Execution, HandlerScope, Handlers, Stop, WorkerConfig};

use super::questions::of_both;
use super::seed::{ATTACKER, VICTIM};
use super::world::{QUEUE, World};
use super::{Findings, upkeep};
use crate::support::receiver::{Receiver, address, calling, target};

/// Longest wait for something that is due at once.
const TIMEOUT: Duration = Duration::from_secs(8);
/// How many events the victim emits in each way.
const EACH: u64 = 3;

const TAKEN_OVER: &str = "
    insert into wakeq.pulled_handlers (canvas_id, module, name, retries, delay_ms, factor, delay_max_ms, halts, created_by, updated_by)
    select 'ATTACKER', 'WORKER', name, 1, 1, 1, 1, false, 'tests', 'tests' from unnest(array['errand', 'lost']) name;
    insert into wakeq.limits (canvas_id, name, concurrency, created_by, updated_by)
    values ('ATTACKER', 'handler:WORKER/errand', 1, 'tests', 'tests');
    insert into wakeq.http_targets (canvas_id, module, name, modifier, url, retries, delay_ms, factor, delay_max_ms, timeout_ms, secret,
                                    created_by, updated_by, gone_at)
    values ('ATTACKER', 'WORKER', 'lost', '_', 'https://gone.example/', 1, 1, 1, 1, 1000, decode(repeat('00', 32), 'hex'),
            'tests', 'tests', now());
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at, postponed_since)
    values ('<b7>', 'VICTIM', 'WORKER', 'lost', '_', '1', now() - interval '1 hour', now() + interval '1 hour',
            now() - interval '1 hour')";

/// An event that ran: its canvas, kind and value.
type Ran = (CanvasId, String, u64);

pub(super) async fn goes_on(world: &World) -> Findings {
    let mut findings = Findings::new();
    let stage = &world.service.stage;
    world.lift_all().await;
    stopped(world).await;
    upkeep::make_due(world).await;
    taken_over(world).await;
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
    let lost = EventId(of_both("<b7>").parse().unwrap());
    stage.notifier.publish(&[Notification::new(lost, VICTIM.canvas)]).await.unwrap();
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
    findings.extend(missed(&seen, in_time));
    let stopped = seen.iter().filter(|(canvas, ..)| *canvas == ATTACKER.canvas);
    findings.extend(stopped.map(|ran| format!("work: {ran:?} ran, although it is stopped")));
    stage.queue.emit(event("posted", 1)).await.unwrap();
    match tokio::time::timeout(TIMEOUT, receiver.next()).await {
        Ok(arrived) => arrived.answer("204 No Content", &[]),
        Err(_) => findings.push("work: nothing came to the victim's target".into()),
    }
    findings.extend(deferred(world).await);
    findings.extend(upkeep::findings(world).await);
    drop((theirs, receiver));
    worker.stop().await;
    findings
}

/// What the victim's handlers should have run and have not, or in another order.
fn missed(seen: &[Ran], in_time: bool) -> Findings {
    let mut findings = Findings::new();
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

/// The attacker leases the events of a handler of the same name, which it has limited, and of one
/// that no worker knows and whose target is gone; the victim's event of that one has been put off
/// for an hour.
async fn taken_over(world: &World) {
    let stage = &world.service.stage;
    sqlx::raw_sql(AssertSqlSafe(of_both(TAKEN_OVER))).execute(&stage.pool).await.unwrap();
}

/// The victim's event of a handler that no worker knows waits for it, and the handler is noted.
async fn deferred(world: &World) -> Findings {
    let pool = &world.service.stage.pool;
    let is_so = async |question: &str| {
        let query = sqlx::query_scalar(AssertSqlSafe(of_both(&format!("select {question}"))));
        query.fetch_one(pool).await.unwrap_or(false)
    };
    let noted = "exists (select from wakeq.unknown_handlers where canvas_id = 'VICTIM' and name = 'lost')";
    let noted = async {
        while !is_so(noted).await {
            // Nobody is told of a deferral: only its rows show it.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(TIMEOUT, noted).await.is_err() {
        return vec!["work: the victim's unknown handler is not noted".into()];
    }
    // In the same statement.
    if !is_so("postponed_since is not null from wakeq.events_v2 where id = '<b7>'").await {
        return vec![
            "work: the victim's event is put off anew, as if the attacker's target were its own".into(),
        ];
    }
    Findings::new()
}

/// The attacker's canvas and its handlers of the same names are paused, its object of the same name
/// is halted, and its facet gets no turns; all of them have something waiting.
async fn stopped(world: &World) {
    let stage = &world.service.stage;
    let by = Actor::user("tests");
    for name in ["errand", "metered"] {
        let module = if name == "metered" { "usage" } else { "WORKER" };
        let (module, name) = (module.parse().unwrap(), name.parse().unwrap());
        let scope = HandlerScope { canvas: ATTACKER.canvas, module, name };
        stage.admin.pause(&scope, &by, &Stop::default()).await.unwrap();
    }
    stage.admin.pause_canvas(ATTACKER.canvas, &by, &Stop::default()).await.unwrap();
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
