//! Large events and large states cost their processor one page and one batch at a time, however
//! many there are.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;
use wakeq::CanvasId;
use wakeq::log::{EventSource, Log, LogEvent, LogPage, PageLimit};
use wakeq_streams::{ConsumerError, EntityEvent, EntityId, EntityProcessor, EntityStatus, EventProvider};

use super::{Account, Bank, Change, accept, config};

const OTHER: CanvasId = CanvasId(uuid::Uuid::from_u128(9));
const BUDGET: usize = 4 * 1024 * 1024;
const LARGE: usize = 250_000;

/// The log, with the number of events and bytes of each page that was read from it.
struct MeasuredLog {
    log: Log,
    pages: Arc<Mutex<Vec<(usize, usize)>>>,
}

#[async_trait]
impl EventProvider for MeasuredLog {
    async fn read(
        &self,
        source: &EventSource,
        after: i64,
        limit: PageLimit,
    ) -> Result<LogPage, ConsumerError> {
        let page = EventProvider::read(&self.log, source, after, limit).await?;
        let bytes = page.events.iter().map(LogEvent::size_bytes).sum();
        self.pages.lock().unwrap().push((page.events.len(), bytes));
        Ok(page)
    }

    fn watch(&self, source: &EventSource) -> tokio::sync::watch::Receiver<u64> {
        self.log.watch(source)
    }
}

/// The most bytes that one transaction wrote to a column.
async fn most(bank: &Bank, query: &'static str) -> usize {
    usize::try_from(bank.count(query).await).unwrap()
}

/// 125 MB of events of one canvas wait when the processor starts: it reads and commits them in
/// pieces, and also reaches those of another canvas.
#[tokio::test]
async fn five_hundred_large_events_are_read_and_written_in_pieces() {
    let bank = Bank::open().await;
    let large = json!({ "cents": 1, "padding": "x".repeat(LARGE) });
    for part in 0..10 {
        let event = |number| {
            let id = EntityId::new(CanvasId::DEFAULT, "account", &format!("a{number}")).unwrap();
            (id, EntityEvent::new("deposit", &large).unwrap())
        };
        bank.entities.send_all((part * 50..part * 50 + 50).map(event).collect()).await.unwrap();
    }
    let theirs = EntityId::new(OTHER, "account", "ada").unwrap();
    let deposit = EntityEvent::of(&Change::Deposit { cents: 7 }).unwrap();
    let sent = bank.entities.send(&theirs, deposit).await.unwrap();
    let pages = Arc::new(Mutex::new(Vec::new()));
    let provider = MeasuredLog { log: bank.log.clone(), pages: Arc::clone(&pages) };
    let processor =
        EntityProcessor::<Account>::new(bank.stage.queue.clone(), Arc::new(provider), config()).unwrap();
    accept(&processor, 1).await;
    let ended = bank.ended_on(OTHER, sent.id.0).await;
    assert_eq!((ended.status, ended.version), (EntityStatus::Completed, Some(1)));
    let pages = pages.lock().unwrap().clone();
    assert!(pages.iter().all(|(_, bytes)| *bytes <= BUDGET), "{pages:?}");
    assert_eq!(pages.iter().map(|(events, _)| events).sum::<usize>(), 501);
    assert_eq!(bank.count("select count(*) from wakeq.log where category = 'entities:account'").await, 501);
    let written = "select max(bytes)::bigint from (select sum(octet_length(payload)) as bytes from wakeq.log
                    where category = 'entities:account' group by xmin::text) as batches";
    assert!((1..=BUDGET).contains(&most(&bank, written).await));
}

/// Small events that make large states: no transaction writes more than its limit.
#[tokio::test]
async fn a_batch_ends_where_it_writes_too_much() {
    let bank = Bank::open().await;
    let grow = |number| {
        let canvas = if number % 5 == 0 { OTHER } else { CanvasId::DEFAULT };
        let id = EntityId::new(canvas, "account", &format!("a{number}")).unwrap();
        (id, EntityEvent::of(&Change::Note { bytes: 200_000 }).unwrap())
    };
    let sent = bank.entities.send_all((0..100).map(grow).collect()).await.unwrap();
    let processor = bank.owner(config(), 1).await;
    for (number, sent) in sent.iter().enumerate() {
        let canvas = if number % 5 == 0 { OTHER } else { CanvasId::DEFAULT };
        let ended = bank.ended_on(canvas, sent.id.0).await;
        assert_eq!((ended.status, ended.version), (EntityStatus::Completed, Some(1)), "{number}");
    }
    assert_eq!(processor.size().await.0, 100);
    let written =
        "select max(bytes)::bigint from (select sum(octet_length(state)) as bytes from wakeq.entities
                    group by xmin::text) as batches";
    assert!((1..=BUDGET).contains(&most(&bank, written).await));
    let batches = bank.count("select count(distinct xmin::text) from wakeq.entities").await;
    assert!((5..=50).contains(&batches), "{batches}");
}
