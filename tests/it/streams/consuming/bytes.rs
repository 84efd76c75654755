//! How much of the log consumers buffer: bounded per page, and for all sources of a process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc};
use wakeq::CanvasId;
use wakeq::log::{EventSource, LogEvent, StreamId};
use wakeq_streams::consumers::{MemoryLog, MemoryPositions, ReadBudget};
use wakeq_streams::{Consumer, ConsumerConfig, ErrorStrategy, EventProcessor, EventSubscriber};

use crate::support::spy_log::SpyLog;
use crate::support::wait_while;

const KIB: usize = 1024;
const LARGE: usize = 100 * KIB;

/// Appends this many large events to a category of a canvas; returns the source.
fn filled(log: &MemoryLog, canvas: u128, category: &str, events: usize) -> EventSource {
    let canvas = CanvasId(uuid::Uuid::from_u128(canvas));
    let payload = format!("\"{}\"", "x".repeat(LARGE));
    for number in 0..events {
        let stream = StreamId::new(canvas, category, &format!("s-{number}")).unwrap();
        log.append(&stream, "changed".parse().unwrap(), &payload);
    }
    EventSource::category(category).unwrap().on(canvas)
}

/// Reports each event, handles it once a permit is available, and fails the given number of times.
struct GatedProcessor {
    gate: Semaphore,
    failures: Mutex<u32>,
    begun: mpsc::Sender<i64>,
}

#[async_trait]
impl EventProcessor for GatedProcessor {
    async fn handle_event(&self, event: &LogEvent) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.begun.try_send(event.seq)?;
        self.gate.acquire().await?.forget();
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err("it was told to fail".into());
        }
        Ok(())
    }
}

type StartedEvents = mpsc::Receiver<i64>;

fn consumer(
    name: &str,
    source: &EventSource,
    provider: &Arc<SpyLog>,
    budget: &ReadBudget,
    failures: u32,
) -> (Consumer, Arc<GatedProcessor>, StartedEvents) {
    let (begun, hears) = mpsc::channel(10_000);
    let gated = Arc::new(GatedProcessor { gate: Semaphore::new(0), failures: Mutex::new(failures), begun });
    let config = ConsumerConfig {
        page_bytes: KIB * KIB,
        poll_interval: Duration::from_secs(3600),
        timeout: Duration::from_secs(3600),
        on_error: ErrorStrategy::stop().retrying(5, Duration::from_secs(60)),
        ..ConsumerConfig::default()
    };
    let positions = Arc::new(MemoryPositions::default());
    let provider = Arc::clone(provider);
    let processor = Arc::clone(&gated) as _;
    let made = Consumer::new(name.parse().unwrap(), source.clone(), provider, positions, processor, config);
    (made.unwrap().with_budget(budget.clone()), gated, hears)
}

/// A source with slow events holds the whole budget: another canvas's source continues, one event
/// at a time, and as usual once the budget is free again.
#[tokio::test(start_paused = true)]
async fn a_slow_source_that_holds_everything_stops_nobody() {
    let log = Arc::new(MemoryLog::default());
    let (slow, quick) = (filled(&log, 1, "slow", 10), filled(&log, 2, "quick", 8));
    let log = SpyLog::new(log, |_| Ok(()));
    let budget = ReadBudget::new(350 * KIB);
    let (first, gate, mut begun) = consumer("slow", &slow, &log, &budget, 0);
    first.accept(slow.clone(), 1);
    begun.recv().await.unwrap();
    assert_eq!(log.pages(), [(3, 3 * (LARGE + 4))], "as much as there is");
    assert!(budget.left_bytes() < LARGE, "{}", budget.left_bytes());
    let (other, open, mut heard) = consumer("quick", &quick, &log, &budget, 0);
    open.gate.add_permits(100);
    other.accept(quick.clone(), 1);
    for number in 0..8 {
        assert_eq!(heard.recv().await, Some(10 + 1 + number));
    }
    let one_by_one = log.pages()[1..].iter().filter(|page| **page == (1, LARGE + 4)).count();
    assert_eq!(one_by_one, 8);
    // The slow source continues, and the bytes of a handled event are returned at once.
    gate.gate.add_permits(2);
    begun.recv().await.unwrap();
    begun.recv().await.unwrap();
    assert!(budget.left_bytes() >= LARGE, "{}", budget.left_bytes());
    gate.gate.add_permits(100);
    for _ in 3..10 {
        begun.recv().await.unwrap();
    }
    first.withdraw(&slow).await;
    other.withdraw(&quick).await;
    assert_eq!(budget.left_bytes(), 350 * KIB, "nothing is held by those that have ended");
    assert!(log.pages().iter().all(|(_, bytes)| *bytes <= 350 * KIB));
}

/// While an event waits for its next attempt, nothing after it is buffered; none of that is lost or
/// handled twice.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_retry_buffers_nothing() {
    let log = Arc::new(MemoryLog::default());
    let source = filled(&log, 1, "companies", 5);
    let log = SpyLog::new(log, |_| Ok(()));
    let budget = ReadBudget::new(1024 * KIB);
    let (consumer, gate, mut begun) = consumer("companies", &source, &log, &budget, 1);
    consumer.accept(source.clone(), 1);
    assert_eq!(begun.recv().await, Some(1));
    assert!(budget.left_bytes() < 1024 * KIB - 4 * LARGE, "{}", budget.left_bytes());
    gate.gate.add_permits(1);
    wait_while!(budget.left_bytes() < 1024 * KIB, "it is given back");
    gate.gate.add_permits(100);
    for handled in 1..=5 {
        assert_eq!(begun.recv().await, Some(handled));
    }
    consumer.withdraw(&source).await;
    assert!(begun.try_recv().is_err());
}
