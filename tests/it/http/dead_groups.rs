//! Error groups over HTTP: what dead events died of is counted, marked as known, and redriven or
//! deleted by an operation; and another tenant has groups of its own under the same ids.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq::control::ErrorGroupId;
use wakeq_service::access::Scope;

use crate::support::service::{NONE, Service, has};
use crate::support::{OTHER, Statements, scope, wait_while};

/// Kills this many events of a handler of a canvas, a second apart.
async fn die(service: &Service, canvas: CanvasId, name: &str, error: &str, count: i32) {
    let insert = "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                                 cause, last_error, died_at)
                  select gen_random_uuid(), $1, 'WORKER', $2, '_', '1', 2, now(), 3, 0, 'retries', replace($3, '<n>', n::text),
                         now() - n * interval '1 s'
                    from generate_series(1, $4) n";
    let insert = sqlx::query(insert).bind(canvas.0).bind(name).bind(error).bind(count);
    insert.execute(&service.stage.pool).await.unwrap();
}

/// Two groups of `mail` and one of `ship`; the other tenant has one of the first.
async fn three_groups(service: &Service) {
    die(service, CanvasId::DEFAULT, "mail", "no answer from 10.0.0.<n> after <n>s", 5).await;
    die(service, CanvasId::DEFAULT, "mail", "no such mailbox 'a<n>@example.com'", 2).await;
    die(service, CanvasId::DEFAULT, "ship", "refused", 1).await;
    die(service, OTHER, "mail", "no answer from 10.1.1.1 after 3s", 4).await;
}

fn group(name: &str, error: &str) -> String {
    ErrorGroupId::of(&scope(name), "retries", Some(error)).to_string()
}

/// The group that both tenants have.
fn shared() -> String {
    group("mail", "no answer from 10.0.0.1 after 1s")
}

fn counts(groups: &Value) -> Vec<(&str, u64)> {
    let groups = groups["items"].as_array().unwrap().iter();
    groups.map(|group| (group["fingerprint"].as_str().unwrap(), group["count"].as_u64().unwrap())).collect()
}

/// Waits for the end of an operation that this answer has begun; returns it.
async fn ended(service: &Service, begun: &Value) -> Value {
    let path = format!("/operations/{}", begun["id"].as_str().unwrap());
    wait_while!(service.get(&path).await.json()["state"] == "open", "it does not end");
    service.get(&path).await.json()
}

#[tokio::test]
async fn dead_events_are_grouped_by_what_they_died_of() {
    let service = Service::start().await;
    let none = service.get("/dead-events/groups").await.json();
    assert_eq!(none, json!({"items": [], "next_cursor": null, "looked_at": 0, "more": false}));
    three_groups(&service).await;
    let all = service.get("/dead-events/groups").await.json();
    let expected = [("no answer from # after #", 5), ("no such mailbox '#'", 2), ("refused", 1)];
    assert_eq!(counts(&all), expected);
    assert_eq!((&all["looked_at"], &all["more"]), (&json!(8), &json!(false)));
    let first = &all["items"][0];
    let named = json!({"id": shared(), "module": "WORKER", "name": "mail", "cause": "retries", "known": null,
                       "error": "no answer from 10.0.0.1 after 1s"});
    has(first, named);
    let shown = service.get(&format!("/dead-events/groups/{}", shared())).await.json();
    assert_eq!(&shown, first);
    assert!(shown["first_died_at"].as_str() < shown["last_died_at"].as_str());
    let list = service.get(&format!("/dead-events?error_group={}", shared())).await.json();
    assert_eq!((list["items"].as_array().unwrap().len(), &list["items"][0]["id"]), (5, &first["example_id"]));
    assert_eq!(list["items"][0]["error_group"], shared());
    let counted = service.get(&format!("/events/count?state=dead&error_group={}", shared())).await.json();
    assert_eq!(counted["count"], 5);
    let of_mail = service.get("/dead-events/groups?name=mail").await.json();
    assert_eq!((counts(&of_mail).len(), &of_mail["looked_at"]), (2, &json!(7)));
    assert!(counts(&service.get("/dead-events/groups?name=none").await.json()).is_empty());
    for order in ["count", "last_died"] {
        let paged = service.items(&format!("/dead-events/groups?limit=1&order={order}")).await;
        assert_eq!(paged.len(), 3);
        let first = service.get(&format!("/dead-events/groups?order={order}")).await.json();
        assert_eq!(&json!(paged), &first["items"]);
    }
    for query in ["limit=0", "cursor=a~1", "order=size", "known=maybe", "module=WORKER", "state=dead"] {
        let refused = service.get(&format!("/dead-events/groups?{query}")).await;
        assert_eq!(refused.problem(), (400, "bad-request".into()), "{query}");
    }
    service.stop().await;
}

/// Of the other tenant's dead events nothing is counted or shown, though its group has the same id.
#[tokio::test]
async fn a_group_is_of_one_canvas() {
    let service = Service::start().await;
    three_groups(&service).await;
    let key = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = async |method, path: &str, body| {
        let path = format!("/canvases/{OTHER}/dead-events/groups{path}");
        service.ask(&key, method, &path, body).await
    };
    assert_eq!(counts(&theirs(Method::GET, "", NONE).await.json()), [("no answer from # after #", 4)]);
    let own = format!("/{}", shared());
    has(&theirs(Method::GET, &own, NONE).await.json(), json!({"count": 4}));
    let ours = group("ship", "refused");
    for (method, path, body) in [
        (Method::GET, format!("/{ours}"), NONE),
        (Method::PUT, format!("/{ours}/known"), json!({"note": "theirs"})),
        (Method::DELETE, format!("/{ours}/known"), NONE),
        (Method::DELETE, format!("{own}/known"), NONE),
    ] {
        let refused = theirs(method, &path, body).await;
        assert_eq!(refused.problem(), (404, "not-found".into()), "{path}");
    }
    theirs(Method::PUT, &format!("{own}/known"), json!({"note": "theirs"})).await.json();
    has(&service.get(&format!("/dead-events/groups{own}")).await.json(), json!({"known": null}));
    let foreign = format!("/canvases/{}/dead-events/groups", CanvasId::DEFAULT);
    let foreign = service.ask(&key, Method::GET, &foreign, NONE).await;
    assert_eq!(foreign.problem(), (404, "not-found".into()));
    service.stop().await;
}

