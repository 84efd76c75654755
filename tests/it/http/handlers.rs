//! Handlers over HTTP: pauses and blocks, who may lift what, counts, depth, purge.

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use wakeq::control::{AuditEntry, AuditOutcome};
use wakeq::machine::Outcome;
use wakeq::{CanvasId, StoreConfig};
use wakeq_service::access::Scope;
use wakeq_service::server::HttpConfig;

use crate::support::service::{Answer, NONE, Service, has};
use crate::support::{Statements, TIMEOUT, wait_while};

/// A request about the rule of this kind on `greet`, with the path that it needs.
async fn rule(service: &Service, key: &str, method: Method, kind: &str, body: Value) -> Answer {
    let admin = if kind == "block" { "/admin" } else { "" };
    let path = format!("{admin}/canvases/{}/handlers/WORKER/greet/{kind}", CanvasId::DEFAULT);
    service.ask(key, method, &path, body).await
}

async fn park(service: &Service) {
    let parked = "update wakeq.events_v2 set notify_at = null";
    service.stage.execute(parked).await;
}

/// Inserts this many events of a handler, due this many seconds from now.
async fn insert(service: &Service, name: &str, count: i32, due_s: i32) {
    let insert = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
                  select gen_random_uuid(), $1, 'WORKER', $2, '_', '1', now() + $4 * interval '1 s' from generate_series(1, $3)";
    let insert = sqlx::query(insert).bind(CanvasId::DEFAULT.0).bind(name).bind(count).bind(due_s);
    insert.execute(&service.stage.pool).await.unwrap();
}

/// Each is set and lifted separately; lifting one says whether the other still stands.
// Shows: EV2-08, CARD-10
#[tokio::test]
async fn pauses_and_blocks_in_every_combination() {
    let service = Service::start().await;
    service.stage.emit_many("greet", 3).await;
    let key = &service.key;
    for (paused, blocked) in [(false, false), (true, false), (false, true), (true, true)] {
        for (kind, stands, also) in [("pause", paused, None), ("block", blocked, paused.then_some("pause"))] {
            if stands {
                let made = rule(&service, key, Method::PUT, kind, NONE).await.json();
                assert_eq!((&made["new"], &made["also"]), (&json!(true), &json!(also)), "{made}");
                has(&made["rule"], json!({"kind": kind, "created_by": "key:tests"}));
            }
        }
        let shown = service.get("/handlers/WORKER/greet").await.json();
        let kinds = shown["rules"].as_array().unwrap().iter().map(|rule| rule["kind"].as_str().unwrap());
        let expected = [blocked.then_some("block"), paused.then_some("pause")].into_iter().flatten();
        assert!(kinds.eq(expected), "{shown}");
        for (kind, stood, still) in [("pause", paused, blocked.then_some("block")), ("block", blocked, None)]
        {
            park(&service).await;
            // What the other rule holds is not woken.
            let woken = if stood && still.is_none() { 3 } else { 0 };
            let lifted = rule(&service, key, Method::DELETE, kind, NONE).await.json();
            assert_eq!(lifted, json!({"lifted": stood, "still": still, "woken": woken, "waking": false}));
        }
    }
    service.stop().await;
}

/// A rule's duration is counted on the database's clock, whatever the caller's says.
#[tokio::test]
async fn a_rule_lasts_so_many_seconds_of_the_databases_clock() {
    let service = Service::start().await;
    let key = &service.key;
    for kind in ["pause", "block"] {
        let earliest = service.stage.admin.clock().await.unwrap();
        let made = rule(&service, key, Method::PUT, kind, json!({"for_s": 3600.5})).await.json();
        let latest = service.stage.admin.clock().await.unwrap();
        let until: DateTime<Utc> = made["rule"]["until"].as_str().unwrap().parse().unwrap();
        let lasting = TimeDelta::milliseconds(3_600_500);
        assert!((earliest + lasting..=latest + lasting).contains(&until), "{until}");
        for body in [
            json!({"for_s": 60, "until": "2999-01-31T08:00:00Z"}),
            json!({"for_s": 0}),
            json!({"for_s": -1}),
            json!({"for_s": 3_162_240_001_u64}),
            json!({"for_s": 1e300}),
            json!({"for_s": "60"}),
        ] {
            let refused = rule(&service, key, Method::PUT, kind, body.clone()).await.problem();
            assert_eq!(refused, (400, "bad-request".into()), "{body}");
        }
        assert_eq!(rule(&service, key, Method::PUT, kind, NONE).await.json()["rule"]["until"], NONE);
    }
    service.stop().await;
}

