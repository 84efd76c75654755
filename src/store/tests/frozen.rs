//! A process that stalls in the middle of a transaction: stopped, without CPU, or cut off.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::queues::{EMAILS, canvas, emails, emit_emails, events, queue, take};
use super::{Table, fit, limits, scope, tester, told};
use crate::event::{Claim, EventId, RuleKind};
use crate::store::ClaimedEvent;
use crate::store::{CronDue, CronStep, FacetSettings, Store, StoreConfig, StoreError, TurnRequest};

/// Every connection limits how long it may be silent.
#[tokio::test]
async fn connections_may_not_be_silent_for_long() {
    let table =
        Table::with(StoreConfig { statement_timeout: Duration::from_secs(7), ..StoreConfig::default() })
            .await;
    let set =
        "select current_setting('idle_in_transaction_session_timeout'), current_setting('tcp_user_timeout'),
                      inet_client_addr() is not null";
    let store = &table.store;
    for session in [store.session().await, store.renewal_session().await] {
        let mut session = session.unwrap();
        let set = sqlx::query_as::<_, (String, String, bool)>(set);
        let set = session.limit(|connection| set.fetch_one(connection)).await;
        let (idle, unanswered, is_tcp) = session.answered("look", set).await.unwrap();
        assert_eq!(idle, "8s");
        assert!(!is_tcp || unanswered == "8000", "{unanswered}");
    }
}

/// Its locks are soon released: the crons that it was processing tick elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stands_still_keeps_no_locks() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, next_at, created_by,
                                             created_at, changed_at)
             values (gen_random_uuid(), 'often', '* * * * *', 'UTC', '_', '1', 'skip', now(), 'test', now(), now())",
        )
        .await;
    let quick = StoreConfig { statement_timeout: Duration::from_secs(1), ..StoreConfig::default() };
    let frozen = table.other_store(quick).await;
    let (stands, standing) = tokio::sync::oneshot::channel();
    let (thaw, thawed) = tokio::sync::oneshot::channel::<()>();
    let mut freeze = Some((stands, thawed));
    let freezing = tokio::spawn(async move {
        let step = |_: &CronDue, _, _| {
            let (stands, thawed) = freeze.take().expect("one cron");
            stands.send(()).unwrap();
            tokio::task::block_in_place(|| thawed.blocking_recv().unwrap_err());
            CronStep::Leave
        };
        frozen.tick(None, &[], step).await.map(drop)
    });
    standing.await.unwrap();
    let mut found = 0;
    let ticking = async {
        while found == 0 {
            let step = |_: &CronDue, _, _| {
                found += 1;
                CronStep::Leave
            };
            table.store.tick(None, &[], step).await.unwrap();
            // Nothing tells when the server ends the frozen transaction.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), ticking).await.expect("the cron is locked for ever");
    drop(thaw);
    assert!(matches!(freezing.await.unwrap(), Err(StoreError::Unavailable(_))));
}

/// A proxy before Postgres that stops reading its answers once a client has sent `last`.
async fn that_stops_reading(url: &str, last: [u8; 16]) -> String {
    let (server, database) = url.rsplit_once('/').unwrap();
    let (credentials, address) = server.rsplit_once('@').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let before = format!("{credentials}@{}/{database}", listener.local_addr().unwrap());
    let address = address.to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&address).await.unwrap();
            tokio::spawn(carry(client, server, last));
        }
    });
    before
}

async fn carry(client: TcpStream, server: TcpStream, last: [u8; 16]) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut stop = Some(stop);
    let back = async move {
        tokio::select! {
            biased;
            _ = stopped => std::future::pending().await,
            _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
        }
    };
    let forth = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            if buffer[..length].windows(last.len()).any(|sent| sent == last) {
                drop(stop.take());
            }
            to_server.write_all(&buffer[..length]).await.unwrap();
        }
    };
    tokio::join!(back, forth);
}

/// One connection, whose statements may take long.
fn patient() -> StoreConfig {
    StoreConfig { statement_timeout: Duration::from_secs(60), max_connections: 1, ..StoreConfig::default() }
}

