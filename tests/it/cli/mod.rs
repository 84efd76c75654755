//! The command line, as a process against a real database and the Pub/Sub emulator; whole outputs
//! where they are stable.

mod access;
mod batches;
mod both;
mod bulk;
mod checkpoints;
mod crons;
mod dead_groups;
mod ends;
mod groups;
mod history;
mod life;
mod limits;
mod mcp;
mod operations;
mod options;
mod pulled;
mod pulls;
mod queues;
mod quotas;
mod running_events;
mod search;
mod statistics;
mod switches;
mod unique;
mod waits;
mod workers;

use std::process::Command;

use chrono::NaiveDateTime;
use uuid::Uuid;
use wakeq::notify::PubSubConfig;
use wakeq_service::access::Scope;
use wakeq_testbed::TestDatabase;

use crate::support::service::Service;
use crate::support::{SECRET_KEY, database, durability, login};

/// A terminal with the variables that `wakeq` reads.
pub(crate) struct Terminal {
    variables: Vec<(&'static str, String)>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct CliOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Terminal {
    pub(crate) fn without_variables() -> Self {
        Self { variables: Vec::new() }
    }

    pub(crate) fn on(database: &TestDatabase) -> Self {
        Self::without_variables()
            .set("DATABASE_URL", database.url())
            .set(durability().0, durability().1)
            .set(SECRET_KEY.0, SECRET_KEY.1)
    }

    /// On a service's database, beside its server.
    pub(crate) fn beside(service: &Service) -> Self {
        Self::on(&service.stage.database).set("WAKEQ_NOTIFIER", "local")
    }

    /// Of a server, with a key for every canvas.
    async fn wide(service: &Service) -> Self {
        Self::with_key(service, &service.wide_key("ada", &Scope::ALL).await)
    }

    /// Of a server, with a key.
    fn with_key(service: &Service, key: &str) -> Self {
        Self::without_variables()
            .set("WAKEQ_SERVER", &format!("http://{}", service.address))
            .set("WAKEQ_KEY", key)
    }

    pub(crate) fn with_pubsub(self, config: &PubSubConfig) -> Self {
        self.set("PUBSUB_EMULATOR_HOST", config.emulator_host.as_deref().unwrap())
            .set("GOOGLE_CLOUD_PROJECT", &config.project)
            .set("WAKEQ_TOPIC", &config.topic)
            .set("WAKEQ_SUBSCRIPTION", &config.subscription)
    }

    pub(crate) fn set(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wakeq"));
        command.args(arguments).env_clear().env("USER", "ada").envs(self.variables.iter().cloned());
        command
    }

    /// Runs `wakeq`. Asserts that the output contains none of the secrets it was given.
    pub(crate) async fn run(&self, arguments: &[&str]) -> CliOutput {
        let mut command = self.command(arguments);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let printed =
            CliOutput { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
        for (name, secret) in &self.variables {
            let leaked = printed.out.contains(secret.as_str()) || printed.err.contains(secret.as_str());
            let is_secret = ["WAKEQ_KEY", "WAKEQ_SECRET_KEY", "DATABASE_URL"].contains(name);
            assert!(!leaked || !is_secret, "{name} in {printed:?}");
        }
        printed
    }

    /// Its output if it succeeds, with ids and moments masked.
    pub(crate) async fn prints(&self, arguments: &[&str]) -> String {
        masked(&self.raw(arguments).await)
    }

    async fn plays(&self, text: &str) {
        for (line, expected) in session(text) {
            assert_eq!(self.prints(&line.split(' ').collect::<Vec<_>>()).await, expected, "{line}");
        }
    }

    /// Asserts that each line fails with this exit code and a message with these words.
    async fn refuses(&self, cases: &[(&str, i32, &str)]) {
        for (line, code, words) in cases {
            let complaint = self.complains(*code, &line.split(' ').collect::<Vec<_>>()).await;
            assert!(complaint.contains(words), "{line}: {complaint}");
        }
    }

    async fn raw(&self, arguments: &[&str]) -> String {
        let printed = self.run(arguments).await;
        assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""), "{arguments:?}: {}", printed.out);
        printed.out
    }

