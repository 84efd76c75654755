//! Broadcasts and their listeners, on Postgres and the Pub/Sub emulators.

mod http;
mod tail;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use google_cloud_auth::credentials::anonymous;
use google_cloud_pubsub::client::{Publisher, Subscriber, SubscriptionAdmin, TopicAdmin};
use google_cloud_pubsub::model::{Message, Subscription};
use tokio::time::timeout;
use uuid::Uuid;
use wakeq::crons::{CronSchedule, NewCron};
use wakeq::events::{Due, IdempotencyKey, Idempotent};
use wakeq::listeners::{Broadcast, ListenError, ListenItem, Listener};
use wakeq::notify::{Notifier, PubSub, PubSubConfig, TopicState, create_topics, describe_topics};
use wakeq::testing::MemoryNotifier;
use wakeq::{Actor, CanvasId, Event, EventId, Timing};

use crate::support::brokers::Broker;
use crate::support::{Stage, Statements, TIMEOUT, wait_while};

const OTHER: CanvasId = CanvasId(Uuid::from_u128(0x07e2));

/// The configuration with a broadcast topic.
fn on(config: PubSubConfig) -> PubSubConfig {
    PubSubConfig { broadcast_topic: Some(PubSubConfig::broadcast_topic_of(&config.topic)), ..config }
}

async fn stage(config: &PubSubConfig) -> Stage {
    create_topics(config).await.unwrap();
    Stage::with(Arc::new(PubSub::connect(config.clone()).await.unwrap()), Timing::default()).await
}

async fn next(listener: &mut Listener) -> ListenItem {
    timeout(TIMEOUT, listener.next()).await.expect("nothing heard").expect("it is open")
}

async fn event(listener: &mut Listener) -> Broadcast {
    match next(listener).await {
        ListenItem::Event(broadcast) => *broadcast,
        missed @ ListenItem::Missed(_) => panic!("{missed:?}"),
    }
}

/// The broadcasts before the first event of this name.
async fn until(listener: &mut Listener, name: &str) -> Vec<Broadcast> {
    let mut heard = Vec::new();
    loop {
        let broadcast = event(listener).await;
        if broadcast.address.scope.name.as_str() == name {
            return heard;
        }
        heard.push(broadcast);
    }
}

fn names(heard: &[Broadcast]) -> Vec<&str> {
    heard.iter().map(|broadcast| broadcast.address.scope.name.as_str()).collect()
}

fn page(name: &str) -> Event {
    Event::new(name, &name).unwrap().module("page").unwrap()
}

fn endpoint(config: &PubSubConfig) -> String {
    format!("http://{}", config.emulator_host.as_ref().unwrap())
}

fn broadcast_topic(config: &PubSubConfig) -> String {
    format!("projects/{}/topics/{}", config.project, config.broadcast_topic.as_ref().unwrap())
}

async fn admin(config: &PubSubConfig) -> SubscriptionAdmin {
    let builder = SubscriptionAdmin::builder().with_endpoint(endpoint(config));
    builder.with_credentials(anonymous::Builder::new().build()).build().await.unwrap()
}

/// The subscriptions of listeners.
async fn subscriptions(config: &PubSubConfig) -> Vec<Subscription> {
    let project = format!("projects/{}", config.project);
    let request = admin(config).await.list_subscriptions().set_project(project).set_page_size(1000);
    let listed = request.send().await.unwrap();
    assert_eq!(listed.next_page_token, "");
    let topic = format!("/topics/{}", config.broadcast_topic.as_ref().unwrap());
    listed.subscriptions.into_iter().filter(|subscription| subscription.topic.ends_with(&topic)).collect()
}

/// Waits until no subscription of a listener is left.
async fn until_deleted(config: &PubSubConfig) {
    wait_while!(!subscriptions(config).await.is_empty(), "a subscription is left");
}

