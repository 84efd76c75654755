//! The same over the command line, on the database and against a server: every verb with the
//! victim's values, on the attacker's canvas.

use std::collections::BTreeSet;
use std::process::Command;

use wakeq_service::access::Scope;

use super::answers::{ComparableAnswer, Transcript};
use super::seed::{ATTACKER, VICTIM, Values};
use super::world::World;
use super::{Findings, pass, rows};
use crate::cli::Terminal;

/// Command lines with placeholders for the victim's values. Verbs without one are here too, for
/// their output.
const LINES: [&str; 135] = [
    "events list",
    "events list --handler <handler>",
    "events list --cursor <cursor list_events>",
    "events ended",
    "events ended --handler <handler>",
    "events ended --cursor <cursor list_ended_events>",
    "events ended --tag <tag>",
    "events ended --count",
    "events ended --handler <handler> --count",
    "events list --tag <tag>",
    "events count",
    "events count --tag <tag> --state dead",
    "events list --object <object>",
    "events list --batch <batch>",
    "events count --object <object> --state dead",
    "events count --batch <batch>",
    "events show <id>",
    "events explain <id>",
    "explain <id>",
    "handlers list",
    "handlers show <handler>",
    "handlers targets <handler>",
    "handlers attempts <handler>",
    "handlers pulled",
    "handlers lease <handler>",
    "handlers extend <handler> <id> 0000000000000000000000000000000000000000",
    "handlers complete <handler> <id> 0000000000000000000000000000000000000000",
    "handlers release <handler> <id> 0000000000000000000000000000000000000000",
    "handlers pull <handler>",
    "handlers unpull <handler>",
    "workers programs",
    "stats",
    "stats <handler>",
    "stats --total",
    "depth",
    "depth <handler>",
    "cron list",
    "cron show <cron>",
    "hooks list",
    "hooks show <hook>",
    "batches list",
    "batches show <batch>",
    "dead list",
    "dead list --tag <tag>",
    "dead list --error-group <group>",
    "dead groups",
    "dead groups --handler <handler> --order last-died",
    "dead know <group> --note noted",
    "dead forget <group>",
    "objects halted",
    "objects show <object>",
    "objects tombstones <object>",
    "entities types",
    "entities list account",
    "entities list account --cursor <cursor list_entities>",
    "entities show <entity>",
    "entities status <id>",
    "log categories",
    "log streams accounts",
    "log read",
    "log read <stream>",
    "keys list",
    "keys show <key>",
    "accounts list",
    "audit list",
    "audit list --handler <handler> --key <key>",
    "quotas show",
    "limits list",
    "limits list --cursor <cursor list_limits>",
    "limits show <limit>",
    "queues list",
    "queues show billing",
    "queues facets billing",
    "queues leases billing",
    "groups list",
    "groups show projection",
    "groups dead projection",
    "groups nodes",
    "events emit greet 1 --id <id>",
    "events emit greet 1 --on <object>",
    "events emit greet 1 --batch <batch>",
    "emit <handler> 1",
    "emit greet 1 --id <id>",
    "entities send <entity> deposit 1 --id <id>",
    "entities send <entity> deposit 1 --correlation-id <id> --reply-to <handler>",
    "entities erase <entity> --id <id>",
    "log append accounts a opened 1 --id <id>",
    "log append <stream> opened 1",
    "keys create <holder> --scope read",
    "accounts allow victim@project.iam.gserviceaccount.com --scope read",
    "handlers put <handler> https://target.example/",
    "cron put <cron> '0 0 1 1 *' 1",
    "hooks put <hook> github <handler>",
    "batches open <batch> <handler>",
    "batches close <batch>",
    "handlers pause <handler>",
    "handlers block <handler>",
    "pause <handler>",
    "block <handler>",
    "cron run-now <cron>",
    "cron pause <cron>",
    "events run-now <id>",
    "events reschedule <id> --after 1h",
    "events tag <id> another",
    "run-now <id>",
    "objects skip <object> step",
    "dead redrive --id <id>",
    "dead redrive --handler <handler>",
    "operations begin cancel --id <id> --dry-run",
    "operations begin redrive --id <id> --dry-run",
    "operations list",
    "operations show <operation>",
    "operations cancel <operation>",
    "operations begin retag --handler <handler> --add-tag marked --dry-run",
    "operations begin retag --handler <handler> --add-tag marked",
    "handlers unpause <handler>",
    "handlers unblock <handler>",
    "unpause <handler>",
    "unblock <handler>",
    "cron unpause <cron>",
    "events cancel <id>",
    "cancel <id>",
    "cancel <id> --running",
    "handlers delete <handler>",
    "cron delete <cron>",
    "hooks delete <hook>",
    "batches cancel <batch>",
    "keys revoke <key>",
    "limits set <limit> --concurrency 3",
    "limits remove <limit>",
    "pause --canvas-wide",
    "block --canvas-wide",
    "switches",
    "unpause --canvas-wide",
    "unblock --canvas-wide",
];

