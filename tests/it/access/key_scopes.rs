//! Keys whose scopes are limited to handlers: what they open, and that they open nothing else, here
//! and on other canvases.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::service::{Answer, Service};

const OTHER: CanvasId = CanvasId(Uuid::from_u128(0x07e7));

async fn key(service: &Service, scopes: &[&str]) -> String {
    let new = json!({"holder": format!("narrow {}", Uuid::new_v4()), "scopes": scopes});
    let made = service.admin(Method::POST, "/keys", new).await.json();
    made["key"].as_str().unwrap().to_owned()
}

async fn emit(service: &Service, key: &str, canvas: CanvasId, path: &str, body: Value) -> (u16, String) {
    let answer = service.ask(key, Method::POST, &format!("/canvases/{canvas}{path}"), body).await;
    if answer.status.is_success() { (answer.status.as_u16(), String::new()) } else { answer.problem() }
}

/// Emits on the default canvas as CloudEvents does: one event, or a batch.
async fn emit_cloud(service: &Service, key: &str, kind: &str, body: String) -> Answer {
    let request = service.request(Method::POST, &format!("/v1/canvases/{}/events", CanvasId::DEFAULT));
    let request = request.bearer_auth(key).header("content-type", format!("application/{kind}+json"));
    Answer::of(request.body(body)).await
}

/// For every way to emit an event over HTTP.
#[tokio::test]
async fn a_key_for_a_module_emits_for_it_and_for_nothing_else() {
    let service = Service::start().await;
    let key = key(&service, &["emit:image/*", "emit:WORKER/resize"]).await;
    let (done, refused) = ((202, String::new()), (403, "forbidden".to_owned()));
    for (module, name, expected) in [
        ("image", "any", &done),
        ("WORKER", "resize", &done),
        ("WORKER", "other", &refused),
        ("images", "any", &refused),
    ] {
        let own = CanvasId::DEFAULT;
        let event = json!({"module": module, "name": name});
        assert_eq!(emit(&service, &key, own, "/events", event.clone()).await, *expected, "{module}/{name}");
        let batch = json!({"events": [{"module": "image", "name": "first"}, event.clone()]});
        assert_eq!(emit(&service, &key, own, "/events:batch", batch).await, *expected, "{module}/{name}");
        let foreign = (404, "not-found".to_owned());
        assert_eq!(emit(&service, &key, OTHER, "/events", event).await, foreign, "{module}/{name}");
    }
    let cloud = json!({"specversion": "1.0", "type": "other", "source": "/shop", "id": "1"});
    assert_eq!(emit_cloud(&service, &key, "cloudevents", cloud.to_string()).await.problem(), refused);
    let stage = service.stop().await;
    let others = "select count(*) from wakeq.events_v2 where module <> 'image' and (module, name) <> ('WORKER', 'resize')";
    assert_eq!(stage.count(others).await, 0);
}

