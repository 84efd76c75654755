//! What the emulator serves besides the API: faults, forgetting, state, the page; and what it
//! starts with.

use serde_json::{Value, json};
use wakeq_emulator::proto::pubsub::Topic;
use wakeq_emulator::{Emulator, FaultCode, Faults, Method, Options, Provision};

use crate::inbox::{HttpMessage, ask, ask_as};
use crate::limited::LimitedEmulator;

const TOPIC: &str = "GET /v1/projects/demo/topics/orders";

async fn emulator(provision: &str) -> LimitedEmulator {
    let options = Options { provision: provision.parse().unwrap(), ..Options::default() };
    LimitedEmulator::start(options).await
}

async fn request(emulator: &Emulator, line: &str) -> HttpMessage {
    ask(emulator.address(), line, &[], "").await
}

async fn status(emulator: &Emulator, line: &str) -> u16 {
    request(emulator, line).await.status()
}

async fn put_faults(emulator: &Emulator, faults: &Value) -> HttpMessage {
    ask(emulator.address(), "PUT /admin/faults", &[], &faults.to_string()).await
}

#[tokio::test]
async fn faults_are_set_shown_used_up_and_cleared_at_run_time() {
    let emulator = emulator("demo,orders").await;
    let faults = json!({"seed": 7, "next": [{"times": 2, "code": "UNAVAILABLE", "methods": ["GetTopic"]}]});
    let set = put_faults(&emulator, &faults).await;
    assert_eq!((set.status(), &set.json()["seed"]), (200, &json!(7)));
    let statuses =
        [status(&emulator, TOPIC).await, status(&emulator, TOPIC).await, status(&emulator, TOPIC).await];
    assert_eq!(statuses, [503, 503, 200]);
    let shown = request(&emulator, "GET /admin/faults").await.json();
    assert_eq!((&shown["next"], &shown["seed"]), (&json!([]), &json!(7)));
    let cleared = request(&emulator, "DELETE /admin/faults").await;
    assert_eq!(cleared.json(), serde_json::to_value(Faults::default()).unwrap());
    emulator.stop().await;
}

#[tokio::test]
async fn faults_are_set_by_the_library_too() {
    let emulator = emulator("demo,orders").await;
    emulator.set_faults(Faults::default().fail_next(1, FaultCode::NotFound, [Method::GetTopic]));
    assert_eq!(status(&emulator, TOPIC).await, 404);
    assert_eq!(status(&emulator, TOPIC).await, 200);
    emulator.set_faults(Faults { deadline_exceeded: 1.0, ..Faults::default() });
    assert_eq!(status(&emulator, TOPIC).await, 504);
    emulator.stop().await;
}

#[tokio::test]
async fn rejects_invalid_faults_and_keeps_the_current_ones() {
    let emulator = emulator("demo").await;
    emulator.set_faults(Faults { lose: 0.5, ..Faults::default() });
    for wrong in [json!({"loose": 1}), json!({"lose": 2}), json!([]), json!({"methods": ["Publsh"]})] {
        let refused = put_faults(&emulator, &wrong).await;
        let words = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(refused.status(), 400, "{wrong}");
        assert!(words.contains("duplicate") && words.contains("StreamingPull"), "{words}");
    }
    assert_eq!(emulator.broker(|broker, _| broker.faults().lose), 0.5);
    emulator.stop().await;
}

