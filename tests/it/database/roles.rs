//! The roles of the API and of workers: each does its work with its own rights, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use wakeq::control::DeadFilter;
use wakeq::database::RoleKind;
use wakeq::log::{AppendCondition, EventSource, Log, NewLogEvent, StreamId};
use wakeq::machine::Outcome;
use wakeq::{
    Actor, Admin, CanvasId, Event, Execution, HandlerError, HandlerResult, Handlers, Queue, QueueConfig,
    RetryPolicy, Route, Stop, Store, StoreConfig, WorkerConfig,
};

use crate::support::{RunningWorker, Stage, Statements, connect, login, quick, scope};

/// A stage whose API and workers log in as roles of their own.
struct Roles {
    stage: Stage,
    api: (String, Store),
    worker: (String, Store),
}

impl Roles {
    async fn open() -> Self {
        let (stage, _) = Stage::memory_with(quick()).await;
        let mut stores = Vec::new();
        for kind in [RoleKind::Api, RoleKind::Worker] {
            let (role, url) = login(&stage.database, &kind.to_string()).await;
            // Repeated after each migration: it changes nothing that is granted already.
            for _ in 0..2 {
                grant(&stage, &role, kind).await;
            }
            stores.push((url.clone(), connect(&url, quick()).await));
        }
        let worker = stores.pop().unwrap();
        Self { stage, api: stores.pop().unwrap(), worker }
    }
}

async fn grant(stage: &Stage, role: &str, kind: RoleKind) {
    Store::grant_rights(stage.database.url(), &StoreConfig::default(), role, kind).await.unwrap();
}

async fn refused(url: &str, statements: &[&str]) {
    let mut session = PgConnection::connect(url).await.unwrap();
    for sql in statements {
        let answer = sqlx::raw_sql(AssertSqlSafe((*sql).to_owned())).execute(&mut session).await;
        let error = answer.expect_err(sql).to_string();
        assert!(error.contains("permission denied") || error.contains("must be owner"), "{sql}: {error}");
    }
}

/// What neither may do: change the past, or the rights and durations of the deployment.
const NOBODYS: &[&str] = &[
    "drop table wakeq.log",
    "alter table wakeq.log disable trigger all",
    "alter table wakeq.events_v2 add column more text",
    "create table wakeq.mine (id integer)",
    "create function wakeq.mine() returns integer language sql return 1",
    "update wakeq.log set name = 'x'",
    "delete from wakeq.log",
    "truncate wakeq.log",
    "delete from wakeq.log_0",
    "set wakeq.erases = 'an entity'; delete from wakeq.log",
    "delete from wakeq.entities",
    "delete from wakeq.log_streams",
    "delete from wakeq.audit_log",
    "update wakeq.audit_log set actor = 'nobody'",
    "update wakeq.settings set value_us = 1",
    "delete from wakeq.settings",
    "insert into wakeq.emitters (role) values (session_user)",
    "select wakeq.grant_rights(session_user, 'api')",
    "select wakeq.grant_rights(session_user, 'worker')",
    "select wakeq.emit('greet', '1')",
    "select wakeq.emit_unique('greet', '1', 'k')",
    "insert into wakeq._migrations (version, description, success, checksum, execution_time) values (99, '', true, '', 0)",
    "do $$ begin lock table wakeq.claim_gate in share mode; end $$",
    "do $$ begin lock table wakeq.log_partitioning in row share mode; end $$",
];