/// Each field of each way to emit, with the event's own handler within the key's scopes: what
/// writes more than events of that handler is refused, and all else is as for an unlimited key.
#[tokio::test]
async fn a_key_for_a_module_writes_nothing_but_its_events() {
    let service = Service::start().await;
    let narrow = key(&service, &["emit:image/*"]).await;
    let wide = key(&service, &["emit"]).await;
    let own = CanvasId::DEFAULT;
    let state = json!({"main": {"module": "image", "name": "resize"}, "state": {"balance": 500}});
    assert_eq!(emit(&service, &wide, own, "/objects/acct:1/events", state).await.0, 202);
    let open = json!({"on_end": {"name": "imported"}});
    assert_eq!(emit(&service, &wide, own, "/batches/import:1", open).await.0, 201);
    let fields = [
        ("value", json!({"x": 1}), true),
        ("modifier", json!("small"), true),
        ("delay_s", json!(3600), true),
        ("delay_until", json!("2030-01-01T00:00:00Z"), true),
        ("id", json!(Uuid::new_v4()), true),
        ("only_queues", json!(false), true),
        ("unique", json!({"key": "order:1", "on_conflict": "replace"}), true),
        ("options", json!({"retries": 0}), true),
        ("options", json!({"tags": ["customer:7"]}), true),
        ("options", json!({"urgent": true}), true),
        ("options", json!({"limits": ["customer:7"]}), false),
        ("logged", json!(false), true),
        ("object", json!("acct:1"), false),
        ("batch", json!("import:1"), false),
        ("logged", json!(true), false),
        ("logged", json!({"category": "ledger", "stream": "acct-1"}), false),
    ];
    let expected = |allowed| if allowed { (202, String::new()) } else { (403, "forbidden".to_owned()) };
    for (field, value, allowed) in fields {
        let mut event = json!({"module": "image", "name": "resize"});
        event[field] = value;
        let batch = json!({"events": [{"module": "image", "name": "first"}, event]});
        let single = emit(&service, &narrow, own, "/events", event.clone()).await;
        assert_eq!(single, expected(allowed), "{event}");
        assert_eq!(emit(&service, &narrow, own, "/events:batch", batch).await, expected(allowed), "{event}");
        assert_eq!(emit(&service, &wide, own, "/events", event.clone()).await.0, 202, "{event}");
    }
    let main = json!({"module": "image", "name": "resize"});
    for change in [
        json!({"main": main}),
        json!({"main": main, "subevents": [main]}),
        json!({"main": main, "state": {"balance": 1_000_000}}),
    ] {
        let answer = emit(&service, &narrow, own, "/objects/acct:1/events", change.clone()).await;
        assert_eq!(answer, expected(false), "{change}");
    }
    emit_clouds_with_each_attribute(&service, &narrow).await;
    let object = service.get("/objects/acct:1").await.json();
    assert_eq!(object["state"], json!({"balance": 500}));
    let stage = service.stop().await;
    let by_narrow = "select count(*) from wakeq.log where category = 'ledger'";
    assert_eq!(stage.count(by_narrow).await, 1, "only what the unlimited key logged there");
    let reasons = "select count(distinct detail) from wakeq.audit_log
                    where outcome = 'refused' and action = 'emit' and detail like '%needs the scope for all handlers'";
    let five = "`object`, `batch`, `logged`, `limits` and a change of an object";
    assert_eq!(stage.count(reasons).await, 5, "{five}");
}

/// As CloudEvents, where attributes are in place of some fields.
async fn emit_clouds_with_each_attribute(service: &Service, narrow: &str) {
    for (attribute, value, allowed) in [
        ("delayseconds", "3600", true),
        ("subject", "acct:1", true),
        ("urgent", "true", true),
        ("object", "acct:1", false),
        ("limits", "customer:7", false),
    ] {
        let mut cloud =
            json!({"specversion": "1.0", "type": "image/resize", "source": "/shop", "id": attribute});
        cloud[attribute] = json!(value);
        for (kind, body) in
            [("cloudevents", cloud.to_string()), ("cloudevents-batch", json!([cloud]).to_string())]
        {
            let answer = emit_cloud(service, narrow, kind, body).await;
            assert_eq!(answer.status.as_u16(), if allowed { 202 } else { 403 }, "{kind} with {attribute}");
        }
    }
}

#[tokio::test]
async fn a_key_for_a_module_writes_nothing_that_is_no_event() {
    let service = Service::start().await;
    let narrow = key(&service, &["emit:image/*"]).await;
    let (own, refused) = (CanvasId::DEFAULT, (403, "forbidden".to_owned()));
    for (path, body) in [
        (
            "/log",
            json!({"appends": [{"category": "c", "stream": "s", "events": [{"name": "n", "payload": 1}]}]}),
        ),
        ("/batches/import:1", json!({"on_end": {"module": "image", "name": "resize"}})),
        ("/entities/account/ada/events", json!({"name": "deposit", "payload": 1})),
    ] {
        assert_eq!(emit(&service, &narrow, own, path, body).await, refused, "{path}");
    }
}

