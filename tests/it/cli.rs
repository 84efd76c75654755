//! The command line, as a process against a real database and Google's emulator; whole outputs where they are stable.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use chrono::NaiveDateTime;
use uuid::Uuid;
use wakeq::notify::{Notifier, PubSub, PubSubConfig};
use wakeq::{EventId, HandlerError, Handlers, Outcome, RetryPolicy, Route, Timing};
use wakeq_dev::TestDatabase;

use crate::brokers::Broker;
use crate::door::{Door, answering, telling};
use crate::support::{Running, connect, database};

/// A terminal with the variables that `wakeq` reads.
pub(crate) struct Terminal {
    variables: Vec<(&'static str, String)>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Terminal {
    fn without_variables() -> Self {
        Self { variables: Vec::new() }
    }

    pub(crate) fn on(database: &TestDatabase) -> Self {
        Self::without_variables().set("DATABASE_URL", database.url())
    }

    fn with_pubsub(self, config: &PubSubConfig) -> Self {
        self.set("PUBSUB_EMULATOR_HOST", config.emulator_host.as_deref().unwrap())
            .set("GOOGLE_CLOUD_PROJECT", &config.project)
            .set("WAKEQ_TOPIC", &config.topic)
            .set("WAKEQ_SUBSCRIPTION", &config.subscription)
    }

    fn set(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// Runs `wakeq`.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Printed {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wakeq"));
        command.args(arguments).env_clear().env("USER", "ada").envs(self.variables.iter().cloned());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Printed { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What it prints when all goes well, ids and moments masked.
    pub(crate) async fn prints(&self, arguments: &[&str]) -> String {
        masked(&self.raw(arguments).await)
    }

    async fn raw(&self, arguments: &[&str]) -> String {
        let printed = self.run(arguments).await;
        assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""), "{arguments:?}: {}", printed.out);
        printed.out
    }

    /// What it complains of, with this exit code and nothing on standard output.
    pub(crate) async fn complains(&self, code: i32, arguments: &[&str]) -> String {
        let Printed { code: found, out, err } = self.run(arguments).await;
        assert_eq!((found, out.as_str()), (Some(code), ""), "{arguments:?}: {err}");
        masked(&err)
    }
}

/// With `<id>` for ids and `<time>` for moments.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let id = rest.get(..36).filter(|start| Uuid::parse_str(start).is_ok());
        let moment = |start: &&str| NaiveDateTime::parse_from_str(start, "%Y-%m-%d %H:%M:%SZ").is_ok();
        let (mask, length) = match (id, rest.get(..20).filter(moment)) {
            (Some(_), _) => ("<id>".to_owned(), 36),
            (None, Some(_)) => ("<time>".to_owned(), 20),
            (None, None) => (first.to_string(), first.len_utf8()),
        };
        masked.push_str(&mask);
        rest = &rest[length..];
    }
    masked
}

const MIGRATIONS: &[(i64, &str)] = &[
    (1, "events"),
    (2, "rules"),
    (3, "dead events"),
    (4, "chores"),
    (5, "claim"),
    (6, "access"),
    (7, "audit"),
    (8, "idempotency"),
    (9, "settings"),
];

fn migrations(status: &str) -> String {
    let line = |(number, name): &(i64, &str)| format!("{number:>4}  {status:8} {name}\n");
    MIGRATIONS.iter().map(line).collect()
}

