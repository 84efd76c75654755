//! The pages that show messages, and their forms.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use wakeq_emulator::broker::{MessageQuery, MessageState, PageSize};
use wakeq_emulator::proto::protobuf::Duration;
use wakeq_emulator::proto::pubsub::{
    PublishRequest, PubsubMessage, StreamingPullRequest, Subscription, Topic,
};
use wakeq_emulator::{FaultCode, Faults, Method, Options};

use crate::inbox::{HttpMessage, ask, ask_as};
use crate::limited::LimitedEmulator;

const TOPIC: &str = "projects/demo/topics/orders";
const SUBSCRIPTION: &str = "projects/demo/subscriptions/worker";
const PAGE: &str = "/admin/subscription?name=projects/demo/subscriptions/worker";
/// Of the same names in another project.
const OTHER_TOPIC: &str = "projects/other/topics/orders";
const OTHER: &str = "projects/other/subscriptions/worker";
const ACTIONS: [&str; 5] = ["publish", "acknowledge", "purge", "seek", "snapshot"];
const MARKUP: &str = "\"><img src=x onerror='alert(1)'><script>alert(2)</script>&";

/// An emulator whose topic keeps messages and whose subscription keeps acknowledged ones, and the
/// same in another project, which has one message.
struct Stage(LimitedEmulator);

impl Stage {
    async fn new() -> Self {
        let stage = Self(LimitedEmulator::start(Options::default()).await);
        stage.make(TOPIC, SUBSCRIPTION);
        stage.make(OTHER_TOPIC, OTHER);
        stage.publish(OTHER_TOPIC, vec![text("of another project")]);
        stage
    }

    fn make(&self, topic: &str, subscription: &str) {
        let topic = Topic {
            name: topic.to_owned(),
            message_retention_duration: Some(Duration { seconds: 3_600, nanos: 0 }),
            ..Topic::default()
        };
        let subscription = Subscription {
            name: subscription.to_owned(),
            topic: topic.name.clone(),
            ack_deadline_seconds: 60,
            retain_acked_messages: true,
            enable_message_ordering: true,
            ..Subscription::default()
        };
        self.0.broker(|broker, now| {
            broker.create_topic(now, topic).unwrap();
            broker.create_subscription(now, subscription).unwrap();
        });
    }

    fn publish(&self, topic: &str, messages: Vec<PubsubMessage>) {
        let request = PublishRequest { topic: topic.to_owned(), messages };
        self.0.broker(|broker, now| broker.publish(now, request)).unwrap();
    }

    async fn get(&self, path: &str) -> HttpMessage {
        ask(self.0.address(), &format!("GET {path}"), &[], "").await
    }

    async fn page(&self, path: &str) -> String {
        let page = self.get(path).await;
        assert_eq!(page.status(), 200, "{path}");
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
        assert!(page.headers["content-security-policy"].starts_with("default-src 'none'"));
        page.text()
    }

    async fn post(&self, action: &str, fields: &[(&str, &str)]) -> HttpMessage {
        ask(self.0.address(), &format!("POST /admin/{action}"), &[], &form(fields)).await
    }

    /// Sends a form; returns where it leads.
    async fn done(&self, action: &str, fields: &[(&str, &str)]) -> String {
        let answer = self.post(action, fields).await;
        assert_eq!(answer.status(), 303, "{}", answer.text());
        answer.headers["location"].clone()
    }

    async fn pull(&self) -> Value {
        let request = format!("POST /v1/{SUBSCRIPTION}:pull");
        let body = json!({"maxMessages": 10, "returnImmediately": true}).to_string();
        let answer = ask(self.0.address(), &request, &[], &body).await.json();
        answer.get("receivedMessages").cloned().unwrap_or_else(|| json!([]))
    }

    fn backlog(&self) -> usize {
        let query = query(1);
        let contents = self.0.broker(|broker, now| broker.messages(now, SUBSCRIPTION, &query));
        contents.unwrap().overview.messages.backlog
    }

    /// Stops it, after a look at the other project.
    async fn end(self) {
        let contents = self.0.broker(|broker, now| broker.messages(now, OTHER, &query(10))).unwrap();
        let shown = contents.page.messages.iter();
        let shown: Vec<_> =
            shown.map(|view| (view.message.data.to_vec(), view.state, view.attempts)).collect();
        assert_eq!(shown, [(b"of another project".to_vec(), MessageState::Available, 0)]);
        assert_eq!(contents.snapshots, []);
        self.0.stop().await;
    }
}

fn query(messages: usize) -> MessageQuery {
    MessageQuery { after: None, acknowledged: true, size: PageSize { messages, bytes: 1_000_000 } }
}