/// A chosen id counts among those of its handler, so that a limited key can't use up the ids that
/// others will choose; for itself a repeat is a duplicate.
#[tokio::test]
async fn the_ids_of_a_limited_key_are_its_own() {
    let service = Service::start().await;
    let narrow = key(&service, &["emit:image/*"]).await;
    let wide = key(&service, &["emit"]).await;
    let ask = async |key: &str, module: &str, id: Uuid| {
        let event = json!({"module": module, "name": "resize", "id": id});
        let path = format!("/canvases/{}/events", CanvasId::DEFAULT);
        service.ask(key, Method::POST, &path, event).await
    };
    let emitted = async |key: &str, module: &str, id: Uuid| {
        let answer = ask(key, module, id).await.json();
        (answer["id"].as_str().unwrap().to_owned(), answer["duplicate"] == json!(true))
    };
    let order = Uuid::new_v4();
    let (taken, first) = emitted(&narrow, "image", order).await;
    assert_eq!(emitted(&narrow, "image", order).await, (taken.clone(), true));
    assert!(!first);
    for again in [false, true] {
        let (id, duplicate) = emitted(&wide, "image", order).await;
        assert_ne!(id, taken);
        assert_eq!(duplicate, again, "the unlimited key");
    }
    assert_eq!(ask(&wide, "WORKER", order).await.problem(), (409, "id-taken".into()));
    service.stop().await;
}

#[tokio::test]
async fn a_key_for_a_handler_operates_it_and_nothing_else() {
    let service = Service::start().await;
    let key = key(&service, &["operate:WORKER/resize", "read:WORKER/resize"]).await;
    let id = service.stage.emit("resize").await;
    let ask = async |canvas: CanvasId, method: Method, path: &str| {
        let body = if method == Method::GET { Value::Null } else { json!({}) };
        service.ask(&key, method, &format!("/canvases/{canvas}{path}"), body).await.status.as_u16()
    };
    let own = CanvasId::DEFAULT;
    assert_eq!(ask(own, Method::PUT, "/handlers/WORKER/resize/pause").await, 200);
    assert_eq!(ask(own, Method::GET, "/handlers/WORKER/resize").await, 200);
    assert_eq!(ask(own, Method::GET, "/handlers/WORKER/resize/statistics").await, 200);
    for path in ["/handlers/WORKER/other", "/handlers/image/resize"] {
        assert_eq!(ask(own, Method::GET, path).await, 403, "{path}");
        assert_eq!(ask(own, Method::GET, &format!("{path}/statistics")).await, 403, "{path}");
        assert_eq!(ask(own, Method::PUT, &format!("{path}/pause")).await, 403, "{path}");
    }
    let by_id = format!("/events/{id}");
    for path in ["/events", "/dead-events", "/cron", "/log?category=x", "/depth", "/counts", "/statistics"] {
        assert_eq!(ask(own, Method::GET, path).await, 403, "{path}");
    }
    assert_eq!(ask(own, Method::POST, &format!("{by_id}/cancel")).await, 403);
    for path in ["/handlers/WORKER/resize", "/handlers", "/events"] {
        assert_eq!(ask(OTHER, Method::GET, path).await, 404, "{path}");
    }
    let listen = service.request(Method::GET, "/v1/listen?pattern=*").bearer_auth(&key);
    assert_eq!(Answer::of(listen).await.status, 403);
    let whole = service.key("whole", own, &[Scope::Read]).await;
    let listed = service.admin(Method::GET, "/keys?limit=1000", Value::Null).await.json();
    let scopes: Vec<&Value> = listed["items"].as_array().unwrap().iter().map(|key| &key["scopes"]).collect();
    assert!(scopes.contains(&&json!(["read:WORKER/resize", "operate:WORKER/resize"])), "{scopes:?}");
    assert!(whole.starts_with("wakeq_") && scopes.contains(&&json!(["read"])), "{scopes:?}");
    service.stop().await;
}

/// The handlers of two modules, each with an event here and one on another canvas.
const HANDLERS: [(&str, &str); 4] =
    [("image", "blur"), ("image", "resize"), ("mail", "send"), ("mail", "sort")];

/// Emits the events of all handlers; returns the ids of those here, and one of those elsewhere.
async fn emit_all(service: &Service) -> (Vec<String>, String) {
    let neighbour = service.key("neighbour", OTHER, &[Scope::Emit]).await;
    let emit = async |key: &str, canvas: CanvasId, (module, name): (&str, &str)| {
        let event = json!({"module": module, "name": name, "value": {"of": name}, "delay_s": 3600});
        let path = format!("/canvases/{canvas}/events");
        let emitted = service.ask(key, Method::POST, &path, event).await.json();
        emitted["id"].as_str().unwrap().to_owned()
    };
    let (mut ids, mut foreign) = (Vec::new(), String::new());
    for handler in HANDLERS {
        ids.push(emit(&service.key, CanvasId::DEFAULT, handler).await);
        foreign = emit(&neighbour, OTHER, handler).await;
    }
    (ids, foreign)
}