#[tokio::test]
async fn migrate_shows_what_it_did() {
    let empty = TestDatabase::create(b"empty", async |_| Ok::<_, std::io::Error>(())).await.unwrap();
    let terminal = Terminal::on(&empty);
    let refused = terminal.complains(1, &["stats"]).await;
    assert!(
        refused.starts_with("wakeq: the schema `wakeq` is not up to date: run `wakeq migrate`"),
        "{refused}"
    );
    assert_eq!(terminal.prints(&["migrate", "--dry-run"]).await, migrations("missing"));
    assert_eq!(terminal.prints(&["migrate"]).await, migrations("applied"));
    assert_eq!(terminal.prints(&["migrate"]).await, migrations("present"));
    assert_eq!(terminal.prints(&["migrate", "--dry-run"]).await, migrations("present"));
    assert_eq!(terminal.prints(&["stats"]).await, "no events, and no rules\n");
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let terminal = Terminal::without_variables();
    let unset = "wakeq: DATABASE_URL is not set: export DATABASE_URL=postgres://user:password@host:5432/database, \
                    or pass --database-url\n";
    for command in [&["stats"][..], &["migrate"], &["emit", "greet"], &["pause", "greet"]] {
        assert_eq!(terminal.complains(1, command).await, unset);
    }
    let pubsub = "wakeq: GOOGLE_CLOUD_PROJECT is not set: export GOOGLE_CLOUD_PROJECT=my-project, or \
                  PUBSUB_EMULATOR_HOST=localhost:8085 for an emulator\n";
    assert_eq!(terminal.complains(1, &["topics", "check"]).await, pubsub);
    assert_eq!(Terminal::on(&database().await).complains(1, &["emit", "greet"]).await, pubsub);
}

