//! `cargo xtask deps`: checks the dependency tree against `deny.toml`.
//!
//! Duplicate and banned crates are looked up in the tree that cargo resolves here, so this part
//! needs no network. Licenses, advisories and sources are left to cargo-deny, which is run if it is
//! installed and never installed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

use crate::{cargo, read_toml, succeed};

type Versions = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn run() -> Result<()> {
    let rules = Rules::read(&read_toml("deny.toml")?)?;
    let versions = versions(&tree()?);
    ensure!(versions.contains_key("tokio"), "`cargo tree` printed no tree");
    for (name, found) in versions.iter().filter(|(_, found)| found.len() > 1) {
        println!("{name}: {}", found.iter().cloned().collect::<Vec<_>>().join(", "));
    }
    let complaints = rules.complaints(&versions);
    if !complaints.is_empty() {
        bail!("the dependency tree violates deny.toml:\n{}", complaints.join("\n"));
    }
    println!(
        "{} crates; every duplicate is listed in deny.toml, and no banned crate is built",
        versions.len()
    );
    deny()
}

fn deny() -> Result<()> {
    if !cargo().args(["deny", "--version"]).output()?.status.success() {
        println!(
            "licenses, advisories and sources were not checked: that takes `cargo install --locked cargo-deny`"
        );
        return Ok(());
    }
    succeed(cargo().args(["deny", "check"]))
}

fn tree() -> Result<String> {
    let arguments = ["tree", "--workspace", "--locked", "--prefix", "none", "--format", "{p}"];
    let output = cargo().args(arguments).output().context("`cargo tree` can't be started")?;
    ensure!(output.status.success(), "`cargo tree` failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Reads lines like `tokio v1.54.1 (*)`.
fn versions(tree: &str) -> Versions {
    let mut versions = Versions::new();
    for line in tree.lines() {
        let mut words = line.split(' ');
        if let (Some(name), Some(version)) =
            (words.next(), words.next().and_then(|version| version.strip_prefix('v')))
        {
            versions.entry(name.to_owned()).or_default().insert(version.to_owned());
        }
    }
    versions
}

/// The section of `deny.toml` about bans.
struct Rules {
    banned: Vec<String>,
    /// The name, and the prefix of a version that may exist beside another.
    doubled: Vec<(String, String)>,
}

impl Rules {
    fn read(deny: &Table) -> Result<Self> {
        let banned = crates(deny, "deny")?;
        let doubled = crates(deny, "skip")?.into_iter().map(|skipped| {
            let (name, version) =
                skipped.split_once('@').with_context(|| format!("{skipped}: name one version of it"))?;
            Ok((name.to_owned(), version.to_owned()))
        });
        Ok(Self { banned, doubled: doubled.collect::<Result<_>>()? })
    }

    fn complaints(&self, versions: &Versions) -> Vec<String> {
        let banned = self.banned.iter().filter(|name| versions.contains_key(*name));
        let mut complaints: Vec<_> =
            banned.map(|name| format!("{name} is banned: `cargo tree -i {name}`")).collect();
        for (name, found) in versions {
            let single: Vec<_> =
                found.iter().filter(|version| !self.may_double(name, version)).cloned().collect();
            if single.len() > 1 {
                complaints.push(format!(
                    "{name} is built as {}: `cargo tree -d -i {name}@…`",
                    single.join(" and ")
                ));
            }
        }
        let is_found = |(name, version): &&(String, String)| {
            versions
                .get(name)
                .is_some_and(|found| found.len() > 1 && found.iter().any(|found| begins(found, version)))
        };
        let stale = self.doubled.iter().filter(|skipped| !is_found(skipped));
        complaints.extend(stale.map(|(name, version)| {
            format!("{name} {version} is no longer a duplicate: remove it from `skip`")
        }));
        complaints
    }

    fn may_double(&self, name: &str, version: &str) -> bool {
        self.doubled.iter().any(|(doubled, beginning)| doubled == name && begins(version, beginning))
    }
}

fn begins(version: &str, beginning: &str) -> bool {
    version.strip_prefix(beginning).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn crates(deny: &Table, list: &str) -> Result<Vec<String>> {
    let entries = deny.get("bans").and_then(|bans| bans.get(list)).and_then(Value::as_array);
    let entries = entries.with_context(|| format!("deny.toml has no list `{list}` in [bans]"))?;
    let name = |entry: &Value| entry.get("crate").and_then(Value::as_str).map(str::to_owned);
    entries
        .iter()
        .map(|entry| name(entry).with_context(|| format!("deny.toml: no `crate` in {entry}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = r#"
        [bans]
        deny = [{ crate = "openssl" }]
        skip = [{ crate = "syn@2", reason = "macros" }]
    "#;

    #[track_caller]
    fn check(tree: &str, expected: &[&str]) {
        let complaints = Rules::read(&DENY.parse().unwrap()).unwrap().complaints(&versions(tree));
        assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
        for (complaint, part) in complaints.iter().zip(expected) {
            assert!(complaint.contains(part), "{complaints:?}");
        }
    }

    #[test]
    fn a_listed_double_passes() {
        check("syn v2.0.1\nsyn v3.0.0 (*)\nsyn v3.0.0 (proc-macro)\nwakeq v0.1.0 (/somewhere)", &[]);
    }

    #[test]
    fn what_deny_toml_does_not_allow_is_found() {
        let good = "syn v2.0.1\nsyn v3.0.0\n";
        check(&format!("{good}openssl v0.10.1"), &["openssl is banned"]);
        check(&format!("{good}hyper v1.0.0\nhyper v0.14.0"), &["hyper is built as 0.14.0 and 1.0.0"]);
        check(&format!("{good}syn v20.0.0"), &["syn is built as 20.0.0 and 3.0.0"]);
        check("syn v3.0.0", &["syn 2 is no longer a duplicate"]);
    }
}
