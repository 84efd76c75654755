//! Each condition on a canvas in the SQL of `src/store` and of the functions in `migrations`, made true, one at a time: some
//! test of this folder has to fail then. Nothing is compiled for that: a proxy changes the statement on its way to
//! Postgres, and a function is replaced in the test's database.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use regex::Regex;
use sqlx::PgPool;
use wakeq::access::Scope;

use super::answers::mask;
use super::seed::{ATTACKER, VICTIM};
use super::world::World;
use super::{Alone, Findings};

/// Longest time for one mutant: what hangs is noticed.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many at a time.
const AT_A_TIME: usize = 2;

/// Conditions that nothing a tenant does can reach without them, by their file and a part of their line; each with the reason.
const WITHOUT_EFFECT: [(&str, &str, &str); 1] = [(
    "migrations/0005_claim.sql",
    "r.canvas_id = e.canvas_id",
    "`wakeq.claim` is that of a release before objects: no worker of this one calls it",
)];

/// A tree in which one condition is always true.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    /// File and line.
    place: String,
    line: String,
    /// A statement of the store as it is, and as it would be.
    pub(super) statement: Option<(String, String)>,
    /// A function as it would be.
    function: Option<String>,
}

impl Mutant {
    /// The tree as it is.
    fn none() -> Self {
        Self { place: "none".into(), line: String::new(), statement: None, function: None }
    }

    /// Replaces the function that it is about.
    pub(super) async fn change_functions(&self, pool: &PgPool) {
        if let Some(function) = &self.function {
            sqlx::raw_sql(sqlx::AssertSqlSafe(function.clone())).execute(pool).await.unwrap();
        }
    }

    fn reason(&self) -> Option<&'static str> {
        let known =
            |(file, part, _): &&(&str, &str, &str)| self.place.starts_with(file) && self.line.contains(part);
        WITHOUT_EFFECT.iter().find(known).map(|(.., reason)| *reason)
    }
}

/// What a canvas is compared with: a parameter, a column, or what stands in brackets.
fn condition() -> Regex {
    let operand = r"(?:\$\d+(?:::uuid)?|[a-z_]+(?:\.[a-z_]+)?|\((?:[^()]|\([^()]*\))*\))";
    let other = r"(?:any\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|case\b.*?\bend|OPERAND)"
        .replace("OPERAND", operand);
    let column = r"(?:[a-z_]+\.)?canvas(?:_id)?";
    Regex::new(&format!(r"(?s)\b{column}\s*(?:=|is not distinct from)\s*{other}")).unwrap()
}

/// A text with each of its conditions made true, and where that is.
fn mutated(text: &str) -> Vec<(usize, String)> {
    let found = condition();
    let conditions = found.find_iter(text).filter(|found| !found.as_str().contains("excluded."));
    let conditions = conditions.filter(|found| {
        let before = text[..found.start()].trim_end();
        !before.ends_with(" set") && !before.ends_with("::")
    });
    let change = |found: regex::Match<'_>| {
        let (before, after) = (&text[..found.start()], &text[found.end()..]);
        (found.start(), format!("{before}({} or true){after}", found.as_str()))
    };
    let mut changed: Vec<_> = conditions.map(change).collect();
    // Of rows that are compared, the canvas with itself.
    let rows = Regex::new(r"\(([a-z_]+\.canvas_id),[^()]*\)\s*=\s*\(([a-z_]+\.canvas_id),").unwrap();
    changed.extend(rows.captures_iter(text).map(|found| {
        let (first, second) = (found.get(1).unwrap(), found.get(2).unwrap());
        let (before, after) = (&text[..second.start()], &text[second.end()..]);
        (first.start(), format!("{before}{}{after}", first.as_str()))
    }));
    changed
}

