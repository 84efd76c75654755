//! The stage of these tests: a flow of events, nodes, and an observer that keeps checking the
//! tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::PgPool;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wakeq::CanvasId;
use wakeq::log::{AppendCondition, Log, NewLogEvent, StreamAppend, StreamId};

use super::node::{CATEGORY, GroupWork, hold_paths};
use crate::support::child_processes::{Durations, Process, Role};
use crate::support::crash_scene::CrashScene;

const STREAMS: usize = 10;

pub(super) struct Stage {
    pub(super) scene: CrashScene,
    /// With JIT compilation off: on the small tables here it takes a second, and the queries run
    /// all the time.
    pub(super) pool: PgPool,
    pub(super) work: GroupWork,
    flow: Option<(CancellationToken, JoinHandle<i64>)>,
    look: (CancellationToken, JoinHandle<u64>),
    pub(super) doubles: Arc<AtomicU64>,
}

/// A node and its id.
pub(super) struct Node {
    pub(super) process: Process,
    pub(super) id: uuid::Uuid,
}

/// The position whose commit a node holds.
pub(super) struct HeldPosition {
    group: String,
    source: String,
    epoch: i64,
}

impl Stage {
    /// Without any node. The database records every position, term and epoch that goes back.
    pub(super) async fn new(name: &str, work: GroupWork) -> Self {
        let scene = CrashScene::new(name, Durations::quick()).await;
        let sql = "create table handled (number bigserial, consumer_group text, stream text, seq bigint, pid integer);
                   create index on handled (consumer_group, seq);
                   create table regressions (what text);
                   create table refusals (pid integer);
                   create function regressed() returns trigger language plpgsql as $$ begin
                       if new.position < old.position or new.epoch < old.epoch then
                           insert into regressions values (old::text || ' to ' || new::text);
                       end if;
                       return new;
                   end $$;
                   create trigger regressed after update on wakeq.consumer_positions for each row execute function regressed();
                   create function deposed() returns trigger language plpgsql as $$ begin
                       if new.term < old.term or new.epoch <= old.epoch then
                           insert into regressions values (old::text || ' to ' || new::text);
                       end if;
                       return new;
                   end $$;
                   create trigger deposed after update on wakeq.subscriptions for each row execute function deposed();";
        sqlx::raw_sql(sql).execute(&scene.pool).await.unwrap();
        let plain: sqlx::postgres::PgConnectOptions = scene.services.database_url.parse().unwrap();
        let pool = PgPool::connect_with(plain.options([("jit", "off")])).await.unwrap();
        let doubles = Arc::new(AtomicU64::new(0));
        let stop = CancellationToken::new();
        let looking = look(pool.clone(), stop.clone(), Arc::clone(&doubles));
        Self { scene, pool, work, flow: None, look: (stop, tokio::spawn(looking)), doubles }
    }

    pub(super) fn start_faulty(&self, fault: Option<&str>) -> Process {
        self.scene.start(&Role::GroupNode(self.work), fault)
    }

    pub(super) async fn node(&self) -> Node {
        let process = self.start_faulty(None);
        Self::named(process).await
    }

    pub(super) async fn named(process: Process) -> Node {
        let said = process.says("node").await;
        Node { id: said.trim_start_matches("node ").parse().unwrap(), process }
    }

    /// The number of sources of all groups.
    pub(super) fn sources(&self) -> i64 {
        i64::try_from(self.work.groups * usize::from(self.work.partitions)).unwrap()
    }

    /// Returns once every source is assigned to a subscriber on one of these nodes.
    pub(super) async fn until_all_on(&self, nodes: &[&Node]) {
        let ids: Vec<uuid::Uuid> = nodes.iter().map(|node| node.id).collect();
        let query = "select coalesce(sum(json_array_length(source->'partitions')), 0)::bigint
                       from wakeq.subscriptions, json_array_elements(subscriber_event_sources) source
                      where node_id = any ($1)";
        self.until(query, &ids, self.sources()).await;
    }

    /// Returns once these nodes have all sources, and each has one of every group.
    pub(super) async fn until_each_works(&self, nodes: &[&Node]) {
        self.until_all_on(nodes).await;
        for node in nodes {
            let query = "select count(*) from wakeq.subscriptions
                          where node_id = any ($1) and json_array_length(subscriber_event_sources) > 0";
            self.until(query, &[node.id], i64::try_from(self.work.groups).unwrap()).await;
        }
    }

    async fn until(&self, query: &'static str, nodes: &[uuid::Uuid], wanted: i64) {
        let expected = format!("{query} on {nodes:?} comes to {wanted}");
        eventually(&expected, async || {
            let found: i64 = sqlx::query_scalar(query).bind(nodes).fetch_one(&self.pool).await.unwrap();
            found >= wanted
        })
        .await;
    }

