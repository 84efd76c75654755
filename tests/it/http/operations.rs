//! Operations on all events that match a filter, over HTTP: previewed, begun, followed, listed and
//! cancelled, by those who may. Another canvas has the same events, and neither loses nor learns of
//! any.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::{CanvasId, Event};
use wakeq_service::access::Scope;

use crate::support::service::{Answer, NONE, Service, has};
use crate::support::{OTHER, Statements, wait_while};

impl Service {
    /// Emits this many events of `greet` on both canvases.
    async fn greet_both(&self, count: usize) {
        for canvas in [CanvasId::DEFAULT, OTHER] {
            let event = |at: usize| Event::new("greet", &json!({"n": at})).unwrap().canvas(canvas);
            self.stage.queue.emit_all((0..count).map(event).collect()).await.unwrap();
        }
    }

    /// Begins an operation, and shows it once it has ended.
    async fn operate(&self, body: Value) -> Value {
        let begun = self.post("/operations", body).await;
        assert_eq!(begun.status, 202, "{}", begun.text);
        let path = format!("/operations/{}", begun.json()["id"].as_str().unwrap());
        wait_while!(self.get(&path).await.json()["state"] == "open", "it does not end");
        self.get(&path).await.json()
    }
}

const OF_OTHER: &str = "select count(*) from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000007' and options is null";

const TEN_OPEN: &str = "
    insert into wakeq.operations (canvas_id, kind, filter, cut_off, author, job)
    select '00000000-0000-0000-0000-000000000000', 'delete', '{}', now(), 'test', -number
      from generate_series(1, 10) as number";

/// A place of a limit was kept for each event of `greet`, and one of `print` waits behind it.
const KEPT: &str = "
    with waiting as (
        update wakeq.events_v2 set starts_at = now(), notify_at = now() + interval '1 hour'
        returning id, canvas_id, name, delay_until
    )
    insert into wakeq.limit_waits (event_id, canvas_id, name, due, woken_at)
    select id, canvas_id, 'customer:7', delay_until, case when name = 'greet' then clock_timestamp() end from waiting";

/// The events that were told to come for their places.
const TOLD: &str = "
    select w.canvas_id || ' ' || e.name from wakeq.limit_waits w join wakeq.events_v2 e on e.id = w.event_id
     where w.woken_at is not null order by 1";

#[tokio::test]
async fn an_operation_is_previewed_begun_and_followed() {
    let service = Service::start().await;
    service.greet_both(20).await;
    let filter = json!({"name": "greet", "states": ["ready"], "value": "$.n = 7"});
    let marked = json!({"kind": "retag", "filter": filter, "add_tags": ["seven"]});
    let preview = service.post("/operations/preview", marked.clone()).await.json();
    has(&preview, json!({"count": 1, "more": false, "looked_at": 20}));
    let ended = service.operate(marked).await;
    has(
        &ended,
        json!({"kind": "retag", "state": "done", "matched": 1, "changed": 1, "skipped": 0, "looked_at": 20}),
    );
    has(&ended, json!({"add_tags": ["seven"], "preview_count": 1, "error": NONE}));
    has(
        &ended["filter"],
        json!({"module": "WORKER", "name": "greet", "states": ["ready"], "value": "$.n = 7"}),
    );
    let tagged = json!({"kind": "delete", "filter": {"tags": ["seven"]}, "before": preview["before"]});
    has(&service.operate(tagged).await, json!({"changed": 1, "before": preview["before"]}));
    has(&service.operate(json!({"kind": "cancel", "all": true})).await, json!({"changed": 19, "filter": {}}));
    let items = service
        .items_by(async |cursor: &str| service.get(&format!("/operations?limit=2{cursor}")).await.json());
    let kinds: Vec<Value> = items.await.iter().map(|operation| operation["kind"].clone()).collect();
    assert_eq!(kinds, ["cancel", "delete", "retag"], "the latest first");
    assert_eq!(service.stage.pool.value::<i64>(OF_OTHER).await, 20);
    service.stop().await;
}

