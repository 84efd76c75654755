//! Services with different handlers on one queue: a subscription each, on the same topic.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use wakeq::machine::Outcome;
use wakeq::notify::{Notification, Notifier, PubSub, PubSubConfig, create_topics};
use wakeq::{CanvasId, Event, EventId, Execution, HandlerResult, Handlers, Timing};
use wakeq_service::server::{HttpConfig, HttpServer};

use crate::support::brokers::Broker;
use crate::support::service::Answer;
use crate::support::thread_log::ThreadLog;
use crate::support::{RunningWorker, Stage, TIMEOUT, scope, wait_while};

async fn complete(_event: Execution) -> HandlerResult {
    Ok(())
}

/// Each service gets every notification and runs its own events. It defers the other's, which
/// delays nothing: with the default durations, a wait for the next look at an unknown handler would
/// be five minutes.
#[tokio::test]
async fn services_with_subscriptions_of_their_own_do_not_wait_for_each_other() {
    let config = Broker::pubsub_config("services").await;
    let mails = PubSubConfig { subscription: format!("{}-mails", config.subscription), ..config.clone() };
    let pages = PubSubConfig { subscription: format!("{}-pages", config.subscription), ..config };
    // Both subscriptions exist before the first event: a later one misses what was published
    // before.
    let connect = async |config| {
        create_topics(&config).await.unwrap();
        Arc::new(PubSub::connect(config).await.unwrap()) as Arc<dyn Notifier>
    };
    let (mails, pages) = (connect(mails).await, connect(pages).await);
    let timing = Timing::default();
    assert!(timing.unknown_handler_wait > Duration::from_secs(60));
    let stage = Stage::with(Arc::clone(&mails), timing).await;
    let start = |notifier, name: &str| {
        let handlers = Handlers::new().on(name, complete);
        RunningWorker::start(stage.store.clone(), notifier, handlers, Default::default())
    };
    let (mut mailing, mut paging) = (start(mails, "send-mail"), start(pages, "make-page"));
    let canvases = [CanvasId::DEFAULT, CanvasId(uuid::Uuid::from_u128(7))];
    for canvas in canvases {
        for number in 0..30 {
            let name = if number % 2 == 0 { "send-mail" } else { "make-page" };
            stage.queue.emit(Event::new(name, &number).unwrap().canvas(canvas)).await.unwrap();
        }
    }
    let (mailed, paged) =
        tokio::join!(mailing.until_count(30, Outcome::Deleted), paging.until_count(30, Outcome::Deleted));
    assert_eq!((mailed.len(), paged.len(), stage.rows().await), (30, 30, 0));
    // The other's handlers are noted as unknown, which does no harm, and nothing waits for them.
    let stats = stage.admin.stats(&scope("send-mail")).await.unwrap();
    assert!(stats.iter().all(|stats| stats.waiting + stats.delayed + stats.running == 0));
    mailing.stop().await;
    paging.stop().await;
}

/// Of two subscriptions that divide the notifications it has the first one only. It says so once,
/// and not at each look at the subscription.
#[tokio::test]
async fn a_worker_without_the_second_subscription_says_what_it_misses() {
    let log = ThreadLog::begin();
    for has_second in [true, false] {
        let mut config = Broker::pubsub_config("divided").await;
        config.urgent_subscription = Some(format!("{}-urgent", config.subscription));
        create_topics(&config).await.unwrap();
        config.urgent_subscription = config.urgent_subscription.filter(|_| has_second);
        let notifier = PubSub::connect(config).await.unwrap();
        let mut subscription = notifier.subscribe(10).await.unwrap();
        notifier.publish(&[Notification::new(EventId::new(), CanvasId::DEFAULT)]).await.unwrap();
        // The subscription was looked at again before the stream was opened.
        subscription.next().await.expect("it is not urgent").acknowledge();
        let said = log.lines("set WAKEQ_URGENT_SUBSCRIPTION");
        assert_eq!(said.len(), usize::from(!has_second), "{said:#?}");
        subscription.close(TIMEOUT).await;
    }
}

/// Without the subscription that it consumes, a process accepts events, and says that they start
/// late.
#[tokio::test]
async fn a_process_whose_subscription_is_deleted_is_degraded() {
    let config = Broker::pubsub_config("readyz").await;
    create_topics(&config).await.unwrap();
    let notifier = Arc::new(PubSub::connect(config.clone()).await.unwrap()) as Arc<dyn Notifier>;
    let stage = Stage::with(Arc::clone(&notifier), Timing::default()).await;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let http = HttpConfig { address, stranger_rate: 10_000, ..HttpConfig::default() };
    let server = HttpServer::bind(stage.store.clone(), Arc::clone(&notifier), http).await.unwrap();
    let (address, stop) = (server.local_address(), server.stop_token());
    let serving = tokio::spawn(server.run());
    let subscription = notifier.subscribe(10).await.unwrap();
    let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap();
    let says = async || {
        let answer = Answer::of(client.get(format!("http://{address}/readyz"))).await;
        let health: Value = serde_json::from_str(&answer.text).unwrap();
        let notifier = health["checks"]["notifier"].as_bool().unwrap();
        (answer.status.as_u16(), health["status"].as_str().unwrap().to_owned(), notifier)
    };
    wait_while!(says().await != (200, "ready".to_owned(), true), "it is not ready");
    Broker::delete_subscription(&config).await;
    wait_while!(says().await != (200, "degraded".to_owned(), false), "it does not notice");
    subscription.close(TIMEOUT).await;
    stop.cancel();
    tokio::time::timeout(TIMEOUT, serving).await.expect("no end in time").unwrap();
}
