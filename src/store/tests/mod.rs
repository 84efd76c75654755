//! Tests of the statements on a real Postgres, each with a database of its own.

mod batches;
mod cancelling;
mod canvas_counts;
mod checkpoints;
pub(crate) mod coalescer;
mod contention;
mod copies;
mod cost;
mod counted;
pub(crate) mod crowds;
mod desk;
mod ended_search;
mod error_groups;
mod expiring;
mod facets;
mod fences;
mod frozen;
mod handler_keys;
mod history;
mod identity;
mod idle;
mod inserts;
mod limit_changes;
mod limit_cost;
mod limit_names;
mod limit_schedules;
mod limits;
mod log;
mod log_pages;
mod minute;
mod missed;
mod operations;
mod options;
mod order;
mod overlapping;
mod parking;
mod parts;
mod plans;
mod programs;
mod pulled;
mod queue_chores;
mod queues;
mod quotas;
mod recalls;
mod registering;
mod resuming;
mod sampled_quotas;
mod search;
mod secrets;
mod statistics;
mod strangers;
mod switches;
mod ticks;
mod turns;
mod unique;
mod unique_races;
mod urgent;
mod workers;

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgConnection;
use sqlx::postgres::PgPoolOptions;
use wakeq_testbed::TestDatabase;

use crate::event::{Actor, CanvasId, Claim, EventId, HandlerScope, Notification, RuleKind, Turn};
use crate::store::{ClaimLimits, Store, StoreConfig};

/// A migrated database, the store on it, and connections for the test's own queries.
pub(crate) struct Table {
    pub(crate) store: Store,
    pub(crate) pool: PgPool,
    database: TestDatabase,
}

/// The notifications of events of the default canvas.
pub(crate) fn told(ids: &[EventId]) -> Vec<Notification> {
    ids.iter().map(|id| Notification::new(*id, CanvasId::DEFAULT)).collect()
}

impl Table {
    /// The holders of the first partition of the log: the name, how far it is behind, and whether a
    /// process works on it.
    async fn log_holders(&self) -> Vec<(String, u64, bool)> {
        let holders = self.store.log_holders().await.unwrap();
        holders.into_iter().map(|one| (one.name, one.behind, one.is_worked_on)).collect()
    }

    /// With a longer lock timeout than the default, since a busy machine is not a defect.
    pub(crate) async fn new() -> Self {
        Self::with(StoreConfig { lock_timeout: Duration::from_secs(4), ..StoreConfig::default() }).await
    }

    pub(crate) async fn with(config: StoreConfig) -> Self {
        let state = Store::migrations_hash().to_le_bytes();
        let migrate = async |url: String| Store::migrate(&url, false).await.map(drop);
        let database = TestDatabase::create(&state, migrate).await.unwrap();
        let pool = PgPoolOptions::new().max_connections(4).connect(database.url()).await.unwrap();
        let store = Store::connect(database.url(), fit(config)).await.unwrap();
        Self { store, pool, database }
    }

    /// The store of another process on the same tables.
    async fn other_store(&self, config: StoreConfig) -> Store {
        Store::connect(self.database.url(), fit(config)).await.unwrap()
    }

    /// Runs a statement; returns how many rows it changed.
    pub(crate) async fn run(&self, sql: &'static str) -> u64 {
        sqlx::query(sql).execute(&self.pool).await.unwrap().rows_affected()
    }

    /// The number that a query returns.
    pub(crate) async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// The boolean that a query returns.
    async fn holds(&self, sql: &'static str) -> bool {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// Adds events that are due, in plain SQL.
    pub(crate) async fn add(&self, count: i32) -> Vec<EventId> {
        self.add_for(count, "known").await
    }

    async fn add_for(&self, count: i32, name: &str) -> Vec<EventId> {
        let ids = sqlx::query_scalar(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
             select gen_random_uuid(), $1, 'WORKER', $2, '_', '1' from generate_series(1, $3) returning id",
        )
        .bind(CanvasId::DEFAULT.0)
        .bind(name)
        .bind(count)
        .fetch_all(&self.pool)
        .await
        .unwrap();
        ids.into_iter().map(EventId).collect()
    }

    /// How many rows of events were read by an index, as far as connections have reported it: they
    /// do when they are idle, or closed.
    pub(crate) async fn fetched(&self) -> i64 {
        let sum = "select coalesce(sum(idx_tup_fetch), 0)::int8 from pg_stat_user_tables where relname = 'events_v2'";
        self.number(sum).await
    }

    /// Adds a cron on a canvas of its own that ticks every second, starting in an hour.
    pub(crate) async fn add_cron(&self, name: &str) {
        sqlx::query(
            "insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, next_at,
                                             created_by, created_at, changed_at)
             values (gen_random_uuid(), $1, '* * * * * *', 'UTC', '_', '1', 'skip', now() + interval '1 h', 'test', now(),
                     now())",
        )
        .bind(name)
        .execute(&self.pool)
        .await
        .unwrap();
    }

