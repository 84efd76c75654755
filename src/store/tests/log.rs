//! The log: appends and their conditions, readers beside appenders, immutability, partitions.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection, Executor};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::Table;
use crate::event::{
    AppendCondition, Appended, CanvasId, EventSource, LogEvent, NewLogEvent, Partition, StreamAppend,
    StreamId,
};
use crate::store::{AppendRefusal, LogBatch, Store, StoreConfig, StoreError, append_batch};

fn stream(name: &str) -> StreamId {
    StreamId::new(CanvasId::DEFAULT, "companies", name).unwrap()
}

fn events(count: usize) -> Vec<NewLogEvent> {
    (0..count).map(|number| NewLogEvent::new("changed", &number).unwrap()).collect()
}

fn to(name: &str, count: usize, condition: AppendCondition) -> StreamAppend {
    StreamAppend::new(stream(name), events(count)).expect(condition)
}

async fn append(store: &Store, appends: &[StreamAppend]) -> Result<Vec<Appended>, AppendRefusal> {
    store.append_to_log(&LogBatch::of(appends)).await.unwrap()
}

/// All of a source, page by page.
async fn all(store: &Store, source: &EventSource, limit: usize) -> Vec<LogEvent> {
    let (mut read, mut after) = (Vec::new(), 0);
    loop {
        let page = store.read_log(source, after, limit).await.unwrap();
        assert!(page.through >= after && page.events.len() <= limit);
        assert!(page.events.iter().all(|event| (after + 1..=page.through).contains(&event.seq)));
        after = page.through;
        read.extend(page.events);
        if !page.more {
            return read;
        }
    }
}

const NONE: AppendCondition = AppendCondition::None;

