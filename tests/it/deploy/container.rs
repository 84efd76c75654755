//! The Dockerfile, as far as it can be checked without building it: Cargo accepts the files that
//! are sent, the build is locked, the result runs as an unprivileged user. And `deploy/` runs the
//! image as intended.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::repository::root;

/// An instruction with its arguments, continued lines joined.
#[derive(Clone, Debug)]
struct Instruction {
    name: String,
    arguments: String,
}

fn instructions() -> Vec<Instruction> {
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let instructions = joined.lines().filter(|line| !line.trim().is_empty()).map(|line| {
        let (name, arguments) = line.split_once(' ').unwrap();
        let arguments = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
        Instruction { name: name.to_owned(), arguments }
    });
    instructions.collect()
}

/// The arguments of all instructions with this name; only after the last `FROM`, if `last_stage`.
fn all(name: &str, last_stage: bool) -> Vec<String> {
    let instructions = instructions();
    let last = instructions.iter().rposition(|instruction| instruction.name == "FROM").unwrap();
    let from = if last_stage { last } else { 0 };
    let of_name = instructions[from..].iter().filter(|instruction| instruction.name == name);
    of_name.map(|instruction| instruction.arguments.clone()).collect()
}

/// Folders and files at the root of the repository that are sent to the build, which copies all of
/// them.
fn sent() -> Vec<String> {
    let lines = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let lines: Vec<_> = lines.lines().filter(|line| !line.starts_with('#')).collect();
    let (first, last) = (lines.first(), lines.last());
    assert_eq!((first, last), (Some(&"*"), Some(&"**/target")));
    assert!(all("COPY", false).contains(&". .".to_owned()));
    lines[1..lines.len() - 1].iter().map(|line| line.strip_prefix('!').unwrap().to_owned()).collect()
}

/// What Cargo says of each package of a workspace.
fn packages(folder: &Path) -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--offline", "--no-deps", "--format-version=1"]).current_dir(folder);
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let workspace: Value = serde_json::from_slice(&output.stdout).unwrap();
    workspace["packages"].as_array().unwrap().clone()
}

/// The main files of everything that Cargo can build in a workspace.
fn targets(folder: &Path) -> BTreeSet<String> {
    let packages = packages(folder);
    let targets = packages.iter().flat_map(|package| package["targets"].as_array().unwrap());
    let file = |target: &Value| {
        let file = Path::new(target["src_path"].as_str().unwrap());
        file.strip_prefix(folder).unwrap().display().to_string()
    };
    targets.map(file).collect()
}

/// Cargo builds nothing if a member is missing, or a test, benchmark or example that a manifest
/// names.
#[test]
fn the_whole_workspace_is_sent_to_the_build() {
    let folder = std::env::temp_dir().canonicalize().unwrap();
    let folder = folder.join(format!("wakeq-sent-{}", uuid::Uuid::new_v4()));
    fs::create_dir(&folder).unwrap();
    for name in sent() {
        let link = folder.join(&name);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(root().join(&name), link).unwrap();
    }
    let sent = targets(&folder);
    fs::remove_dir_all(&folder).unwrap();
    assert!(sent.len() > 10, "{sent:?}");
    assert_eq!(sent, targets(&root()), "see .dockerignore");
}

/// The folders of a package, and of the members of the workspace that it is built with.
fn folders_of(package: &str) -> BTreeSet<String> {
    let packages = packages(&root());
    let (mut folders, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut waiting = vec![package.to_owned()];
    while let Some(name) = waiting.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let package = packages.iter().find(|package| package["name"] == *name);
        let package = package.unwrap_or_else(|| panic!("{name} is not a member of the workspace"));
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap();
        folders.insert(folder.display().to_string());
        let needed = package["dependencies"].as_array().unwrap().iter();
        let needed = needed.filter(|needed| needed["path"].is_string() && needed["kind"] != "dev");
        waiting.extend(needed.map(|needed| needed["name"].as_str().unwrap().to_owned()));
    }
    folders
}

/// Of a file that is older than the cache, Cargo would keep what it compiled from another version.
#[test]
fn all_that_an_image_is_built_from_is_newer_than_the_cache() {
    let runs = all("RUN", false);
    let builds: Vec<_> = runs.iter().filter_map(|run| run.split_once(" && cargo build ")).collect();
    assert_eq!(builds.len(), 2);
    for (before, build) in builds {
        let (_, touched) = before.split_once(" find ").unwrap();
        let touched: BTreeSet<&str> = touched.strip_suffix(" -exec touch {} +").unwrap().split(' ').collect();
        let (_, package) = build.split_once("--package ").unwrap();
        let folders = folders_of(package.split(' ').next().unwrap());
        assert!(folders.len() > 1, "{folders:?}");
        // The folder of the package `wakeq` is the repository.
        let files = |folder| match folder {
            "" => vec![".sqlx", "migrations", "src"],
            folder => vec![folder],
        };
        let needed = folders.iter().flat_map(|folder| files(folder.as_str()));
        let is_touched =
            |path: &str| Path::new(path).ancestors().any(|path| touched.contains(path.to_str().unwrap()));
        let forgotten: Vec<_> = needed.filter(|path| !is_touched(path)).collect();
        assert_eq!(forgotten, Vec::<&str>::new(), "add them to `find` in the Dockerfile");
    }
}

