//! `wakeq doctor` against real servers: each fault is found and reported with its remedy, and
//! nothing else is.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool};
use wakeq::database::RoleKind;
use wakeq::notify::{PubSubConfig, TopicState, create_topics, describe_topics};
use wakeq::{Store, StoreConfig};
use wakeq_emulator::{Emulator, FaultCode, Faults, Method, Options};
use wakeq_testbed::TestDatabase;

use crate::support::brokers::Broker;
use crate::support::{SECRET_KEY, database, durability, login};

/// The doctor's report.
pub(crate) struct Findings {
    code: Option<i32>,
    report: Value,
}

impl Findings {
    /// Level and finding of each check with this name.
    fn of(&self, what: &str) -> Vec<(&str, &str)> {
        let findings = self.report["findings"].as_array().unwrap().iter();
        let found = findings.filter(|finding| finding["what"] == what);
        found
            .map(|finding| (finding["level"].as_str().unwrap(), finding["found"].as_str().unwrap()))
            .collect()
    }

    /// The only finding of this check.
    fn one(&self, what: &str) -> (&str, &str) {
        let found = self.of(what);
        assert_eq!(found.len(), 1, "{what}: {:#}", self.report);
        found[0]
    }

    /// Asserts the level and some words of the only finding of this check.
    pub(crate) fn says(&self, what: &str, level: &str, words: &str) {
        let (found, finding) = self.one(what);
        assert!(found == level && finding.contains(words), "{what}: {found}: {finding}");
    }

    /// The names of checks at this level.
    pub(crate) fn bad(&self, level: &str) -> Vec<&str> {
        let findings = self.report["findings"].as_array().unwrap().iter();
        let bad = findings.filter(|finding| finding["level"] == level);
        bad.map(|finding| finding["what"].as_str().unwrap()).collect()
    }

    pub(crate) fn mend(&self, what: &str) -> &str {
        let findings = self.report["findings"].as_array().unwrap().iter();
        let mends = findings.filter(|finding| finding["what"] == what).map(|finding| &finding["mend"]);
        mends.filter_map(Value::as_str).next().unwrap_or_else(|| panic!("{what}: {:#}", self.report))
    }
}

pub(crate) async fn doctor(url: &str, pubsub: Option<&PubSubConfig>, arguments: &[&str]) -> Findings {
    let output = run(url, pubsub, &[&["--json"], arguments].concat()).await;
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    Findings { code: output.status.code(), report }
}

