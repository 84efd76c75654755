//! The shell lines in `docs/`, run by bash as they stand, in the order of their page, against a
//! service and a database of the test's own. The data of another canvas stays as it is.
//!
//! Every call must succeed: a request with the status in the line's comment, or else with 2xx.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use wakeq::{CanvasId, Event};
use wakeq_service::access::Scope;

use crate::canvases::rows;
use crate::support::repository::root;
use crate::support::service::Service;
use crate::support::{OTHER, SECRET_KEY, durability};

/// A page whose lines are run.
struct Page {
    name: &'static str,
    /// What the page writes for something that its reader has, and what the test has.
    placeholders: &'static [(&'static str, &'static str)],
    /// Beginnings of lines that are not run, and the reason.
    left_out: &'static [(&'static str, &'static str)],
}

const fn page(name: &'static str) -> Page {
    Page { name, placeholders: &[], left_out: &[] }
}

const PAGES: [Page; 26] = [
    Page {
        placeholders: &[("wakeq_…", "$THE_KEY"), ("http://127.0.0.1:8080", "$SERVER")],
        ..page("http.md")
    },
    page("guide.md"),
    page("bulk.md"),
    page("history.md"),
    page("cli.md"),
    page("coming-from.md"),
    page("cron.md"),
    page("dead-events.md"),
    page("limits.md"),
    page("mcp.md"),
    page("operations.md"),
    page("options.md"),
    page("running.md"),
    page("search.md"),
    page("sign-in.md"),
    page("statistics.md"),
    page("unique.md"),
    page("batches.md"),
    Page {
        placeholders: &[("wakeq_0123456789ab", "${KEY:0:18}")],
        left_out: &[
            ("gcloud ", "needs an account of Google Cloud"),
            ("curl -s -H 'Metadata-Flavor", "only machines of Google Cloud have it"),
        ],
        ..page("access.md")
    },
    Page {
        placeholders: &[
            ("http://localhost:8080", "$SERVER"),
            ("--canvas …", "--canvas $CANVAS"),
            ("\"wait_s\": 20", "\"wait_s\": 0"),
        ],
        left_out: &[("api -X POST $Q/copies/$COPY/", "needs a lease: `pulls` makes these calls")],
        ..page("queues.md")
    },
    page("webhooks.md"),
    Page {
        left_out: &[("api -X POST $LEASES/$EVENT/", "needs a lease: `pulled` makes these calls")],
        ..page("workers-in-other-languages.md")
    },
    Page { left_out: &[("kubectl ", "needs a cluster")], ..page("page.md") },
    Page { placeholders: &[("$API_KEY", "key-of-the-shop")], ..page("delivery.md") },
    Page { placeholders: &[("01890a5d-ac96-774b-bcce-b302099a8057", "$EVENT")], ..page("cancel.md") },
    Page {
        left_out: &[("wakeq workers show", "needs a worker: `cli` shows one")],
        ..page("workers-and-switches.md")
    },
];

/// Pages with shell lines none of which are run, and the reason.
const NOT_RUN: [(&str, &str); 6] = [
    ("container.md", "needs Docker: `cargo xtask compose` runs them"),
    ("deploy.md", "needs a project of Google Cloud"),
    ("groups.md", "starts an example, as `examples` does"),
    ("listeners.md", "listens until it is stopped: `listening` does"),
    ("performance.md", "takes an hour"),
    ("troubleshooting.md", "watches, and judges a deployment: `cli` and `doctor` run these commands"),
];

/// What the shell has before the first line. Calls of `curl` also print their status.
const PRELUDE: &str = r#"exec 2>&1; set -u
curl() { command curl --max-time 60 "$@" --write-out '%{stderr}\n@status %{http_code}\n'; }
wakeq() { timeout 120 "$WAKEQ" "$@"; }
cargo() { shift; wakeq "$@"; }
"#;

/// A line, and what came of it.
#[derive(Debug)]
struct Ran {
    line: String,
    /// With the statuses of requests.
    output: String,
    code: i32,
}