    /// Appends to ten streams at this interval, until [`ebb`](Self::ebb).
    pub(super) fn flow(&mut self, every: Duration) {
        let stop = CancellationToken::new();
        let (place, notifier, ended) =
            (self.scene.services.clone(), Arc::clone(&self.scene.notifier), stop.clone());
        let flowing = async move {
            let log = Log::new(place.store().await, &*notifier);
            let mut ticks = tokio::time::interval(every);
            let mut count = 0;
            while !ended.is_cancelled() {
                ticks.tick().await;
                let appends: Vec<StreamAppend> = (0..STREAMS)
                    .map(|at| {
                        let stream =
                            StreamId::new(CanvasId::DEFAULT, CATEGORY, &format!("company-{at}")).unwrap();
                        StreamAppend::new(stream, vec![NewLogEvent::new("changed", &count).unwrap()])
                            .expect(AppendCondition::None)
                    })
                    .collect();
                count += i64::try_from(log.append_all(&appends).await.unwrap().len()).unwrap();
            }
            count
        };
        self.flow = Some((stop, tokio::spawn(flowing)));
    }

    /// Ends the flow; returns how many events were appended.
    pub(super) async fn ebb(&mut self) -> i64 {
        let (stop, flow) = self.flow.take().unwrap();
        stop.cancel();
        flow.await.unwrap()
    }

    /// Returns once another subscriber has opened the position that a node holds.
    pub(super) async fn until_taken_over(&self, held: &HeldPosition) {
        let query = "select count(*) from wakeq.consumer_positions
                      where consumer_group = $1 and source = $2 and epoch > $3";
        let HeldPosition { group, source, epoch } = held;
        eventually("another opens what the stopped node holds", async || {
            let taken = sqlx::query_scalar::<_, i64>(query).bind(group).bind(source).bind(epoch);
            taken.fetch_one(&self.pool).await.unwrap() > 0
        })
        .await;
    }

    /// Makes a node hold its next commit; [`release`](Self::release) ends that.
    pub(super) async fn hold(&self, node: &Node) -> HeldPosition {
        let (asked, held) = hold_paths(node.process.pid());
        std::fs::write(&asked, "").unwrap();
        eventually("the node commits", async || held.exists()).await;
        let content = std::fs::read_to_string(held).unwrap();
        let parts: Vec<&str> = content.split(' ').collect();
        let [group, source, epoch] = parts[..] else {
            panic!("{content:?} is not a group, a source and an epoch")
        };
        HeldPosition { group: group.to_owned(), source: source.to_owned(), epoch: epoch.parse().unwrap() }
    }

    /// Releases the commit that a node holds.
    pub(super) fn release(&self, node: &Node) {
        std::fs::remove_file(hold_paths(node.process.pid()).1).unwrap();
    }

    pub(super) async fn held_by(&self, node: &Node) -> i64 {
        sqlx::query_scalar(
            "select coalesce(sum(json_array_length(source->'partitions')), 0)::bigint
               from wakeq.subscriptions, json_array_elements(subscriber_event_sources) source where node_id = $1",
        )
        .bind(node.id)
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    /// Asserts what must hold at every moment; returns how many looks were taken.
    pub(super) async fn check(&mut self) -> u64 {
        self.look.0.cancel();
        let looks = (&mut self.look.1).await.unwrap();
        assert_eq!(self.doubles.load(Ordering::Relaxed), 0, "a source had two owners");
        let regressions: Vec<String> =
            sqlx::query_scalar("select what from regressions").fetch_all(&self.scene.pool).await.unwrap();
        assert_eq!(regressions, Vec::<String>::new());
        looks
    }
}

/// Looks again and again, since other processes give no signal, until it is so.
async fn eventually(expected: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::support::crash_scene::time_limit(), waiting).await.expect(expected);
}

/// Counts, at each look, the sources with two owners, including subscribers that have not confirmed
/// their release. Asserts that the term of the coordinator's lock only grows and that each term has
/// one owner: the lock is one row, with its name as the key.
async fn look(pool: PgPool, stop: CancellationToken, doubles: Arc<AtomicU64>) -> u64 {
    let query = "select count(*) from (
                     select subscriber_name, source->>'category', label
                       from (select subscriber_name, json_array_elements(subscriber_event_sources) as source
                               from wakeq.subscriptions
                              union all
                             select s.subscriber_name, json_array_elements(s.releasing)
                               from wakeq.subscriptions s join wakeq.subscribers r using (subscriber_id)
                              where r.confirmed_epoch < s.epoch) as owned,
                            json_array_elements_text(source->'partitions') as label
                      group by 1, 2, 3 having count(*) > 1) as doubled";
    let mut ticks = tokio::time::interval(Duration::from_millis(25));
    let (mut looks, mut term, mut owner) = (0, 0, None);
    while !stop.is_cancelled() {
        ticks.tick().await;
        let doubled: i64 = sqlx::query_scalar(query).fetch_one(&pool).await.unwrap();
        doubles.fetch_add(u64::try_from(doubled).unwrap(), Ordering::Relaxed);
        let sql = "select owner, term from wakeq.locks where name = 'coordinator'";
        let lock: Option<(uuid::Uuid, i64)> = sqlx::query_as(sql).fetch_optional(&pool).await.unwrap();
        if let Some((now, newer)) = lock {
            let is_later = newer > term || (newer == term && owner == Some(now));
            assert!(is_later, "term {newer} of {now} after {term}");
            (term, owner) = (newer, Some(now));
        }
        looks += 1;
    }
    looks
}
