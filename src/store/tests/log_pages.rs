//! Pages of the log are bounded in bytes.

use super::Table;
use crate::event::{CanvasId, EventSource, LogEvent, NewLogEvent, Partition, StreamAppend, StreamId};
use crate::store::{LogBatch, Store};

const LARGE: usize = 250_000;

async fn append(store: &Store, stream: &StreamId, bytes: &[usize]) {
    let event = |bytes: &usize| NewLogEvent::new("changed", &"x".repeat(*bytes)).unwrap();
    let append = StreamAppend::new(stream.clone(), bytes.iter().map(event).collect());
    store.append_to_log(&LogBatch::of(&[append])).await.unwrap().unwrap();
}

fn size(event: &LogEvent) -> usize {
    event.payload.len() + event.metadata.len()
}

/// All of a source in pages of at most this many events and bytes.
async fn all(store: &Store, source: &EventSource, limit: usize, bytes: usize) -> Vec<LogEvent> {
    let (mut read, mut after) = (Vec::new(), 0);
    loop {
        let page = store.read_log_within(source, after, limit, bytes).await.unwrap();
        let held: usize = page.events.iter().map(size).sum();
        assert!(held <= bytes || page.events.len() == 1, "{held} bytes in a page of {bytes} of {source}");
        assert!(page.through > after || !page.more, "it goes on");
        after = page.through;
        read.extend(page.events);
        if !page.more {
            return read;
        }
    }
}

/// Whatever the source, a page has no more than its bytes, or one event; and the pages together are
/// the source.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_page_has_no_more_bytes_than_it_may() {
    let table = Table::new().await;
    let store = &table.store;
    let own = |name: &str| StreamId::new(CanvasId::DEFAULT, "companies", name).unwrap();
    let theirs = StreamId::new(CanvasId(uuid::Uuid::from_u128(7)), "companies", "a").unwrap();
    append(store, &theirs, &[LARGE; 20]).await;
    append(store, &own("a"), &[10, LARGE, 10, LARGE, LARGE, 10]).await;
    append(store, &own("b"), &[10; 20]).await;
    append(store, &theirs, &[LARGE, 10]).await;
    let companies = EventSource::category("companies").unwrap();
    let mut sources = vec![
        EventSource::Log { canvas: None },
        EventSource::Log { canvas: Some(CanvasId::DEFAULT) },
        companies.clone(),
        companies.clone().on(CanvasId::DEFAULT),
        EventSource::Stream(own("a")),
        EventSource::Stream(theirs.clone()),
    ];
    sources.extend(Partition::all(3).into_iter().filter_map(|one| companies.partition(one)));
    let whole = all(store, &EventSource::Log { canvas: None }, 1_000, usize::MAX).await;
    assert_eq!(whole.len(), 48);
    for source in sources {
        let expected: Vec<_> = whole.iter().filter(|event| source.has(&event.stream)).cloned().collect();
        for (limit, bytes) in [(1_000, 3 * LARGE), (1_000, LARGE / 2), (2, 3 * LARGE), (1_000, 0)] {
            let read = all(store, &source, limit, bytes).await;
            assert!(read == expected, "{source} by {limit} events and {bytes} bytes: {} events", read.len());
        }
    }
}

/// Without a limit a page has 4 MiB, and behind a large canvas come the events of another.
#[tokio::test]
async fn a_page_has_four_mebibytes_by_default() {
    let table = Table::new().await;
    let theirs = StreamId::new(CanvasId(uuid::Uuid::from_u128(7)), "companies", "a").unwrap();
    let own = StreamId::new(CanvasId::DEFAULT, "companies", "b").unwrap();
    append(&table.store, &theirs, &[LARGE; 60]).await;
    append(&table.store, &own, &[10]).await;
    let companies = EventSource::category("companies").unwrap();
    // By default it is 4 MiB.
    let page = table.store.read_log(&companies, 0, 500).await.unwrap();
    assert_eq!((page.events.len(), page.more), (4 * 1024 * 1024 / (LARGE + 4), true));
    let page = table.store.read_log(&companies, 60, 500).await.unwrap();
    assert_eq!((page.events.len(), page.more), (1, false), "and the other canvas's event is read as ever");
}