#[tokio::test]
async fn neither_role_can_do_more_than_its_work() {
    let roles = Roles::open().await;
    refused(&roles.api.0, NOBODYS).await;
    refused(&roles.worker.0, NOBODYS).await;
    let starts_nothing = [
        "with gate as (insert into wakeq.claim_gate select where false) update wakeq.events_v2 set locked_at = now()",
        "select wakeq.take_turns('emails', '{}', 1, false, '1 min', 1)",
        "select wakeq.complete(gen_random_uuid(), '0000000137ab6c1c')",
        "select wakeq.drop_log_partition('1 day')",
        "select wakeq.erase_entity('00000000-0000-0000-0000-000000000000', 'account', 'ada', 1, 0, 1000)",
        "do $$ begin lock table wakeq.claim_gate in row exclusive mode; end $$",
    ];
    refused(&roles.api.0, &starts_nothing).await;
    let registers_nothing = [
        "select from wakeq.access_keys",
        "update wakeq.access_keys set revoked_at = null",
        "select from wakeq.service_accounts",
        "select from wakeq.page_sessions",
        "select from wakeq.audit_log",
        "insert into wakeq.queue_patterns values ('emails', '.')",
        "update wakeq.queue_registry set version = version + 1",
        "select wakeq.await_claims()",
    ];
    refused(&roles.worker.0, &registers_nothing).await;
    for url in [&roles.api.0, &roles.worker.0] {
        let mut session = PgConnection::connect(url).await.unwrap();
        let early = sqlx::query("select wakeq.expire_audit('59 minutes')").execute(&mut session).await;
        assert!(early.unwrap_err().to_string().contains("an hour at least"));
    }
}

/// Neither role makes the record or the log end earlier than the owner has it: by asking for less,
/// by lines and events of long ago, or with numbers that it uses up.
#[tokio::test]
async fn neither_role_shortens_a_trail() {
    let roles = Roles::open().await;
    let stage = &roles.stage;
    let backdated = [
        "insert into wakeq.audit_log (at, actor, action, outcome) values ('2000-01-01', 'ada', 'pause', 'done')",
        "insert into wakeq.audit_log (id, actor, action, outcome) overriding system value values (0, 'ada', 'pause', 'done')",
        "insert into wakeq.log (seq, prev, canvas_id, category, stream, position, bucket, id, name, payload, appended_at)
         values (4999999, 0, gen_random_uuid(), 'c', 's', 0, 0, gen_random_uuid(), 'n', '1', '2000-01-01')",
        "update wakeq.least_kept set kept = '1 hour'",
        "delete from wakeq.least_kept",
        "insert into wakeq.least_kept values ('more', '1 hour')",
        "select wakeq.kept_for('log', '1 hour')",
    ];
    refused(&roles.api.0, &backdated).await;
    refused(&roles.worker.0, &backdated).await;
    for sql in [
        "insert into wakeq.audit_log (at, canvas_id, actor, action, outcome)
         select now() - age, canvas, 'ada', 'pause', 'done'
           from unnest(array[interval '89 days', '91 days']) age,
                unnest(array['00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000007']::uuid[]) canvas",
        "insert into wakeq.log (seq, prev, canvas_id, category, stream, position, bucket, id, name, payload, appended_at)
         values (1, 0, gen_random_uuid(), 'ledger', 's', 0, 0, gen_random_uuid(), 'paid', '1', now() - interval '50 days')",
    ] {
        stage.execute(sql).await;
    }
    let mut worker = PgConnection::connect(&roles.worker.0).await.unwrap();
    let mut ask = async |sql: &str| -> Option<String> {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut worker).await.unwrap()
    };
    assert_eq!(ask("select wakeq.expire_audit('1 hour')::text").await.as_deref(), Some("2"));
    stage.execute("select setval('wakeq.log_seq', 5000100)").await;
    ask("select wakeq.add_log_partitions(10000000)::text").await;
    assert_eq!(ask("select wakeq.drop_log_partition('1 hour')").await, None, "it is kept for ever");
    stage.execute("update wakeq.least_kept set kept = '60 days' where trail = 'log'").await;
    assert_eq!(ask("select wakeq.drop_log_partition('1 hour')").await, None, "it is young");
    stage.execute("update wakeq.least_kept set kept = '40 days' where trail = 'log'").await;
    assert_eq!(ask("select wakeq.drop_log_partition('60 days')").await, None, "it asks for more");
    assert_eq!(ask("select wakeq.drop_log_partition('1 hour')").await.as_deref(), Some("log_0"));
    assert_eq!(stage.count("select count(*) from wakeq.audit_log").await, 2);
}