#[test]
fn builds_are_locked_and_made_by_the_toolchain_of_the_repository() {
    let builds: Vec<_> = all("RUN", false).into_iter().filter(|run| run.contains("cargo ")).collect();
    assert_eq!(builds.len(), 2);
    for build in &builds {
        assert!(build.contains("--locked") && build.contains("--profile image"), "{build}");
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("[profile.image]"));
    let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let channel =
        toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    let base = all("ARG", false).into_iter().find(|argument| argument.starts_with("BUILDER=")).unwrap();
    assert!(base.contains(&format!("rust:{channel}-")), "{base}");
    assert_eq!(all("ENV", false)[0], format!("RUSTUP_TOOLCHAIN={channel}"));
    let stages = all("FROM", false);
    let (builders, images) = stages.split_at(3);
    assert_eq!(builders, ["${BUILDER} AS source", "source AS build-emulator", "source AS build"]);
    assert_eq!(images, ["${RUNTIME} AS wakeq-emulator", "${RUNTIME} AS wakeq"]);
}

// Shows: CARD-08
#[test]
fn the_container_runs_as_nobody_and_needs_no_shell() {
    let user = all("USER", true);
    let (user, group) = user[0].split_once(':').unwrap();
    assert!(user.parse::<u32>().unwrap() > 0 && group.parse::<u32>().unwrap() > 0);
    let users = all("USER", false);
    assert!(users.len() == 2 && users[0] == users[1], "the emulator's image has {users:?}");
    for command in all("ENTRYPOINT", false).into_iter().chain(all("CMD", true)) {
        let words: Vec<String> = serde_json::from_str(&command).unwrap();
        assert!(!words.is_empty());
    }
    let checks: Vec<Vec<String>> = all("HEALTHCHECK", false)
        .iter()
        .map(|check| serde_json::from_str(check.split_once(" CMD ").unwrap().1).unwrap())
        .collect();
    assert_eq!(checks, [["/pubsub-emulator", "health"], ["/wakeq", "health"]]);
    assert_eq!(all("STOPSIGNAL", true), ["SIGTERM"]);
    assert!(all("RUN", true).is_empty(), "the last stage has no shell");
}

/// Kubernetes and Cloud Run run this image as its own user, on a read-only root where that can be
/// set, probe its health on its port, and give it enough time to shut down.
// Shows: CARD-08
#[test]
fn the_manifests_match_the_user_port_and_grace_of_the_image() {
    let user = all("USER", true)[0].clone();
    let (user, group) = user.split_once(':').unwrap();
    let (as_user, as_group) = (format!("runAsUser: {user}"), format!("runAsGroup: {group}"));
    for (manifest, command) in
        [("base/api", "serve"), ("base/worker", "work"), ("migrate/migrate", "migrate")]
    {
        let manifest = format!("kubernetes/{manifest}.yaml");
        says(&manifest, &["runAsNonRoot: true", &as_user, &as_group, "readOnlyRootFilesystem: true"]);
        says(&manifest, &[&format!("args: [{command}]"), "allowPrivilegeEscalation: false", "drop: [ALL]"]);
    }
    let environment = all("ENV", true);
    let port = environment.iter().find_map(|variable| variable.strip_prefix("PORT=")).unwrap();
    says("kubernetes/base/api.yaml", &[&format!("containerPort: {port}"), "path: /livez", "path: /readyz"]);
    let service = ["args = [\"serve\"]", "path = \"/livez\"", "path = \"/readyz\""];
    says("terraform/modules/service/main.tf", &service);
    says("terraform/modules/service/main.tf", &[&format!("container_port = {port}")]);
    let pool = "resource \"google_cloud_run_v2_worker_pool\" \"this\" {";
    says("terraform/modules/workers/main.tf", &[pool, "args = [\"work\"]"]);

    let worker = deployed("kubernetes/base/worker.yaml");
    let seconds = |before: &str| {
        let (_, value) = worker.split_once(before).unwrap_or_else(|| panic!("no {before}"));
        value.lines().next().unwrap().trim_end_matches('s').parse::<u64>().unwrap()
    };
    // Releasing the claims of handlers that did not end within the grace takes two seconds.
    let grace = seconds("name: WAKEQ_SHUTDOWN_GRACE\nvalue: ");
    assert!(grace > 0 && seconds("terminationGracePeriodSeconds: ") >= grace + 2);
    let cloud_run = deployed("terraform/modules/workers/main.tf");
    assert!(!cloud_run.contains("WAKEQ_SHUTDOWN_GRACE ="), "there the process knows its grace itself");
}

/// A file of `deploy/`, with the whitespace that aligns and indents its lines removed.
fn deployed(file: &str) -> String {
    let text = fs::read_to_string(root().join("deploy").join(file)).unwrap();
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.map(|line| line.trim_start_matches("- ").to_owned() + "\n").collect()
}

fn says(file: &str, lines: &[&str]) {
    let text = deployed(file);
    let missing: Vec<_> = lines.iter().filter(|line| !text.lines().any(|said| said == **line)).collect();
    assert!(missing.is_empty(), "deploy/{file} does not say {missing:?}");
}
