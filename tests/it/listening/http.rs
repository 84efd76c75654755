//! `GET /v1/listen`, through a real HTTP client.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::time::{interval, timeout};
use wakeq::listeners::TopicPattern;
use wakeq::{Actor, CanvasId};
use wakeq_service::access::{Access, AccessConfig, CredentialFilter, Reach, Scope};
use wakeq_service::server::{HttpConfig, HttpServer};

use super::{OTHER, on, page, stage, subscriptions};
use crate::support::TIMEOUT;
use crate::support::brokers::Broker;
use crate::support::service::{Answer, Service, make_key};

/// A stream of server-sent events, and the text that has arrived.
struct Stream {
    response: Response,
    text: String,
}

impl Stream {
    async fn open(service: &Service, key: &str, pattern: &str) -> Self {
        let response = asking(service, pattern).bearer_auth(key).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        Self { response, text: String::new() }
    }

    /// The next event that has data: its type, id and data.
    async fn next(&mut self) -> Option<(String, String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    event
                        .lines()
                        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                        .map(str::to_owned)
                };
                let found = field("data").map(|data| {
                    let (kind, id) = (field("event").unwrap(), field("id").unwrap_or_default());
                    (kind, id, serde_json::from_str(&data).unwrap())
                });
                self.text = rest.to_owned();
                if found.is_some() {
                    return found;
                }
                continue;
            }
            let chunk = timeout(TIMEOUT, self.response.chunk()).await.expect("nothing came").unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The canvas and name of each event before the first one of this name.
    async fn until(&mut self, name: &str) -> Vec<(String, String)> {
        let mut heard = Vec::new();
        loop {
            let (kind, id, data) = self.next().await.expect("it is open");
            assert_eq!((kind.as_str(), Some(id.as_str())), ("emitted", data["id"].as_str()));
            let text = |field: &str| data[field].as_str().unwrap().to_owned();
            if data["name"] == name {
                return heard;
            }
            heard.push((text("canvasID"), text("name")));
        }
    }

    /// By the second keep-alive comment, anything that was to be sent has been sent.
    async fn is_silent(&mut self) {
        self.text.clear();
        while self.text.matches(": still here").count() < 2 {
            let chunk = timeout(TIMEOUT, self.response.chunk()).await.unwrap().unwrap().unwrap();
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        assert!(!self.text.contains("data:"), "{}", self.text);
    }

    /// Reads the stream to its end.
    async fn ended(&mut self) {
        while self.next().await.is_some() {}
    }
}

fn asking(service: &Service, pattern: &str) -> RequestBuilder {
    service.request(Method::GET, "/v1/listen").query(&[("pattern", pattern)])
}

async fn emit(service: &Service, key: &str, canvas: CanvasId, name: &str) {
    let path = format!("/canvases/{canvas}/events");
    let event = json!({"module": "page", "name": name, "value": {"path": "/"}});
    assert_eq!(service.ask(key, Method::POST, &path, event).await.status, 202);
}

// Shows: DRV-02
#[tokio::test]
async fn what_is_emitted_over_http_is_heard_over_http() {
    let service = Service::broadcasting(HttpConfig::default()).await;
    let mut stream = Stream::open(&service, &service.key, "*").await;
    let answer =
        service.post("/events", json!({"name": "native", "value": {"a": [1, 2]}, "object": "work:1"})).await;
    let (kind, id, data) = stream.next().await.unwrap();
    assert_eq!((kind, id.as_str()), ("emitted".into(), answer.json()["id"].as_str().unwrap()));
    assert_eq!(data["id"], id);
    assert_eq!(
        (&data["module"], &data["name"], &data["modifier"]),
        (&"WORKER".into(), &"native".into(), &"_".into())
    );
    assert_eq!(
        (&data["value"], &data["object"], &data["prev"]),
        (&json!({"a": [1, 2]}), &"work:1".into(), &0.into())
    );
    assert!(data["link"].as_i64().unwrap() > 0 && data["traceparent"].is_string());

    let cloud =
        json!({"specversion": "1.0", "type": "cloud", "source": "/shop", "id": "order-1", "data": "Cy"});
    for _ in 0..2 {
        let request = service.on_canvas(Method::POST, "/events");
        let request = request.header("content-type", "application/cloudevents+json").body(cloud.to_string());
        assert!(Answer::of(request).await.status.is_success());
    }
    let batch = json!({"events": [{"name": "batch-1"}, {"name": "batch-2"}, {"name": "end"}]});
    assert_eq!(service.post("/events:batch", batch).await.status, 202);
    let heard = stream.until("end").await.into_iter().map(|(_, name)| name);
    assert_eq!(
        heard.collect::<Vec<_>>(),
        ["cloud", "batch-1", "batch-2"],
        "the repeat of `cloud` is told to nobody"
    );
    service.stop().await;
}

