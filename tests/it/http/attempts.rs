//! The last attempts of a handler over HTTP: of events that wait, died and have ended.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::cli::Terminal;
use crate::support::OTHER;
use crate::support::service::{NONE, Service, has};

/// One event of each kind on two canvases, the earlier attempt at each of which has failed, and one
/// that nobody has tried. The numbers are minutes since the last attempt.
const HISTORY: &str = "
    with canvases (canvas, first) as (values
        ('00000000-0000-0000-0000-000000000000'::uuid, '00000000'), ('00000000-0000-0000-0000-000000000007', '70000000')
    ), waiting as (
        insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, claims, retries)
        select (first || '-0000-0000-0000-00000000000' || n)::uuid, canvas, 'WORKER', 'mail', m, '1',
               now() + interval '1 hour', c, c
          from canvases, (values (1, '_', 1), (2, 'loud', 1), (3, '_', 0)) as e (n, m, c)
    ), dead as (
        insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                       last_error, cause)
        select (first || '-0000-0000-0000-000000000004')::uuid, canvas, 'WORKER', 'mail', '_', '1', 1, now(), 1, 0, 'x', 'retries'
          from canvases
    ), ended as (
        insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, outcome, error, enqueued_at,
                                        due_at, claims, retries, losses, started_at, took_us)
        select canvas, (first || '-0000-0000-0000-000000000005')::uuid, now() + interval '1 day', 'WORKER', 'mail', '_', '1',
               'completed', 'was away', now(), now(), 2, 1, 0, now() - interval '1 minute', 1500000
          from canvases
    )
    insert into wakeq.attempts (canvas_id, event_id, number, nonce, outcome, started_at, took_us, error)
    select canvas, (first || '-0000-0000-0000-00000000000' || n)::uuid, 1, 7, o, now() - minutes * interval '1 minute', 250000, e
      from canvases, (values (1, 'retried', 2, 'the target answered 503 Service Unavailable with 3 bytes: no'),
                             (2, 'postponed', 3, null), (4, 'dead', 4, 'x'), (5, 'retried', 5, 'was away')) as a (n, o, minutes, e)";

/// Event, outcome and status of each attempt.
fn told(last: &Value) -> Vec<(String, String, Value)> {
    let attempts = last["attempts"].as_array().unwrap().iter();
    let told = attempts.map(|attempt| {
        let event = attempt["event"].as_str().unwrap();
        (event[35..].to_owned(), attempt["outcome"].as_str().unwrap().to_owned(), attempt["status"].clone())
    });
    told.collect()
}

#[tokio::test]
async fn the_last_attempts_of_a_handler_are_shown() {
    let service = Service::start().await;
    let none = service.get("/attempts?name=mail").await.json();
    assert_eq!(none, json!({"attempts": [], "more": false}));
    service.stage.execute(HISTORY).await;
    let expected = [
        ("5", "completed", json!(null)),
        ("1", "retried", json!(503)),
        ("2", "postponed", json!(null)),
        ("4", "dead", json!(null)),
        ("5", "retried", json!(null)),
    ];
    let expected = expected.map(|(event, outcome, status)| (event.to_owned(), outcome.to_owned(), status));
    let all = service.get("/attempts?name=mail&module=WORKER").await.json();
    assert_eq!((told(&all), &all["more"]), (expected.to_vec(), &json!(false)));
    has(&all["attempts"][0], json!({"took_s": 1.5, "number": 2, "error": null, "modifier": "_"}));
    has(&all["attempts"][4], json!({"took_s": 0.25, "number": 1, "error": "was away"}));
    let two = service.get("/attempts?name=mail&limit=2").await.json();
    assert_eq!((told(&two), &two["more"]), (expected[..2].to_vec(), &json!(true)));
    let loud = service.get("/attempts?name=mail&modifier=loud").await.json();
    assert_eq!(told(&loud), expected[2..3]);
    for other in ["name=other", "name=mail&module=CRON", "name=mail&modifier=soft"] {
        assert_eq!(service.get(&format!("/attempts?{other}")).await.json(), none, "{other}");
    }
    for wrong in ["", "module=WORKER", "name=a%20b", "name=a&limit=0", "name=a&limit=101", "name=a&cursor=1"]
    {
        assert_eq!(service.get(&format!("/attempts?{wrong}")).await.problem().0, 400, "{wrong}");
    }
    service.stop().await;
}

/// A thousand of its events wait and nobody has tried them, so that others may not have been looked
/// at. On the other canvas there are fewer.
#[tokio::test]
async fn that_there_may_be_more_attempts_is_said() {
    let service = Service::start().await;
    let waiting = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
        select gen_random_uuid(), c.id::uuid, 'WORKER', 'mail', '_', '1', now() + interval '1 hour'
          from (values ('00000000-0000-0000-0000-000000000000', 1000), ('00000000-0000-0000-0000-000000000007', 999)) c (id, most),
               generate_series(1, c.most)";
    service.stage.execute(waiting).await;
    let theirs = service.key("theirs", OTHER, &[Scope::Read]).await;
    let there = format!("/canvases/{OTHER}/attempts?name=mail");
    let there = service.ask(&theirs, Method::GET, &there, NONE).await.json();
    assert_eq!(there, json!({"attempts": [], "more": false}));
    for query in ["name=mail", "name=mail&modifier=loud&limit=100"] {
        let own = service.get(&format!("/attempts?{query}")).await.json();
        assert_eq!(own, json!({"attempts": [], "more": true}), "{query}");
    }
    let terminal = Terminal::beside(&service);
    let said = terminal.run(&["handlers", "attempts", "mail"]).await;
    assert!(said.err.contains("there may be more"), "{}", said.err);
    service.stop().await;
}

#[tokio::test]
async fn the_last_attempts_are_those_of_the_canvas() {
    let service = Service::start().await;
    service.stage.execute(HISTORY).await;
    let theirs = service.key("theirs", OTHER, &[Scope::Read]).await;
    let ask = async |key: &str, canvas: CanvasId| {
        service.ask(key, Method::GET, &format!("/canvases/{canvas}/attempts?name=mail"), NONE).await
    };
    let own = ask(&theirs, OTHER).await.json();
    let events = own["attempts"].as_array().unwrap().iter().map(|attempt| attempt["event"].as_str().unwrap());
    assert_eq!(events.filter(|event| event.starts_with("7000")).count(), 5, "{own}");
    assert_eq!(own["attempts"].as_array().unwrap().len(), 5);
    assert_eq!(ask(&theirs, CanvasId::DEFAULT).await.problem().0, 404);
    let emitter = service.key("emitter", CanvasId::DEFAULT, &[Scope::Emit, Scope::Operate]).await;
    assert_eq!(ask(&emitter, CanvasId::DEFAULT).await.problem().0, 403);
    service.stop().await;
}