/// A request whose answer was lost can be sent again: it begins nothing more. The key is its
/// holder's on one canvas, and a request that was refused leaves it free.
#[tokio::test]
async fn an_operation_is_begun_once_under_an_idempotency_key() {
    let service = Service::start().await;
    service.greet_both(3).await;
    let other = service.key("bo", OTHER, &[Scope::Read, Scope::Operate]).await;
    let begin = async |key: &str, canvas: CanvasId, body: Value| {
        let request = service.request(Method::POST, &format!("/v1/canvases/{canvas}/operations"));
        let request = request.bearer_auth(if canvas == OTHER { &other } else { &service.key });
        Answer::of(request.header("idempotency-key", key).json(&body)).await
    };
    let retag = json!({"kind": "retag", "filter": {"name": "greet"}, "add_tags": ["late"]});
    let first = begin("k", CanvasId::DEFAULT, retag.clone()).await;
    assert!(first.status == 202 && !first.headers.contains_key("idempotency-replayed"), "{}", first.text);
    let again = begin("k", CanvasId::DEFAULT, retag.clone()).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.json()["id"], first.json()["id"]);
    let delete = json!({"kind": "delete", "filter": {"name": "greet"}});
    assert_eq!(begin("k", CanvasId::DEFAULT, delete).await.problem(), (422, "idempotency-mismatch".into()));
    begin("k", CanvasId::DEFAULT, json!({"kind": "delete"})).await.says((400, "bad-request"), "say which");
    for broken in ["", "a b"] {
        let refused = begin(broken, CanvasId::DEFAULT, retag.clone()).await;
        refused.says((400, "bad-request"), "visible ASCII");
    }
    let theirs = begin("k", OTHER, retag.clone()).await;
    assert!(theirs.status == 202 && !theirs.headers.contains_key("idempotency-replayed"), "{}", theirs.text);
    assert_ne!(theirs.json()["id"], first.json()["id"]);
    let both = "select count(*) from wakeq.operations";
    assert_eq!(service.stage.pool.value::<i64>(both).await, 2, "one on each canvas");

    service.stage.execute(TEN_OPEN).await;
    begin("full", CanvasId::DEFAULT, retag.clone()).await.says((409, "conflict"), "is the limit");
    service.stage.execute("delete from wakeq.operations where author = 'test'").await;
    assert_eq!(begin("full", CanvasId::DEFAULT, retag).await.status, 202, "the key was left free");
    service.stop().await;
}

/// To begin or preview one takes both scopes, since a filter can ask for what is in values. A key
/// of another canvas reaches none.
#[tokio::test]
async fn each_does_what_it_may() {
    let service = Service::start().await;
    service.greet_both(3).await;
    let ended = service.operate(json!({"kind": "delete", "filter": {"name": "greet"}})).await;
    let path = format!("/canvases/{}/operations", CanvasId::DEFAULT);
    let one = format!("{path}/{}", ended["id"].as_str().unwrap());
    let body = json!({"kind": "delete", "all": true});
    let reader = service.key("eve", CanvasId::DEFAULT, &[Scope::Read]).await;
    let operator = service.key("ada", CanvasId::DEFAULT, &[Scope::Operate]).await;
    let preview = format!("{path}/preview");
    for key in [&reader, &operator] {
        for path in [&path, &preview] {
            service.ask(key, Method::POST, path, body.clone()).await.says((403, "forbidden"), "");
        }
    }
    service.ask(&reader, Method::DELETE, &one, NONE).await.says((403, "forbidden"), "");
    has(
        &service.ask(&operator, Method::DELETE, &one, NONE).await.json(),
        json!({"state": "done", "changed": 3}),
    );
    let other = service.key("bo", OTHER, &Scope::ALL).await;
    let elsewhere = format!("/canvases/{OTHER}/operations");
    assert_eq!(service.ask(&other, Method::GET, &elsewhere, NONE).await.json()["items"], json!([]));
    let theirs = format!("{elsewhere}/{}", ended["id"].as_str().unwrap());
    for method in [Method::GET, Method::DELETE] {
        service.ask(&other, method.clone(), &theirs, NONE).await.says((404, "not-found"), "no operation");
        service.ask(&other, method, &one, NONE).await.says((404, "not-found"), "");
    }
    assert_eq!(service.stage.pool.value::<i64>(OF_OTHER).await, 3);
    service.stop().await;
}