impl Page {
    fn text(&self) -> String {
        let mut text = std::fs::read_to_string(root().join("docs").join(self.name)).unwrap();
        for (theirs, ours) in self.placeholders {
            assert!(text.contains(theirs), "{}: nothing to replace: {theirs}", self.name);
            text = text.replace(theirs, ours);
        }
        text
    }

    fn lines(&self) -> Vec<String> {
        let (mut lines, left_out) = (shell_lines(&self.text()), self.left_out);
        for (beginning, _) in left_out {
            let before = lines.len();
            lines.retain(|line| !line.starts_with(beginning));
            assert!(lines.len() < before, "{}: no line begins with {beginning}", self.name);
        }
        lines
    }
}

/// The lines of all `sh` blocks. One that ends with a backslash is joined with the next.
fn shell_lines(text: &str) -> Vec<String> {
    let blocks = text.split("\n```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    let joined = blocks.map(|block| block.replace("\\\n", " ")).collect::<Vec<_>>().join("\n");
    joined.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// A reader of the pages, with a service and a key for it.
struct Reader {
    service: Service,
    variables: Vec<(&'static str, String)>,
}

impl Reader {
    /// `None`, with a message, if a program is missing.
    async fn new() -> Option<Self> {
        for program in ["bash", "curl"] {
            let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
            if !version.is_ok_and(|status| status.success()) {
                println!("SKIPPED: the shell lines of docs/: {program} is not installed");
                return None;
            }
        }
        let service = Service::start().await;
        let theirs = service.key("other", OTHER, &Scope::ALL).await;
        fill(&service, OTHER, &theirs).await;
        let (server, canvas) = (format!("http://{}", service.address), CanvasId::DEFAULT.to_string());
        let event = service.stage.queue.emit(Event::new("waiting", "Cy").unwrap()).await.unwrap();
        let database = service.stage.database.url().to_owned();
        let variables = vec![
            ("PATH", std::env::var("PATH").unwrap()),
            ("USER", "ada".into()),
            ("WAKEQ", env!("CARGO_BIN_EXE_wakeq").into()),
            ("DATABASE_URL", database),
            ("WAKEQ_NOTIFIER", "local".into()),
            (durability().0, durability().1.into()),
            (SECRET_KEY.0, SECRET_KEY.1.into()),
            ("THE_KEY", service.key.clone()),
            ("KEY", service.key.clone()),
            ("API", format!("{server}/v1/canvases/{canvas}")),
            ("SERVER", server),
            ("CANVAS", canvas),
            ("EVENT", event.id.to_string()),
        ];
        Some(Self { service, variables })
    }

    /// Runs these lines in one shell, which knows the guide's `api`.
    async fn run(&self, lines: &[String]) -> Vec<Ran> {
        let guide = page("guide.md").lines();
        let api = guide.iter().find(|line| line.starts_with("api()")).expect("the guide's `api`");
        let mut script = format!("{PRELUDE}{api}\n");
        for line in lines {
            script += &format!("echo @begins\n{line}\necho \"@ended $?\"\n");
        }
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).env_clear().envs(self.variables.iter().cloned()).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || bash.output().unwrap()).await.unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let mut ran: Vec<_> =
            output.split("@begins\n").skip(1).map(|part| part.split_once("@ended ")).collect();
        ran.resize(lines.len(), None);
        let of_line = |(line, part): (&String, Option<(&str, &str)>)| {
            // The shell itself ends at an unset variable.
            let (printed, code) = part.unwrap_or((&output, "-1"));
            Ran { line: line.clone(), output: printed.to_owned(), code: code.trim().parse().unwrap() }
        };
        lines.iter().zip(ran).map(of_line).collect()
    }

    /// Runs a page; every line must succeed, and another canvas keep what it has.
    async fn follows(&self, page: &Page) -> Vec<Ran> {
        let pool = &self.service.stage.pool;
        let before = rows::of(pool, OTHER).await;
        assert!(before.values().filter(|rows| !rows.is_empty()).count() >= 5, "{before:?}");
        let lines = page.lines();
        assert!(!lines.is_empty(), "{} has no shell lines: remove it here", page.name);
        let ran = self.run(&lines).await;
        let failed: Vec<_> = ran.iter().filter_map(Ran::complaint).collect();
        assert!(failed.is_empty(), "{}:\n{}", page.name, failed.join("\n"));
        assert_eq!(rows::of(pool, OTHER).await, before, "{}: another canvas changed", page.name);
        ran
    }
}

impl Ran {
    fn statuses(&self) -> Vec<u16> {
        let statuses = self.output.lines().filter_map(|line| line.strip_prefix("@status "));
        statuses.map(|status| status.parse().unwrap()).collect()
    }

    /// The status in the line's comment.
    fn expected(&self) -> Option<u16> {
        let (_, comment) = self.line.rsplit_once("  # ")?;
        comment.get(..3)?.parse().ok()
    }

    fn complaint(&self) -> Option<String> {
        let statuses = self.statuses();
        let is_right = |status: &u16| match self.expected() {
            Some(expected) => *status == expected,
            None => (200..300).contains(status),
        };
        let calls = usize::from(self.line.starts_with("api ") || self.line.starts_with("curl "));
        let is_fine = self.code == 0 && statuses.len() == calls && statuses.iter().all(is_right);
        (!is_fine).then(|| format!("{}\n  ended with {}: {}", self.line, self.code, self.output))
    }
}

/// Things of a canvas, under names that the pages use, too.
async fn fill(service: &Service, canvas: CanvasId, key: &str) {
    use reqwest::Method;
    use serde_json::json;

    let append = json!({"appends": [{"category": "accounts", "stream": "account-7",
                                     "events": [{"name": "paid", "payload": 1}]}]});
    for (method, path, body) in [
        (Method::POST, "/events", json!({"name": "greet", "value": "Ada"})),
        (Method::POST, "/events", json!({"name": "send-email", "object": "work:1"})),
        (Method::POST, "/log", append),
        (Method::PUT, "/handlers/WORKER/greet/pause", json!({"reason": "theirs"})),
        (Method::PUT, "/handlers/WORKER/send-mail/pause", json!({"reason": "theirs"})),
        (Method::PUT, "/handlers/WORKER/greet", json!({"url": "https://other.example/events"})),
        (Method::PUT, "/cron/report", json!({"expression": "0 0 1 1 *"})),
        (Method::POST, "/entities/account/ada/events", json!({"name": "deposit", "payload": 1})),
    ] {
        service.ask(key, method, &format!("/canvases/{canvas}{path}"), body).await.json();
    }
    die(service, canvas).await;
}

/// A dead event of each handler of which the pages redrive some.
async fn die(service: &Service, canvas: CanvasId) {
    let sql =
        "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at,
                                              claims, losses, last_error, cause)
               select gen_random_uuid(), $1, 'WORKER', name, '_', '1', 2, now(), 3, 1, 'no room', 'retries'
                 from unnest(array['greet', 'broken', 'broken']) name";
    sqlx::query(sql).bind(canvas.0).execute(&service.stage.pool).await.unwrap();
}