fn text(body: &str) -> PubsubMessage {
    PubsubMessage { data: body.to_owned().into(), ..PubsubMessage::default() }
}

fn form(fields: &[(&str, &str)]) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let fields = fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    fields.collect::<Vec<_>>().join("&")
}

/// The value of the first hidden field of this name.
fn hidden(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// Where the link to the next page leads, if there is one.
fn next(page: &str) -> Option<String> {
    let (before, _) = page.split_once("\">Next page</a>")?;
    let (_, address) = before.rsplit_once("href=\"")?;
    Some(address.replace("&amp;", "&"))
}

#[tokio::test]
async fn a_body_is_shown_as_json_as_text_or_as_bytes() {
    let stage = Stage::new().await;
    let bytes = PubsubMessage { data: vec![0_u8, 0xff, b'A'].into(), ..PubsubMessage::default() };
    let attributes = [("kind".to_owned(), "invoice".to_owned())].into();
    let keyed =
        PubsubMessage { ordering_key: "customer-7".to_owned(), attributes, ..text("{\"b\":1.10,\"a\":[]}") };
    stage.publish(TOPIC, vec![text("plain\nwords"), bytes]);
    stage.publish(TOPIC, vec![keyed]);
    stage.publish(TOPIC, vec![text(&"long ".repeat(20_000))]);
    let page = stage.page(PAGE).await;
    assert!(page.contains("<pre tabindex=\"0\">\nplain\nwords</pre>"), "{page}");
    assert!(page.contains("00000000  00 ff 41 ") && page.contains("  ..A\n</pre>"), "{page}");
    assert!(page.contains("{\n  &quot;b&quot;: 1.10,\n  &quot;a&quot;: []\n}</pre>"), "{page}");
    assert!(page.contains("<p>JSON of 17 bytes.</p>"), "{page}");
    assert!(page.contains("<dt>Ordering key</dt><dd>customer-7</dd>"), "{page}");
    assert_eq!(page.matches("It is delivered again if an earlier message").count(), 1, "of the one key");
    assert!(page.contains("<th scope=\"row\">kind</th><td>invoice</td>"), "{page}");
    assert!(page.contains("<p>Text of 100000 bytes, of which the first 65536 are shown.</p>"));
    assert!(page.contains("4 not acknowledged, 0 acknowledged and kept"), "{page}");
    assert!(!page.contains("another project"), "{page}");
    stage.end().await;
}

#[tokio::test]
async fn nothing_that_a_client_writes_is_markup() {
    let stage = Stage::new().await;
    let evil = PubsubMessage {
        ordering_key: MARKUP.to_owned(),
        attributes: [(MARKUP.to_owned(), MARKUP.to_owned())].into(),
        ..text(MARKUP)
    };
    stage.publish(TOPIC, vec![evil.clone()]);
    let request = StreamingPullRequest {
        subscription: SUBSCRIPTION.to_owned(),
        stream_ack_deadline_seconds: 60,
        client_id: MARKUP.to_owned(),
        ..StreamingPullRequest::default()
    };
    stage.0.broker(|broker, now| {
        let (stream, _) = broker.open_stream(now, &request).unwrap();
        broker.take_for_stream(now, stream, 10);
    });
    let project = "projects/\"><img src=x>&done=purged";
    let (topic, subscription) =
        (format!("{project}/topics/orders"), format!("{project}/subscriptions/worker"));
    stage.make(&topic, &subscription);
    stage.publish(&topic, vec![evil]);
    let of = |page: &str, name: &str| format!("/admin/{page}?{}", form(&[("name", name)]));
    let named = of("subscription", &subscription);
    for path in ["/admin/topic?name=projects/demo/topics/orders", PAGE, &of("topic", &topic), &named] {
        let page = stage.page(path).await;
        assert_eq!(page.matches("<script>").count(), 1, "the page's own");
        assert!(!page.contains("<img") && page.contains("&lt;img"), "{page}");
        assert!(!page.contains("role=\"status\""), "nothing was done");
    }
    assert!(stage.page(PAGE).await.contains("held by the stream of &quot;&gt;&lt;img"));
    assert_eq!(
        hidden(&stage.page(&named).await, "subscription"),
        subscription.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
    );
    let refused = [
        stage.get(&of("subscription", MARKUP)).await,
        stage.get(&format!("{PAGE}&{}", form(&[("after", MARKUP)]))).await,
        stage.post("publish", &[("topic", TOPIC), ("data", "x"), ("attributes", "<img>")]).await,
        stage.post("seek", &[("subscription", SUBSCRIPTION), ("time", MARKUP)]).await,
        stage.post("acknowledge", &[("subscription", SUBSCRIPTION), ("message", MARKUP)]).await,
    ];
    for refused in refused {
        let page = refused.text();
        assert_eq!(refused.status(), 400, "{page}");
        assert!(!page.contains("<img") && !page.contains("<script"), "{page}");
    }
    stage.end().await;
}

#[tokio::test]
async fn thousands_of_messages_are_on_pages_that_stay_small() {
    let stage = Stage::new().await;
    for _ in 0..7 {
        stage.publish(TOPIC, vec![text("small"); 500]);
    }
    stage.publish(TOPIC, vec![text(&"large ".repeat(20_000)); 60]);
    // What is written of these is several times larger than what was sent.
    stage.publish(TOPIC, vec![text(&"\"".repeat(60_000)); 40]);
    let nested = format!("{}{}1{}", "[".repeat(200), "1,".repeat(50), "]".repeat(200));
    stage.publish(TOPIC, vec![text(&nested); 200]);
    assert_eq!(pages(&stage, &format!("{PAGE}&limit=100000")).await, 3_800);
    assert_eq!(stage.page(PAGE).await.matches("<article>").count(), 50);
    let list = format!("/admin/topic?name={TOPIC}&limit=200");
    let kept = stage.page(&list).await;
    assert!(kept.contains("3800, kept by the topic for 3600 s"), "{kept}");
    assert_eq!(kept.matches("<article>").count(), 200);
    let kept = stage.page(&next(&kept).unwrap()).await;
    assert!(kept.contains("<article>") && kept.contains("From the oldest"));
    assert_eq!(pages(&stage, &list).await, 3_800);
    stage.end().await;
}

/// Follows the pages of a list, and checks their size; returns how many messages they have.
async fn pages(stage: &Stage, first: &str) -> usize {
    let (mut path, mut messages, mut pages) = (Some(first.to_owned()), 0, 0);
    while let Some(current) = path {
        let page = stage.page(&current).await;
        let count = page.matches("<article>").count();
        assert!((1..=200).contains(&count), "{count}");
        assert!(page.len() < 3_000_000, "{}", page.len());
        (messages, pages) = (messages + count, pages + 1);
        path = next(&page);
    }
    assert!(pages >= 18, "{pages}");
    messages
}

#[tokio::test]
async fn a_message_is_published_held_acknowledged_and_brought_back_by_forms() {
    let stage = Stage::new().await;
    let fields = [
        ("topic", TOPIC),
        ("subscription", SUBSCRIPTION),
        ("data", "{\"a\":\r\n1}"),
        ("attributes", "kind=invoice\r\nsum=1=2"),
        ("ordering_key", "customer-7"),
    ];
    let address = stage.done("publish", &fields).await;
    assert_eq!(address, format!("{PAGE}&done=published"));
    let page = stage.page(&address).await;
    assert!(page.contains("Published.") && page.contains("waiting to be handed out"), "{page}");
    let received = stage.pull().await;
    let message = &received[0]["message"];
    assert_eq!(message["data"], "eyJhIjoKMX0=");
    assert_eq!(message["attributes"], json!({"kind": "invoice", "sum": "1=2"}));
    assert_eq!(message["orderingKey"], "customer-7");

    let page = stage.page(PAGE).await;
    assert!(page.contains("outstanding until ") && page.contains("held by a pull"), "{page}");
    assert!(page.contains("<dt>Attempts</dt><dd>1</dd>"), "{page}");
    let place = hidden(&page, "message");
    let fields = [("subscription", SUBSCRIPTION), ("message", place.as_str())];
    let of_other = [("subscription", OTHER), ("message", place.as_str())];
    assert_eq!(stage.post("acknowledge", &of_other).await.status(), 404);
    assert_eq!(stage.done("acknowledge", &fields).await, format!("{PAGE}&done=acknowledged"));
    assert_eq!(stage.backlog(), 0);
    assert_eq!(stage.post("acknowledge", &fields).await.status(), 404, "it is not there any more");
    let page = stage.page(&format!("{PAGE}&acknowledged=1")).await;
    assert!(page.contains("<dt>State</dt><dd>acknowledged</dd>"), "{page}");

    let fields = [("subscription", SUBSCRIPTION), ("time", "2020-01-01T00:00:00Z")];
    assert_eq!(stage.done("seek", &fields).await, format!("{PAGE}&done=sought"));
    assert_eq!(stage.pull().await[0]["message"]["orderingKey"], "customer-7");
    assert_eq!(
        stage.done("publish", &[("topic", TOPIC), ("data", "x")]).await,
        format!("/admin/topic?name={TOPIC}&done=published")
    );
    assert_eq!(stage.backlog(), 2);
    stage.end().await;
}

#[tokio::test]
async fn a_subscription_is_purged_and_returns_to_a_snapshot_by_forms() {
    let stage = Stage::new().await;
    stage.publish(TOPIC, vec![text("a"), text("b")]);
    let subscription = ("subscription", SUBSCRIPTION);
    let made = stage.done("snapshot", &[subscription, ("snapshot", "saved")]).await;
    assert_eq!(made, format!("{PAGE}&done=snapshot"));
    stage.done("snapshot", &[subscription]).await;
    assert_eq!(stage.post("snapshot", &[subscription, ("snapshot", "saved")]).await.status(), 409);
    stage.pull().await;
    assert_eq!(stage.done("purge", &[subscription]).await, format!("{PAGE}&done=purged"));
    assert_eq!(stage.backlog(), 0);
    assert_eq!(stage.pull().await, json!([]));
    stage.publish(TOPIC, vec![text("c")]);
    assert_eq!(stage.backlog(), 1, "what comes later is not purged");
    let page = stage.page(PAGE).await;
    let saved = "projects/demo/snapshots/saved";
    assert_eq!(page.matches("Seek to it").count(), 2, "{page}");
    assert!(page.contains(&format!("name=\"snapshot\" value=\"{saved}\"")), "{page}");
    stage.done("seek", &[subscription, ("snapshot", saved)]).await;
    assert_eq!(stage.backlog(), 3);
    let elsewhere = [("subscription", OTHER), ("snapshot", saved)];
    assert_eq!(stage.post("seek", &elsewhere).await.status(), 400, "it is of another topic");
    stage.end().await;
}

#[tokio::test]
async fn forms_of_other_sites_are_refused() {
    let stage = Stage::new().await;
    stage.publish(TOPIC, vec![text("stays")]);
    let place = hidden(&stage.page(PAGE).await, "message");
    let fields = form(&[
        ("topic", TOPIC),
        ("subscription", SUBSCRIPTION),
        ("message", place.as_str()),
        ("data", "evil"),
        ("time", "2999-01-01T00:00:00Z"),
    ]);
    let address = stage.0.address();
    let (own, secure) = (format!("http://{address}"), format!("https://{address}"));
    let evil = format!("evil.example:{}", address.port());
    let evil_page = format!("http://{evil}");
    for action in ACTIONS {
        let request = format!("POST /admin/{action}");
        for origin in ["http://evil.example", "null", &secure, &evil_page] {
            let refused = ask(address, &request, &[("origin", origin)], &fields).await;
            assert_eq!(refused.status(), 403, "{action} {origin}");
        }
        let refused = ask_as(address, &evil, &request, &[("origin", &evil_page)], &fields).await;
        assert_eq!(refused.status(), 403, "{action} behind another name");
        assert_eq!(stage.get(&format!("/admin/{action}?{fields}")).await.status(), 405, "{action}");
    }
    let request = format!("GET {PAGE}");
    assert_eq!(ask_as(address, &evil, &request, &[], "").await.status(), 403);
    assert_eq!(stage.backlog(), 1);
    assert!(!stage.page(PAGE).await.contains("Seek to it"), "there is no snapshot");
    for action in ["publish", "acknowledge", "snapshot", "purge"] {
        let request = format!("POST /admin/{action}");
        let done = ask(address, &request, &[("origin", &own)], &fields).await;
        assert_eq!(done.status(), 303, "{action}: {}", done.text());
    }
    assert_eq!(stage.backlog(), 0);
    stage.end().await;
}

#[tokio::test]
async fn missing_resources_are_refused_and_faults_of_calls_are_for_clients() {
    let stage = Stage::new().await;
    for path in [
        "/admin/subscription?name=projects/demo/subscriptions/gone",
        "/admin/topic?name=projects/demo/topics/gone",
    ] {
        assert_eq!(stage.get(path).await.status(), 404, "{path}");
    }
    for path in [
        format!("{PAGE}&after=1.2.3"),
        format!("/admin/topic?name={TOPIC}&after=x"),
        "/admin/topic".to_owned(),
    ] {
        assert_eq!(stage.get(&path).await.status(), 400, "{path}");
    }
    let nothing = [("topic", TOPIC), ("data", "")];
    assert_eq!(stage.post("publish", &nothing).await.status(), 400, "an empty message");
    stage.0.set_faults(Faults::default().fail_next(1, FaultCode::Unavailable, [Method::Publish]));
    stage.done("publish", &[("topic", TOPIC), ("data", "x")]).await;
    let publish = format!("POST /v1/{TOPIC}:publish");
    let body = json!({"messages": [{"data": "eA=="}]}).to_string();
    for status in [503, 200] {
        assert_eq!(ask(stage.0.address(), &publish, &[], &body).await.status(), status);
    }
    assert_eq!(stage.backlog(), 2);
    stage.end().await;
}