/// By their ids; one of another canvas is none of them.
#[tokio::test]
async fn events_are_named_by_their_ids() {
    let service = Service::start().await;
    let mut ids = Vec::new();
    for canvas in [CanvasId::DEFAULT, CanvasId::DEFAULT, OTHER] {
        let event = Event::new("greet", &1).unwrap().canvas(canvas);
        ids.push(service.stage.queue.emit(event).await.unwrap().id.to_string());
    }
    let named = json!({"kind": "delete", "ids": [ids[0], ids[2], ids[0]]});
    let preview = service.post("/operations/preview", named.clone()).await.json();
    has(&preview, json!({"count": 1, "more": false, "looked_at": 2}));
    let ended = service.operate(named).await;
    has(
        &ended,
        json!({"named": 2, "filter": {}, "looked_at": 2, "matched": 1, "changed": 1, "state": "done"}),
    );
    assert_eq!(service.get(&format!("/events/{}", ids[1])).await.json()["state"], "ready");
    assert_eq!(service.stage.pool.value::<i64>(OF_OTHER).await, 1);
    let many: Vec<String> = (0..1001).map(|n| format!("00000000-0000-4000-8000-{n:012}")).collect();
    for (body, words) in [
        (json!({"kind": "delete", "ids": [], "before": "2030-01-01T00:00:00Z"}), "1 to 1,000 events"),
        (json!({"kind": "delete", "ids": many}), "1 to 1,000 events"),
        (json!({"kind": "delete", "ids": [ids[1]], "all": true}), "say which"),
        (json!({"kind": "delete", "ids": [ids[1]], "filter": {"name": "greet"}}), "either by `ids`"),
    ] {
        service.post("/operations", body).await.says((400, "bad-request"), words);
    }
    service.stop().await;
}

#[tokio::test]
async fn what_is_no_operation_is_refused() {
    let service = Service::start().await;
    for (body, words) in [
        (json!({"kind": "delete"}), "say which"),
        (json!({"kind": "delete", "filter": {"name": "greet"}, "all": true}), "say which"),
        (json!({"kind": "delete", "all": true, "add_tags": ["a"]}), "for the kind `retag`"),
        (json!({"kind": "retag", "all": true}), "which tags"),
        (json!({"kind": "retag", "all": true, "add_tags": ["a,b"]}), "a tag"),
        (json!({"kind": "redrive", "filter": {"states": ["paused"]}}), "dead events"),
        (json!({"kind": "delete", "filter": {"states": ["dead"]}}), "not ended"),
        (json!({"kind": "delete", "filter": {"value": "n = 7"}}), "condition"),
        (json!({"kind": "delete", "all": true, "look_up_to": 0}), "look_up_to"),
    ] {
        for path in ["/operations", "/operations/preview"] {
            service.post(path, body.clone()).await.says((400, "bad-request"), words);
        }
    }
    for body in [json!({"kind": "stop", "all": true}), json!({"kind": "delete", "filter": {"names": "x"}})] {
        assert_eq!(service.post("/operations", body).await.problem().0, 400);
    }
    service.get("/operations/1").await.says((400, "bad-request"), "an operation's id is a uuid");
    service.get("/operations?cursor=a~1").await.says((400, "bad-request"), "cursor");
    service.stop().await;
}

/// A place that was kept for an event which is removed with others is the next one's. The places
/// of the other canvas stay as they are.
#[tokio::test]
async fn what_waits_at_a_limit_is_woken_when_events_are_removed() {
    let theirs = [format!("{OTHER} greet")];
    let ours = format!("{} print", CanvasId::DEFAULT);
    for removal in ["purge", "delete", "cancel"] {
        let service = Service::start().await;
        let (key, one) = (service.key("theirs", OTHER, &Scope::ALL).await, json!({"concurrency": 1}));
        service.put("/limits/customer", one.clone()).await.json();
        service.ask(&key, Method::PUT, &format!("/canvases/{OTHER}/limits/customer"), one).await.json();
        for canvas in [CanvasId::DEFAULT, OTHER] {
            for name in ["greet", "print"] {
                let event = Event::new(name, &1).unwrap().limit("customer:7").unwrap().canvas(canvas);
                service.stage.queue.emit(event).await.unwrap();
            }
        }
        service.stage.execute(KEPT).await;
        let removed = match removal {
            "purge" => service.post("/handlers/WORKER/greet/purge", json!({})).await.json()["purged"].clone(),
            kind => {
                service.operate(json!({"kind": kind, "filter": {"name": "greet"}})).await["changed"].clone()
            }
        };
        let told: Vec<String> = sqlx::query_scalar(TOLD).fetch_all(&service.stage.pool).await.unwrap();
        assert_eq!((removed, told), (json!(1), [&[ours.clone()][..], &theirs].concat()), "{removal}");
        service.stop().await;
    }
}