#[tokio::test]
async fn a_group_is_marked_as_known_and_the_mark_is_removed() {
    let service = Service::start().await;
    three_groups(&service).await;
    let path = format!("/dead-events/groups/{}", shared());
    let known = format!("{path}/known");
    let marked = service.put(&known, json!({"note": "ticket 17"})).await.json();
    has(&marked, json!({"note": "ticket 17", "by": "key:tests"}));
    assert_eq!(service.get(&path).await.json()["known"], marked);
    let of = async |known: &str| counts_of(&service, known).await;
    assert_eq!((of("true").await, of("false").await), (1, 2));
    let again = service.put(&known, json!({})).await.json();
    assert_eq!(again["note"], NONE, "it is replaced");
    // A note has its limits, and so has an id.
    let long = "x".repeat(1001);
    for (path, body) in [
        (&known, json!({"note": ""})),
        (&known, json!({"note": long})),
        (&known, json!({"note": "a\u{0}b"})),
        (&known, json!({"notes": "x"})),
        (&format!("/dead-events/groups/{}/known", "x".repeat(36)), json!({})),
    ] {
        assert_eq!(service.put(path, body).await.problem(), (400, "bad-request".into()), "{path}");
    }
    let nobody = group("mail", "something else");
    let missing = service.put(&format!("/dead-events/groups/{nobody}/known"), json!({})).await;
    missing.says((404, "not-found"), "no dead event is of the error group");
    // A mark outlives its events, and can be changed and removed.
    service.stage.execute("delete from wakeq.dead_events").await;
    assert_eq!(service.get(&path).await.problem(), (404, "not-found".into()));
    service.put(&known, json!({"note": "ticket 18"})).await.json();
    assert_eq!(service.delete(&known).await.status, 204);
    service.delete(&known).await.says((404, "not-found"), "is not marked as known");
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let refused = format!("/canvases/{}{known}", CanvasId::DEFAULT);
    let refused = service.ask(&reader, Method::PUT, &refused, json!({})).await;
    assert_eq!(refused.problem(), (403, "forbidden".into()));
    let lines = "select array_agg(action order by id) = array['know-error', 'know-error', 'know-error', 'forget-error']
                   from wakeq.audit_log where action in ('know-error', 'forget-error') and outcome = 'done'";
    assert!(service.stage.pool.value::<bool>(lines).await);
    service.stop().await;
}

async fn counts_of(service: &Service, known: &str) -> usize {
    counts(&service.get(&format!("/dead-events/groups?known={known}")).await.json()).len()
}

/// An operation by the group leaves the other groups alone, and those of the other tenant.
#[tokio::test]
async fn a_group_is_redriven_and_another_deleted() {
    let service = Service::start().await;
    three_groups(&service).await;
    let filter = json!({"error_group": shared()});
    let preview = json!({"kind": "redrive", "filter": filter});
    let preview = service.post("/operations/preview", preview).await.json();
    has(&preview, json!({"count": 5, "more": false}));
    let begun = service.post("/operations", json!({"kind": "redrive", "filter": filter})).await.json();
    assert_eq!(begun["filter"], filter);
    has(&ended(&service, &begun).await, json!({"state": "done", "changed": 5, "skipped": 0}));
    assert_eq!(service.stage.rows().await, 5);
    let mailbox = group("mail", "no such mailbox 'x'");
    let delete = json!({"kind": "delete-dead", "filter": {"error_group": mailbox}});
    let begun = service.post("/operations", delete).await.json();
    has(&ended(&service, &begun).await, json!({"state": "done", "changed": 2}));
    assert_eq!(counts(&service.get("/dead-events/groups").await.json()), [("refused", 1)]);
    // What waits again is of no group, although it still has its error.
    let live = json!({"kind": "delete", "filter": filter});
    has(&service.post("/operations/preview", live).await.json(), json!({"count": 0, "looked_at": 5}));
    let left =
        "select count(*) from wakeq.dead_events where canvas_id = '00000000-0000-0000-0000-000000000007'";
    assert_eq!(service.stop().await.count(left).await, 4, "those of the other tenant");
}

/// Of more than 100,000 dead events, those that died last are grouped, and it says so.
#[tokio::test]
async fn the_latest_hundred_thousand_are_grouped() {
    let service = Service::start().await;
    die(&service, CanvasId::DEFAULT, "mail", "late <n>", 100_000).await;
    let exactly = service.get("/dead-events/groups").await.json();
    assert_eq!(counts(&exactly), [("late #", 100_000)]);
    die(&service, CanvasId::DEFAULT, "mail", "early <n>", 10).await;
    let early =
        "update wakeq.dead_events set died_at = died_at - interval '10 days' where last_error like 'early%'";
    service.stage.execute(early).await;
    let groups = service.get("/dead-events/groups").await.json();
    assert_eq!(counts(&groups), [("late #", 100_000)]);
    assert_eq!((&groups["looked_at"], &groups["more"]), (&json!(100_000), &json!(true)));
    let early = group("mail", "early 1");
    has(&service.get(&format!("/dead-events/groups/{early}")).await.json(), json!({"count": 10}));
    service.stop().await;
}