/// Lines that end many things come last.
const LAST: [&str; 4] = [
    "accounts remove victim@project.iam.gserviceaccount.com",
    "handlers purge <handler>",
    "purge <handler>",
    "dead delete --all",
];

/// Verbs that concern no canvas and take nothing of one, or that do not end.
const ABOUT_NO_CANVAS: [&str; 34] = [
    "all",
    "completions",
    "doctor",
    "groups recover",
    "groups redrive",
    "groups remove",
    "groups reset",
    "health",
    "man",
    "mcp",
    "migrate",
    "queues complete",
    "queues delete",
    "queues end-lease",
    "queues extend",
    "queues lease",
    "queues release",
    "queues put",
    "queues set-facet",
    "queues show-facet",
    "serve",
    "settings set",
    "settings show",
    "tail",
    "topics check",
    "topics create",
    "wake",
    "work",
    "workers list",
    "workers show",
    "quotas set",
    "quotas unset",
    "secrets new-key",
    "secrets rotate",
];

/// What an operator with the database does for every canvas, whatever `--canvas` says; a server
/// refuses it to a key of one canvas.
const WITH_THE_DATABASE: [&str; 4] = ["queues ", "groups ", "keys revoke ", "accounts list"];

/// A line with every combination of values for its placeholders. One id of each kind is enough:
/// processes are expensive.
fn filled(line: &str, values: &Values) -> Vec<(String, Vec<String>)> {
    let kinds: BTreeSet<_> = values.ids.iter().map(|(kind, _)| *kind).collect();
    let id = |kind: &str| values.ids.iter().rev().find(|(of, _)| of == &kind).unwrap().1.clone();
    let cursors = |listing: &str| {
        let own = values.cursors.iter().filter(|(of, _)| of == listing);
        own.map(|(_, cursor)| cursor.clone()).collect()
    };
    let few = ["waiting", "dead", "chosen", "sent to an entity", "a copy"];
    let alternatives: Vec<(&str, Vec<String>)> = vec![
        ("<id>", kinds.iter().filter(|kind| few.contains(kind)).map(|kind| id(kind)).collect()),
        (
            "<handler>",
            values
                .handlers
                .iter()
                .rev()
                .take(11)
                .map(|[module, name, _]| format!("{module}/{name}"))
                .filter(|name| name.contains("only") || name.contains("held"))
                .collect(),
        ),
        ("<cron>", values.crons.clone()),
        ("<hook>", values.hooks.clone()),
        ("<operation>", vec![format!("0000a001{}", &values.canvas[8..])]),
        ("<batch>", values.batches.clone()),
        ("<object>", values.objects.clone()),
        ("<entity>", values.entities.iter().map(|[kind, id]| format!("{kind}/{id}")).collect()),
        (
            "<stream>",
            values.streams.iter().map(|[category, stream]| format!("{category} {stream}")).collect(),
        ),
        ("<key>", values.keys.clone()),
        ("<tag>", values.tags.clone()),
        ("<group>", values.error_groups.clone()),
        ("<limit>", values.limits.clone()),
        ("<cursor list_limits>", cursors("list_limits")),
        ("<holder>", values.holders.clone()),
        ("<cursor list_events>", cursors("list_events")),
        ("<cursor list_entities>", cursors("list_entities")),
    ];
    let mut lines = vec![line.to_owned()];
    for (place, values) in alternatives {
        if line.contains(place) {
            assert!(!values.is_empty(), "no victim value known for {place}");
            lines = lines
                .iter()
                .flat_map(|line| values.iter().map(|value| line.replace(place, value)).collect::<Vec<_>>())
                .collect();
        }
    }
    lines.into_iter().enumerate().map(|(index, filled)| (format!("{line} {index}"), words(&filled))).collect()
}