/// Counts what a canvas has in a table.
async fn count(reader: &Reader, table: &str) -> usize {
    rows::of(&reader.service.stage.pool, CanvasId::DEFAULT).await[table].len()
}

fn page_of(name: &str) -> &'static Page {
    PAGES.iter().find(|page| page.name == name).unwrap()
}

#[tokio::test]
async fn the_requests_in_the_page_on_http_do_what_it_says() {
    let Some(reader) = Reader::new().await else { return };
    die(&reader.service, CanvasId::DEFAULT).await;
    let ran = reader.follows(page_of("http.md")).await;
    let statuses: Vec<_> = ran.iter().flat_map(Ran::statuses).collect();
    assert!(statuses.len() >= 12, "{statuses:?}");
    // What was redriven and emitted; the rest was deleted.
    assert_eq!((count(&reader, "events_v2").await, count(&reader, "dead_events").await), (3, 0));
    reader.service.stop().await;
}

/// Its shell commands and requests, and how it shows an event that waits.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_commands_in_the_guide_do_what_it_says() {
    let Some(reader) = Reader::new().await else { return };
    die(&reader.service, CanvasId::DEFAULT).await;
    let ran = reader.follows(page_of("guide.md")).await;
    let explain = ran.iter().find(|ran| ran.line.starts_with("cargo wakeq explain")).unwrap();
    let text = page_of("guide.md").text();
    let (_, shown) = text.split_once("```text\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    // The guide has a worker, which parks the event.
    let printed = without_digits(&explain.output).replace("; woken again at -- ::Z", "");
    assert_eq!(printed, without_digits(shown));
    assert_eq!(count(&reader, "dead_events").await, 1, "those of `broken` were redriven");
    reader.service.stop().await;
}