/// Whatever the pattern, a key of one canvas receives its events and no others.
// Shows: DRV-18
#[tokio::test]
async fn a_key_hears_its_canvas_and_no_other() {
    let listener_keep_alive = Duration::from_millis(100);
    let service = Service::broadcasting(HttpConfig { listener_keep_alive, ..HttpConfig::default() }).await;
    let foreign = service.key("foreign", OTHER, &Scope::ALL).await;
    let own = CanvasId::DEFAULT.to_string();
    for pattern in [
        "*",
        "*:*:*",
        "*:page:*",
        "[0-9a-f]*",
        "????????-*",
        &format!("{OTHER}*"),
        "*e2:*:*",
        "*\" OR attributes.canvas != \"*",
    ] {
        let mut mine = Stream::open(&service, &service.key, pattern).await;
        let mut all = Stream::open(&service, &service.key, "*").await;
        let mut theirs = Stream::open(&service, &foreign, "*").await;
        for name in ["one", "two"] {
            emit(&service, &foreign, OTHER, name).await;
        }
        emit(&service, &service.key, CanvasId::DEFAULT, "mine").await;
        emit(&service, &service.key, CanvasId::DEFAULT, "end").await;
        emit(&service, &foreign, OTHER, "end").await;
        assert_eq!(all.until("end").await, [(own.clone(), "mine".to_owned())], "{pattern}");
        assert_eq!(theirs.until("end").await.len(), 2);
        if pattern.parse::<TopicPattern>().unwrap().matches(&format!("{own}:page:end")) {
            assert_eq!(mine.until("end").await, [(own.clone(), "mine".to_owned())], "{pattern}");
        } else {
            mine.is_silent().await;
        }
    }
    service.stop().await;
}

#[tokio::test]
async fn a_listener_without_read_scope_is_refused_with_the_reason() {
    let service = Service::broadcasting(HttpConfig::default()).await;
    let ask = async |key: Option<&str>, pattern: &str| {
        let request = asking(&service, pattern);
        Answer::of(key.into_iter().fold(request, RequestBuilder::bearer_auth)).await
    };
    assert_eq!(ask(None, "*").await.problem(), (401, "unauthenticated".into()));
    let emitter = service.key("emitter", OTHER, &[Scope::Emit, Scope::Operate, Scope::Admin]).await;
    assert_eq!(ask(Some(&emitter), "*").await.problem(), (403, "forbidden".into()));
    let blind = service.key("blind", OTHER, &[Scope::Read, Scope::Operate, Scope::Admin]).await;
    ask(Some(&blind), "*").await.says((403, "forbidden"), "`values`");
    for pattern in ["", "[", "*:*:*:*", "a\\", &"x".repeat(513)] {
        let refused = ask(Some(&service.key), pattern).await;
        assert_eq!(refused.problem(), (400, "bad-request".into()), "{pattern}");
    }
    let missing = Answer::of(service.request(Method::GET, "/v1/listen").bearer_auth(&service.key)).await;
    assert_eq!(missing.problem(), (400, "bad-request".into()));
    service.stop().await;

    let silent = Service::start().await;
    let off = Answer::of(asking(&silent, "*").bearer_auth(&silent.key)).await;
    assert_eq!(off.problem(), (404, "not-found".into()));
    assert!(off.text.contains("WAKEQ_BROADCAST=1"), "{}", off.text);
    silent.stop().await;
}

/// A slot is freed when its listener hangs up, and shutdown does not wait for listeners that are
/// still connected: the grace is longer than the test's patience.
#[tokio::test]
async fn listeners_are_limited_and_do_not_delay_shutdown() {
    let shutdown_grace = Duration::from_secs(600);
    let config = HttpConfig { max_listeners: 1, shutdown_grace, ..HttpConfig::default() };
    let service = Service::broadcasting(config).await;
    let first = Stream::open(&service, &service.key, "*").await;
    let busy = Answer::of(asking(&service, "*").bearer_auth(&service.key)).await;
    assert_eq!(busy.problem(), (429, "too-many-requests".into()));
    assert_eq!(busy.headers["retry-after"], "1");
    drop(first);
    let mut looks = interval(Duration::from_millis(20));
    let again = async {
        loop {
            let response = asking(&service, "*").bearer_auth(&service.key).send().await.unwrap();
            if response.status().is_success() {
                break Stream { response, text: String::new() };
            }
            looks.tick().await;
        }
    };
    let mut second = timeout(TIMEOUT, again).await.expect("the place is not left");
    emit(&service, &service.key, CanvasId::DEFAULT, "end").await;
    second.until("end").await;
    service.stop().await;
    second.ended().await;
}

