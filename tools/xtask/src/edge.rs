//! `cargo xtask edge`: the longer checks of the HTTP API: load, slow connections, property-based
//! requests, a browser.
//!
//! It holds no tests itself: they are in `tests/it/edge`. The tools' versions are pinned in
//! `tests/edge/requirements.txt`; they are installed only into `target/edge`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{install_python, integration_tests, root, succeed};

/// The short name of each check, what it shows, and its test.
const CHECKS: [(&str, &str, &str); 10] = [
    ("document", "every documented operation and status", "edge::document"),
    ("matrix", "every guarded operation with every kind of wrong credential", "edge::matrix"),
    ("garbage", "500 bad inputs", "edge::garbage"),
    ("leaks", "no secret in logs and errors", "edge::leaks"),
    ("memory", "resident memory after 10,000 requests, and after 10,000 more", "edge::load::memory"),
    ("slow", "a normal client next to 1,000 slow connections", "edge::load::slow"),
    ("worst", "a tenant that misbehaves, at large and by feature, and another", "edge::worst::the_worst"),
    ("schemathesis", "10,000 requests made from the OpenAPI document", "edge::load::schemathesis"),
    ("page", "the documentation page in Chromium, without any other host", "edge::page"),
    (
        "pages",
        "every page in Chromium, in both modes, as wide as a phone and as a desk",
        "pages::in_chromium",
    ),
];

/// How many seconds each page has to be looked at four times, on a slow machine.
const PAGES_LIMIT_S: &str = "5400";
/// How many seconds every part of the attack has.
const WORST_LIMIT_S: &str = "3600";

/// Runs one of them, or all.
pub(crate) fn run(name: Option<&str>) -> Result<()> {
    let chosen: Vec<_> = CHECKS.iter().filter(|(short, ..)| name.is_none_or(|name| name == *short)).collect();
    if chosen.is_empty() {
        let known: Vec<_> = CHECKS.iter().map(|(short, ..)| *short).collect();
        bail!("there is no such check: use one of {}", known.join(", "));
    }
    for (short, ..) in &chosen {
        succeed(tests(short).arg("--no-run"))?;
    }
    let mut failed = Vec::new();
    for (short, shows, path) in chosen {
        println!("\n{short}: {shows}");
        if check(short, path).inspect_err(|error| eprintln!("error: {error:#}")).is_err() {
            failed.push(*short);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// The command that runs the tests. `worst` measures slowdowns, so it runs as users build it: for
/// release.
fn tests(short: &str) -> Command {
    let mut tests = integration_tests();
    if short == "worst" {
        tests.arg("--release");
    }
    tests
}

fn check(short: &str, path: &str) -> Result<()> {
    let mut test = tests(short);
    test.args(["--", "--nocapture", "--include-ignored", path]);
    if short == "schemathesis" {
        test.env("WAKEQ_SCHEMATHESIS", schemathesis()?);
    }
    if short == "page" {
        test.env("WAKEQ_CHROMIUM", chromium()?);
    }
    if short == "worst" {
        test.env("TEST_LIMIT_S", WORST_LIMIT_S);
    }
    if short == "pages" {
        test.env("REQUIRE_BROWSER", "1").env("AXE_SCRIPT", axe()?).env("TEST_LIMIT_S", PAGES_LIMIT_S);
    }
    succeed(&mut test)
}

/// The program, installed if necessary.
fn schemathesis() -> Result<PathBuf> {
    let folder = root().join("target/edge/python");
    install_python(&folder, &root().join("tests/edge/requirements.txt"))?;
    Ok(folder.join("bin/schemathesis"))
}

/// The script that looks for barriers, which is installed with Chromium's driver.
fn axe() -> Result<String> {
    let installed = Command::new(root().join(".ci/install-browser")).arg("--installed").output()?;
    ensure!(installed.status.success(), "run .ci/install-browser first");
    Ok(String::from_utf8(installed.stdout)?.trim().to_owned())
}

fn chromium() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut programs = std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    programs
        .find(|program| program.is_file())
        .context("Chromium is not installed: install it, so that `chromium` is found")
}