#[tokio::test]
async fn wrong_arguments_are_explained() {
    let terminal = Terminal::without_variables();
    let id = "error: invalid value '12' for '<ID>': an event's id is a uuid, as `wakeq emit` prints it";
    for (arguments, expected) in [
        (
            &["emit", "a b"][..],
            "error: invalid value 'a b' for '<HANDLER>': \"a b\" is no valid name: use 1 to 128 of the characters \
             A-Z a-z 0-9 _ . -",
        ),
        (
            &["emit", "greet", "{a:1}"],
            "error: invalid value '{a:1}' for '[VALUE]': the value is not JSON (key must be a string at line 1 \
             column 2); examples: '\"text\"' or '{\"a\":1}'",
        ),
        (
            &["emit", "greet", "--at", "tomorrow"],
            "error: invalid value 'tomorrow' for '--at <AT>': a moment looks like 2030-01-31T08:00:00Z",
        ),
        (&["explain", "12"], id),
        (&["cancel", "12"], id),
        (&["run-now", "12"], id),
        (
            &["stats", "--canvas", "x"],
            "error: invalid value 'x' for '--canvas <CANVAS>': a canvas is a uuid, such as <id>",
        ),
        (
            &["emit", "greet", "--after", "1s", "--at", "2030-01-31T08:00:00Z"],
            "error: the argument '--after <AFTER>' cannot be used with '--at <AT>'",
        ),
        (&["pauze", "greet"], "error: unrecognized subcommand 'pauze'"),
    ] {
        let complaint = terminal.complains(2, arguments).await;
        assert_eq!(complaint.lines().next(), Some(expected));
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_to_be() {
    let terminal = Terminal::without_variables().set("DATABASE_URL", "postgres://nobody@127.0.0.1:1/nothing");
    let expected = "wakeq: Postgres is not reachable: check DATABASE_URL and that the server runs: ";
    for command in ["stats", "migrate"] {
        let complaint = terminal.complains(1, &[command]).await;
        assert!(complaint.starts_with(expected) && complaint.contains("Connection refused"), "{complaint}");
    }
    let lease = ["stats", "--lease", "0s"];
    assert_eq!(
        terminal.complains(1, &lease).await,
        "wakeq: the duration `lease` is 0ns: it must lie between 100ms and 31536000s\n"
    );
}

/// EV2-07, EV2-08, EV2-09, EV2-46: rules and waiting events, without Pub/Sub.
#[tokio::test]
async fn rules_are_put_shown_and_explained() {
    let database = database().await;
    let terminal = Terminal::on(&database);
    let head = "HANDLER                          WAITING  DELAYED   PAUSED  RUNNING     DEAD  RULES\n";
    let pause = ["pause", "greet", "--reason", "the provider is down"];
    let none = "it has no events now; if that surprises you, look for the right name in `wakeq stats`\n";
    assert_eq!(terminal.prints(&pause).await, format!("WORKER/greet paused\n{none}"));
    assert_eq!(
        terminal.prints(&pause).await,
        format!("WORKER/greet was paused already: reason and end replaced\n{none}")
    );
    let block = ["block", "REPORTS/weekly", "--for", "2h", "--actor", "operations"];
    assert_eq!(terminal.prints(&block).await, format!("REPORTS/weekly blocked\n{none}"));
    assert_eq!(
        terminal.prints(&["stats"]).await,
        format!(
            "{head}REPORTS/weekly                         0        0        0        0        0  block by operations \
             until <time>\n\
             WORKER/greet                           0        0        0        0        0  pause by ada: the provider \
             is down\n"
        )
    );
    assert_eq!(terminal.prints(&["stats", "other"]).await, "no events, and no rules\n");
    assert_eq!(
        terminal.complains(1, &["pause", "greet", "--until", "2001-01-01T00:00:00Z"]).await,
        "wakeq: the rule would end in the past: give a later moment\n"
    );
    assert_eq!(
        terminal.complains(1, &["pause", "greet", "--for", "1000000years"]).await,
        "wakeq: --for is too long\n"
    );
    let nobody = Uuid::new_v4().to_string();
    assert_eq!(
        terminal.prints(&["explain", &nobody]).await,
        "event     <id>\nstate     unknown: it completed, or never was\n"
    );
    let waits = "wakeq: event <id> is not there: it has ended, or never was; `wakeq explain` tells which\n";
    assert_eq!(terminal.complains(1, &["cancel", &nobody]).await, waits);
    assert_eq!(
        terminal.prints(&["purge", "greet", "--dry-run"]).await,
        "WORKER/greet: 0 events would be deleted\n"
    );
    assert_eq!(terminal.prints(&["dead", "list"]).await, "no dead events\n");
    assert_eq!(
        terminal.complains(1, &["dead", "redrive"]).await,
        "wakeq: say which: --id EVENT, --handler HANDLER, or --all of the canvas\n"
    );
}

/// Topics are created, found, and found wanting.
#[tokio::test]
async fn topics_are_created_and_checked() {
    let Some(config) = Broker::google_config("cli-topics").await else { return };
    let terminal = Terminal::without_variables().with_pubsub(&config);
    let (topic, subscription) = (
        format!("projects/{}/topics/{}", config.project, config.topic),
        format!("projects/{}/subscriptions/{}", config.project, config.subscription),
    );
    let report = |state: &str| format!("{state:13} {topic}\n{state:13} {subscription}\n");
    let missing = terminal.run(&["topics", "check"]).await;
    let expected = Printed {
        code: Some(1),
        out: report("missing"),
        err: "wakeq: something is missing: run `wakeq topics create`\n".into(),
    };
    assert_eq!(missing, expected);
    assert_eq!(terminal.prints(&["topics", "create"]).await, report("created"));
    assert_eq!(terminal.prints(&["topics", "create"]).await, report("already there"));
    assert_eq!(terminal.prints(&["topics", "check"]).await, report("already there"));
}

/// A queue that the command line and a worker of this test share.
struct Shared {
    database: TestDatabase,
    terminal: Terminal,
    notifier: Arc<dyn Notifier>,
}

impl Shared {
    async fn new(test: &str) -> Option<Self> {
        let mut config = Broker::google_config(test).await?;
        config.create_missing = true;
        let notifier = Arc::new(PubSub::connect(config.clone()).await.unwrap());
        let database = database().await;
        let terminal = Terminal::on(&database).with_pubsub(&config);
        terminal.raw(&["topics", "create"]).await;
        Some(Self { database, terminal, notifier })
    }

    async fn worker(&self, handlers: Handlers) -> Running {
        let store = connect(self.database.url(), Timing::default()).await;
        Running::start(store, Arc::clone(&self.notifier), handlers, Default::default())
    }

    async fn emit(&self, arguments: &[&str]) -> EventId {
        let printed = self.terminal.raw(&[&["emit"], arguments].concat()).await;
        printed.trim_end().parse().unwrap()
    }
}

/// EV2-42, CARD-06, EV2-12: emitted, held, woken, failed, dead, brought back; each step from a terminal.
#[tokio::test]
async fn an_operator_follows_an_event_through_its_life() {
    let Some(shared) = Shared::new("cli-life").await else { return };
    let terminal = &shared.terminal;
    terminal.raw(&["pause", "greet"]).await;
    let id = shared.emit(&["greet", "\"Ada\""]).await;
    let (handler, mut seen) = answering(|event| match event.value::<String>()?.as_str() {
        "Ada" if event.enqueued_at == event.due_at => Err(HandlerError::operational("no room\non the disk")),
        _ => Ok(()),
    });
    let once = RetryPolicy { retries: 0, ..RetryPolicy::default() };
    let mut worker = shared.worker(Handlers::new().on(Route::new("greet").retry(once), handler)).await;
    worker.until(id, Outcome::RulePaused).await;
    let name = id.to_string();
    assert_eq!(
        terminal.prints(&["explain", &name]).await,
        "event     <id>\n\
         handler   WORKER/greet/_\n\
         emitted   <time>\n\
         state     paused since <time>  (RulePaused)\n\
         rule      pause by ada: no reason given\n\
         attempts  0 failed, 0 lost with their workers\n\
         next      is woken when the handler is unpaused\n"
    );
    terminal.raw(&["block", "greet"]).await;
    assert_eq!(
        terminal.prints(&["unpause", "greet"]).await,
        "WORKER/greet: pause lifted, 1 waiting event woken\n\
         WORKER/greet is still blocked: only `wakeq unblock` lifts that\n"
    );
    worker.until(id, Outcome::RuleBlocked).await;
    assert_eq!(
        terminal.prints(&["unblock", "greet"]).await,
        "WORKER/greet: block lifted, 1 waiting event woken\n"
    );
    assert_eq!(terminal.prints(&["unblock", "greet"]).await, "WORKER/greet: there was no block\n");
    worker.until(id, Outcome::Deleted).await;
    assert_eq!(seen.next().await.id, id);
    assert_eq!(
        terminal.prints(&["explain", &name]).await,
        "event     <id>\n\
         handler   WORKER/greet/_\n\
         emitted   <time>\n\
         state     dead since <time> (retries)\n\
         attempts  0 retries, 0 lost with their workers\n\
         error     no room\n\x20         on the disk\n\
         next      kept, then deleted; `wakeq dead redrive --id <id>` brings it back\n"
    );
    let head = format!("{:20}  {:36}  {:30}  {:7}  ERROR\n", "DIED", "EVENT", "HANDLER", "CAUSE");
    let line = format!("<time>  <id>  {:30}  retries  no room\n", "WORKER/greet/_");
    assert_eq!(terminal.prints(&["dead", "list", "--handler", "greet"]).await, format!("{head}{line}"));
    let redrive = ["dead", "redrive", "--id", &name];
    let dry = [&redrive[..], &["--dry-run"]].concat();
    assert_eq!(terminal.prints(&dry).await, "1 dead event would be brought back\n");
    assert_eq!(terminal.prints(&redrive).await, "1 dead event brought back\n");
    worker.until(id, Outcome::Deleted).await;
    assert_eq!(terminal.prints(&["stats"]).await, "no events, and no rules\n");
    worker.stop().await;
}

/// EV2-34, EV2-09: delayed events are seen, hurried, cancelled and purged.
#[tokio::test]
async fn an_operator_handles_waiting_events() {
    let Some(shared) = Shared::new("cli-waiting").await else { return };
    let terminal = &shared.terminal;
    let chosen = EventId::new().to_string();
    let emit = ["emit", "greet", "{\"to\":\"Ada\"}", "--after", "1h", "--id", &chosen];
    assert_eq!(terminal.raw(&emit).await, format!("{chosen}\n"));
    assert_eq!(terminal.raw(&emit).await, format!("{chosen}  (emitted before: nothing added)\n"));
    let cancelled = shared.emit(&["greet", "--after", "2days"]).await.to_string();
    for _ in 0..3 {
        shared.emit(&["REPORTS/weekly", "--modifier", "big", "--at", "2999-01-31T08:00:00Z"]).await;
    }
    assert_eq!(
        terminal.prints(&["explain", &chosen]).await,
        "event     <id>\n\
         handler   WORKER/greet/_\n\
         emitted   <time>\n\
         state     delayed since <time>  (DelayNotYet)\n\
         until     <time>\n\
         attempts  0 failed, 0 lost with their workers\n\
         next      runs when it is due; woken again at <time>\n"
    );
    assert_eq!(terminal.prints(&["cancel", &cancelled]).await, "<id> cancelled\n");
    let purge = ["purge", "REPORTS/weekly", "--dry-run"];
    assert_eq!(terminal.prints(&purge).await, "REPORTS/weekly: 3 events would be deleted\n");
    assert_eq!(terminal.prints(&purge[..2]).await, "REPORTS/weekly: 3 events deleted\n");
    let (handler, mut door) = Door::new();
    let mut worker = shared.worker(Handlers::new().on("greet", handler)).await;
    assert_eq!(terminal.prints(&["run-now", &chosen]).await, "<id> is due now\n");
    assert_eq!(door.arrived.next().await.value::<serde_json::Value>().unwrap()["to"], "Ada");
    assert_eq!(
        terminal.prints(&["stats"]).await,
        "HANDLER                          WAITING  DELAYED   PAUSED  RUNNING     DEAD  RULES\n\
         WORKER/greet                           0        0        0        1        0  \n"
    );
    door.open(1);
    worker.until(chosen.parse().unwrap(), Outcome::Deleted).await;
    assert_eq!(
        terminal.prints(&["explain", &chosen]).await,
        "event     <id>\nstate     gone: it completed, or was cancelled\nemitted   <time>\n"
    );
    worker.stop().await;
}

/// EV2-15: `wake --all` publishes for every row.
#[tokio::test]
async fn wake_replaces_lost_messages() {
    let Some(shared) = Shared::new("cli-wake").await else { return };
    let database = shared.database.url();
    let silent = Terminal::without_variables()
        .set("DATABASE_URL", database)
        .set("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
        .set("NO_COLOR", "1");
    let emitted = silent.run(&["emit", "greet"]).await;
    assert_eq!(emitted.code, Some(0), "{}", emitted.err);
    assert!(emitted.err.contains("notifications not published"), "{}", emitted.err);
    let id: EventId = emitted.out.trim_end().parse().unwrap();
    assert_eq!(
        shared.terminal.prints(&["wake"]).await,
        "0 overdue events woken, 0 resume jobs carried on\n",
        "its promise still stands"
    );
    assert_eq!(
        shared.terminal.prints(&["wake", "--all"]).await,
        "1 overdue event woken, 0 resume jobs carried on\n"
    );
    let (handler, mut seen) = telling();
    let mut worker = shared.worker(Handlers::new().on("greet", handler)).await;
    assert_eq!(seen.next().await.id, id);
    worker.until(id, Outcome::Deleted).await;
    tokio::time::timeout(Duration::from_secs(40), worker.stop()).await.unwrap();
}

/// Commands take the deployment's durations, are refused with others, and can change them.
#[tokio::test]
async fn durations_are_the_deployments() {
    let database = database().await;
    let terminal = Terminal::on(&database);
    let lease = |text: &str| format!("lease                  {text}\n");
    assert!(terminal.prints(&["settings", "show"]).await.starts_with(&lease("1m")));
    let timing = Timing { lease: Duration::from_secs(30), ..Timing::default() };
    connect(database.url(), timing).await;
    assert!(terminal.prints(&["settings", "show"]).await.starts_with(&lease("30s")));
    let refused = terminal.complains(1, &["stats", "--lease", "60s"]).await;
    assert!(refused.starts_with("wakeq: the duration `lease` is 60s here, and 30s in"), "{refused}");
    terminal.prints(&["stats", "--lease", "30s"]).await;
    assert!(terminal.prints(&["settings", "set", "--lease", "2m"]).await.starts_with(&lease("2m")));
    assert!(terminal.prints(&["settings", "show"]).await.starts_with(&lease("2m")));
    assert!(terminal.complains(1, &["settings", "set", "--lease", "1ms"]).await.contains("`lease` is 1ms"));
}