#[tokio::test]
async fn positions_and_links_of_a_stream_have_no_gaps() {
    let table = Table::new().await;
    for count in [1, 3, 2] {
        append(&table.store, &[to("a", count, NONE), to("b", 1, NONE), to("a", 1, NONE)]).await.unwrap();
    }
    let read = all(&table.store, &EventSource::Stream(stream("a")), 2).await;
    assert_eq!(read.iter().map(|event| event.position).collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
    let mut before = 0;
    for event in &read {
        assert_eq!(event.prev, before);
        before = event.seq;
    }
    let end = table.store.log_end(&stream("a")).await.unwrap().unwrap();
    assert_eq!((end.position, end.seq), (8, before));
    assert_eq!(table.store.log_end(&stream("nobody")).await.unwrap(), None);
}

#[tokio::test]
async fn an_answer_says_where_each_event_stands_in_the_order_of_the_call() {
    let table = Table::new().await;
    let call = [to("b", 2, NONE), to("a", 1, NONE), to("b", 1, NONE)];
    let appended = append(&table.store, &call).await.unwrap();
    let ids: Vec<_> = call.iter().flat_map(|append| &append.events).map(|event| event.id).collect();
    assert_eq!(appended.iter().map(|event| event.id).collect::<Vec<_>>(), ids);
    assert_eq!(appended.iter().map(|event| event.position).collect::<Vec<_>>(), [0, 1, 0, 2]);
    let read = all(&table.store, &EventSource::Log { canvas: None }, 100).await;
    let stood = |event: &LogEvent| (event.id, event.seq, event.prev, event.position);
    let said: Vec<_> = appended.iter().map(|one| (one.id, one.seq, one.prev, one.position)).collect();
    assert_eq!(read.iter().map(stood).collect::<Vec<_>>(), said);
    assert_eq!(append(&table.store, &[]).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_condition_that_does_not_hold_appends_nothing_and_says_what_is() {
    let table = Table::new().await;
    let (empty, at) = (AppendCondition::Empty, AppendCondition::Position);
    append(&table.store, &[to("a", 2, empty)]).await.unwrap();
    for (call, refused, position) in [
        (vec![to("a", 1, empty)], empty, Some(1)),
        (vec![to("a", 1, at(0))], at(0), Some(1)),
        (vec![to("new", 1, at(0))], at(0), None),
        (vec![to("a", 1, at(1)), to("new", 1, empty), to("b", 1, at(5))], at(5), None),
        (vec![to("a", 1, at(1)), to("a", 1, empty)], empty, Some(1)),
        (vec![to("a", 0, at(7)), to("b", 1, NONE)], at(7), Some(1)),
    ] {
        let answer = append(&table.store, &call).await.unwrap_err();
        assert_eq!((answer.expected, answer.position), (refused, position));
    }
    assert_eq!(table.number("select count(*) from wakeq.log").await, 2);
    // Several conditions together, also about another stream than the one that is appended to.
    append(&table.store, &[to("a", 0, at(1)), to("b", 1, empty), to("a", 1, NONE)]).await.unwrap();
    append(&table.store, &[to("a", 1, at(2))]).await.unwrap();
    assert_eq!(append(&table.store, &[to("a", 0, at(3))]).await, Ok(Vec::new()));
}

/// The same condition on a stream that does not exist, from many sessions at once.
#[tokio::test]
async fn one_of_several_appends_to_an_empty_stream_succeeds() {
    let table = Table::new().await;
    let stores: Vec<Store> = {
        let mut stores = Vec::new();
        for _ in 0..4 {
            stores.push(
                table
                    .other_store(StoreConfig {
                        lock_timeout: Duration::from_secs(4),
                        ..StoreConfig::default()
                    })
                    .await,
            );
        }
        stores
    };
    for round in 0..25 {
        let (name, start) = (format!("round-{round}"), Arc::new(Barrier::new(stores.len())));
        let mut racing = JoinSet::new();
        for store in stores.clone() {
            let (name, start) = (name.clone(), Arc::clone(&start));
            racing.spawn(async move {
                start.wait().await;
                append(&store, &[to(&name, 1, AppendCondition::Empty)]).await
            });
        }
        let answers = racing.join_all().await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        let lost = answers.iter().filter_map(|answer| answer.as_ref().err());
        assert!(lost.map(|refused| refused.position).all(|position| position == Some(0)));
    }
}

#[tokio::test]
async fn a_transaction_that_holds_a_stream_is_waited_for_as_for_any_lock() {
    let table =
        Table::with(StoreConfig { lock_timeout: Duration::from_millis(50), ..StoreConfig::default() }).await;
    let mut open = table.pool.begin().await.unwrap();
    append_batch(&mut open, &LogBatch::of(&[to("a", 1, NONE)])).await.unwrap().unwrap();
    let other = [to("a", 1, NONE)];
    let busy = table.store.append_to_log(&LogBatch::of(&other)).await.unwrap_err();
    assert!(busy.is_contention(), "{busy}");
    append(&table.store, &[to("b", 1, NONE)]).await.unwrap();
    open.rollback().await.unwrap();
    assert_eq!(append(&table.store, &other).await.unwrap()[0].position, 0, "it was rolled back");
}

#[tokio::test]
async fn a_reader_stops_below_an_open_append_and_goes_on_after_it() {
    let table = Table::new().await;
    let log = EventSource::Log { canvas: None };
    append(&table.store, &[to("a", 1, NONE)]).await.unwrap();
    let mut open = table.pool.begin().await.unwrap();
    append_batch(&mut open, &LogBatch::of(&[to("late", 1, NONE)])).await.unwrap().unwrap();
    // A second append in the same transaction takes no further lock.
    append_batch(&mut open, &LogBatch::of(&[to("later", 1, NONE)])).await.unwrap().unwrap();
    append(&table.store, &[to("b", 1, NONE)]).await.unwrap();
    let page = table.store.read_log(&log, 0, 100).await.unwrap();
    assert_eq!((page.events.len(), page.through, page.more, page.held), (1, 1, false, true));
    let appenders = table.store.log_appenders().await.unwrap();
    assert_eq!(appenders.iter().map(|one| one.floor).collect::<Vec<_>>(), [1], "{appenders:?}");
    assert!(appenders[0].pid.is_some() && appenders[0].open_for.is_some());
    open.commit().await.unwrap();
    let page = table.store.read_log(&log, page.through, 100).await.unwrap();
    let names: Vec<_> = page.events.iter().map(|event| event.stream.name.to_string()).collect();
    assert_eq!((names, page.through, page.held), (vec!["late".into(), "later".into(), "b".into()], 4, false));
    assert_eq!(table.store.log_appenders().await.unwrap(), []);
}

/// An append that was rolled back holds back no reader, even if it was only part of a transaction.
#[tokio::test]
async fn a_part_that_was_rolled_back_takes_its_floor_with_it() {
    let table = Table::new().await;
    let mut open = table.pool.begin().await.unwrap();
    let mut part = open.begin().await.unwrap();
    append_batch(&mut part, &LogBatch::of(&[to("a", 1, NONE)])).await.unwrap().unwrap();
    part.rollback().await.unwrap();
    assert_eq!(table.store.log_horizon().await.unwrap().readable, 1);
    append_batch(&mut open, &LogBatch::of(&[to("a", 1, NONE)])).await.unwrap().unwrap();
    assert_eq!(table.store.log_horizon().await.unwrap().readable, 1, "it took a new one");
    open.commit().await.unwrap();
    let page = table.store.read_log(&EventSource::Stream(stream("a")), 0, 10).await.unwrap();
    assert_eq!((page.events.len(), page.events[0].position, page.through), (1, 0, 2));
}

// Shows: SUB-12
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_log_a_category_and_a_stream_are_read_in_pages_of_any_size() {
    let table = Table::new().await;
    let other = StreamId::new(CanvasId(uuid::Uuid::from_u128(7)), "companies", "s-1").unwrap();
    let elsewhere = StreamId::new(CanvasId::DEFAULT, "contacts", "s-1").unwrap();
    for number in 0..60 {
        let name = format!("s-{}", number % 7);
        append(&table.store, &[to(&name, 1, NONE)]).await.unwrap();
        let others = [other.clone(), elsewhere.clone()].map(|stream| StreamAppend::new(stream, events(1)));
        append(&table.store, &others).await.unwrap();
    }
    let whole = all(&table.store, &EventSource::Log { canvas: None }, 1000).await;
    assert_eq!(whole.len(), 180);
    let companies = EventSource::category("companies").unwrap();
    let mut sources = vec![
        EventSource::Log { canvas: Some(other.canvas) },
        companies.clone(),
        companies.clone().on(other.canvas),
        EventSource::category("nothing").unwrap(),
        EventSource::Stream(stream("s-3")),
        EventSource::Stream(other.clone()),
    ];
    sources.extend(Partition::all(5).into_iter().filter_map(|partition| companies.partition(partition)));
    sources.extend(
        Partition::all(3).into_iter().filter_map(|one| Some(companies.partition(one)?.on(CanvasId::DEFAULT))),
    );
    for source in sources {
        let expected: Vec<_> = whole.iter().filter(|event| source.has(&event.stream)).cloned().collect();
        for limit in [1, 7, 1000] {
            assert_eq!(all(&table.store, &source, limit).await, expected, "{source} by {limit}");
        }
    }
}

/// A page of a sparse source scans a bounded number of events, and reports how far it came.
#[tokio::test]
async fn a_page_with_nothing_in_it_says_how_far_it_looked() {
    let table = Table::new().await;
    for _ in 0..3 {
        append(&table.store, &[to("a", 1_000, NONE)]).await.unwrap();
    }
    let nobody = EventSource::Log { canvas: Some(CanvasId(uuid::Uuid::from_u128(9))) };
    let page = table.store.read_log(&nobody, 0, 10).await.unwrap();
    assert_eq!((page.events.len(), page.through, page.more), (0, 1_000, true));
    let page = table.store.read_log(&nobody, 3_000, 10).await.unwrap();
    assert_eq!((page.events.len(), page.through, page.more), (0, 3_000, false));
    let page = table.store.read_log(&nobody, 9_999, 10).await.unwrap();
    assert_eq!((page.through, page.more), (9_999, false), "never back");
}

// Shows: SUB-X5
#[tokio::test]
async fn no_role_can_change_stored_log_rows() {
    let table = Table::new().await;
    append(&table.store, &[to("a", 2, NONE)]).await.unwrap();
    // Nor by a role with all rights, with triggers off for replication, nor by the owner.
    sqlx::raw_sql(
        "grant usage on schema wakeq to pg_read_all_data; alter table wakeq.log owner to pg_read_all_data;
         alter table wakeq.log_0 owner to pg_read_all_data",
    )
    .execute(&table.pool)
    .await
    .unwrap();
    for part in ["wakeq.log", "wakeq.log_0"] {
        for change in
            ["update {} set name = 'x'", "delete from {}", "delete from {} where false", "truncate {}"]
        {
            let sql = change.replace("{}", part);
            for before in ["", "set session_replication_role = replica; ", "set role pg_read_all_data; "] {
                let mut connection = table.pool.acquire().await.unwrap();
                let sql = format!("{before}{sql}");
                let refused = (&mut *connection).execute(sqlx::AssertSqlSafe(sql.as_str())).await;
                let refused = refused.expect_err(&sql).to_string();
                assert!(refused.contains("the log is never changed"), "{sql}: {refused}");
                (&mut *connection).execute("reset role").await.unwrap();
                (&mut *connection).execute("reset session_replication_role").await.unwrap();
            }
        }
    }
    assert_eq!(table.number("select count(*) from wakeq.log").await, 2);
}

#[tokio::test]
async fn partitions_are_made_ahead_and_an_append_makes_one_that_is_missing() {
    let table = Table::new().await;
    let parts = "select count(*) from pg_inherits where inhparent = 'wakeq.log'::regclass";
    assert_eq!(table.number(parts).await, 3);
    assert_eq!(table.store.add_log_partitions().await.unwrap(), 0);
    let tenth_pass = async || {
        table.run("update wakeq.chores set next_at = now(), passes = 9 where name = 'minute'").await;
        table.store.minute(false, None).await.unwrap().log
    };
    assert!(!tenth_pass().await);
    table.run("select setval('wakeq.log_seq', 10500000)").await;
    assert!(tenth_pass().await, "the pass makes them");
    assert_eq!(table.store.add_log_partitions().await.unwrap(), 2);
    assert!(!tenth_pass().await);
    // No partitions were created, and the last sequence numbers of the last one are taken.
    table.run("select setval('wakeq.log_seq', 24999998)").await;
    append(&table.store, &[to("a", 5, NONE)]).await.unwrap();
    assert_eq!(table.number("select count(*) from wakeq.log_5").await, 5);
    assert_eq!(all(&table.store, &EventSource::Stream(stream("a")), 2).await.len(), 5);
    assert_eq!(table.number(parts).await, 8);
    // An append that takes a round number looks ahead.
    table.run("select setval('wakeq.log_seq', 30099998)").await;
    append(&table.store, &[to("a", 5, NONE)]).await.unwrap();
    assert_eq!(table.number(parts).await, 9);
    let (update, truncate) = ("update wakeq.log_5 set seq = 1", "truncate wakeq.log_5");
    for sql in [update, truncate] {
        let refused = sqlx::query(sql).execute(&table.pool).await.unwrap_err().to_string();
        assert!(refused.contains("the log is never changed"), "{refused}");
    }
}

const KEPT: Duration = Duration::from_secs(3_600);

// Shows: SUB-X5
#[tokio::test]
async fn an_old_partition_is_dropped_when_no_holder_needs_it() {
    let table = Table::new().await;
    append(&table.store, &[to("old", 3, NONE)]).await.unwrap();
    table.run("select setval('wakeq.log_seq', 5000001)").await;
    append(&table.store, &[to("new", 1, NONE)]).await.unwrap();
    let drop = async || table.store.drop_log_partition(KEPT).await.unwrap();
    assert_eq!(drop().await, None, "it is young");
    age(&table).await;
    assert_eq!(table.log_holders().await, []);
    for (needed, over, holder) in [
        (
            "insert into wakeq.consumer_positions (consumer_group, source, position) values ('slow', 'log', 4999998)",
            "update wakeq.consumer_positions set position = 4999999",
            "group slow",
        ),
        (
            "insert into wakeq.log_pins values ('entities', 4999998)",
            "delete from wakeq.log_pins",
            "pin entities",
        ),
    ] {
        table.run(needed).await;
        assert_eq!(drop().await, None, "{needed}");
        assert_eq!(table.log_holders().await, [(holder.to_owned(), 4, false)]);
        table.run(over).await;
    }
    assert_eq!(drop().await.as_deref(), Some("log_0"));
    assert_eq!(drop().await, None, "the one that is written to stays");
    assert_eq!(all(&table.store, &EventSource::Log { canvas: None }, 10).await.len(), 1);
    // The stream continues where it was.
    assert_eq!(
        append(&table.store, &[to("old", 1, AppendCondition::Position(2))]).await.unwrap()[0].position,
        3
    );
    let refused = table.store.drop_log_partition(Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
}

/// A role that may only use the schema drops nothing, old or not.
#[tokio::test]
async fn only_a_role_with_the_right_drops_a_partition() {
    let table = Table::new().await;
    let mut session = table.pool.begin().await.unwrap();
    let role = format!("reader_{}", uuid::Uuid::now_v7().simple());
    let reader = format!("create role {role}; grant usage on schema wakeq to {role}; set local role {role}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(reader)).execute(&mut *session).await.unwrap();
    let dropped = sqlx::query("select wakeq.drop_log_partition('1 day')").execute(&mut *session).await;
    let error = dropped.unwrap_err().into_database_error().unwrap();
    assert_eq!(error.code().as_deref(), Some("42501"), "{error}");
}

/// As if the first partition had been appended a day earlier: an update with its triggers disabled.
async fn age(table: &Table) {
    sqlx::raw_sql(
        "alter table wakeq.log disable trigger log_never_changes; alter table wakeq.log_0 disable trigger log_never_changes;
         update wakeq.log_0 set appended_at = appended_at - interval '1 day';
         alter table wakeq.log enable always trigger log_never_changes;
         alter table wakeq.log_0 enable always trigger log_never_changes",
    )
    .execute(&table.pool)
    .await
    .unwrap();
}

/// An open append holds the table; other appends wait behind the chore for a moment at most.
#[tokio::test]
async fn the_chore_gives_up_while_an_append_is_open() {
    let table = Table::new().await;
    append(&table.store, &[to("old", 3, NONE)]).await.unwrap();
    table.run("select setval('wakeq.log_seq', 5000001)").await;
    append(&table.store, &[to("new", 1, NONE)]).await.unwrap();
    age(&table).await;
    let mut open = table.pool.begin().await.unwrap();
    append_batch(&mut open, &LogBatch::of(&[to("open", 1, NONE)])).await.unwrap().unwrap();
    let refused = table.store.drop_log_partition(KEPT).await.unwrap_err();
    assert!(refused.is_contention(), "{refused}");
    append(&table.store, &[to("other", 1, NONE)]).await.unwrap();
    open.commit().await.unwrap();
    assert_eq!(table.store.drop_log_partition(KEPT).await.unwrap().as_deref(), Some("log_0"));
}

const WRITERS: usize = 8;
const EACH: usize = 500;

/// The reader must not miss anything of many writers whose commits come late and out of order,
/// while one stays open for two seconds and the reader resumes where it was. In the same run, a
/// naive reader that only remembers the last `seq` it saw loses events.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_reader_misses_nothing_that_is_committed_late() {
    let table = Table::new().await;
    let pool = PgPoolOptions::new()
        .max_connections(WRITERS as u32 + 1)
        .connect_with((*table.pool.connect_options()).clone());
    let pool = pool.await.unwrap();
    let mut writing = writers(&pool);
    let written = WRITERS * EACH + 1;
    let source = EventSource::category("companies").unwrap();
    let (mut read, mut after, mut held) = (Vec::new(), 0, 0_u32);
    let (mut naive, mut cursor) = (0, 0);
    let patience = tokio::time::Instant::now() + Duration::from_secs(120);
    while read.len() < written {
        assert!(tokio::time::Instant::now() < patience, "{} of {written} were read", read.len());
        let page = table.store.read_log(&source, after, 100).await.unwrap();
        (after, held) = (page.through, held + u32::from(page.held));
        read.extend(page.events);
        let seqs: Vec<i64> =
            sqlx::query_scalar("select seq from wakeq.log where seq > $1 order by seq limit 100")
                .bind(cursor)
                .fetch_all(&table.pool)
                .await
                .unwrap();
        naive += seqs.len();
        cursor = seqs.last().copied().unwrap_or(cursor);
        while writing.try_join_next().is_some() {}
    }
    while let Some(done) = writing.join_next().await {
        done.unwrap();
    }
    assert!(read.windows(2).all(|pair| pair[0].seq < pair[1].seq), "the order of the log, nothing twice");
    for writer in 0..=WRITERS {
        let own: Vec<i64> = read
            .iter()
            .filter(|event| event.stream == stream(&format!("w-{writer}")))
            .map(|event| event.position)
            .collect();
        assert_eq!(own, (0..own.len() as i64).collect::<Vec<_>>(), "the order of stream {writer}");
    }
    let rest = table.number("select count(*) from wakeq.log").await;
    assert_eq!(rest as usize, written);
    println!(
        "{written} events of {} writers, all read once and in order; {held} reads were held back; a reader without the \
         horizon lost {}",
        WRITERS + 1,
        written - naive
    );
    assert!(held > 0 && naive < written, "nothing was committed late: this shows nothing");
}

fn writers(pool: &PgPool) -> JoinSet<()> {
    let mut writing = JoinSet::new();
    for writer in 0..WRITERS {
        let pool = pool.clone();
        writing.spawn(async move {
            let mut random = writer as u64 + 1;
            let mut connection = pool.acquire().await.unwrap();
            for number in 0..EACH {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let wait = Duration::from_micros((random >> 33) % 3_000);
                write(&mut connection, writer, number, wait).await;
            }
        });
    }
    let pool = pool.clone();
    writing.spawn(async move {
        let mut connection = pool.acquire().await.unwrap();
        write(&mut connection, WRITERS, 0, Duration::from_secs(2)).await;
    });
    writing
}

/// Appends an event, and waits before it commits.
async fn write(connection: &mut PgConnection, writer: usize, number: usize, wait: Duration) {
    let mut transaction = connection.begin().await.unwrap();
    let event = NewLogEvent::new("changed", &number).unwrap();
    let append = [StreamAppend::new(stream(&format!("w-{writer}")), vec![event])];
    append_batch(&mut transaction, &LogBatch::of(&append)).await.unwrap().unwrap();
    tokio::time::sleep(wait).await;
    transaction.commit().await.unwrap();
}
