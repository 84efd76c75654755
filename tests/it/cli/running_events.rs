//! Which worker runs which event, as people see it: over HTTP and on the command line.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::{CanvasId, Event, EventId};
use wakeq_service::access::Scope;

use super::bulk::terminals;
use crate::support::OTHER;
use crate::support::service::Service;

/// Emits an event on `work:1` of a canvas, claimed by a worker if one is named; returns its id and
/// its link.
async fn emit(service: &Service, canvas: CanvasId, handler: &str, worker: Option<&str>) -> (EventId, i64) {
    let event = Event::new(handler, &1).unwrap().canvas(canvas).on("work:1").unwrap();
    let emitted = service.stage.queue.emit(event).await.unwrap();
    let claim = "update wakeq.events_v2 set locked_at = now(), claims = 1, worker = $3
                  where id = $1 and canvas_id = $2 and $3 is not null";
    let claim = sqlx::query(claim).bind(emitted.id.0).bind(canvas.0).bind(worker);
    claim.execute(&service.stage.pool).await.unwrap();
    (emitted.id, emitted.link.unwrap().id)
}

/// The events of a worker are listed, on its canvas; running events in the list of an object, and
/// an event by itself, name their worker.
// Shows: ORD-12, ORD-14, ORD-15
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn commands_show_which_worker_runs_an_object() {
    let service = Service::start().await;
    let (index, link) = emit(&service, CanvasId::DEFAULT, "index", Some("one")).await;
    let (mail, _) = emit(&service, CanvasId::DEFAULT, "mail", Some("two")).await;
    let (waits, _) = emit(&service, CanvasId::DEFAULT, "free", None).await;
    let (elsewhere, far) = emit(&service, OTHER, "index", Some("one")).await;
    let key = service.wide_key("wide", &Scope::ALL).await;
    let get = async |canvas: CanvasId, path: &str| {
        let path = format!("/canvases/{canvas}{path}");
        service.ask(&key, Method::GET, &path, Value::Null).await.json()
    };
    let of = async |canvas: CanvasId, worker: &str| -> Vec<Value> {
        let listed = get(canvas, &format!("/events?worker={worker}")).await;
        let items = listed["items"].as_array().unwrap();
        assert!(items.iter().all(|item| item["worker"] == worker), "{listed}");
        items.iter().map(|item| item["id"].clone()).collect()
    };
    assert_eq!(of(CanvasId::DEFAULT, "one").await, [json!(index)]);
    assert_eq!(of(CanvasId::DEFAULT, "two").await, [json!(mail)]);
    assert_eq!(of(CanvasId::DEFAULT, "three").await, [json!(null); 0]);
    assert_eq!((of(OTHER, "one").await, of(OTHER, "two").await), (vec![json!(elsewhere)], vec![]));
    let hands = async |canvas: CanvasId| -> Vec<(Value, Value, Value, Value)> {
        let object = get(canvas, "/objects/work:1").await;
        let hand = |hand: &Value| {
            (hand["name"].clone(), hand["event"].clone(), hand["event_link"].clone(), hand["worker"].clone())
        };
        object["in_hand"].as_array().unwrap().iter().map(hand).collect()
    };
    let own = hands(CanvasId::DEFAULT).await;
    assert_eq!(own.len(), 2, "what waits is in nobody's hand: {own:?}");
    assert_eq!(own[0], (json!("index"), json!(index), json!(link), json!("one")));
    assert_eq!((&own[1].1, &own[1].3), (&json!(mail), &json!("two")));
    assert_eq!(hands(OTHER).await, [(json!("index"), json!(elsewhere), json!(far), json!("one"))]);

    let other = OTHER.to_string();
    for terminal in terminals(&service).await {
        for (canvas, id, link, also) in
            [(&[][..], index, link, Some(mail)), (&["--canvas", &other], elsewhere, far, None)]
        {
            let says = async |line: &[&str]| terminal.raw(&[line, canvas].concat()).await;
            let listed = says(&["events", "list", "--worker", "one"]).await;
            assert_eq!((listed.lines().count(), listed.contains(&id.to_string())), (2, true), "{listed}");
            let shown = says(&["objects", "show", "work:1"]).await;
            let line = format!("in hand   {id} (link {link}) for WORKER/index, held by one\n");
            assert!(shown.contains(&line), "{shown}");
            assert_eq!(shown.matches("in hand").count(), 1 + usize::from(also.is_some()), "{shown}");
            assert!(says(&["explain", &id.to_string()]).await.contains("\nworker    one\n"));
        }
        let explained = terminal.raw(&["explain", &waits.to_string()]).await;
        assert!(!explained.contains("worker    "), "{explained}");
    }
    service.stop().await;
}

/// A running event is cancelled on request only, and whoever looks at it sees by whom. Those of
/// another canvas are not found.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn commands_cancel_what_runs() {
    let service = Service::start().await;
    let (theirs, _) = emit(&service, OTHER, "index", Some("one")).await;
    let theirs = theirs.to_string();
    // For a handler of its own each, since a cancelled event stays ahead of the next of its object.
    let each = [("index", "cli:ada"), ("mail", "key:ada")];
    for (terminal, (handler, actor)) in terminals(&service).await.iter().zip(each) {
        let (id, _) = emit(&service, CanvasId::DEFAULT, handler, Some("one")).await;
        let (waits, _) = emit(&service, CanvasId::DEFAULT, "free", None).await;
        let (name, waits) = (id.to_string(), waits.to_string());
        assert!(terminal.complains(5, &["cancel", &name]).await.contains("running"));
        terminal.complains(3, &["cancel", &theirs, "--running"]).await;
        let dry = terminal.prints(&["cancel", &name, "--running", "--dry-run"]).await;
        assert_eq!(dry, "<id> is running: it would be deleted once its handler has stopped\n");
        assert!(!terminal.raw(&["explain", &name]).await.contains("cancelled"));
        let expected = "<id> is running: its handler is told to stop, and cut off after a grace of seconds; \
                        the event is deleted then, unless its handler completes it before\n";
        assert_eq!(terminal.prints(&["cancel", &name, "--running"]).await, expected);
        let explained = terminal.raw(&["explain", &name]).await;
        assert!(explained.contains(&format!("\ncancelled while it ran, by {actor}\n")), "{explained}");
        let again = terminal.raw(&["cancel", &name, "--running", "--json"]).await;
        let again: Value = serde_json::from_str(&again).unwrap();
        assert_eq!(again["id"], json!(id));
        assert!(again["next"].as_str().unwrap().starts_with("its handler is told to stop"), "{again}");
        assert_eq!(terminal.prints(&["cancel", &waits, "--running"]).await, "<id> cancelled\n");
    }
    assert_eq!(service.stage.live(OTHER, theirs.parse().unwrap()).await.cancelled_by, None);
    service.stop().await;
}