/// Emits in every way the library has. Events that are rolled back or known already are not
/// broadcast.
async fn emit_in_every_way(stage: &Stage) -> BTreeSet<EventId> {
    let queue = &stage.queue;
    let mut ids = BTreeSet::new();
    ids.insert(queue.emit(page("alone")).await.unwrap().id);
    let chosen = EventId::new();
    for _ in 0..2 {
        ids.insert(queue.emit(page("chosen").id(chosen)).await.unwrap().id);
    }
    let large = Event::new("large", &"x".repeat(100_000)).unwrap();
    ids.insert(queue.emit(large.canvas(OTHER)).await.unwrap().id);
    let batch =
        queue.emit_all(vec![page("batch-1"), page("batch-2"), page("chosen").id(chosen)]).await.unwrap();
    ids.extend(batch.iter().map(|emitted| emitted.id));
    let changed = queue.emit_on("work:1", page("main"), vec![page("sub")], Some("1")).await.unwrap();
    ids.extend(changed.iter().map(|emitted| emitted.id));
    ids.insert(queue.emit(page("later").after(Duration::from_secs(3600)).unwrap()).await.unwrap().id);
    let key = IdempotencyKey::new(CanvasId::DEFAULT, "tests", "key", b"hash").unwrap();
    for _ in 0..2 {
        let once = queue.emit_idempotent(&key, vec![page("once")], |emitted| emitted[0].id.to_string()).await;
        let (Idempotent::First { answer, .. } | Idempotent::Replayed { answer }) = once.unwrap();
        ids.insert(answer.parse().unwrap());
    }
    let mut transaction = stage.pool.begin().await.unwrap();
    let receipt = queue.emit_in(&mut transaction, page("rolled-back")).await.unwrap();
    transaction.rollback().await.unwrap();
    drop(receipt);
    let mut transaction = stage.pool.begin().await.unwrap();
    let receipt = queue.emit_in(&mut transaction, page("committed")).await.unwrap();
    transaction.commit().await.unwrap();
    ids.insert(receipt.notify().await.id);
    ids
}

async fn every_kind_of_emit_is_heard(config: PubSubConfig) {
    let config = on(config);
    let stage = stage(&config).await;
    let mut all = stage.queue.subscribe("*").await.unwrap();
    let emitted = emit_in_every_way(&stage).await;
    let schedule = CronSchedule::new("0 0 1 1 *", "UTC").unwrap();
    let cron = NewCron::new("yearly", schedule, &1).unwrap();
    let put = stage.admin.put_cron(CanvasId::DEFAULT, &cron, &Actor::user("ada")).await.unwrap();
    assert_eq!(put.cron.ticks, 0, "not at the turn of the year");
    stage.pool.run("update wakeq.cron_records set next_at = now() - interval '1 s'").await;
    stage.admin.wake(true).await.unwrap();
    // Pub/Sub keeps no order, and may duplicate.
    let mut heard: Vec<Broadcast> = Vec::new();
    while heard.len() < emitted.len() + 1 {
        let broadcast = event(&mut all).await;
        if heard.iter().all(|known| known.id != broadcast.id) {
            heard.push(broadcast);
        }
    }
    let (ticks, others): (Vec<_>, Vec<_>) =
        heard.into_iter().partition(|broadcast| broadcast.address.scope.module.as_str() == "CRON");
    assert_eq!(names(&ticks), ["yearly"]);
    assert_eq!(others.iter().map(|broadcast| broadcast.id).collect::<BTreeSet<_>>(), emitted);
    let find =
        |name: &str| others.iter().find(|broadcast| broadcast.address.scope.name.as_str() == name).unwrap();
    assert_eq!(find("alone").value.as_deref(), Some("\"alone\""));
    assert_eq!(find("large").value.as_ref().unwrap().len(), 100_002);
    assert_eq!(find("large").address.scope.canvas, OTHER);
    assert_eq!(find("later").due, Due::After(Duration::from_secs(3600)));
    let (main, sub) = (find("main").place.as_ref().unwrap(), find("sub").place.as_ref().unwrap());
    assert_eq!((main.object.as_str(), main.link.prev, sub.link.prev), ("work:1", 0, main.link.id));
    all.close().await;
    until_deleted(&config).await;
}

// Shows: DRV-02
#[tokio::test]
async fn every_kind_of_emit_is_heard_through_pubsub() {
    every_kind_of_emit_is_heard(Broker::pubsub_config("heard").await).await;
}

// Shows: DRV-02
#[tokio::test]
async fn every_kind_of_emit_is_heard_through_google_s_emulator() {
    let Some(config) = Broker::google_config("heard").await else { return };
    every_kind_of_emit_is_heard(config).await;
}

