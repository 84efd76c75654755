//! `cargo xtask deploy`: checks what stands in `deploy/`, as far as that can be without a cloud.
//!
//! What Python brings is pinned in `deploy/check/requirements.txt` and installed into `target/deploy` and nowhere else.
//! Terraform, kubectl or kustomize, and promtool are used where they are installed, and never installed; what could not be
//! checked for want of them is said at the end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use wakeq_services::program_on_path;

use crate::{root, succeed};

/// The oldest Kubernetes for which the manifests are meant.
const KUBERNETES: &str = "1.33";
/// What is rendered; the others are parts of these.
const MANIFESTS: [&str; 4] = ["base", "migrate", "overlays/gke", "overlays/gke/migrate"];
/// What is applied as it stands, in a namespace of its own.
const APPLIED: [&str; 2] = ["overlays/gke", "overlays/gke/migrate"];
/// The examples, which use every module, and the modules that have tests.
const TERRAFORM: [&str; 5] =
    ["examples/pull", "examples/push", "modules/database", "modules/queue", "modules/service"];

/// Checks all that can be checked here.
pub(crate) fn run() -> Result<()> {
    let python = Python::install()?;
    let mut missing = Vec::new();
    match program_on_path("terraform") {
        Some(program) => terraform(&program, &python)?,
        None => missing.push("terraform"),
    }
    succeed(python.checkov("terraform").arg("--directory").arg(deploy("terraform")))?;
    let manifests = python.folder.join("manifests");
    empty(&manifests)?;
    match renderer() {
        Some((program, verb)) => kubernetes(&program, verb, &python, &manifests)?,
        None => missing.push("kubectl or kustomize"),
    }
    match program_on_path("promtool") {
        Some(program) => prometheus(&program)?,
        None => missing.push("promtool"),
    }
    succeed(python.script("tree.py").arg(&manifests))?;
    if missing.is_empty() {
        println!("deploy/ is as it should be, but for what only a cloud can tell");
    } else {
        println!("SKIPPED what needs {}: not on PATH", missing.join(", "));
    }
    Ok(())
}

/// Its format; names, types and plans, against providers that know the resources' shapes.
fn terraform(program: &Path, python: &Python) -> Result<()> {
    let folder = deploy("terraform");
    succeed(Command::new(program).args(["fmt", "-check", "-diff", "-recursive"]).arg(&folder))?;
    let mut check = python.script("terraform.py");
    check.arg(python.folder.join("terraform"));
    check.args(TERRAFORM.iter().map(|part| folder.join(part)));
    succeed(&mut check)
}

/// What renders manifests, and the verb for it.
fn renderer() -> Option<(PathBuf, &'static str)> {
    let kubectl = program_on_path("kubectl").map(|program| (program, "kustomize"));
    kubectl.or_else(|| program_on_path("kustomize").map(|program| (program, "build")))
}

/// Every set of manifests, rendered, against the schemas of Kubernetes; and what is applied, against checkov's rules.
fn kubernetes(program: &Path, verb: &str, python: &Python, manifests: &Path) -> Result<()> {
    for name in MANIFESTS {
        let path = rendered(manifests, name);
        let output = File::create(&path).with_context(|| format!("{} can't be written", path.display()))?;
        succeed(Command::new(program).arg(verb).arg(deploy("kubernetes").join(name)).stdout(output))?;
        let strictly = ["--quiet", "--strict", "-k", KUBERNETES];
        succeed(python.program("kubernetes-validate").args(strictly).arg(&path))?;
    }
    let mut checkov = python.checkov("kubernetes");
    for name in APPLIED {
        checkov.arg("--file").arg(rendered(manifests, name));
    }
    succeed(&mut checkov)
}

/// The alert rules, and what they do on made-up series.
fn prometheus(program: &Path) -> Result<()> {
    let folder = deploy("prometheus");
    succeed(Command::new(program).args(["check", "rules", "alerts.yaml"]).current_dir(&folder))?;
    succeed(Command::new(program).args(["test", "rules", "alerts.test.yaml"]).current_dir(&folder))
}

/// The checkers in a folder of their own.
struct Python {
    folder: PathBuf,
}

impl Python {
    fn install() -> Result<Self> {
        let python = Self { folder: root().join("target/deploy") };
        if !python.folder.join("bin/python").is_file() {
            succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&python.folder))
                .context("Python 3.10 or newer with its module `venv` is needed")?;
        }
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
        succeed(python.program("python").args(install).arg(deploy("check/requirements.txt")))?;
        Ok(python)
    }

    fn program(&self, name: &str) -> Command {
        Command::new(self.folder.join("bin").join(name))
    }

    /// One of `deploy/check`.
    fn script(&self, name: &str) -> Command {
        let mut command = self.program("python");
        command.arg(deploy("check").join(name)).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// With its own rules only: it asks nobody for more.
    fn checkov(&self, framework: &str) -> Command {
        let mut command = self.program("checkov");
        command.args(["--compact", "--quiet", "--skip-download", "--framework", framework]);
        command
    }
}

fn deploy(part: &str) -> PathBuf {
    root().join("deploy").join(part)
}

fn rendered(manifests: &Path, name: &str) -> PathBuf {
    manifests.join(format!("{}.yaml", name.replace('/', "-")))
}

/// An empty folder, whatever was there before.
fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("{} can't be removed", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("{} can't be made", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_is_there() {
        for name in MANIFESTS {
            assert!(deploy("kubernetes").join(name).join("kustomization.yaml").is_file(), "{name}");
        }
        for part in TERRAFORM {
            assert!(deploy("terraform").join(part).join("main.tf").is_file(), "{part}");
        }
        assert!(APPLIED.iter().all(|name| MANIFESTS.contains(name)));
    }
}
