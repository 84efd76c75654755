//! Every command of an operator on the database and against a server, from one table: both.txt.

use serde_json::Value;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::{CliOutput, Terminal, masked};
use crate::support::service::Service;

const TABLE: &str = include_str!("both.txt");

const A: &str = "018f0000-0000-7000-8000-00000000000a";
const B: &str = "018f0000-0000-7000-8000-00000000000b";
const DEAD: &str = "018f0000-0000-7000-8000-00000000000d";

/// A line of the table with a command, and the expected result.
#[derive(Debug, Default, PartialEq)]
struct Step {
    asked: String,
    code: i32,
    out: String,
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with(['$', '!']) {
            steps.push(Step { asked: line.to_owned(), ..Step::default() });
            continue;
        }
        let step = steps.last_mut().expect("the table begins with a step");
        match line.strip_prefix("? ") {
            Some(code) => step.code = code.parse().unwrap(),
            None => step.out.extend([line, "\n"]),
        }
    }
    steps
}

/// Splits arguments at blanks outside quotes.
fn arguments(line: &str) -> Vec<String> {
    let line = line.replace("<a>", A).replace("<b>", B).replace("<dead>", DEAD).replace("<esc>", "\u{1b}");
    let mut arguments = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            arguments.push(part.to_owned());
        } else {
            arguments.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    arguments
}

async fn asks(terminal: &Terminal, arguments: &[String]) -> CliOutput {
    terminal.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// Masks what differs between two runs: ids, moments, keys, and how callers proved who they are.
fn comparable(out: &str) -> String {
    let words = |line: &str| match line.split_once("whsec_") {
        _ if line.starts_with("wakeq_") => "wakeq_<key>".to_owned(),
        Some((before, _)) => format!("{before}whsec_<secret>"),
        None => nameless(line),
    };
    let out: Vec<String> = masked(out).replace("key:ada", "cli:ada").lines().map(words).collect();
    out.iter().flat_map(|line| [line, "\n"]).collect()
}

/// A line without the public parts of keys, both of the key that was shown and of keys it is about.
fn nameless(line: &str) -> String {
    let mut parts = line.split("wakeq_");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = |line: String, part: &str| match line.strip_suffix("with ") {
        Some(before) => {
            before.to_owned() + part[12..].trim_start_matches(" from 127.0.0.1").trim_start_matches("; ")
        }
        None => line + "wakeq_<key>" + &part[12..],
    };
    parts.fold(first, rest).trim_end().to_owned()
}

/// Does what no command does.
async fn happens(service: &Service, what: &str) {
    let sql = match what {
        "! three events of `broken` die, the last of them <dead>" => {
            "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at,
                                            claims, losses, last_error, cause, died_at)
             select id, '00000000-0000-0000-0000-000000000000', 'WORKER', 'broken', '_', '{\"to\": \"Ada\", \"n\": 1.50}', 2, now(), 3, 1,
                    E'no room\\u009b\\non the disk', 'retries', now() - interval '1 s' * age
               from (values ('018f0000-0000-7000-8000-00000000000d'::uuid, 0), (gen_random_uuid(), 1), (gen_random_uuid(), 2)) as dead (id, age)"
        }
        "! <dead> runs" => {
            "update wakeq.events_v2 set locked_at = now(), claims = claims + 1, worker = 'two'"
        }
        "! the first event on work:1 dies, and halts it" => {
            "with gone as (delete from wakeq.events_v2 where object = 'work:1' and prev = 0 returning *), dead as (
                 insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at,
                                                claims, losses, last_error, cause, object, seq, prev)
                 select id, canvas_id, module, name, modifier, value, 0, enqueued_at, 1, 0, 'no', 'retries',
                        object, seq, prev from gone)
             insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
             select canvas_id, object, module, name, id, seq, prev from gone"
        }
        "! the worker `one` runs an event on work:1, and one of another canvas" => {
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, locked_at, claims, worker,
                                          object, seq, prev)
             select gen_random_uuid(), gen_random_uuid(), module, name, modifier, value, now(), 1, 'one',
                    object, seq, prev from wakeq.events_v2 where object = 'work:1' order by seq limit 1;
             update wakeq.events_v2 set locked_at = now(), claims = 1, worker = 'one'
              where object = 'work:1' and canvas_id = '00000000-0000-0000-0000-000000000000'
                and seq = (select min(seq) from wakeq.events_v2 where object = 'work:1')"
        }
        "! it runs no event any more" => {
            "delete from wakeq.events_v2 where canvas_id <> '00000000-0000-0000-0000-000000000000' and worker = 'one';
             update wakeq.events_v2 set locked_at = null, claims = 0, worker = null where worker = 'one'"
        }
        "! the event <a> of account/ada is processed" => {
            "with decided as (
                 update wakeq.entity_events set status = 'processed', version = 1, result = '500', ended_at = now())
             insert into wakeq.entities (entity_type, canvas_id, id, version, last_link, state, state_version, state_seq)
             values ('account', '00000000-0000-0000-0000-000000000000', 'ada', 1, 1, '{\"cents\": 500}', 1, 2)"
        }
        other => panic!("nobody knows how that happens: {other}"),
    };
    service.stage.execute(sql).await;
}