/// The group that the page is about is marked and unmarked, and comes back.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_commands_in_the_page_on_dead_events_do_what_it_says() {
    let Some(reader) = Reader::new().await else { return };
    let sql = "
        insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at,
                                       claims, losses, last_error, cause)
        select gen_random_uuid(), canvas, 'WORKER', 'send-email', '_', '1', 2, now(), 3, 0,
               'no answer from 10.1.2.' || n || ':25 within 30 s', 'retries'
          from generate_series(1, 12) n, unnest($1::uuid[]) canvas";
    let canvases = vec![CanvasId::DEFAULT.0, OTHER.0];
    sqlx::query(sql).bind(canvases).execute(&reader.service.stage.pool).await.unwrap();
    let ran = reader.follows(page_of("dead-events.md")).await;
    let printed = |line: &str| &ran.iter().find(|ran| ran.line == line).unwrap().output;
    let text = page_of("dead-events.md").text();
    let (_, shown) = text.split_once("```text\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    assert_eq!(without_digits(printed("wakeq dead groups")), without_digits(shown));
    assert!(printed("wakeq dead groups --known").contains("the mail server moves on Monday"));
    assert!(printed("wakeq dead redrive --error-group $GROUP").contains("12 dead events brought back"));
    assert_eq!((count(&reader, "dead_events").await, count(&reader, "known_errors").await), (0, 0));
    reader.service.stop().await;
}

/// Ids and moments look alike without them.
fn without_digits(text: &str) -> String {
    let is_digit = |character: &char| character.is_ascii_digit();
    let mask = |word: &str| {
        if word.len() == 36 && word.matches('-').count() == 4 {
            "<id>".to_owned()
        } else {
            word.chars().filter(|character| !is_digit(character)).collect()
        }
    };
    text.split(' ')
        .map(|word| word.split('\n').map(mask).collect::<Vec<_>>().join("\n"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_commands_in_the_other_pages_succeed() {
    for page in PAGES.iter().filter(|page| !["http.md", "guide.md", "dead-events.md"].contains(&page.name)) {
        let Some(reader) = Reader::new().await else { return };
        reader.follows(page).await;
        reader.service.stop().await;
    }
}

#[test]
fn every_page_with_shell_lines_is_run_or_says_why_not() {
    let mut pages = BTreeMap::new();
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.ends_with(".md"))
        else {
            continue;
        };
        pages.insert(name.to_owned(), shell_lines(&std::fs::read_to_string(&path).unwrap()).len());
    }
    pages.retain(|_, lines| *lines > 0);
    let mut known: Vec<_> = PAGES.iter().map(|page| page.name).chain(NOT_RUN.map(|(name, _)| name)).collect();
    known.sort_unstable();
    assert_eq!(pages.into_keys().collect::<Vec<_>>(), known);
}

/// A wrong status, a request that is not made, a command that fails, and an unset variable.
#[tokio::test]
async fn lines_that_fail_are_found() {
    let text = "a\n```sh\napi $API/events \\\n  -d '{\"name\": \"greet\"}'  # 202: committed\n\
                api $API/events/$EVENT  # 404\napi $API/nowhere\nwakeq explain x\ntrue  # no call\n\
                # a comment\napi $UNSET\ntrue\n```\n```json\n{}\n```\n";
    let lines = shell_lines(text);
    assert_eq!(lines.len(), 7, "{lines:?}");
    let Some(reader) = Reader::new().await else { return };
    let ran = reader.run(&lines).await;
    let fails: Vec<_> = ran.iter().map(|ran| ran.complaint().is_some()).collect();
    assert_eq!(fails, [false, true, true, true, false, true, true], "{ran:?}");
    reader.service.stop().await;
}