    /// Makes every cron tick from now on.
    pub(crate) async fn start_crons(&self) {
        self.run("update wakeq.cron_records set next_at = now()").await;
    }

    /// How many events a handler's name has.
    pub(crate) async fn events_of(&self, name: &str) -> i64 {
        let count = sqlx::query_scalar("select count(*) from wakeq.events_v2 where name = $1").bind(name);
        count.fetch_one(&self.pool).await.unwrap()
    }

    /// Locks the rows of these events in a session of its own, until the returned transaction is
    /// dropped.
    pub(crate) async fn hold_rows(&self, ids: &[EventId]) -> sqlx::Transaction<'static, sqlx::Postgres> {
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        let mut stranger = self.pool.begin().await.unwrap();
        let lock = sqlx::query("select from wakeq.events_v2 where id = any ($1) for update").bind(ids);
        lock.execute(&mut *stranger).await.unwrap();
        stranger
    }

    /// From now on updates of more than 250 events, or of one that is slow, fail as statements do
    /// that the server cancelled after their time.
    pub(crate) async fn limit_updates(&self) {
        self.run(
            "create function public.take_long() returns trigger language plpgsql as $$
             begin
                 if (select count(*) > 250 or bool_or(name = 'slow') from changed) then
                     raise query_canceled using message = 'canceling statement due to statement timeout';
                 end if;
                 return null;
             end $$",
        )
        .await;
        self.run(
            "create trigger take_long after update on wakeq.events_v2 referencing new table as changed
             for each statement execute function public.take_long()",
        )
        .await;
    }

    /// Makes one event slow to update, after [`Table::limit_updates`].
    pub(crate) async fn slow_one(&self) {
        self.run("alter table wakeq.events_v2 disable trigger take_long").await;
        self.run(
            "update wakeq.events_v2 set name = 'slow'
              where id = (select min(id::text)::uuid from wakeq.events_v2)",
        )
        .await;
        self.run("alter table wakeq.events_v2 enable trigger take_long").await;
    }

    /// Claims events, all of which must be free.
    async fn claim(&self, ids: &[EventId]) -> Vec<Claim> {
        let claimed = self.store.claim(&told(ids), &limits()).await.unwrap();
        claimed.into_iter().map(|event| event.expect("it was free").claim).collect()
    }

    /// Makes every standing lease run out.
    async fn end_leases(&self) {
        self.run(
            "update wakeq.events_v2 set locked_at = locked_at - interval '1 day' where locked_at is not null",
        )
        .await;
    }

    /// How many statements are waiting for a lock.
    pub(crate) async fn waiting(&self) -> i64 {
        self.number(
            "select count(*) from pg_stat_activity
              where datname = current_database() and wait_event_type = 'Lock' and state = 'active'",
        )
        .await
    }

    /// Returns once this many statements wait for a lock.
    pub(crate) async fn until_waiting(&self, count: i64) {
        wakeq_testbed::wait_while!(self.waiting().await < count, "nothing waits for a lock");
    }

    /// Terminates every server process that waits for a lock, and returns once they are gone: a
    /// client learns of the end before the server releases the locks.
    async fn end_waiting(&self) {
        let waiting = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        let pids: Vec<i32> = sqlx::query_scalar(waiting).fetch_all(&self.pool).await.unwrap();
        let ended =
            sqlx::query("select pg_terminate_backend(pid) from unnest($1::integer[]) as waiting (pid)");
        ended.bind(&pids).execute(&self.pool).await.unwrap();
        let left = "select exists (select from pg_stat_activity where pid = any ($1))";
        wakeq_testbed::wait_while!(
            sqlx::query_scalar(left).bind(&pids).fetch_one(&self.pool).await.unwrap(),
            "they do not end"
        );
    }
}

/// Adapts the configuration to this test run: the number of connections in `TEST_POOL`, unless the
/// test itself sets one, and a key for signing secrets.
pub(crate) fn fit(config: StoreConfig) -> StoreConfig {
    let asked = std::env::var("TEST_POOL").ok().map(|count| count.parse().expect("TEST_POOL is a number"));
    let is_usual = config.max_connections == StoreConfig::default().max_connections;
    StoreConfig {
        max_connections: asked.filter(|_| is_usual).unwrap_or(config.max_connections),
        secret_keys: if config.secret_keys.ids().is_empty() { secret_keys() } else { config.secret_keys },
        ..config
    }
}