/// A claim does not keep its locks until its answer is read: the largest batch of large values is
/// committed although nothing reads it, and rules and other claims proceed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_reads_keeps_no_locks() {
    let table = Table::new().await;
    let first = table.add(1).await;
    let ids = table.add(250).await;
    let others = table.add_for(1, "known").await;
    table.run("update wakeq.events_v2 set value = to_json(repeat('x', 250000))::text").await;
    let url = that_stops_reading(table.database.url(), ids[0].0.into_bytes()).await;
    let frozen = Store::connect(&url, fit(patient())).await.unwrap();
    // From then on its connection has the statement prepared.
    assert_eq!(
        frozen.claim(&told(&first), &limits()).await.unwrap()[0].as_ref().unwrap().value.len(),
        250_002
    );
    let all = told(&ids);
    let freezing = tokio::spawn(async move { frozen.claim(&all, &limits()).await.map(drop) });
    wakeq_testbed::wait_while!(
        !table.holds("select count(*) = 251 from wakeq.events_v2 where locked_at is not null").await,
        "the claim holds its locks"
    );
    let other = super::HandlerScope { name: "other".parse().unwrap(), ..scope() };
    table.store.add_rule(RuleKind::Pause, &other, None, None, &tester()).await.unwrap();
    assert!(table.store.claim(&told(&others), &limits()).await.unwrap()[0].is_some());
    freezing.abort();
}

/// Nor do turns keep the lock of their queue until then: the largest batch of large copies is
/// committed, and others take turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_turns_that_nobody_reads_keeps_no_locks() {
    let table = emails(FacetSettings::default()).await;
    let first = emit_emails(&table.store, canvas(1), 1).await;
    let copies = emit_emails(&table.store, canvas(1), 250).await;
    table.run("update wakeq.events_v2 set value = to_json(repeat('x', 250000))::text").await;
    let url = that_stops_reading(table.database.url(), copies[0].0.into_bytes()).await;
    let frozen = Store::connect(&url, fit(patient())).await.unwrap();
    let turns = |asks: &[EventId]| -> Vec<TurnRequest> {
        asks.iter().map(|id| TurnRequest { queue: queue(EMAILS), asks: *id }).collect()
    };
    // From then on its connection has the statement prepared.
    assert_eq!(events(frozen.take_turns(&turns(&first), 2, i32::MAX).await)[0].value.len(), 250_002);
    let all = turns(&copies);
    let freezing = tokio::spawn(async move { frozen.take_turns(&all, 2, i32::MAX).await.len() });
    wakeq_testbed::wait_while!(
        !table.holds("select count(*) = 251 from wakeq.events_v2 where locked_at is not null").await,
        "the turns hold their locks"
    );
    let others = emit_emails(&table.store, canvas(2), 1).await;
    assert_eq!(take(&table.store, 5).await[0].claim.id, others[0]);
    freezing.abort();
}

/// Nor does a service that leases many large copies: its leases are committed, and others get
/// theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_a_lease_that_nobody_reads_keeps_no_locks() {
    const SECOND: Duration = Duration::from_secs(1);
    let table = emails(FacetSettings::default()).await;
    table.run("update wakeq.queues set pulled = true, in_flight_max = 1000").await;
    emit_emails(&table.store, canvas(1), 250).await;
    table.run("update wakeq.events_v2 set value = to_json(repeat('x', 250000))::text").await;
    // An interval as Postgres reads it: microseconds, days, months.
    let mut last = [0; 16];
    last[..8].copy_from_slice(&61_234_567_u64.to_be_bytes());
    let url = that_stops_reading(table.database.url(), last).await;
    let frozen = Store::connect(&url, fit(patient())).await.unwrap();
    let freezing = tokio::spawn(async move {
        let held_for = Duration::from_micros(61_234_567);
        frozen.lease_copies(&queue(EMAILS), 250, held_for, i64::MAX).await.map(drop)
    });
    wakeq_testbed::wait_while!(
        !table.holds("select count(*) = 250 from wakeq.events_v2 where locked_at is not null").await,
        "the lease holds its locks"
    );
    let other = emit_emails(&table.store, canvas(2), 1).await[0];
    let mut leased = table.store.lease_copies(&queue(EMAILS), 10, 60 * SECOND, i64::MAX).await.unwrap();
    assert_eq!(leased.pop().unwrap().event.claim.id, other);
    freezing.abort();
}

/// Events with large values that were lost before the values were read are not run; the others are.
#[tokio::test]
async fn a_value_that_is_read_too_late_is_none() {
    let table = Table::new().await;
    let ids = table.add(2).await;
    table.run("update wakeq.events_v2 set value = to_json(repeat('x', 5000))::text").await;
    let mut events: Vec<ClaimedEvent> =
        table.store.claim(&told(&ids), &limits()).await.unwrap().into_iter().flatten().collect();
    assert!(events.iter().all(|event| event.value.len() == 5_002));
    let claims: Vec<Claim> = events.iter().map(|event| event.claim).collect();
    table.store.release(&claims[..1]).await.unwrap();
    table.store.add_long_values(&mut events, &claims).await.unwrap();
    assert_eq!(events.iter().map(|event| event.claim).collect::<Vec<_>>(), claims[1..]);
}
