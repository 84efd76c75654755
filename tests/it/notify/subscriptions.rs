//! Services with different handlers on one queue: a subscription each, on the same topic.

use std::sync::Arc;
use std::time::Duration;

use wakeq::machine::Outcome;
use wakeq::notify::{Notifier, PubSub, PubSubConfig, create_topics};
use wakeq::{CanvasId, Event, Execution, HandlerResult, Handlers, Timing};

use crate::support::brokers::Broker;
use crate::support::{RunningWorker, Stage, scope};

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