/// Splits at blanks outside quotes.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(index, part)| match index % 2 {
            1 => vec![part.to_owned()],
            _ => part.split_whitespace().map(str::to_owned).collect(),
        })
        .collect()
}

fn all_lines() -> impl Iterator<Item = &'static str> {
    LINES.into_iter().chain(LAST)
}

/// The output of each line.
async fn printed(terminal: &Terminal, values: &Values, over_http: bool) -> Transcript {
    let mut transcript = Transcript::new();
    let of_an_operator = |line: &&str| WITH_THE_DATABASE.iter().any(|start| line.starts_with(start));
    for line in all_lines().filter(|line| over_http || !of_an_operator(line)) {
        for (label, mut arguments) in filled(line, values) {
            arguments.extend(["--canvas".into(), ATTACKER.canvas.to_string()]);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let printed = terminal.run(&arguments).await;
            let text = format!("{}\n--\n{}", printed.out, printed.err);
            transcript.insert(label, ComparableAnswer::printed(printed.code.unwrap_or(-1), &text));
        }
    }
    transcript
}

async fn terminal(world: &World, over_http: bool) -> Terminal {
    if over_http {
        let key = world.key(&ATTACKER, &Scope::ALL).await;
        let server = format!("http://{}", world.service.address);
        Terminal::without_variables().set("WAKEQ_SERVER", &server).set("WAKEQ_KEY", &key)
    } else {
        Terminal::on(&world.service.stage.database).set("WAKEQ_NOTIFIER", "local")
    }
}

async fn compared(over_http: bool) -> Findings {
    let (alone, world, victim) = World::both().await;
    let pool = &world.service.stage.pool;
    let before = rows::of(pool, VICTIM.canvas).await;
    let usual = printed(&terminal(&alone, over_http).await, &victim, over_http).await;
    let said = printed(&terminal(&world, over_http).await, &victim, over_http).await;
    let mut findings: Findings =
        said.iter().flat_map(|(label, answered)| answered.difference(label, usual.get(label))).collect();
    findings.extend(rows::differences("the commands", &before, &rows::of(pool, VICTIM.canvas).await));
    println!("{} commands", said.len());
    world.service.stop().await;
    alone.service.stop().await;
    findings
}

#[tokio::test]
#[ignore = "hundreds of processes: `cargo xtask tenants` runs it"]
async fn nothing_crosses_canvases_at_the_command_line() {
    pass(&compared(false).await);
}

#[tokio::test]
#[ignore = "hundreds of processes: `cargo xtask tenants` runs it"]
async fn nothing_crosses_canvases_at_the_command_line_of_a_server() {
    pass(&compared(true).await);
}

/// The verbs listed in a command's help.
fn verbs(command: &[&str]) -> Vec<String> {
    let mut help = Command::new(env!("CARGO_BIN_EXE_wakeq"));
    let help = help.args(command).arg("--help").env_clear().output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let Some((_, list)) = help.split_once("Commands:\n") else { return Vec::new() };
    let list = list.lines().take_while(|line| !line.is_empty());
    let named = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
#[ignore = "long: `cargo xtask long` runs it"]
fn every_command_is_tried_across_canvases() {
    let mut known = Vec::new();
    for verb in verbs(&[]) {
        let below = verbs(&[&verb]);
        known.extend(below.iter().map(|below| format!("{verb} {below}")));
        if below.is_empty() {
            known.push(verb);
        }
    }
    assert!(known.len() > 50, "{known:?}");
    let asked = |verb: &String| all_lines().any(|line| line == verb || line.starts_with(&format!("{verb} ")));
    let forgotten: Vec<_> =
        known.iter().filter(|verb| !asked(verb) && !ABOUT_NO_CANVAS.contains(&verb.as_str())).collect();
    assert!(forgotten.is_empty(), "say in this file what of a victim these verbs are given: {forgotten:?}");
    let gone = ABOUT_NO_CANVAS.into_iter().filter(|listed| !known.iter().any(|verb| verb == listed));
    assert_eq!(gone.collect::<Vec<_>>(), [""; 0], "there are no such verbs: take them out of this file");
}