async fn read(service: &Service, key: &str, path: &str) -> Answer {
    service.ask(key, Method::GET, &format!("/canvases/{}{path}", CanvasId::DEFAULT), Value::Null).await
}

/// Two limited keys: each lists its own handlers and their events, and nothing of those of the
/// other one.
#[tokio::test]
async fn a_key_for_some_handlers_lists_these_and_their_events() {
    let service = Service::start().await;
    emit_all(&service).await;
    let images = key(&service, &["read:image/*"]).await;
    let mails = key(&service, &["read:mail/send", "read:WORKER/none", "operate:mail/sort"]).await;
    let get = async |key: &str, path: &str| read(&service, key, path).await;
    let names = |list: &Value| {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| format!("{}/{}", item["module"], item["name"]).replace('"', "")).collect::<Vec<_>>()
    };
    assert_eq!(names(&get(&images, "/handlers").await.json()), ["image/blur", "image/resize"]);
    assert_eq!(names(&get(&mails, "/handlers").await.json()), ["mail/send"]);
    let first = get(&images, "/handlers?limit=1").await.json();
    assert_eq!(names(&first), ["image/blur"]);
    let next = format!("/handlers?limit=1&cursor={}", first["next_cursor"].as_str().unwrap());
    assert_eq!(names(&get(&images, &next).await.json()), ["image/resize"]);
    assert_eq!(names(&get(&mails, &next).await.json()), ["mail/send"], "a cursor opens nothing");

    let refused = (403, "forbidden".to_owned());
    for (query, by_images, by_mails) in [
        ("module=image", Some(2), None),
        ("module=image&name=blur", Some(1), None),
        ("module=mail", None, None),
        ("module=mail&name=send", None, Some(1)),
        ("module=mail&name=sort", None, None),
        ("name=none", None, Some(0)),
        ("name=blur", None, None),
        ("state=delayed", None, None),
        ("value_text=blur", None, None),
    ] {
        for (key, expected) in [(&images, by_images), (&mails, by_mails)] {
            let list = get(key, &format!("/events?{query}")).await;
            let count = get(key, &format!("/events/count?{query}")).await;
            if let Some(expected) = expected {
                assert_eq!(list.json()["items"].as_array().unwrap().len(), expected, "{query}");
                assert_eq!(count.json()["count"], expected, "{query}");
            } else {
                assert_eq!((list.problem(), count.problem()), (refused.clone(), refused.clone()), "{query}");
            }
        }
    }
    assert_eq!(get(&mails, "/dead-events?module=mail&name=send").await.json()["items"], json!([]));
    assert_eq!(get(&mails, "/dead-events?module=image&name=blur").await.problem(), refused);
    service.stop().await;
}

