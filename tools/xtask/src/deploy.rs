//! `cargo xtask deploy`: checks `deploy/`, as far as that is possible without a cloud.
//!
//! Python's packages are pinned in `deploy/check/requirements.txt` and installed only into
//! `target/deploy`. Terraform, kubectl or kustomize, Helm or Go, and promtool are used if they are
//! installed, and never installed; the end of the output names the missing ones, whose checks were
//! skipped. With `REQUIRE_DEPLOY_TOOLS=1` that is an error.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use wakeq_testbed::program_on_path;

use crate::{install_python, root, succeed};

const REQUIRED_VARIABLE: &str = "REQUIRE_DEPLOY_TOOLS";
/// The oldest supported Kubernetes.
const KUBERNETES: &str = "1.33";
/// The sets that are rendered; the others are parts of these.
const MANIFESTS: [&str; 5] =
    ["base", "migrate", "overlays/gke", "overlays/gke/migrate", "overlays/gke-all-canvases"];
/// The sets that are applied as they are, in a namespace of their own.
const APPLIED: [&str; 3] = ["overlays/gke", "overlays/gke/migrate", "overlays/gke-all-canvases"];
/// The chart's renderings: their names, values beside the defaults, and the sets that describe the
/// same objects.
const CHARTS: [(&str, &[&str], [&str; 2]); 3] = [
    ("helm", &[], ["base", "migrate"]),
    ("helm-gke", &["helm/gke.yaml"], ["overlays/gke", "overlays/gke/migrate"]),
    (
        "helm-gke-all-canvases",
        &["helm/gke.yaml", "helm/all-canvases.yaml"],
        ["overlays/gke-all-canvases", "overlays/gke/migrate"],
    ),
];
const CHART: &str = "helm/wakeq";
/// The sources of Go packages, as Debian installs them, for a machine without Helm.
const GO_SOURCES: &str = "/usr/share/gocode";
/// The examples, which use every module, and the modules that have tests.
const TERRAFORM: [&str; 5] =
    ["examples/pull", "examples/push", "modules/database", "modules/queue", "modules/service"];

/// Runs all checks that are possible here.
pub(crate) fn run() -> Result<()> {
    let python = Checkers::install()?;
    let mut missing = Vec::new();
    match program_on_path("terraform") {
        Some(program) => terraform(&program, &python)?,
        None => missing.push("terraform"),
    }
    succeed(python.checkov("terraform").arg("--directory").arg(deploy("terraform")))?;
    let manifests = python.folder.join("manifests");
    empty(&manifests)?;
    match renderer() {
        Some((program, verb)) => {
            kubernetes(&program, verb, &python, &manifests)?;
            match ChartRenderer::find(&python.folder)? {
                Some(renderer) => charts(&renderer, &python, &manifests)?,
                None => missing.push("helm, or Go with sprig"),
            }
        }
        None => missing.push("kubectl or kustomize"),
    }
    match program_on_path("promtool") {
        Some(program) => prometheus(&program)?,
        None => missing.push("promtool"),
    }
    succeed(python.script("tree.py").arg(&manifests))?;
    let required = std::env::var(REQUIRED_VARIABLE).is_ok_and(|value| value.trim() == "1");
    println!("{}", verdict(&missing, required)?);
    Ok(())
}

/// What the run ends with, if all that was checked passed.
fn verdict(missing: &[&str], required: bool) -> Result<String> {
    if missing.is_empty() {
        return Ok("deploy/ passed all checks that need no cloud".to_owned());
    }
    let missing = missing.join(", ");
    ensure!(!required, "not on PATH, which {REQUIRED_VARIABLE}=1 forbids: {missing}");
    Ok(format!("SKIPPED what needs {missing}: not on PATH"))
}

/// Checks the format; and names, types and plans, against providers that know the resources'
/// schemas.
fn terraform(program: &Path, python: &Checkers) -> Result<()> {
    let folder = deploy("terraform");
    succeed(Command::new(program).args(["fmt", "-check", "-diff", "-recursive"]).arg(&folder))?;
    let mut check = python.script("terraform.py");
    check.arg(python.folder.join("terraform"));
    check.args(TERRAFORM.iter().map(|part| folder.join(part)));
    succeed(&mut check)
}

/// The program that renders manifests, and its subcommand.
fn renderer() -> Option<(PathBuf, &'static str)> {
    let kubectl = program_on_path("kubectl").map(|program| (program, "kustomize"));
    kubectl.or_else(|| program_on_path("kustomize").map(|program| (program, "build")))
}