/// The document's own example, page views of any environment.
// Shows: DRV-18, DRV-19
#[tokio::test]
async fn page_views_of_every_canvas_are_heard_and_nothing_else() {
    let mut configs = vec![Broker::pubsub_config("pages").await];
    configs.extend(Broker::google_config("pages").await);
    for config in configs {
        let config = on(config);
        let stage = stage(&config).await;
        let mut pages = stage.queue.subscribe("*:page:*").await.unwrap();
        let mut own = stage.queue.broadcasts().unwrap().subscribe_on(&[OTHER], "*").await.unwrap();
        for event in [
            page("view"),
            Event::new("page", &1).unwrap().module("email_event").unwrap(),
            page("view").canvas(OTHER),
            page("end").canvas(OTHER),
        ] {
            stage.queue.emit(event).await.unwrap();
        }
        let heard = until(&mut pages, "end").await;
        assert_eq!(names(&heard), ["view", "view"]);
        let canvases: BTreeSet<_> = heard.iter().map(|broadcast| broadcast.address.scope.canvas).collect();
        assert_eq!(canvases, [CanvasId::DEFAULT, OTHER].into());
        assert_eq!(names(&until(&mut own, "end").await), ["view"], "of its canvas alone");
        pages.close().await;
        drop(own);
        until_deleted(&config).await;
    }
}