/// What is on an object, in a batch, or died of one error may be of any handler: how many events
/// were looked at would tell of those of others.
#[tokio::test]
async fn a_key_for_some_handlers_looks_at_no_others() {
    let service = Service::start().await;
    let images = key(&service, &["read:image/*", "values:image/*"]).await;
    let wide = service.key("wide", CanvasId::DEFAULT, &[Scope::Emit, Scope::Read]).await;
    let open = json!({"on_end": {"name": "imported"}});
    assert_eq!(emit(&service, &wide, CanvasId::DEFAULT, "/batches/import:1", open).await.0, 201);
    for (module, name) in [("image", "blur"), ("mail", "send")] {
        let mut event =
            json!({"module": module, "name": name, "delay_s": 3600, "options": {"tags": ["seven"]}});
        event["object"] = json!("acct:1");
        event["batch"] = json!("import:1");
        assert_eq!(emit(&service, &wide, CanvasId::DEFAULT, "/events", event).await.0, 202);
    }
    let (blur, refused) = ("module=image&name=blur", (403, "forbidden".to_owned()));
    let live = ["object=acct:1", "batch=import:1", "waits_for=customer:1"];
    let group = format!("error_group={}", Uuid::new_v4());
    let dead = [live[0], live[1], "tag=seven", group.as_str()];
    let of_live =
        live.iter().flat_map(|by| ["/events?", "/events/count?"].map(|list| format!("{list}{blur}&{by}")));
    let lists = ["/dead-events?", "/events/count?state=dead&"];
    let of_dead = dead.iter().flat_map(|by| lists.map(|list| format!("{list}{blur}&{by}")));
    let of_module = "/events/count?state=dead&module=image".to_owned();
    for path in of_live.chain(of_dead).chain([of_module]) {
        assert_eq!(read(&service, &images, &path).await.problem(), refused, "{path}");
        assert_eq!(read(&service, &wide, &path).await.status, 200, "{path}");
        let elsewhere = format!("/canvases/{OTHER}{path}");
        assert_eq!(service.ask(&images, Method::GET, &elsewhere, Value::Null).await.status, 404, "{path}");
    }
    for (path, count) in [("/events?", 1), ("/events?tag=seven&", 1), ("/dead-events?", 0)] {
        let list = read(&service, &images, &format!("{path}{blur}")).await.json();
        assert_eq!(list["items"].as_array().unwrap().len(), count, "{path}");
        assert_eq!(list.get("looked_at"), None, "{path} looks at no others");
    }
    let counted = read(&service, &images, &format!("/events/count?tag=seven&{blur}")).await.json();
    assert_eq!((&counted["count"], &counted["looked_at"]), (&json!(1), &json!(1)));
    let whole = read(&service, &wide, &format!("/events?object=acct:1&{blur}")).await.json();
    assert_eq!(whole["looked_at"], 2, "who may read all is told");
    service.stop().await;
}

/// An event of another handler is answered like one that does not exist.
#[tokio::test]
async fn a_key_for_some_handlers_shows_their_events() {
    let service = Service::start().await;
    let (ids, foreign) = emit_all(&service).await;
    let images = key(&service, &["read:image/*", "values:image/*"]).await;
    let mails = key(&service, &["read:mail/send", "values:mail/send"]).await;
    let missing = read(&service, &images, &format!("/events/{}", Uuid::new_v4())).await;
    assert_eq!(missing.problem(), (404, "not-found".to_owned()));
    let words = |answer: &Answer| answer.text.split("request_id").next().unwrap().to_owned();
    for (at, id) in ids.iter().chain([&foreign]).enumerate() {
        for (key, may) in [(&images, at < 2), (&mails, at == 2)] {
            let shown = read(&service, key, &format!("/events/{id}?view=full")).await;
            assert_eq!(shown.status.as_u16(), if may { 200 } else { 404 }, "{at}: {}", shown.text);
            assert!(may || words(&shown) == words(&missing), "{}", shown.text);
        }
    }
    let stage = service.stop().await;
    let seen = "select count(*) from wakeq.audit_log where action = 'show_event' and outcome = 'done'";
    assert!(stage.count(seen).await > 0, "looking at values is recorded");
    let refused = "select count(*) from wakeq.audit_log where action = 'show_event' and outcome = 'refused'";
    assert!(stage.count(refused).await > 0, "and so is who tried in vain");
}

/// A key that reads everything, and the values of one handler only: it neither sees nor searches
/// those of others.
#[tokio::test]
async fn values_of_some_handlers_alone_are_shown_and_searched() {
    let service = Service::start().await;
    let (ids, _) = emit_all(&service).await;
    let narrow = key(&service, &["read", "values:mail/send"]).await;
    let forbidden = (403, "forbidden".to_owned());
    for (at, id) in ids.iter().enumerate() {
        assert!(read(&service, &narrow, &format!("/events/{id}")).await.status.is_success());
        let shown = read(&service, &narrow, &format!("/events/{id}?view=full")).await;
        match at {
            2 => assert_eq!(shown.json()["value"]["of"], "send"),
            _ => assert_eq!(shown.problem(), forbidden, "{at}"),
        }
    }
    for list in ["/events", "/events/count", "/dead-events"] {
        for (query, may) in [
            ("module=mail&name=send", true),
            ("module=mail", false),
            ("module=image&name=blur", false),
            ("name=send", false),
            ("limit=1", false),
        ] {
            // What these two do not have.
            if [("/events/count", "limit=1"), ("/dead-events", "module=mail")].contains(&(list, query)) {
                continue;
            }
            let search = read(&service, &narrow, &format!("{list}?{query}&value_text=blur")).await;
            match may {
                true => assert!(search.status.is_success(), "{list} {query}: {}", search.text),
                false => assert_eq!(search.problem(), forbidden, "{list} {query}"),
            }
        }
    }
    service.stop().await;
}