/// Renders every set of manifests and checks it against Kubernetes's schemas; checks what is
/// applied against checkov's rules.
fn kubernetes(program: &Path, verb: &str, python: &Checkers, manifests: &Path) -> Result<()> {
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

/// Renders the chart and checks it against Kubernetes's schemas, and that it describes what the
/// Kustomize sets do.
fn charts(renderer: &ChartRenderer, python: &Checkers, manifests: &Path) -> Result<()> {
    for (name, values, sets) in CHARTS {
        let path = rendered(manifests, name);
        let output = File::create(&path).with_context(|| format!("{} can't be written", path.display()))?;
        succeed(renderer.render(values).stdout(output))?;
        let strictly = ["--quiet", "--strict", "-k", KUBERNETES];
        succeed(python.program("kubernetes-validate").args(strictly).arg(&path))?;
        let mut compare = python.script("chart.py");
        compare.arg(&path).args(sets.map(|set| rendered(manifests, set)));
        succeed(&mut compare)?;
    }
    Ok(())
}

/// What renders the chart.
enum ChartRenderer {
    Helm(PathBuf),
    /// A program of ours with Helm's template language.
    Own(PathBuf),
}

impl ChartRenderer {
    /// Helm, which checks the chart at once; else ours, built with Go.
    fn find(folder: &Path) -> Result<Option<Self>> {
        if let Some(helm) = program_on_path("helm") {
            succeed(Command::new(&helm).args(["lint", "--strict"]).arg(deploy(CHART)))?;
            return Ok(Some(Self::Helm(helm)));
        }
        let has_sources = Path::new(GO_SOURCES).join("src/github.com/Masterminds/sprig").is_dir();
        let Some(go) = program_on_path("go").filter(|_| has_sources) else { return Ok(None) };
        let program = folder.join("render-chart");
        let mut build = Command::new(go);
        build.args(["build", "-o"]).arg(&program).arg(".").current_dir(deploy("check/helm"));
        succeed(build.envs([("GO111MODULE", "off"), ("GOPATH", GO_SOURCES)]))?;
        Ok(Some(Self::Own(program)))
    }

    fn render(&self, values: &[&str]) -> Command {
        let mut command;
        match self {
            Self::Helm(helm) => {
                command = Command::new(helm);
                command.args(["template", "wakeq"]).arg(deploy(CHART)).args(["--namespace", "wakeq"]);
                command.args(["--kube-version", KUBERNETES]);
                for file in values {
                    command.arg("--values").arg(deploy(file));
                }
            }
            Self::Own(program) => {
                command = Command::new(program);
                command.arg(deploy(CHART)).arg("wakeq").args(values.iter().map(|file| deploy(file)));
            }
        }
        command
    }
}

/// Checks the alert rules, and their unit tests on synthetic series.
fn prometheus(program: &Path) -> Result<()> {
    let folder = deploy("prometheus");
    succeed(Command::new(program).args(["check", "rules", "alerts.yaml"]).current_dir(&folder))?;
    succeed(Command::new(program).args(["test", "rules", "alerts.test.yaml"]).current_dir(&folder))
}

/// The checkers, in a virtual environment of their own.
struct Checkers {
    folder: PathBuf,
}

impl Checkers {
    fn install() -> Result<Self> {
        let folder = root().join("target/deploy");
        install_python(&folder, &deploy("check/requirements.txt"))?;
        Ok(Self { folder })
    }

    fn program(&self, name: &str) -> Command {
        Command::new(self.folder.join("bin").join(name))
    }

    /// A script of `deploy/check`.
    fn script(&self, name: &str) -> Command {
        let mut command = self.program("python");
        command.arg(deploy("check").join(name)).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Runs checkov with its built-in rules only, without downloading more.
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

/// Makes an empty folder, removing what was there.
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
        for (_, values, sets) in CHARTS {
            assert!(values.iter().all(|file| deploy(file).is_file()), "{values:?}");
            assert!(sets.iter().all(|set| MANIFESTS.contains(set)), "{sets:?}");
        }
    }

    #[test]
    fn a_missing_program_is_named_and_fails_where_it_is_required() {
        assert!(verdict(&[], true).unwrap().contains("passed"));
        assert!(
            verdict(&["helm", "promtool"], false).unwrap().starts_with("SKIPPED what needs helm, promtool")
        );
        assert!(verdict(&["promtool"], true).unwrap_err().to_string().ends_with(": promtool"));
    }
}