async fn run(url: &str, pubsub: Option<&PubSubConfig>, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeq"));
    command.arg("doctor").args(arguments).env_clear().env("DATABASE_URL", url);
    command.env(durability().0, durability().1).env(SECRET_KEY.0, SECRET_KEY.1);
    if let Some(config) = pubsub {
        command
            .env("PUBSUB_EMULATOR_HOST", config.emulator_host.as_ref().unwrap())
            .env("GOOGLE_CLOUD_PROJECT", &config.project)
            .env("WAKEQ_TOPIC", &config.topic)
            .env("WAKEQ_SUBSCRIPTION", &config.subscription)
            .env("WAKEQ_BROADCAST", if config.broadcast_topic.is_some() { "1" } else { "0" });
    }
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The same database, with a server setting for each connection.
fn with_setting(database: &TestDatabase, setting: &str) -> String {
    let separator = if database.url().contains('?') { '&' } else { '?' };
    format!("{}{separator}options=-c%20{}", database.url(), setting.replace('=', "%3D"))
}

async fn sql(database: &TestDatabase, statements: &str) -> PgPool {
    let pool = PgPool::connect(database.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(&pool).await.unwrap();
    pool
}

/// All is well: every line and the exit code say so.
#[tokio::test]
async fn a_healthy_queue_passes() {
    let config = Broker::pubsub_config("doctor-healthy").await;
    create_topics(&config).await.unwrap();
    let database = database().await;
    sql(&database, "update wakeq.chores set next_at = now() + interval '1 min'").await;
    let (role, url) = login(&database, "app").await;
    for kind in [RoleKind::Api, RoleKind::Worker] {
        Store::grant_rights(database.url(), &StoreConfig::default(), &role, kind).await.unwrap();
    }
    let only_ours = format!(
        "revoke connect on database {0} from public; grant connect on database {0} to {role}",
        database.name()
    );
    sql(&database, &only_ours).await;
    let found = doctor(&url, Some(&config), &[]).await;
    assert_eq!((found.bad("fail"), found.bad("warn")), (vec![], vec![]), "{:#}", found.report);
    assert_eq!(found.one("rights").1, format!("{role} has what the API and a worker need"));
    assert_eq!((found.code, &found.report["failed"]), (Some(0), &Value::from(0)));
    assert_eq!(found.one("Pub/Sub rights"), ("ok", "not checked: an emulator has none"));
    let printed = run(&url, Some(&config), &[]).await;
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(text.lines().count() > 12 && text.lines().all(|line| line.starts_with("ok    ")), "{text}");
}

/// The statement that the doctor names removes a pin that belongs to no group, and only that one.
#[tokio::test]
async fn a_pin_made_by_hand_is_removed_as_the_doctor_says() {
    let database = database().await;
    let pins =
        "insert into wakeq.log_pins values ('ada''s', 0), ('kept by hand', 0), ('entities/account', 0);
                select setval('wakeq.log_seq', 5000001)";
    let pool = sql(&database, pins).await;
    let what = "retention of the log";
    let found = doctor(database.url(), None, &[]).await;
    assert_eq!(found.one(what).0, "warn", "{:#}", found.report);
    let mend = found.mend(what);
    let statement = mend.split('`').find(|part| part.contains("'ada''s'"));
    sql(&database, statement.unwrap_or_else(|| panic!("{mend}"))).await;
    let left: Vec<String> =
        sqlx::query_scalar("select name from wakeq.log_pins order by name").fetch_all(&pool).await.unwrap();
    assert_eq!(left, ["entities/account", "kept by hand"]);
    assert!(!doctor(database.url(), None, &[]).await.mend(what).contains("ada"));
}

/// A catalog like that of Citus, made by hand: what counts is what it says about wakeq's tables.
#[tokio::test]
async fn tables_that_citus_distributes_are_refused_by_the_doctor_and_by_migrate() {
    let database = database().await;
    let catalog = r#"set allow_system_table_mods = on;
                     create table pg_catalog.pg_dist_partition
                         (logicalrel regclass, partmethod "char", colocationid integer);
                     create table theirs (id bigint);
                     insert into pg_catalog.pg_dist_partition
                     values ('wakeq.chores', 'n', 0), ('theirs', 'h', 1)"#;
    let pool = sql(&database, catalog).await;
    doctor(database.url(), None, &[]).await.says("database", "ok", "Postgres ");
    Store::migrate(database.url(), true).await.unwrap();
    let distribute = "insert into pg_catalog.pg_dist_partition
                      values ('wakeq.events_v2', 'h', 1), ('wakeq.settings', 'n', 2)";
    sqlx::query(distribute).execute(&pool).await.unwrap();
    let found = doctor(database.url(), None, &[]).await;
    found.says("database", "fail", "Citus distributes 2 tables");
    assert!(found.mend("database").contains("undistribute"), "{:#}", found.report);
    for dry_run in [true, false] {
        let refused = Store::migrate(database.url(), dry_run).await.unwrap_err();
        assert!(refused.to_string().contains("Citus distributes 2 tables"), "{refused}");
    }
}

/// Nothing is reachable: both halves are checked all the same.
#[tokio::test]
async fn reports_an_unreachable_database_and_pubsub() {
    let away = doctor("postgres://nobody@127.0.0.1:1/nothing", None, &[]).await;
    assert_eq!((away.code, away.bad("fail")), (Some(1), vec!["database", "Pub/Sub"]));
    assert!(away.one("database").1.contains("refused"), "{:#}", away.report);
    assert!(away.mend("Pub/Sub").contains("GOOGLE_CLOUD_PROJECT"), "{:#}", away.report);
    let mut nowhere = PubSubConfig::new("tests");
    nowhere.emulator_host = Some("127.0.0.1:1".into());
    let database = database().await;
    let half = doctor(database.url(), Some(&nowhere), &[]).await;
    assert_eq!((half.code, half.bad("fail")), (Some(1), vec!["Pub/Sub"]));
    assert_eq!(half.one("migrations"), ("ok", "up to date"));
    let wrong = database.url().replace(database.name(), "nowhere");
    let found = doctor(&wrong, None, &[]).await;
    let words = found.one("database").1;
    assert!(words.ends_with(": database \"nowhere\" does not exist"), "{words}");
    assert_eq!(words.matches("nowhere").count(), 1, "{words}");
    let printed = run("", None, &[]).await;
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(text.starts_with("FAIL  database: DATABASE_URL is not set"), "{text}");
    assert_eq!(String::from_utf8(printed.stderr).unwrap(), "wakeq: 2 checks failed\n");
}

/// A schema that is missing, incomplete, or newer than the program.
#[tokio::test]
async fn migrations_are_compared() {
    let empty = TestDatabase::create(b"empty", async |_| Ok::<_, std::io::Error>(())).await.unwrap();
    let found = doctor(empty.url(), None, &[]).await;
    found.says("migrations", "fail", "missing: 1, 2, 3");
    assert_eq!(found.mend("migrations"), "run `wakeq migrate`");
    let database = database().await;
    let add = "insert into wakeq._migrations (version, description, success, checksum, execution_time)
               values (987654, 'from the future', true, '', 0)";
    let pool = sql(&database, add).await;
    let found = doctor(database.url(), None, &[]).await;
    assert_eq!(found.one("migrations"), ("warn", "newer than this program: 987654"));
    sqlx::query("delete from wakeq._migrations where version in (987654, 3)").execute(&pool).await.unwrap();
    assert_eq!(doctor(database.url(), None, &[]).await.one("migrations"), ("fail", "missing: 3"));
}

/// A role without rights, then with those that `wakeq migrate` grants; and the owner, which has too
/// many.
#[tokio::test]
async fn reports_missing_and_excessive_rights() {
    let database = database().await;
    let (role, url) = login(&database, "role").await;
    let found = doctor(&url, None, &[]).await;
    found.says("rights", "fail", "usage on wakeq");
    assert!(found.mend("rights").contains("wakeq migrate --"), "{}", found.mend("rights"));
    let mut migrate = Command::new(env!("CARGO_BIN_EXE_wakeq"));
    migrate.args(["migrate", "--worker-role", &role]).env_clear().env("DATABASE_URL", database.url());
    let migrated = tokio::task::spawn_blocking(move || migrate.output().unwrap()).await.unwrap();
    let text = String::from_utf8_lossy(&migrated.stdout);
    let words = format!("the rights of the kind `worker` to {role}");
    assert!(migrated.status.success() && text.contains(&words), "{migrated:?}");
    let found = doctor(&url, None, &[]).await;
    let has = format!("{role} has what a worker needs, and serves no API");
    assert_eq!(found.one("rights"), ("ok", has.as_str()), "{:#}", found.report);
    assert_eq!(found.one("role").0, "ok");
    assert_eq!(found.bad("fail"), ["Pub/Sub"]);
    let pool = sql(&database, &format!("revoke update on wakeq.events_v2 from {role}")).await;
    let found = doctor(&url, None, &[]).await;
    let lacks = format!("{role} lacks update on wakeq.events_v2 for the kind `worker`");
    assert_eq!(found.one("rights"), ("fail", lacks.as_str()));

    let found = doctor(database.url(), None, &[]).await;
    found.says("role", "warn", "superuser");
    sqlx::raw_sql(AssertSqlSafe(format!("alter schema wakeq owner to {role}"))).execute(&pool).await.unwrap();
    let found = doctor(&url, None, &[]).await;
    found.says("role", "warn", "owns the schema");
}

/// What docs/operations.md advises about roles of other programs, of this database.
fn limits(database: &str, ours: &str, program: &str) -> String {
    let pages =
        std::fs::read_to_string(crate::support::repository::root().join("docs/operations.md")).unwrap();
    let advised = pages.split("### Roles of other programs").nth(1).expect("the heading");
    let sql = advised.split("```sql").nth(1).and_then(|rest| rest.split("```").next()).expect("statements");
    let sql = sql
        .replace("app_owner, app_api, app_worker", ours)
        .replace("database app ", &format!("database {database} "));
    sql.replace("shop", program)
}

/// To connect is a matter of trust: another role that may is reported until it is limited. The
/// deployment goes on working.
#[tokio::test]
async fn other_roles_are_reported_until_they_are_limited() {
    let database = database().await;
    let (ours, url) = login(&database, "worker").await;
    Store::grant_rights(database.url(), &StoreConfig::default(), &ours, RoleKind::Worker).await.unwrap();
    let found = async || doctor(&url, None, &[]).await;
    found().await.says("other roles", "warn", "every role of the server may connect");
    let name = database.name();
    let closed =
        format!("revoke connect on database {name} from public; grant connect on database {name} to {ours}");
    sql(&database, &closed).await;
    assert_eq!(found().await.one("other roles"), ("ok", "none may connect"));
    let (program, _) = login(&database, "shop").await;
    sql(&database, &format!("grant connect on database {name} to {program}")).await;
    found().await.says("other roles", "warn", &format!("{program} may connect without a limit"));
    sql(&database, &limits(name, &ours, &program)).await;
    assert_eq!(found().await.one("other roles"), ("ok", "1 may connect, within limits"));
    let worker = PgPool::connect(&url).await.unwrap();
    sqlx::query("select wakeq.log_floor()").execute(&worker).await.expect("workers append to the log");
}

/// A session that holds a lock that claims wait for is reported with its process and role.
#[tokio::test]
async fn holders_of_gates_are_named() {
    let database = database().await;
    let pool = sql(&database, "select 1").await;
    assert_eq!(doctor(database.url(), None, &[]).await.one("locks").0, "ok");
    let mut holder = pool.begin().await.unwrap();
    sqlx::query("lock table wakeq.claim_gate in share mode").execute(&mut *holder).await.unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *holder).await.unwrap();
    // A role that can't see how long the session has been open gets the report at once.
    let (role, url) = login(&database, "worker").await;
    Store::grant_rights(database.url(), &StoreConfig::default(), &role, RoleKind::Worker).await.unwrap();
    let found = doctor(&url, None, &[]).await;
    found.says("locks", "warn", &format!("process {pid}, "));
    found.says("locks", "warn", "ShareLock on wakeq.claim_gate");
    assert!(found.mend("locks").contains(&format!("pg_terminate_backend({pid})")));
    holder.rollback().await.unwrap();
}

/// Another host is not contacted while it would not be verified.
#[tokio::test]
async fn an_unverified_host_is_refused_unless_that_is_allowed() {
    let url = "postgres://wakeq:secret@192.0.2.1/app?sslmode=require";
    let found = doctor(url, None, &[]).await;
    found.says("database", "fail", "sslmode=verify-full");
    assert!(!found.one("database").1.contains("secret"), "{:#}", found.report);
}

/// A server that may forget commits; a minute's pass that no process makes; transactions that are
/// never ended.
#[tokio::test]
async fn reports_a_neglected_database() {
    let database = database().await;
    let lazy = with_setting(&database, "synchronous_commit=off");
    let found = doctor(&lazy, None, &[]).await;
    assert_eq!(found.one("durability"), ("fail", "fsync on, synchronous_commit off"));
    let found = doctor(&lazy, None, &["--allow-unsafe-durability"]).await;
    assert_eq!(found.one("durability").0, "warn");
    let neglect = "update wakeq.chores set next_at = now() - interval '1 h';
        insert into wakeq.resume_jobs (kind, canvas_id, module, name, created_at)
            values ('lifted', gen_random_uuid(), 'WORKER', 'h', now() - interval '1 h');
        insert into wakeq.unknown_handlers values (gen_random_uuid(), 'WORKER', 'mistyped', '_');
        insert into wakeq.workers (name, instance, release, capacity, handler_count, handlers, has_targets)
            select 'one', gen_random_uuid(), release, 1, 0, '{}', false from unnest(array['0.1.0', '0.2.0']) release;
        insert into wakeq.scheduling_rules (rule_type, canvas_id, event_space, handler_name, reason, created_by)
            select 'block', canvas::uuid, 'CANVAS', '_', 'fire', 'ops'
              from unnest(array['00000000-0000-0000-0000-000000000007', 'ffffffff-ffff-ffff-ffff-ffffffffffff']) canvas;
        insert into wakeq.limit_waits (event_id, canvas_id, name, due, woken_at)
            select gen_random_uuid(), '00000000-0000-0000-0000-000000000007', 'customer:7', now(),
                   case when n > 500 then now() end
              from generate_series(1, 1001) n;
        insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
            values (gen_random_uuid(), gen_random_uuid(), 'WORKER', 'h', '_', '1', now() - interval '1 h')";
    let pool = sql(&database, neglect).await;
    let mut old = pool.begin().await.unwrap();
    let sql = "select pg_backend_pid() + 0 * pg_current_xact_id()::text::bigint::integer";
    let pid: i32 = sqlx::query_scalar(sql).fetch_one(&mut *old).await.unwrap();
    let found = doctor(database.url(), None, &["--open-for", "0s"]).await;
    let warned = [
        "role",
        "other roles",
        "minute's pass",
        "promises",
        "resume jobs",
        "handlers",
        "workers",
        "switches",
        "limits",
        "old transactions",
    ];
    assert_eq!(found.bad("warn"), warned, "{:#}", found.report);
    assert_eq!(found.one("workers").1, "1 of release 0.1.0, 1 of release 0.2.0");
    let words = "everything is blocked by ops: fire; 1 canvas is stopped as a whole";
    assert_eq!(found.one("switches").1, words);
    let words = "more than 1000 events wait for customer:7 (canvas 00000000-0000-0000-0000-000000000007)";
    assert_eq!(found.one("limits").1, words);
    assert!(found.one("handlers").1.contains("WORKER/mistyped/_"), "{:#}", found.report);
    let words = found.one("old transactions").1;
    assert!(words.contains(&format!("process {pid} ")), "{words}");
    old.rollback().await.unwrap();
    let found = doctor(database.url(), None, &["--open-for", "1h"]).await;
    assert_eq!(found.one("old transactions").0, "ok");
}

/// The minute's pass is judged by the deployment's period, not by that of a program without
/// settings.
#[tokio::test]
async fn the_pass_is_judged_by_the_deployments_period() {
    let database = database().await;
    let late = "insert into wakeq.settings (name, value_us) values ('probe_period', 1200000000);
        update wakeq.chores set next_at = now() - interval '30 min';
        insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
            values (gen_random_uuid(), gen_random_uuid(), 'WORKER', 'h', '_', '1', now() - interval '50 min')";
    let pool = sql(&database, late).await;
    let levels = async || {
        let found = doctor(database.url(), None, &[]).await;
        [found.one("minute's pass").0.to_owned(), found.one("promises").0.to_owned()]
    };
    assert_eq!(levels().await, ["ok", "ok"]);
    sqlx::query("update wakeq.settings set value_us = 60000000").execute(&pool).await.unwrap();
    assert_eq!(levels().await, ["warn", "warn"]);
}

/// The roles that the pages grant let an account publish to a topic, but not look at it.
#[tokio::test]
async fn a_topic_that_may_not_be_seen_is_not_a_failure() {
    let emulator = Emulator::start("127.0.0.1:0".parse().unwrap(), Options::default()).await.unwrap();
    let mut config = Broker::config_at(emulator.host(), "doctor-denied");
    config.broadcast_topic = Some(PubSubConfig::broadcast_topic_of(&config.topic));
    create_topics(&config).await.unwrap();
    let denied = Faults::default().fail_next(3, FaultCode::PermissionDenied, [Method::GetTopic]);
    emulator.set_faults(denied);
    let database = database().await;
    let found = doctor(database.url(), Some(&config), &[]).await;
    for what in ["topic", "topic of broadcasts"] {
        found.says(what, "ok", "if it exists: this account may not look at it");
    }
    assert_eq!(found.bad("fail"), [""; 0]);
    let state = describe_topics(&config).await.unwrap().topic_state;
    assert_eq!(state, TopicState::Unknown);
    emulator.stop().await;
}

/// A subscription that something else created.
#[tokio::test]
async fn reports_a_foreign_subscription() {
    let config = Broker::pubsub_config("doctor-foreign").await;
    let database = database().await;
    let found = doctor(database.url(), Some(&config), &[]).await;
    assert_eq!(found.bad("fail"), ["topic", "subscription"]);
    assert_eq!(found.mend("topic"), "run `wakeq topics create`");
    create_topics(&config).await.unwrap();
    Broker::delete_subscription(&config).await;
    let foreign = Broker::subscriptions(&config)
        .await
        .create_subscription()
        .set_name(format!("projects/{}/subscriptions/{}", config.project, config.subscription))
        .set_topic(format!("projects/{}/topics/{}", config.project, config.topic))
        .set_ack_deadline_seconds(17)
        .set_filter("attributes.colour = \"red\"");
    tokio::time::timeout(Duration::from_secs(10), foreign.send()).await.unwrap().unwrap();
    let found = doctor(database.url(), Some(&config), &[]).await;
    let words: Vec<_> = found.of("subscription").into_iter().map(|(_, words)| words).collect();
    assert!(words.contains(&"ack deadline is 17 s, wanted 60 s"), "{words:?}");
    assert!(words.iter().any(|words| words.starts_with("filter is attributes.colour")), "{words:?}");
    assert_eq!(found.code, Some(1));
}
