//! Large events and large states cost their processor one page and one batch at a time, however
//! many there are.

use std::sync::Arc;

use serde_json::json;
use wakeq::CanvasId;
use wakeq_streams::{EntityEvent, EntityProcessor, EntityStatus};

use super::{Account, Bank, Change, OTHER, accept, account, config, deposit, of};
use crate::support::spy_log::SpyLog;

const BUDGET: usize = 4 * 1024 * 1024;
const LARGE: usize = 250_000;

/// The most bytes that one transaction wrote to a column.
async fn most(bank: &Bank, query: &'static str) -> usize {
    usize::try_from(bank.count(query).await).unwrap()
}

/// 125 MB of events of one canvas wait when the processor starts: it reads and commits them in
/// pieces, and also reaches those of another canvas.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn five_hundred_large_events_are_read_and_written_in_pieces() {
    let bank = Bank::open().await;
    let large = json!({ "cents": 1, "padding": "x".repeat(LARGE) });
    for part in 0..10 {
        let event = |number| {
            let id = account(&format!("a{number}"));
            (id, EntityEvent::new("deposit", &large).unwrap())
        };
        bank.entities.send_all((part * 50..part * 50 + 50).map(event).collect()).await.unwrap();
    }
    let sent = bank.entities.send(&of(OTHER, "account", "ada"), deposit(7)).await.unwrap();
    let log = SpyLog::new(Arc::new(bank.log.clone()), |_| Ok(()));
    let processor = EntityProcessor::<Account>::new(bank.stage.queue.clone(), log.clone(), config()).unwrap();
    accept(&processor, 1).await;
    let ended = bank.ended_on(OTHER, sent.id.0).await;
    assert_eq!((ended.status, ended.version), (EntityStatus::Completed, Some(1)));
    let pages = log.pages();
    assert!(pages.iter().all(|(_, bytes)| *bytes <= BUDGET), "{pages:?}");
    assert_eq!(pages.iter().map(|(events, _)| events).sum::<usize>(), 501);
    assert_eq!(bank.count("select count(*) from wakeq.log where category = 'entities:account'").await, 501);
    let written = "select max(bytes)::bigint from (select sum(octet_length(payload)) as bytes from wakeq.log
                    where category = 'entities:account' group by xmin::text) as batches";
    assert!((1..=BUDGET).contains(&most(&bank, written).await));
}

/// Small events that make large states: no transaction writes more than its limit.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_batch_ends_where_it_writes_too_much() {
    let bank = Bank::open().await;
    let canvas = |number| if number % 5 == 0 { OTHER } else { CanvasId::DEFAULT };
    let grow = |number| {
        let id = of(canvas(number), "account", &format!("a{number}"));
        (id, EntityEvent::of(&Change::Note { bytes: 200_000 }).unwrap())
    };
    let sent = bank.entities.send_all((0..100).map(grow).collect()).await.unwrap();
    let processor = bank.owner(config(), 1).await;
    for (number, sent) in sent.iter().enumerate() {
        let ended = bank.ended_on(canvas(number), sent.id.0).await;
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