/// The broker sends a listener only what matches the literal parts of its pattern: a probe
/// subscription with the same filter shows that. The subscription expires after a day.
#[tokio::test]
async fn the_broker_filters_what_it_can() {
    let config = on(Broker::pubsub_config("filter").await);
    let stage = stage(&config).await;
    let listener = stage.queue.subscribe("*:page:v*").await.unwrap();
    let [subscription] = &subscriptions(&config).await[..] else { panic!("one listens") };
    assert_eq!(subscription.filter, r#"attributes.module = "page" AND hasPrefix(attributes.name, "v")"#);
    let ttl = subscription.expiration_policy.as_ref().unwrap().ttl.as_ref().unwrap();
    assert_eq!(ttl.seconds(), 24 * 60 * 60);
    let probe = format!("projects/{}/subscriptions/probe-{}", config.project, Uuid::new_v4().simple());
    let same =
        Subscription::new().set_name(&probe).set_topic(&subscription.topic).set_filter(&subscription.filter);
    admin(&config).await.create_subscription().with_request(same).send().await.unwrap();
    for name in ["click", "view"] {
        stage.queue.emit(page(name)).await.unwrap();
        stage.queue.emit(Event::new(name, &1).unwrap()).await.unwrap();
    }
    stage.queue.broadcasts().unwrap().flush(TIMEOUT).await;
    let subscriber = Subscriber::builder().with_endpoint(endpoint(&config));
    let subscriber = subscriber.with_credentials(anonymous::Builder::new().build()).build().await.unwrap();
    let mut stream = subscriber.subscribe(&probe).build();
    let (message, handler) = timeout(TIMEOUT, stream.next()).await.unwrap().unwrap().unwrap();
    handler.ack();
    assert_eq!(["module", "name"].map(|of| message.attributes[of].as_str()), ["page", "view"]);
    assert_eq!(Broadcast::parse(&message.data).unwrap().topic(), format!("{}:page:view", CanvasId::DEFAULT));
    listener.close().await;
}

#[tokio::test]
async fn a_listener_whose_subscription_is_deleted_says_so_and_goes_on() {
    let config = on(Broker::pubsub_config("lost").await);
    let stage = stage(&config).await;
    let mut listener = stage.queue.subscribe("*").await.unwrap();
    stage.queue.emit(page("before")).await.unwrap();
    assert_eq!(event(&mut listener).await.address.scope.name.as_str(), "before");
    let [subscription] = &subscriptions(&config).await[..] else { panic!("one listens") };
    let id = subscription.name.rsplit('/').next().unwrap().to_owned();
    Broker::delete_subscription(&PubSubConfig { subscription: id, ..config.clone() }).await;
    assert_eq!(next(&mut listener).await, ListenItem::Missed(None));
    stage.queue.emit(page("after")).await.unwrap();
    assert_eq!(event(&mut listener).await.address.scope.name.as_str(), "after");
    listener.close().await;
    until_deleted(&config).await;
}

/// A foreign message on the topic does no harm.
#[tokio::test]
async fn malformed_messages_on_the_topic_are_skipped() {
    let config = on(Broker::pubsub_config("nonsense").await);
    let stage = stage(&config).await;
    let mut listener = stage.queue.subscribe("*").await.unwrap();
    let publisher = Publisher::builder(broadcast_topic(&config)).with_endpoint(endpoint(&config));
    let publisher = publisher.with_credentials(anonymous::Builder::new().build()).build().await.unwrap();
    for body in ["", "null", "{\"id\":1}"] {
        publisher.publish(Message::new().set_data(body).set_attributes([("canvas", "x")])).await.unwrap();
    }
    stage.queue.emit(page("view")).await.unwrap();
    assert_eq!(event(&mut listener).await.address.scope.name.as_str(), "view");
    listener.close().await;
}

/// Off by default: listening is refused with the reason, and nothing is published, not even in
/// vain.
#[tokio::test]
async fn without_broadcasts_there_is_no_topic_and_no_listener() {
    let mut config = Broker::pubsub_config("off").await;
    config.create_missing = true;
    let stage = stage(&config).await;
    let refused = stage.queue.subscribe("*").await.unwrap_err();
    assert!(matches!(refused, ListenError::Off) && refused.to_string().contains("WAKEQ_BROADCAST=1"));
    emit_off(&stage).await;
    let report = describe_topics(&on(config.clone())).await.unwrap();
    let (topic, state) = report.broadcast_topic.unwrap();
    assert_eq!(state, TopicState::Missing, "{topic}");
    assert_eq!(describe_topics(&config).await.unwrap().broadcast_topic, None);
}

async fn emit_off(stage: &Stage) {
    stage.emit_many("n", 50).await;
    assert!(stage.notifier.broadcasts().is_none());
}

/// A missing topic costs listeners their broadcasts, and nothing else.
#[tokio::test]
async fn an_emit_does_not_fail_for_its_broadcast() {
    let config = on(Broker::pubsub_config("missing-broadcast").await);
    let stage = stage(&config).await;
    let topics = TopicAdmin::builder().with_endpoint(endpoint(&config));
    let topics = topics.with_credentials(anonymous::Builder::new().build()).build().await.unwrap();
    let path = broadcast_topic(&config);
    topics.delete_topic().set_topic(&path).send().await.unwrap();
    assert!(stage.queue.emit(page("view")).await.unwrap().notified);
    stage.queue.broadcasts().unwrap().flush(TIMEOUT).await;
    let refused = stage.queue.subscribe("*").await.unwrap_err().to_string();
    assert!(refused.contains(&path) && refused.contains("wakeq topics create"), "{refused}");
    create_topics(&config).await.unwrap();
    let mut listener = stage.queue.subscribe("*").await.unwrap();
    stage.queue.emit(page("again")).await.unwrap();
    assert_eq!(event(&mut listener).await.address.scope.name.as_str(), "again");
    listener.close().await;
}

/// The first process that listens creates the topic, if creating topics is enabled.
#[tokio::test]
async fn a_missing_topic_is_created_where_that_is_allowed() {
    let mut config = on(Broker::pubsub_config("created").await);
    config.create_missing = true;
    let notifier: Arc<dyn Notifier> = Arc::new(PubSub::connect(config.clone()).await.unwrap());
    let stage = Stage::with(notifier, Timing::default()).await;
    stage.queue.emit(page("unheard")).await.unwrap();
    stage.queue.broadcasts().unwrap().flush(TIMEOUT).await;
    let mut listener = stage.queue.subscribe("*").await.unwrap();
    stage.queue.emit(page("view")).await.unwrap();
    assert_eq!(event(&mut listener).await.address.scope.name.as_str(), "view");
    listener.close().await;
}

/// A listener that reads too slowly receives the number it missed, then the newest events.
#[tokio::test]
async fn a_slow_reader_misses_the_oldest_and_gets_their_number() {
    let stage = Stage::with(Arc::new(MemoryNotifier::new().broadcasting()), Timing::default()).await;
    let mut slow = stage.queue.subscribe("*").await.unwrap();
    let ids = stage.emit_many("n", 1_500).await;
    stage.queue.broadcasts().unwrap().flush(TIMEOUT).await;
    assert_eq!(next(&mut slow).await, ListenItem::Missed(Some(500)));
    for id in &ids[500..] {
        assert_eq!(event(&mut slow).await.id, *id);
    }
    slow.close().await;
}
