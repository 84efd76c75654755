//! `cargo xtask guide`: the first minutes of a new user. The real `cargo dev` runs for two minutes
//! in a folder of its own, and the shell lines of docs/guide.md are typed beside it.
//!
//! Nobody else is there, so nothing may look as if somebody were. It must never touch the `.dev` of
//! this checkout.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::dev::{Dev, binary};
use crate::{cargo, root, succeed};

const PAGE: &str = "docs/guide.md";
const RUNS_FOR: Duration = Duration::from_secs(120);

/// The first of `broken`'s events has had its last attempt: the guide's `dead list` shows it.
const HAS_DIED: &str = "the last one: dead";

/// What is printed while nobody else is there, and how often at least.
const EXPECTED: [(&str, usize); 7] = [
    (HAS_DIED, 3),
    ("heartbeat  the tick of", 3),
    ("greet      says: hello, ", 10),
    ("slow       done in", 10),
    ("flaky      attempt 2 failed (the peer closed the connection); retried in", 3),
    ("webhook    done in", 10),
    // What the guide emits.
    ("greet      says: hello, Bo", 1),
];

/// What would be wrong.
const UNEXPECTED: [&str; 5] = [
    "another worker has joined",
    "NO HANDLER",
    "notifications can't be received",
    "Postgres did not answer",
    "not emitted",
];

/// What some of the guide's lines have to print.
const ANSWERS: [(&str, &str); 4] = [
    ("cargo wakeq stats", "greet"),
    ("cargo wakeq explain", "RulePaused"),
    ("cargo wakeq dead list", "the service is down"),
    ("cargo wakeq dead redrive", "brought back"),
];

/// Bash: the lines in one shell; a failed request is a failed line.
const PRELUDE: &str = r#"exec 2>&1; set -u
curl() { command curl --fail-with-body --max-time 60 "$@"; }
cargo() { shift; timeout 60 "$WAKEQ" "$@"; }
"#;

/// Runs both.
pub(crate) fn run() -> Result<()> {
    succeed(cargo().args(["build", "--bin", "wakeq-dev", "--bin", "wakeq"]))?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let dev = Dev::start("guide", &[]).await?;
        let began = Instant::now();
        dev.prints(HAS_DIED).await?;
        println!("`broken` is among the dead after {:.0?}", began.elapsed());
        let lines = lines(&std::fs::read_to_string(root().join(PAGE))?);
        let environment = dev.exports()?;
        let typed = tokio::task::spawn_blocking(move || follow(&lines, &environment)).await??;
        println!("{typed} lines of {PAGE} did what it says after {:.0?}", began.elapsed());
        sleep(RUNS_FOR.saturating_sub(began.elapsed())).await;
        check(&dev.printed())?;
        dev.stop().await?;
        println!("{:.0?} of `cargo dev`, and nobody else was seen", began.elapsed());
        Ok(())
    })
}

/// The lines of all `sh` blocks. One that ends with a backslash is joined with the next.
fn lines(page: &str) -> Vec<String> {
    let blocks = page.split("\n```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    let joined = blocks.map(|block| block.replace("\\\n", " ")).collect::<Vec<_>>().join("\n");
    joined.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Types the lines in a shell; returns how many there were.
fn follow(lines: &[String], environment: &str) -> Result<usize> {
    let mut script = format!("{PRELUDE}{environment}\n");
    for line in lines {
        script += &format!("echo @begins\n{line}\necho \"@ended $?\"\n");
    }
    let bash = Command::new("bash").args(["-c", &script]).env("WAKEQ", binary("wakeq")).output()?;
    let printed = String::from_utf8_lossy(&bash.stdout);
    let answers: Vec<_> = printed.split("@begins\n").skip(1).collect();
    for (number, line) in lines.iter().enumerate() {
        let (answer, code) =
            answers.get(number).and_then(|part| part.split_once("@ended ")).unwrap_or_default();
        ensure!(code.trim() == "0", "{PAGE}: {line}\nended with {code:?}: {answer}\n{printed}");
        for (_, words) in ANSWERS.iter().filter(|(beginning, _)| line.starts_with(beginning)) {
            ensure!(answer.contains(words), "{PAGE}: {line}\ndid not print {words:?}: {answer}");
        }
    }
    for (beginning, _) in ANSWERS {
        ensure!(lines.iter().any(|line| line.starts_with(beginning)), "{PAGE} has no line {beginning:?}");
    }
    Ok(lines.len())
}

/// Whether it printed what it should, and nothing else.
fn check(printed: &[String]) -> Result<()> {
    let all = || printed.join("\n");
    for words in UNEXPECTED {
        ensure!(!printed.iter().any(|line| line.contains(words)), "it printed {words:?}:\n{}", all());
    }
    for (words, least) in EXPECTED {
        let count = printed.iter().filter(|line| line.contains(words)).count();
        ensure!(count >= least, "it printed {words:?} {count} times instead of {least}:\n{}", all());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_lines() {
        let lines = lines(&std::fs::read_to_string(root().join(PAGE)).unwrap());
        for (beginning, _) in ANSWERS {
            assert!(lines.iter().any(|line| line.starts_with(beginning)), "{beginning}");
        }
    }
}