/// A user pauses and unpauses, even under a block, but can neither set nor lift a block, and the
/// attempt is on record.
// Shows: EV2-08, CARD-10
#[tokio::test]
async fn a_user_pauses_and_only_an_admin_blocks() {
    let service = Service::start().await;
    let user = service.key("ada", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    let refused = (403, "forbidden".to_owned());
    assert_eq!(rule(&service, &user, Method::PUT, "block", NONE).await.problem(), refused);
    let reader = service.key("eve", CanvasId::DEFAULT, &[Scope::Read]).await;
    assert_eq!(rule(&service, &reader, Method::PUT, "pause", NONE).await.problem(), refused);
    assert_eq!(service.get("/handlers").await.json()["items"], json!([]), "nothing stands");

    assert_eq!(rule(&service, &user, Method::PUT, "pause", NONE).await.json()["new"], true);
    rule(&service, &service.key, Method::PUT, "block", NONE).await.json();
    assert_eq!(rule(&service, &user, Method::DELETE, "block", NONE).await.problem(), refused);
    let unpaused = rule(&service, &user, Method::DELETE, "pause", NONE).await.json();
    assert_eq!(unpaused, json!({"lifted": true, "still": "block", "woken": 0, "waking": false}));
    let shown = service.get("/handlers/WORKER/greet").await.json();
    assert_eq!((&shown["rules"][0]["kind"], &shown["rules"][1]), (&json!("block"), &NONE), "it stands");
    assert_eq!(rule(&service, &service.key, Method::DELETE, "block", NONE).await.json()["lifted"], true);

    let shown_key = format!("with {} from 127.0.0.1; ", &user[..18]);
    let stage = service.stop().await;
    let record = stage.admin.audit(CanvasId::DEFAULT, None, 100).await.unwrap().items;
    let is_hers = |line: &&AuditEntry| line.outcome == AuditOutcome::Refused && line.actor == "key:ada";
    let mut of_ada: Vec<_> = record.iter().filter(is_hers).collect();
    of_ada.sort_unstable_by(|one, next| one.action.cmp(&next.action));
    let refusals: Vec<_> = of_ada.iter().map(|line| (line.action.as_str(), line.times)).collect();
    assert_eq!(refusals, [("block_handler", 1), ("unblock_handler", 1)]);
    for line in of_ada {
        let detail = line.detail.as_deref().unwrap();
        assert!(detail.starts_with(&shown_key) && detail.contains("`admin`"), "{detail}");
        assert_eq!(line.name.as_deref(), Some("greet"));
    }
}

/// Once a pause is answered, no claim commits; events from before and after wait.
// Shows: EV2-07
#[tokio::test]
async fn after_the_answer_to_a_pause_nothing_starts() {
    let service = Service::start().await;
    let (mut worker, mut seen) = service.stage.recording("greet");
    service.stage.emit_many("greet", 300).await;
    seen.next().await;
    rule(&service, &service.key, Method::PUT, "pause", json!({"reason": "maintenance"})).await.json();
    let answered_at = service.stage.admin.clock().await.unwrap();
    service.stage.emit_many("greet", 20).await;
    worker.until_count(20, Outcome::RulePaused).await;
    service.notifier.drained().await;
    let ran = seen.rest();
    assert!(ran.iter().all(|run| run.claimed_at <= answered_at), "{ran:?}");
    let waiting = service.stage.rows().await;
    assert_eq!(usize::try_from(waiting).unwrap(), 320 - 1 - ran.len());
    let shown = service.get("/handlers/WORKER/greet").await.json();
    assert_eq!((&shown["paused"], &shown["waiting"]), (&json!(waiting), &json!(0)), "{shown}");
    rule(&service, &service.key, Method::DELETE, "pause", NONE).await.json();
    seen.take(usize::try_from(waiting).unwrap()).await;
    worker.stop().await;
    service.stop().await;
}

/// Reason and end are limited; setting a pause again replaces them.
#[tokio::test]
async fn the_reason_and_end_of_a_pause_are_validated() {
    let service = Service::start().await;
    let bad = (400, "bad-request".to_owned());
    for body in [
        json!({"until": "2020-01-01T00:00:00Z"}),
        json!({"reason": "ü".repeat(1001)}),
        json!({"reason": "a\u{0}"}),
        json!({"reason": 1}),
        json!({"for": "1h"}),
        json!([]),
    ] {
        for kind in ["pause", "block"] {
            let answer = rule(&service, &service.key, Method::PUT, kind, body.clone()).await;
            assert_eq!(answer.problem(), bad, "{body}");
        }
    }
    assert_eq!(service.put("/handlers/WORKER/a%20b/pause", json!({})).await.problem(), bad);
    assert_eq!(service.get("/handlers").await.json()["items"], json!([]));

    let (words, until) = ("ü".repeat(1000), "2099-01-31T08:00:00Z");
    let stop = json!({"reason": words, "until": until});
    let made = rule(&service, &service.key, Method::PUT, "pause", stop.clone()).await.json();
    has(&made["rule"], stop);
    let again = rule(&service, &service.key, Method::PUT, "pause", json!({})).await.json();
    assert_eq!(again["new"], false);
    has(&again["rule"], json!({"reason": null, "until": null}));
    service.stop().await;
}

/// The answer to a lift does not wait indefinitely for what it wakes; waking continues in the
/// background.
#[tokio::test]
async fn a_long_waking_goes_on_after_the_answer() {
    let store = StoreConfig { lock_timeout: TIMEOUT, statement_timeout: TIMEOUT, ..StoreConfig::default() };
    let service = Service::over(store, HttpConfig::default()).await;
    rule(&service, &service.key, Method::PUT, "pause", NONE).await.json();
    service.stage.emit_many("greet", 3).await;
    park(&service).await;
    let mut holder = PgConnection::connect(service.stage.database.url()).await.unwrap();
    let hold = "begin; select id from wakeq.events_v2 for update";
    sqlx::raw_sql(hold).execute(&mut holder).await.unwrap();
    let published = service.notifier.published().len();
    let lifted = rule(&service, &service.key, Method::DELETE, "pause", NONE).await.json();
    assert_eq!(lifted, json!({"lifted": true, "still": null, "woken": 0, "waking": true}));
    assert_eq!(service.notifier.published().len(), published);
    drop(holder);
    wait_while!(service.notifier.published().len() < published + 3, "waking did not go on");
    service.stop().await;
}

/// The counts of a handler match its rows: none, five, five paused, five delayed.
// Shows: EV2-09, CARD-10
#[tokio::test]
async fn the_counts_are_those_of_the_rows() {
    let service = Service::start().await;
    let counts = |handler: &Value| {
        ["waiting", "delayed", "paused", "running", "dead"].map(|count| handler[count].as_i64().unwrap())
    };
    let none = service.get("/handlers/WORKER/none").await.json();
    assert_eq!((counts(&none), &none["rules"]), ([0; 5], &json!([])));
    assert_eq!(service.get("/handlers").await.json(), json!({"items": [], "next_cursor": null}));
    service.put("/handlers/WORKER/paused/pause", json!({})).await.json();
    for (name, delay_s) in [("five", 0), ("late", 3600), ("paused", 0)] {
        let event = json!({"name": name, "delay_s": delay_s});
        service.post("/events:batch", json!({"events": vec![event; 5]})).await.json();
    }
    let list = service.get("/handlers").await.json();
    let items = list["items"].as_array().unwrap();
    let names: Vec<&str> = items.iter().map(|item| item["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["five", "late", "paused"]);
    for (item, expected) in items.iter().zip([[5, 0, 0, 0, 0], [0, 5, 0, 0, 0], [0, 0, 5, 0, 0]]) {
        assert_eq!(counts(item), expected, "{item}");
        let name = item["name"].as_str().unwrap();
        let rows = "select count(*) from wakeq.events_v2 where name = $1";
        let rows: i64 = sqlx::query_scalar(rows).bind(name).fetch_one(&service.stage.pool).await.unwrap();
        assert_eq!(rows, expected.iter().sum::<i64>());
        assert_eq!(service.get(&format!("/handlers/WORKER/{name}")).await.json(), *item);
    }
    service.stop().await;
}

/// Due, on no worker and under no rule; counted up to 10,000.
#[tokio::test]
async fn the_depth_is_what_could_run_now() {
    let service = Service::start().await;
    let depth = async |query: &str| service.get(&format!("/depth{query}")).await.json();
    assert_eq!(depth("").await, json!({"depth": 0, "capped": false, "oldest_age_s": null}));
    service.put("/handlers/WORKER/paused/pause", json!({})).await.json();
    service.admin(Method::PUT, "/handlers/WORKER/blocked/block", NONE).await.json();
    for (name, count, due_s) in
        [("free", 3, -60), ("late", 4, 3600), ("paused", 5, -60), ("blocked", 6, -60), ("runs", 7, -60)]
    {
        insert(&service, name, count, due_s).await;
    }
    let run = "update wakeq.events_v2 set locked_at = now(), claims = 1 where name = 'runs'";
    service.stage.execute(run).await;
    let all = depth("").await;
    assert_eq!((&all["depth"], &all["capped"]), (&json!(3), &json!(false)));
    assert!(all["oldest_age_s"].as_f64().unwrap() >= 60.0, "{all}");
    for (query, expected) in [
        ("?name=free", 3),
        ("?module=WORKER&name=free", 3),
        ("?module=OTHER&name=free", 0),
        ("?name=late", 0),
        ("?name=paused", 0),
        ("?name=blocked", 0),
        ("?name=runs", 0),
    ] {
        assert_eq!(depth(query).await["depth"], expected, "{query}");
    }
    let bad = (400, "bad-request".to_owned());
    for query in ["?module=WORKER", "?name=a%20b", "?handler=free"] {
        assert_eq!(service.get(&format!("/depth{query}")).await.problem(), bad, "{query}");
    }
    insert(&service, "free", 10_000, -1).await;
    let many = depth("").await;
    assert_eq!((&many["depth"], &many["capped"]), (&json!(10_000), &json!(true)));
    service.stop().await;
}

/// All events that are not running, or only their number; 10,000 at a time.
#[tokio::test]
async fn a_purge_can_be_tried_first() {
    let service = Service::start().await;
    insert(&service, "greet", 10_002, 0).await;
    service.stage.emit("other").await;
    let run = "update wakeq.events_v2 set locked_at = now(), claims = 1
                where id = (select id from wakeq.events_v2 where name = 'greet' limit 1)";
    service.stage.execute(run).await;
    let purge = async |body: Value| {
        let mut answer = service.post("/handlers/WORKER/greet/purge", body).await.json();
        assert!(answer.as_object_mut().unwrap().remove("before").is_some_and(|before| before.is_string()));
        answer
    };
    assert_eq!(purge(json!({"dry_run": true})).await, json!({"purged": 10_000, "more": true}));
    assert_eq!(service.stage.rows().await, 10_003);
    assert_eq!(purge(json!({})).await, json!({"purged": 10_000, "more": true}));
    assert_eq!(purge(json!({})).await, json!({"purged": 1, "more": false}));
    assert_eq!(purge(json!({})).await, json!({"purged": 0, "more": false}));
    assert_eq!(service.stage.rows().await, 2, "what runs and what is another's");
    for body in [json!({"dry-run": true}), json!({"count_up_to": 0}), json!({"count_up_to": 1_000_001})] {
        let bad = service.post("/handlers/WORKER/greet/purge", body).await;
        assert_eq!(bad.problem(), (400, "bad-request".into()));
    }
    assert_eq!(service.stage.rows().await, 2);
    service.stop().await;
}

/// A purge ends when everything that was there at its beginning is gone, however much is emitted
/// meanwhile, and deletes nothing of that: it deletes as many as the dry run said.
#[tokio::test]
async fn a_purge_leaves_what_is_emitted_meanwhile() {
    let service = Service::start().await;
    insert(&service, "greet", 10_001, 0).await;
    let purge = async |body: Value| service.post("/handlers/WORKER/greet/purge", body).await.json();
    let first = purge(json!({})).await;
    let before = &first["before"];
    assert_eq!(first, json!({"purged": 10_000, "more": true, "before": before}));
    let late = service.stage.emit("greet").await;
    let tried = purge(json!({"before": before, "dry_run": true})).await;
    assert_eq!(tried, json!({"purged": 1, "more": false, "before": before}));
    let second = purge(json!({"before": before})).await;
    assert_eq!(second, json!({"purged": 1, "more": false, "before": before}));
    let left: Vec<uuid::Uuid> = service.stage.pool.values("select id from wakeq.events_v2").await;
    assert_eq!(left, [late.0]);
    let bad = service.post("/handlers/WORKER/greet/purge", json!({"before": "+99999-01-01T00:00:00Z"})).await;
    assert_eq!(bad.problem(), (400, "bad-request".into()));
    let after = purge(json!({"before": "9999-01-01T00:00:00Z"})).await;
    assert!(after["purged"] == 1 && after["before"].as_str() < Some("9000"), "no later than now: {after}");
    service.stop().await;
}

/// A request that looks like a dry run must not be the real thing.
#[tokio::test]
async fn rejects_unknown_query_parameters_of_post_requests() {
    let service = Service::start().await;
    service.stage.emit("greet").await;
    for path in ["/handlers/WORKER/greet/purge?dry_run=true", "/dead-events/delete?all=true"] {
        let answer = Answer::of(service.on_canvas(Method::POST, path)).await;
        assert_eq!(answer.problem(), (400, "bad-request".into()), "{path}");
    }
    assert_eq!(service.stop().await.rows().await, 1);
}