async fn fail(_: Execution) -> HandlerResult {
    Err(HandlerError::operational("it never works"))
}

async fn done(_: Execution) -> HandlerResult {
    Ok(())
}

/// An operator's day with two tenants: emit, pause, run, die, redrive, log, and the minute's pass
/// of both processes.
#[tokio::test]
async fn the_api_and_a_worker_share_the_work() {
    let roles = Roles::open().await;
    let notifier = Arc::clone(&roles.stage.notifier);
    let (api, worker) = (roles.api.1.clone(), roles.worker.1.clone());
    let queue = Queue::new(api.clone(), notifier.clone(), QueueConfig::default());
    let admin = Admin::new(api.clone(), notifier.clone());
    let (ada, other) = (Actor::user("ada"), CanvasId(uuid::Uuid::from_u128(7)));
    let never_again = Route::new("fail").retry(RetryPolicy { retries: 0, ..RetryPolicy::default() });
    let handlers = Handlers::new().on("done", done).on(never_again, fail);
    let mut running =
        RunningWorker::start(worker.clone(), notifier.clone(), handlers, WorkerConfig::default());

    admin.pause(&scope("done"), &ada, &Stop::default()).await.unwrap();
    let event = |name| Event::new(name, &1).unwrap();
    let paused = queue.emit(event("done")).await.unwrap();
    running.until(paused.id, Outcome::RulePaused).await;
    running.until(queue.emit(event("done").canvas(other)).await.unwrap().id, Outcome::Deleted).await;
    admin.unpause(&scope("done"), &ada).await.unwrap();
    running.until(paused.id, Outcome::Deleted).await;

    let failing = queue.emit(event("fail")).await.unwrap();
    running.until(failing.id, Outcome::Deleted).await;
    let redriven = admin.redrive(&DeadFilter::default(), &ada, false).await.unwrap();
    assert_eq!(redriven.count, 1, "{redriven:?}");
    running.until(failing.id, Outcome::Deleted).await;
    assert!(!admin.audit(CanvasId::DEFAULT, None, 10).await.unwrap().items.is_empty());

    for store in [&api, &worker] {
        let log = Log::new(store.clone(), notifier.as_ref());
        let stream = StreamId::new(other, "orders", "o-1").unwrap();
        let paid = vec![NewLogEvent::new("paid", &1).unwrap()];
        log.append(&stream, paid, AppendCondition::None).await.unwrap();
        assert!(!log.read(&EventSource::Stream(stream), 0, 10).await.unwrap().events.is_empty());
        Admin::new(store.clone(), notifier.clone()).wake(true).await.unwrap();
    }
    running.stop().await;
}

/// No function of the schema is open to everyone, and each table is in the list of rights, or
/// deliberately the owner's.
#[tokio::test]
async fn every_table_and_function_has_its_rights_decided() {
    let (stage, _) = Stage::memory().await;
    let undecided = "select c.relname::text from pg_class c
          where c.relnamespace = 'wakeq'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition
            and 'wakeq.' || c.relname not in (select object from wakeq.needed_rights('api')
                                               union select object from wakeq.needed_rights('worker'))
          order by 1";
    let tables: Vec<String> = stage.pool.values(undecided).await;
    assert_eq!(tables, ["emitters"], "add what is new to wakeq.needed_rights");
    let everybodys =
        "select p.oid::regprocedure::text from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
          where p.pronamespace = 'wakeq'::regnamespace and a.grantee = 0";
    assert_eq!(stage.pool.values::<String>(everybodys).await, [""; 0]);
    let unsafe_definers = "select p.oid::regprocedure::text from pg_proc p
          where p.pronamespace = 'wakeq'::regnamespace and p.prosecdef
            and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)";
    let unsafe_definers: Vec<String> = stage.pool.values(unsafe_definers).await;
    assert_eq!(unsafe_definers, [""; 0], "a caller's search path would choose what they run");
}

