//! A consumer's metrics.

use std::collections::BTreeMap;

use wakeq::Name;
use wakeq_streams::consumers::PositionKey;
use wakeq_streams::{ConsumerConfig, ErrorStrategy, EventSubscriber};

use super::scene::{Kind, Scene, Trouble, category, woken};
use crate::streams::entities::measured::gathered;
use crate::support::wait_while;

/// The series of a group, by name; those of failures are separate.
fn series(group: &str) -> BTreeMap<String, f64> {
    let text = gathered();
    let label = format!("messaging_consumer_group_name=\"{group}\"");
    let own = text.lines().filter(|line| line.contains(&label));
    let named = own.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let fault = if line.contains("error_type=\"error\"") { " error" } else { "" };
        Some((format!("{}{fault}", name.split('{').next()?), value.parse().ok()?))
    });
    named.collect()
}

/// Attempts, failed attempts, events that were given up, and refused positions of a deposed owner;
/// each by group.
// Shows: TELEMETRY-02
#[tokio::test]
async fn attempts_deaths_and_refusals_are_counted() {
    gathered();
    let scene = Scene::new(Kind::Memory).await;
    let config = ConsumerConfig { on_error: ErrorStrategy::skip(), commit_every: 1, ..woken() };
    let names: [Name; 2] = ["counted-one", "counted-two"].map(|name| name.parse().unwrap());
    for (at, name) in names.iter().enumerate() {
        let (consumer, recorder, mut handed) = scene.consumer_named(name.clone(), config);
        recorder.trouble(2, Trouble::Fails, 1);
        if at == 0 {
            scene.append("one", 1).await;
            scene.append("one", 2).await;
        }
        consumer.accept(category(), 1);
        let last = handed.take(2).await[1];
        let key = PositionKey { group: name.clone(), source: category() };
        wait_while!(scene.positions.open(&key, 1).await.unwrap() < last, "it is given up");
        if at == 0 {
            // Another owner has it by now.
            scene.positions.open(&key, 2).await.unwrap();
            scene.append("one", 3).await;
            handed.take(1).await;
            wait_while!(!consumer.sources().is_empty(), "it stops");
        }
        consumer.withdraw(&category()).await;
    }
    let [events, failed, dead, refused] =
        ["events_total", "events_total error", "dead_total", "refused_total"]
            .map(|name| format!("wakeq_consumer_{name}"));
    let one = series("counted-one");
    let count = |name: &String| one.get(name).copied();
    assert_eq!((count(&events), count(&failed)), (Some(2.0), Some(1.0)), "{one:#?}");
    assert_eq!((count(&dead), count(&refused)), (Some(1.0), Some(1.0)), "{one:#?}");
    let two = series("counted-two");
    assert_eq!((two.get(&dead), two.get(&refused)), (Some(&1.0), None), "{two:#?}");
}