    /// Its error message, with this exit code and nothing on standard output.
    pub(crate) async fn complains(&self, code: i32, arguments: &[&str]) -> String {
        let CliOutput { code: found, out, err } = self.run(arguments).await;
        assert_eq!((found, out.as_str()), (Some(code), ""), "{arguments:?}: {err}");
        masked(&err)
    }
}

/// A session: each line that is typed, after a `$`, and what is then printed.
fn session(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("$ ").skip(1).map(|step| step.split_once('\n').expect("it prints something"))
}

/// Replaces ids by `<id>` and moments by `<time>`.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let id = rest.get(..36).filter(|start| Uuid::parse_str(start).is_ok());
        let moment = |length, form| {
            let start = rest.get(..length).filter(|start| NaiveDateTime::parse_from_str(start, form).is_ok());
            start.map(|_| length)
        };
        // For people, and with the database's precision.
        let moment = moment(20, "%Y-%m-%d %H:%M:%SZ").or_else(|| moment(27, "%Y-%m-%dT%H:%M:%S%.6fZ"));
        let (mask, length) = match (id, moment) {
            (Some(_), _) => ("<id>".to_owned(), 36),
            (None, Some(length)) => ("<time>".to_owned(), length),
            (None, None) => (first.to_string(), first.len_utf8()),
        };
        masked.push_str(&mask);
        rest = &rest[length..];
    }
    masked
}

const MIGRATIONS: &[(i64, &str)] = &[
    (1, "events"),
    (2, "order"),
    (3, "queues"),
    (4, "turns"),
    (5, "log"),
    (6, "consumers"),
    (7, "targets and crons"),
    (8, "access"),
    (9, "statistics"),
    (10, "hooks"),
    (11, "unique"),
    (12, "workers"),
    (13, "history"),
    (14, "checkpoints"),
    (15, "batches"),
    (16, "search"),
    (17, "operations"),
    (18, "limits"),
    (19, "limited claims"),
    (20, "pulled handlers"),
    (21, "room in limits"),
    (22, "error groups"),
    (23, "page sessions"),
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
    let words = "wakeq: the schema `wakeq` is not up to date: run `wakeq migrate`";
    assert!(refused.starts_with(words), "{refused}");
    assert_eq!(terminal.prints(&["migrate", "--dry-run"]).await, migrations("missing"));
    assert_eq!(terminal.prints(&["migrate"]).await, migrations("applied"));
    assert_eq!(terminal.prints(&["migrate"]).await, migrations("present"));
    assert_eq!(terminal.prints(&["migrate", "--dry-run"]).await, migrations("present"));
    assert_eq!(terminal.prints(&["stats"]).await, "no events, no rules, and no targets\n");
}

/// The release before finds its schema with more in it, which is a success: its chart runs this
/// command too. A migration that is marked as not finished is named with its table.
#[tokio::test]
async fn migrate_of_the_release_before_succeeds_on_a_newer_schema() {
    let database = database().await;
    let terminal = Terminal::on(&database);
    let pool = sqlx::PgPool::connect(database.url()).await.unwrap();
    let add = "insert into wakeq._migrations (version, description, success, checksum, execution_time)
               values (24, 'of tomorrow', true, '', 0)";
    sqlx::query(add).execute(&pool).await.unwrap();
    let newer = "  24  newer    of a newer release\n      the schema is newer than this program: 24\n";
    let expected = migrations("present") + newer;
    assert_eq!(terminal.prints(&["migrate"]).await, expected);
    assert_eq!(terminal.prints(&["migrate", "--dry-run"]).await, expected);
    assert_eq!(terminal.prints(&["stats"]).await, "no events, no rules, and no targets\n");
    grants_roles_their_rights(&database, &expected).await;
    sqlx::query("delete from wakeq._migrations where version = 21").execute(&pool).await.unwrap();
    sqlx::query("update wakeq._migrations set success = false where version = 3")
        .execute(&pool)
        .await
        .unwrap();
    let refused = terminal.complains(1, &["migrate"]).await;
    assert!(refused.starts_with("wakeq: migration 3 is marked as not finished"), "{refused}");
    assert!(refused.contains("wakeq._migrations") && !refused.contains("_sqlx"), "{refused}");
    pool.close().await;
}