async fn plays_the_table(service: &Service, terminal: &Terminal) {
    // The server's clients sign in, which is recorded some seconds later, between any two lines.
    let without_sign_ins =
        "create function passes_over() returns trigger language plpgsql as 'begin return null; end';
                            create trigger without_sign_ins before insert on wakeq.audit_log
                               for each row when (new.action = 'sign-in') execute function passes_over()";
    service.stage.execute(without_sign_ins).await;
    for step in steps() {
        let Some(line) = step.asked.strip_prefix("$ ") else {
            happens(service, &step.asked).await;
            continue;
        };
        let printed = asks(terminal, &arguments(line)).await;
        let seen =
            Step { asked: step.asked.clone(), code: printed.code.unwrap(), out: comparable(&printed.out) };
        assert_eq!(seen, step, "\n--- seen:\n{}--- and said:\n{}", seen.out, printed.err);
        let complains = printed.err.starts_with("wakeq: ") || printed.err.starts_with("error: ");
        assert_eq!(complains, step.code != 0, "{line}: {}", printed.err);
    }
}

/// `--json` prints what the API answers.
async fn prints_what_the_api_answers(service: &Service, terminal: &Terminal) {
    let event = format!("/events/{DEAD}");
    for (line, path) in [
        ("handlers list --json", "/handlers"),
        ("handlers show broken --json", "/handlers/WORKER/broken"),
        ("events list --json", "/events"),
        ("events show <dead> --json", &format!("{event}?view=full")),
        ("explain <dead> --json", &event),
        ("dead list --json", "/dead-events"),
    ] {
        let printed = asks(terminal, &arguments(line)).await;
        assert_eq!(printed.code, Some(0), "{line}: {}", printed.err);
        assert!(!printed.out.contains(['\u{1b}', '\u{9b}']), "{line}: {}", printed.out);
        let json: Value = serde_json::from_str(&printed.out).unwrap();
        assert_eq!(json, service.get(path).await.json(), "{line}");
    }
    let printed = asks(terminal, &arguments("audit list --json")).await;
    let answered = service.admin(reqwest::Method::GET, "/audit", Value::Null).await.json();
    assert_eq!(serde_json::from_str::<Value>(&printed.out).unwrap(), answered);
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn every_command_works_through_a_server() {
    let service = Service::start().await;
    let terminal = of_server(&service).await;
    plays_the_table(&service, &terminal).await;
    prints_what_the_api_answers(&service, &terminal).await;
    service.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn every_command_works_on_the_database() {
    let service = Service::start().await;
    let terminal = Terminal::beside(&service);
    // So that both start with the same keys.
    let _ = of_server(&service).await;
    plays_the_table(&service, &terminal).await;
    prints_what_the_api_answers(&service, &terminal).await;
    service.stop().await;
}

/// A terminal with a key of its own for everything on the default canvas.
async fn of_server(service: &Service) -> Terminal {
    let key = service.key("ada", CanvasId::DEFAULT, &Scope::ALL).await;
    // The table must not see the records of this test's keys.
    service.stage.execute("delete from wakeq.audit_log").await;
    Terminal::with_key(service, &key)
}