/// The key that encrypts the signing secrets of the tests.
pub(crate) fn secret_keys() -> crate::event::SecretKeys {
    "5e".repeat(32).parse().unwrap()
}

/// A row as a test describes it; times in milliseconds from the database's clock.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) due_ms: i64,
    pub(crate) locked_ms: Option<i64>,
    pub(crate) losses: i32,
    /// Kind and end.
    pub(crate) rule: Option<(RuleKind, Option<i64>)>,
    /// The turn of the event on an object of its own; `None`: it is on no object.
    pub(crate) turn: Option<Turn>,
}

impl Table {
    /// Empties the tables, then adds these rows and their rules in one transaction; returns the
    /// ids.
    pub(crate) async fn set(&self, rows: &[Row]) -> Vec<EventId> {
        self.run("truncate wakeq.events_v2, wakeq.scheduling_rules, wakeq.halted_lanes").await;
        let mut transaction = self.pool.begin().await.unwrap();
        let ids: Vec<_> = rows.iter().map(|_| EventId::new()).collect();
        sqlx::query(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, locked_at, losses, claims)
             select id, $1, 'WORKER', name, '_', '1', now() + due * interval '1 ms', now() + locked * interval '1 ms', losses, losses + 1
               from unnest($2::uuid[], $3::text[], $4::float8[], $5::float8[], $6::integer[]) as new (id, name, due, locked, losses)",
        )
        .bind(CanvasId::DEFAULT.0)
        .bind(ids.iter().map(|id| id.0).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.due_ms as f64).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.locked_ms.map(|locked| locked as f64)).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.losses).collect::<Vec<_>>())
        .execute(&mut *transaction)
        .await
        .unwrap();
        let rules = rows.iter().filter_map(|row| Some((row.name.clone(), row.rule?)));
        let (names, rules): (Vec<_>, Vec<_>) = rules.unzip();
        sqlx::query(
            "insert into wakeq.scheduling_rules (canvas_id, event_space, handler_name, rule_type, until, created_by)
             select $1, 'WORKER', name, kind::wakeq.scheduling_rule_type, now() + until * interval '1 ms', 'test'
               from unnest($2::text[], $3::text[], $4::float8[]) as new (name, kind, until)
                 on conflict do nothing",
        )
        .bind(CanvasId::DEFAULT.0)
        .bind(names)
        .bind(rules.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>())
        .bind(rules.iter().map(|(_, until)| until.map(|until| until as f64)).collect::<Vec<_>>())
        .execute(&mut *transaction)
        .await
        .unwrap();
        set_turns(&mut transaction, rows, &ids).await;
        transaction.commit().await.unwrap();
        ids
    }
}

/// Puts rows on objects; if it is not their turn, behind another row, or in a halted lane.
async fn set_turns(connection: &mut PgConnection, rows: &[Row], ids: &[EventId]) {
    let turns = rows.iter().zip(ids).enumerate();
    for (at, (row, id)) in turns.filter(|(_, (row, _))| row.turn.is_some()) {
        let (object, seq) = (format!("o{at}"), 2 + at as i64);
        sqlx::query("update wakeq.events_v2 set object = $2, seq = $3, prev = $3 - 1 where id = $1")
            .bind(id.0)
            .bind(&object)
            .bind(seq)
            .execute(&mut *connection)
            .await
            .unwrap();
        let set = match row.turn {
            Some(Turn::Behind) => {
                "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, object, seq, prev)
                 select gen_random_uuid(), canvas_id, module, name, modifier, value, delay_until, object, 1, 0
                   from wakeq.events_v2 where id = $1"
            }
            Some(Turn::Halted) => {
                "insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
                 select canvas_id, object, module, name, gen_random_uuid(), 1, 0 from wakeq.events_v2 where id = $1"
            }
            Some(Turn::First | Turn::Held | Turn::Passed) | None => continue,
        };
        sqlx::query(set).bind(id.0).execute(&mut *connection).await.unwrap();
    }
}

/// The limits of claims of a worker with the handler `known`.
pub(crate) fn limits() -> ClaimLimits {
    let handlers = vec!["WORKER/known/_".to_owned()].into();
    ClaimLimits { handlers, canvas_handlers: Vec::new(), losses_below: 5, value_max: i32::MAX }
}

fn tester() -> Actor {
    Actor::user("test")
}

fn scope() -> HandlerScope {
    HandlerScope::worker(CanvasId::DEFAULT, "known").unwrap()
}

/// Shuffles into an order that depends only on the seed.
fn shuffled<T: Copy>(things: &[T], seed: u64) -> Vec<T> {
    let mut random = seed;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap()
    };
    let mut shuffled = things.to_vec();
    for at in (1..shuffled.len()).rev() {
        shuffled.swap(at, next() % (at + 1));
    }
    shuffled
}