/// As the chart's job does, with the variables that it sets.
async fn grants_roles_their_rights(database: &TestDatabase, migrated: &str) {
    let ((api, api_url), (worker, _)) = (login(database, "api").await, login(database, "worker").await);
    let job = Terminal::on(database).set("WAKEQ_API_ROLE", &api).set("WAKEQ_WORKER_ROLE", &worker);
    let granted = format!(
        "{migrated}      granted  the rights of the kind `api` to {api}\n      \
         granted  the rights of the kind `worker` to {worker}\n"
    );
    assert_eq!(job.raw(&["migrate"]).await, granted);
    let reader = Terminal::on(database).set("DATABASE_URL", &api_url);
    assert_eq!(reader.prints(&["stats"]).await, "no events, no rules, and no targets\n");
}

#[tokio::test]
async fn names_missing_settings() {
    let terminal = Terminal::without_variables();
    let unset = "wakeq: DATABASE_URL is not set: export DATABASE_URL=postgres://user:password@host:5432/database, \
                    or pass --database-url\n";
    for command in [&["stats"][..], &["migrate"], &["emit", "greet"], &["pause", "greet"]] {
        assert_eq!(terminal.complains(1, command).await, unset);
    }
    let pubsub = "wakeq: GOOGLE_CLOUD_PROJECT is not set: export GOOGLE_CLOUD_PROJECT=my-project, or \
                  PUBSUB_EMULATOR_HOST=localhost:8085 for an emulator, or WAKEQ_NOTIFIER=postgres to do \
                  without Pub/Sub\n";
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
            "error: invalid value 'a b' for '<HANDLER>': \"a b\" is not a valid name: use 1 to 128 of the characters \
             A-Z a-z 0-9 _ . -, and not . or .. alone",
        ),
        (
            &["emit", "greet", "{a:1}"],
            "error: invalid value '{a:1}' for '[VALUE]': the value is not JSON (key must be a string at line 1 \
             column 2); examples: '\"text\"' or '{\"a\":1}', @FILE, or - for standard input",
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
#[ignore = "long: `cargo xtask long` runs it"]
async fn reports_an_unreachable_server() {
    let terminal = Terminal::without_variables().set("DATABASE_URL", "postgres://nobody@127.0.0.1:1/nothing");
    let expected = "wakeq: Postgres is not reachable: check DATABASE_URL";
    for command in ["stats", "migrate"] {
        let complaint = terminal.complains(6, &[command]).await;
        assert!(complaint.starts_with(expected) && complaint.contains("Connection refused"), "{complaint}");
    }
    let expected = "wakeq: the duration `lease` is 0s: it must lie between 100ms and 365d\n";
    assert_eq!(terminal.complains(2, &["stats", "--lease", "0s"]).await, expected);
}

/// Pauses and blocks need no Pub/Sub; stopping a handler without events prints a hint.
#[tokio::test]
async fn rules_need_no_pubsub() {
    let database = database().await;
    let terminal = Terminal::on(&database);
    let none = "it has no events now; if that surprises you, look for the right name in `wakeq stats`\n";
    let printed = terminal.run(&["block", "REPORTS/weekly", "--for", "2h", "--actor", "operations"]).await;
    let blocked = CliOutput { code: Some(0), out: "REPORTS/weekly blocked\n".into(), err: none.into() };
    assert_eq!(printed, blocked);
    let stats = "HANDLER         WAITING  DELAYED  PAUSED  RUNNING  DEAD  RULES\n\
                 REPORTS/weekly        0        0       0        0     0  block by cli:operations until <time>: no reason given\n";
    assert_eq!(terminal.prints(&["stats"]).await, stats);
    for (option, value, expected) in [
        ("--until", "2001-01-01T00:00:00Z", "the rule would end in the past: give a later moment"),
        ("--for", "1000000years", "a rule can last for at most 100 years: give a shorter time, or no end"),
    ] {
        let complaint = terminal.complains(2, &["pause", "greet", option, value]).await;
        assert_eq!(complaint, format!("wakeq: {expected}\n"));
    }
}