/// All of them.
fn mutants() -> Vec<Mutant> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut mutants = Vec::new();
    for file in files(&root.join("src/store"), "rs") {
        let name = file.strip_prefix(root).unwrap().display().to_string();
        if ["store/tests", "store/memory"].iter().any(|part| name.contains(part)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for (start, literal) in literals(&text) {
            for (at, changed) in mutated(&literal) {
                let lines = literal[..at].matches('\n').count();
                let line = text[..start].matches('\n').count() + lines;
                let words = literal.lines().nth(lines).unwrap_or_default().trim().to_owned();
                let place = format!("{name}:{}", line + 1);
                let statement = Some((literal.clone(), changed));
                mutants.push(Mutant { place, line: words, statement, function: None });
            }
        }
    }
    for file in files(&root.join("migrations"), "sql") {
        let name = file.strip_prefix(root).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        for (start, function) in functions(&text) {
            for (at, changed) in mutated(function) {
                let line = text[..start + at].matches('\n').count();
                let place = format!("{name}:{}", line + 1);
                let words = text.lines().nth(line).unwrap_or_default().trim().to_owned();
                let function = Some(changed.replacen("create function", "create or replace function", 1));
                mutants.push(Mutant { place, line: words, statement: None, function });
            }
        }
    }
    mutants
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The functions that a migration makes, and where each begins.
fn functions(text: &str) -> Vec<(usize, &str)> {
    let starts = text.match_indices("create function ").map(|(start, _)| start);
    let whole = |start: usize| {
        let rest = &text[start..];
        // A body in dollar quotes ends with them; one that is a single `return` ends with its statement.
        let quoted = rest.find("$$").filter(|quote| rest.find(";\n").is_none_or(|end| *quote < end));
        let end = match quoted {
            Some(quote) => quote + 2 + rest[quote + 2..].find("$$").unwrap() + 3,
            None => rest.find(";\n").unwrap() + 1,
        };
        (start, &rest[..end.min(rest.len())])
    };
    starts.map(whole).collect()
}

/// The string literals of a file that are SQL about a canvas, as the compiler reads them, and where each begins.
fn literals(text: &str) -> Vec<(usize, String)> {
    let raw = Regex::new(r##"(?s)r#"(.*?)"#"##).unwrap();
    let plain = Regex::new(r#"(?s)"((?:[^"\\]|\\.)*)""#).unwrap();
    let continued = Regex::new(r"\\\n\s*").unwrap();
    let comment = Regex::new(r"(?m)^\s*//.*$").unwrap();
    let blank = |text: &str, pattern: &Regex| {
        pattern
            .replace_all(text, |found: &regex::Captures<'_>| {
                found[0]
                    .chars()
                    .map(|character| if character == '\n' { '\n' } else { ' ' })
                    .collect::<String>()
            })
            .into_owned()
    };
    let text = blank(text, &comment);
    let of_raw = raw.captures_iter(&text).map(|found| (found.get(1).unwrap().start(), found[1].to_owned()));
    let mut literals: Vec<_> = of_raw.collect();
    let rest = blank(&text, &raw);
    literals.extend(plain.captures_iter(&rest).map(|found| {
        let read = continued.replace_all(&found[1], "").replace("\\\"", "\"").replace("\\\\", "\\");
        (found.get(1).unwrap().start(), read)
    }));
    literals.retain(|(_, literal)| literal.contains("canvas"));
    literals
}

/// What is wrong in a world of this mutant, without what differs from run to run.
async fn found(mutant: &Mutant, alone: &Alone) -> (BTreeSet<String>, bool) {
    let world = World::start(Some(mutant)).await;
    let (attacker, victim) = (world.seed(&ATTACKER).await, world.seed(&VICTIM).await);
    let all = [Scope::ALL.to_vec()];
    let mut findings: Findings = super::attack(&world, [&attacker, &victim], &all, alone).await;
    findings.extend(super::goes_on(&world, &victim, &alone.victim).await);
    findings.extend(super::work::goes_on(&world).await);
    let met = mutant.function.is_some() || world.proxy.as_ref().is_some_and(super::proxy::Proxy::has_met);
    world.service.stop().await;
    (findings.iter().map(|finding| mask(finding)).collect(), met)
}

/// `WAKEQ_MUTANT` names the one to look at, by its file and line or a part of these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "each condition in turn: `cargo xtask tenants` runs it"]
async fn every_condition_on_a_canvas_counts() {
    let wanted = std::env::var("WAKEQ_MUTANT").unwrap_or_default();
    let mutants: Vec<_> = mutants().into_iter().filter(|mutant| mutant.place.contains(&wanted)).collect();
    assert!(!mutants.is_empty(), "there is no condition at {wanted}");
    let all = [Scope::ALL.to_vec()];
    let lonely = super::Lonely::begin().await;
    let world = World::start(None).await;
    world.seed(&ATTACKER).await;
    let victim = world.seed(&VICTIM).await;
    let alone = std::sync::Arc::new(lonely.said(&all, &victim, &world.sequences().await).await);
    world.service.stop().await;
    let (usual, _) = found(&Mutant::none(), &alone).await;
    println!("{} conditions on a canvas; without a change there are {} findings", mutants.len(), usual.len());
    for finding in &usual {
        println!("    as it is: {finding}");
    }
    let results = stream::iter(mutants).map(|mutant| {
        let (alone, usual) = (alone.clone(), usual.clone());
        async move {
            let begin = Instant::now();
            let tried = mutant.clone();
            // On a thread of its own: a panic is one more way to notice.
            let runtime = tokio::runtime::Handle::current();
            let trying = tokio::task::spawn_blocking(move || runtime.block_on(found(&tried, &alone)));
            let verdict = match tokio::time::timeout(PATIENCE, trying).await {
                Ok(Ok((findings, met))) => match findings.difference(&usual).next() {
                    Some(finding) => Ok(finding.clone()),
                    None => Err(if met { "survived" } else { "never sent" }),
                },
                Ok(Err(panic)) => Ok(format!("a panic: {panic}")),
                Err(_) => Ok("no end in time".to_owned()),
            };
            let seconds = begin.elapsed().as_secs_f64();
            match &verdict {
                Ok(finding) => {
                    let finding: String = finding.chars().take(160).collect();
                    println!("caught    {} in {seconds:.1} s: {finding}", mutant.place);
                }
                Err(how) => {
                    println!("{how:9} {}: {}  {}", mutant.place, mutant.line, mutant.reason().unwrap_or(""))
                }
            }
            (mutant, verdict.is_ok())
        }
    });
    let results: Vec<_> = results.buffer_unordered(AT_A_TIME).collect().await;
    let caught = results.iter().filter(|(_, caught)| *caught).count();
    let missed: Vec<_> =
        results.iter().filter(|(mutant, caught)| !caught && mutant.reason().is_none()).collect();
    println!(
        "{} conditions: {caught} caught, {} without effect, {} missed",
        results.len(),
        results.len() - caught - missed.len(),
        missed.len()
    );
    assert!(missed.is_empty(), "nothing fails without {} of the conditions", missed.len());
}

#[test]
fn conditions_are_found_wherever_they_stand() {
    let text = "select 1 from t where canvas_id = $1 and ($2::uuid is null or t.canvas_id = $2::uuid) \
                and h.canvas_id = e.canvas_id and k.canvas_id is not distinct from $3 \
                and e.canvas_id = (select canvas_id from job where kind = 'lifted') and (u.canvas_id, u.name) = (w.canvas_id, w.name) on conflict do update set canvas_id = excluded.canvas_id";
    let changed: Vec<_> = mutated(text).into_iter().map(|(_, text)| text).collect();
    for part in [
        "(canvas_id = $1 or true)",
        "(t.canvas_id = $2::uuid or true)",
        "(h.canvas_id = e.canvas_id or true)",
        "(k.canvas_id is not distinct from $3 or true)",
        "kind = 'lifted') or true)",
        "(u.canvas_id, u.name) = (u.canvas_id, w.name)",
    ] {
        assert_eq!(changed.iter().filter(|text| text.contains(part)).count(), 1, "{part} in {changed:#?}");
    }
    assert_eq!(changed.len(), 6, "{changed:#?}");
}

#[test]
fn there_are_conditions_in_every_place() {
    let mutants = mutants();
    let of = |start: &str| mutants.iter().filter(|mutant| mutant.place.starts_with(start)).count();
    assert!(of("src/store/") > 60 && of("migrations/") > 20, "{} {}", of("src/store/"), of("migrations/"));
}