/// Plans every statement that is checked at build time as a role: Postgres checks the rights before
/// it plans. Returns what is refused, each once.
async fn refused_to(stage: &Stage, kinds: &[RoleKind]) -> BTreeSet<String> {
    let (role, _) = login(&stage.database, &kinds.iter().map(ToString::to_string).collect::<String>()).await;
    for kind in kinds {
        grant(stage, &role, *kind).await;
    }
    let mut session = stage.pool.acquire().await.unwrap();
    let folders = [".sqlx", "streams/.sqlx", "service/.sqlx"];
    let files =
        folders.map(|folder| std::fs::read_dir(crate::support::repository::root().join(folder)).unwrap());
    let (mut refused, mut looked) = (BTreeSet::new(), 0);
    for file in files.into_iter().flatten() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let statement: serde_json::Value = serde_json::from_str(&text).unwrap();
        let query = statement["query"].as_str().unwrap();
        let parameters = statement["describe"]["parameters"]["Left"].as_array().unwrap().len();
        let nulls = vec!["null"; parameters].join(", ");
        let arguments = if parameters == 0 { String::new() } else { format!("({nulls})") };
        let explain = format!("set role {role}; prepare q as {query}; explain execute q{arguments}");
        let answer = sqlx::raw_sql(AssertSqlSafe(explain)).execute(&mut *session).await;
        if let Err(error) = answer {
            let error = error.to_string();
            let object = error.split("permission denied for ").nth(1);
            let object = object.unwrap_or_else(|| panic!("{query}: {error}"));
            refused.insert(object.split(" at line").next().unwrap().into());
        }
        sqlx::raw_sql("reset role; deallocate all").execute(&mut *session).await.unwrap();
        looked += 1;
    }
    assert!(looked > 150, "{looked} statements");
    refused
}

/// The rights suffice for every statement, except those of another role.
#[tokio::test]
async fn each_statement_is_permitted_to_the_processes_that_send_it() {
    let (stage, _) = Stage::memory().await;
    let unknown = |refused: &BTreeSet<String>, known: &[&str]| -> Vec<String> {
        refused.iter().filter(|object| !known.contains(&object.as_str())).cloned().collect()
    };
    // For changing durations, and for shifting the time in a test.
    let owners = ["function grant_rights", "table audit_log", "table ended_events", "table settings"];
    let both = refused_to(&stage, &[RoleKind::Api, RoleKind::Worker]).await;
    assert_eq!(unknown(&both, &owners), [""; 0], "neither may, and somebody does");
    let api = refused_to(&stage, &[RoleKind::Api]).await;
    let workers = [
        "function checkpoint",
        "function claim_limited",
        "function complete",
        "function drop_history_partition",
        "function drop_log_partition",
        "function erase_entity",
        "function take_turns",
        "table claim_gate",
        "table hour_statistics",
        "table minute_statistics",
    ];
    assert_eq!(unknown(&api, &[&owners[..], &workers].concat()), [""; 0], "is it only a worker's?");
    assert!(workers.iter().all(|object| api.contains(*object)), "{api:?}");
    let worker = refused_to(&stage, &[RoleKind::Worker]).await;
    let apis = [
        "function await_claims",
        "function has_leasable",
        "function lease_events",
        "function pull_turns",
        "table access_keys",
        "table canvas_quotas",
        "table cron_records",
        "table deployment",
        "table facet_settings",
        "table hooks",
        "table http_targets",
        "table known_errors",
        "table limits",
        "table operations",
        "table page_sessions",
        "table programs",
        "table pulled_handlers",
        "table queue_patterns",
        "table queue_registry",
        "table queue_wakes",
        "table service_accounts",
    ];
    assert_eq!(unknown(&worker, &[&owners[..], &apis].concat()), [""; 0], "is it only the API's?");
    assert!(worker.contains("table access_keys") && worker.contains("table service_accounts"), "{worker:?}");
}
