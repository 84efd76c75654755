//! `cargo xtask prepare`: keeps each package's `.sqlx` up to date with its queries and the
//! migrations. A package has its own because it is published with it.
//!
//! Given a live database, `sqlx`'s macros write what they learn about a query into
//! `SQLX_OFFLINE_DIR`. This command gives them a private one, migrated from `migrations/`, and
//! compares the result with `.sqlx`. It never touches an existing database.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use sqlx::{Connection, PgConnection, migrate::Migrator};
use wakeq_testbed::{Cluster, ClusterOptions, Folder};

use crate::{cargo, read_toml, root, succeed};

/// The packages with queries, and their folders.
const PACKAGES: [(&str, &str); 3] =
    [("wakeq", "."), ("wakeq-streams", "streams"), ("wakeq-service", "service")];

/// Descriptions of queries by file name.
type Descriptions = BTreeMap<String, String>;

pub(crate) fn run(check: bool) -> Result<()> {
    let fresh_folder = root().join("target/sqlx-fresh");
    if fresh_folder.exists() {
        fs::remove_dir_all(&fresh_folder)?;
    }
    for (package, _) in PACKAGES {
        fs::create_dir_all(fresh_folder.join(package))?;
    }
    let modified = describe_queries(&fresh_folder)?;
    let mut is_current = true;
    for (package, folder) in PACKAGES {
        let fresh = read_descriptions(&fresh_folder.join(package))?;
        is_current &= compare(package, &root().join(folder).join(".sqlx"), &fresh, check)?;
    }
    if is_current {
        // Nothing else has to compile the packages anew.
        for (file, modified) in modified {
            file.set_modified(modified)?;
        }
    }
    ensure!(
        is_current || !check,
        ".sqlx is not up to date: run `cargo xtask prepare` and commit what it changes"
    );
    Ok(())
}

/// Prints how a package's kept descriptions differ from the fresh ones, and replaces them unless
/// this only checks; returns whether they were equal.
fn compare(package: &str, kept_folder: &Path, fresh: &Descriptions, check: bool) -> Result<bool> {
    ensure!(!fresh.is_empty(), "{package}: the macros described no query");
    let differences = differences(&read_descriptions(kept_folder)?, fresh);
    for difference in &differences {
        println!("{package}: {difference}");
    }
    if !differences.is_empty() && !check {
        replace_descriptions(kept_folder, fresh)?;
    }
    println!("{package}: {} queries, {} differences", fresh.len(), differences.len());
    Ok(differences.is_empty())
}

/// Compiles all packages against a migrated private database; the macros write the descriptions of
/// a package to the folder of its name in `folder`. Returns the files that count as changed for
/// that, and when they were.
fn describe_queries(folder: &Path) -> Result<Vec<(File, SystemTime)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let options = ClusterOptions { folder: Folder::Memory, ..ClusterOptions::default() };
    let postgres = runtime.block_on(Cluster::start(options))?;
    let url = postgres.url("postgres");
    runtime.block_on(migrate(&url))?;
    // Cargo does not know that the macros read these variables; a changed file makes it run them
    // again.
    let mut modified = Vec::new();
    for (_, package_folder) in PACKAGES {
        let lib = File::options().append(true).open(root().join(package_folder).join("src/lib.rs"))?;
        let before = lib.metadata()?.modified()?;
        lib.set_modified(SystemTime::now())?;
        modified.push((lib, before));
    }
    let variable = database_variable()?;
    // The same packages as in other commands, so that no dependency is compiled twice; with every
    // feature that has queries.
    let mut check = cargo();
    check.args(["check", "--workspace", "--features", "wakeq/testing"]);
    check.env(variable, &url).env("SQLX_OFFLINE", "false").env("SQLX_OFFLINE_DIR", folder);
    check.env("RUSTC_WORKSPACE_WRAPPER", root().join("tools/xtask/describe.sh"));
    succeed(&mut check)?;
    Ok(modified)
}

fn database_variable() -> Result<String> {
    let config = read_toml("sqlx.toml")?;
    let variable =
        config.get("common").and_then(|common| common.get("database-url-var")).and_then(toml::Value::as_str);
    Ok(variable.context("sqlx.toml has no `common.database-url-var`")?.to_owned())
}

/// Applies `migrations/` as `sqlx::migrate!` does: into the schema and the table that sqlx.toml
/// names.
async fn migrate(url: &str) -> Result<()> {
    let config = read_toml("sqlx.toml")?;
    let section = config.get("migrate").context("sqlx.toml has no section `migrate`")?;
    let table =
        section.get("table-name").and_then(toml::Value::as_str).context("sqlx.toml names no table")?;
    let schemas =
        section.get("create-schemas").and_then(toml::Value::as_array).context("sqlx.toml names no schema")?;
    let folder = root().join("migrations");
    let mut migrator = Migrator::new(folder.as_path()).await.context("migrations/ can't be read")?;
    migrator.dangerous_set_table_name(table.to_owned());
    for schema in schemas.iter().filter_map(toml::Value::as_str) {
        migrator.create_schema(schema.to_owned());
    }
    let mut connection = PgConnection::connect(url).await.context("the private Postgres does not answer")?;
    migrator.run_direct(None, &mut connection, false).await.context("the migrations can't be applied")?;
    connection.close().await?;
    Ok(())
}

/// Reads a folder of descriptions; a missing folder has none.
fn read_descriptions(folder: &Path) -> Result<Descriptions> {
    let mut descriptions = Descriptions::new();
    if !folder.exists() {
        return Ok(descriptions);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("query-") && name.ends_with(".json") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("{} can't be read", path.display()))?;
            descriptions.insert(name, text);
        }
    }
    Ok(descriptions)
}

fn differences(kept: &Descriptions, fresh: &Descriptions) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, text) in fresh {
        match kept.get(name) {
            None => differences.push(format!("added   {name}")),
            Some(kept) if kept != text => differences.push(format!("changed {name}")),
            Some(_) => {}
        }
    }
    let stale = kept.keys().filter(|name| !fresh.contains_key(*name));
    differences.extend(stale.map(|name| format!("stale   {name}")));
    differences
}

fn replace_descriptions(folder: &Path, fresh: &Descriptions) -> Result<()> {
    fs::create_dir_all(folder)?;
    for name in read_descriptions(folder)?.keys().filter(|name| !fresh.contains_key(*name)) {
        fs::remove_file(folder.join(name))?;
    }
    for (name, text) in fresh {
        fs::write(folder.join(name), text)?;
    }
    if read_descriptions(folder)? != *fresh {
        bail!("{} changed while it was written; run this again", folder.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptions(entries: &[(&str, &str)]) -> Descriptions {
        entries.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn reports_every_kind_of_difference() {
        let kept = descriptions(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let fresh = descriptions(&[("b", "1"), ("c", "2"), ("d", "1")]);
        assert_eq!(differences(&kept, &fresh), ["changed c", "added   d", "stale   a"]);
        assert!(differences(&fresh, &fresh).is_empty());
    }
}