#[tokio::test]
async fn only_its_own_page_may_reset_the_emulator() {
    let emulator = emulator("demo,orders:worker").await;
    let evil = [("origin", "http://evil.example")];
    assert_eq!(ask(emulator.address(), "POST /admin/forget", &evil, "").await.status(), 403);
    let delete = TOPIC.replace("GET", "DELETE");
    assert_eq!(ask(emulator.address(), &delete, &evil, "").await.status(), 403);
    assert_eq!(ask(emulator.address(), TOPIC, &evil, "").await.status(), 200, "it may look");
    let own = format!("http://{}", emulator.address());
    let own = [("origin", own.as_str())];
    assert_eq!(ask(emulator.address(), "POST /admin/forget", &own, "").await.status(), 200);
    assert_eq!(status(&emulator, TOPIC).await, 404);
    let state = request(&emulator, "GET /admin/state").await.json();
    assert_eq!((&state["topics"], &state["subscriptions"]), (&json!([]), &json!([])));
    emulator.stop().await;
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_reads_and_changes() {
    const PAGE: &str = "http://ui.example:9090";
    let allowed_origins = vec![PAGE.to_owned()];
    let provision = "demo,orders:worker".parse().unwrap();
    let options = Options { provision, allowed_origins, ..Options::default() };
    let emulator = LimitedEmulator::start(options).await;
    let (preflight, delete) = (TOPIC.replace("GET", "OPTIONS"), TOPIC.replace("GET", "DELETE"));
    let question = [
        ("origin", PAGE),
        ("access-control-request-method", "DELETE"),
        ("access-control-request-headers", "content-type"),
    ];
    let told = ask(emulator.address(), &preflight, &question, "").await;
    assert_eq!((told.status(), told.headers["access-control-allow-origin"].as_str()), (204, PAGE));
    assert!(told.headers["access-control-allow-methods"].contains("DELETE"));
    assert_eq!(told.headers["access-control-allow-headers"], "content-type");

    let other = [("origin", "http://other.example")];
    for request in [preflight.as_str(), TOPIC, delete.as_str()] {
        let answer = ask(emulator.address(), request, &other, "").await;
        assert_eq!(answer.headers.get("access-control-allow-origin"), None, "{request}");
    }
    let deleted = ask(emulator.address(), &delete, &[("origin", PAGE)], "").await;
    assert_eq!((deleted.status(), deleted.headers["access-control-allow-origin"].as_str()), (200, PAGE));
    emulator.stop().await;
}

#[tokio::test]
async fn a_page_behind_another_name_of_the_loopback_interface_is_not_answered() {
    let emulator = emulator("demo,orders:worker").await;
    let evil = format!("evil.example:{}", emulator.address().port());
    let origin = format!("http://{evil}");
    for request in ["GET /admin/state", "GET /", TOPIC, "POST /admin/forget"] {
        let answer = ask_as(emulator.address(), &evil, request, &[("origin", &origin)], "").await;
        assert_eq!(answer.status(), 403, "{request}");
        assert!(answer.text().contains("localhost"), "{}", answer.text());
    }
    let local = format!("localhost:{}", emulator.address().port());
    assert_eq!(ask_as(emulator.address(), &local, TOPIC, &[], "").await.status(), 200);
    emulator.stop().await;
}

#[tokio::test]
async fn the_root_answers_by_accept_header() {
    let emulator = emulator("demo,orders:worker").await;
    let accepting = async |kind: &str| ask(emulator.address(), "GET /", &[("accept", kind)], "").await;
    let page = accepting("text/html,application/xhtml+xml,*/*;q=0.8").await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert!(page.headers["content-security-policy"].starts_with("default-src 'none'"));
    assert!(page.text().contains("subscriptions/</span>worker"), "{}", page.text());
    let state = accepting("application/json").await.json();
    assert_eq!(state["subscriptions"][0]["name"], "projects/demo/subscriptions/worker");
    assert_eq!(state["subscriptions"][0]["messages"]["backlog"], 0);
    let text = accepting("*/*").await.text();
    assert!(text.starts_with("Ok\n1 topics, 1 subscriptions"), "{text}");
    emulator.stop().await;
}

#[tokio::test]
async fn provisioning_keeps_existing_resources_and_names_rejected_ones() {
    let emulator = emulator("demo,orders:worker").await;
    let again: Provision = "demo,orders:worker:audit".parse().unwrap();
    let made = emulator.broker(|broker, now| again.apply(broker, now)).unwrap();
    assert_eq!((made.topics, made.subscriptions), (0, 1));
    emulator.stop().await;

    let topic = Topic { name: "projects/demo/topics/goog-no".into(), ..Topic::default() };
    let options = Options { provision: Provision::default().topic(topic), ..Options::default() };
    let error = Emulator::start("127.0.0.1:0".parse().unwrap(), options).await.unwrap_err();
    assert!(error.to_string().starts_with("Provision: projects/demo/topics/goog-no: "), "{error}");
}