/// By the lease, like the other requests about it. An event of another handler is answered like one
/// that does not exist.
#[tokio::test]
async fn a_key_for_a_pulled_handler_stores_the_checkpoints_of_its_events() {
    let service = Service::start().await;
    for name in ["resize", "other"] {
        service.put(&format!("/handlers/WORKER/{name}/pull"), json!({})).await.json();
        service.stage.emit(name).await;
    }
    let narrow = key(&service, &["operate:WORKER/resize", "read:WORKER/resize"]).await;
    let lease = async |name: &str| {
        let leased = service.post(&format!("/handlers/WORKER/{name}/leases"), json!({})).await.json();
        leased["events"][0].clone()
    };
    let (own, other) = (lease("resize").await, lease("other").await);
    let store = async |canvas: CanvasId, event: &Value| {
        let path = format!("/canvases/{canvas}/events/{}/checkpoint", event["id"].as_str().unwrap());
        let body = json!({"claim": event["lease"], "value": {"page": 7}});
        service.ask(&narrow, Method::PUT, &path, body).await
    };
    assert_eq!(store(CanvasId::DEFAULT, &own).await.status, 204);
    let missing = (404, "not-found".to_owned());
    assert_eq!(store(CanvasId::DEFAULT, &other).await.problem(), missing, "of another handler");
    assert_eq!(store(OTHER, &own).await.problem(), missing, "on another canvas");
    let unknown = json!({"id": Uuid::new_v4(), "lease": own["lease"]});
    assert_eq!(store(CanvasId::DEFAULT, &unknown).await.problem(), missing);
    let stolen = json!({"id": own["id"], "lease": other["lease"]});
    assert_eq!(store(CanvasId::DEFAULT, &stolen).await.problem(), (410, "lease-over".into()));
    let read = format!("/canvases/{}/events/{}/checkpoint", CanvasId::DEFAULT, own["id"].as_str().unwrap());
    assert_eq!(service.ask(&narrow, Method::GET, &read, Value::Null).await.status, 403);
    let reader = key(&service, &["read:WORKER/resize"]).await;
    assert_eq!(
        service.ask(&reader, Method::PUT, &read, json!({"claim": own["lease"], "value": 1})).await.status,
        403
    );
    let stage = service.stop().await;
    assert_eq!(stage.count("select count(*) from wakeq.checkpoints").await, 1);
    let refused =
        "select count(*) from wakeq.audit_log where action = 'store_checkpoint' and outcome = 'refused'";
    assert_eq!(stage.count(refused).await, 3, "another handler, another canvas, and no scope");
}

#[tokio::test]
async fn invalid_scopes_are_rejected_in_code_and_by_the_table() {
    let service = Service::start().await;
    let many: Vec<String> = (0..17).map(|index| format!("emit:m{index}/*")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for scopes in [&["admin:WORKER/*"][..], &["emit:*/*"], &["emit:WORKER"], &["emit:WORKER/a b"], &[], &many]
    {
        let new = json!({"holder": "new", "scopes": scopes});
        let refused = service.admin(Method::POST, "/keys", new).await;
        assert_eq!(refused.problem(), (400, "bad-request".into()), "{scopes:?}");
    }
    let stage = service.stop().await;
    for scopes in
        ["{admin:WORKER/*}", "{emit:*/x}", "{\"emit:A/b read\", x}", "{emit:WORKER/}", "{emit,NULL}", "{}"]
    {
        let statement = format!("update wakeq.access_keys set scopes = '{scopes}'");
        let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&stage.pool).await.unwrap_err();
        assert!(refused.to_string().contains("access_keys_scopes_check"), "{scopes}: {refused}");
    }
}