/// Ten listeners of two canvases share one subscription at the broker, sixty that come and go
/// create no other, and it is deleted when the process ends.
#[tokio::test]
async fn all_who_listen_to_a_process_share_a_subscription() {
    let config = on(Broker::pubsub_config("shared").await);
    let stage = stage(&config).await;
    let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
    let mut keys = Vec::new();
    for canvas in [CanvasId::DEFAULT, OTHER] {
        keys.push(make_key(&access, "listener", Reach::Canvas(canvas), &Scope::ALL).await);
    }
    let http = HttpConfig { address: ([127, 0, 0, 1], 0).into(), ..HttpConfig::default() };
    let server = HttpServer::bind(stage.store.clone(), stage.notifier.clone(), http).await.unwrap();
    let (address, stop) = (server.local_address(), server.stop_token());
    let running = tokio::spawn(server.run());
    let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap();
    let listen = async |key: &str| {
        let request = client.get(format!("http://{address}/v1/listen?pattern=*:page:*")).bearer_auth(key);
        request.send().await.unwrap()
    };
    let mut open = Vec::new();
    for key in keys.iter().cycle().take(10) {
        let response = listen(key).await;
        assert_eq!(response.status(), 200);
        open.push(Stream { response, text: String::new() });
    }
    assert_eq!(subscriptions(&config).await.len(), 1);
    for key in keys.iter().cycle().take(60) {
        drop(listen(key).await);
    }
    assert_eq!(subscriptions(&config).await.len(), 1);
    for (canvas, name) in
        [(OTHER, "theirs"), (CanvasId::DEFAULT, "mine"), (OTHER, "end"), (CanvasId::DEFAULT, "end")]
    {
        stage.queue.emit(page(name).canvas(canvas)).await.unwrap();
        stage.queue.broadcasts().unwrap().flush(TIMEOUT).await;
    }
    for (stream, (canvas, name)) in
        open.iter_mut().zip([(CanvasId::DEFAULT, "mine"), (OTHER, "theirs")].into_iter().cycle())
    {
        assert_eq!(stream.until("end").await, [(canvas.to_string(), name.to_owned())]);
    }
    stop.cancel();
    timeout(TIMEOUT, running).await.expect("no end in time").unwrap();
    assert_eq!(subscriptions(&config).await, []);
}

/// The time-outs of requests and of idle connections do not apply to listeners.
#[tokio::test]
async fn a_stream_outlasts_the_time_outs_of_requests() {
    // Long enough for the requests of this test, even on a busy machine.
    let short = Duration::from_secs(2);
    let config = HttpConfig {
        header_timeout: short,
        idle_timeout: short,
        request_timeout: short,
        listener_keep_alive: short,
        ..HttpConfig::default()
    };
    let service = Service::broadcasting(config).await;
    let mut stream = Stream::open(&service, &service.key, "*").await;
    stream.is_silent().await;
    emit(&service, &service.key, CanvasId::DEFAULT, "end").await;
    assert_eq!(stream.until("end").await, []);
    service.stop().await;
}

#[tokio::test]
async fn a_stream_ends_with_its_credential() {
    let access = AccessConfig { cache: Duration::ZERO, ..AccessConfig::default() };
    let config =
        HttpConfig { access, listener_keep_alive: Duration::from_millis(100), ..HttpConfig::default() };
    let service = Service::broadcasting(config).await;
    let key = service.key("leaver", CanvasId::DEFAULT, &[Scope::Read, Scope::Values]).await;
    let (mut leaving, mut staying) =
        (Stream::open(&service, &key, "*").await, Stream::open(&service, &service.key, "*").await);
    let id = key.split('_').nth(1).unwrap().parse().unwrap();
    service.access.revoke_key(CredentialFilter::Everything, id, &Actor::admin("tests")).await.unwrap();
    timeout(TIMEOUT, leaving.ended()).await.expect("it goes on");
    emit(&service, &service.key, CanvasId::DEFAULT, "end").await;
    staying.until("end").await;
    service.stop().await;
}
