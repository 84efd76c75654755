//! The packages for npm and PyPI: packed from this binary, installed in an empty folder, and
//! started as people start them. Nothing here asks another host.

#![allow(clippy::print_stdout, reason = "what is skipped, and why")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use wakeq_testbed::{Guard, Launch, TestTime};

/// `1`: tests fail that would be skipped because a program is missing.
const REQUIRED_VARIABLE: &str = "REQUIRE_PACKAGES";
const GRACE: Duration = Duration::from_secs(20);

/// The platform of this binary, and the end of its npm package's name.
const PLATFORM: (&str, &str) = if cfg!(all(target_os = "macos", target_arch = "aarch64")) {
    ("aarch64-apple-darwin", "darwin-arm64")
} else if cfg!(target_os = "macos") {
    ("x86_64-apple-darwin", "darwin-x64")
} else if cfg!(target_arch = "aarch64") {
    ("aarch64-unknown-linux-musl", "linux-arm64")
} else {
    ("x86_64-unknown-linux-musl", "linux-x64")
};

/// Whether these commands succeed. Says so if one does not, or fails if all have to.
fn can_run(commands: &[&[&str]]) -> bool {
    let succeeds = |command: &&&[&str]| {
        let mut process = Command::new(command[0]);
        process.args(&command[1..]).stdout(Stdio::null()).stderr(Stdio::null());
        process.status().is_ok_and(|status| status.success())
    };
    let Some(missing) = commands.iter().find(|command| !succeeds(command)) else { return true };
    let is_required = std::env::var(REQUIRED_VARIABLE).is_ok_and(|value| value == "1");
    assert!(!is_required, "{REQUIRED_VARIABLE} is 1, and this fails: {}", missing.join(" "));
    println!("SKIPPED: packages: this fails: {}", missing.join(" "));
    false
}

/// The packer needs a Python that reads TOML.
const PACKER: &[&str] = &["python3", "-c", "import tomllib"];

/// An empty folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("packages-{name}-{}", std::process::id()));
    let _earlier = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}{errors}", output.status);
    said
}

/// Packs this binary. Returns the paths of the packages.
fn pack(folder: &Path) -> Vec<PathBuf> {
    let mut packer = Command::new("python3");
    packer.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("pack")).arg("--fast").arg(folder);
    packer.arg(format!("{}={}", PLATFORM.0, env!("CARGO_BIN_EXE_pubsub-emulator")));
    succeed(&mut packer).lines().map(PathBuf::from).collect()
}

/// Starts an emulator, which answers, and asks it to end, which it does.
async fn starts_and_ends(guard: &Guard, launch: Launch) {
    let (sender, said) = oneshot::channel();
    let sender = Mutex::new(Some(sender));
    let launch = launch.arguments(["--port", "0", "--project", "demo,orders"]).on_line(move |line| {
        let host = line.rsplit_once("PUBSUB_EMULATOR_HOST=").map(|(_, host)| host.to_owned());
        if let Some((host, sender)) = host.zip(sender.lock().unwrap().take()) {
            let _gone = sender.send(host);
        }
    });
    let child = guard.start(launch).unwrap();
    let host = tokio::time::timeout(GRACE, said).await.expect("it does not start").unwrap();
    let topics = reqwest::get(format!("http://{host}/v1/projects/demo/topics")).await.unwrap();
    assert!(topics.text().await.unwrap().contains("projects/demo/topics/orders"));
    child.stop(GRACE).await.unwrap();
    let status = child.ended().await;
    assert!(status.success(), "{status}: {}", child.last_lines());
    reqwest::get(format!("http://{host}/")).await.unwrap_err();
}

fn version() -> String {
    format!("pubsub-emulator {}\n", env!("CARGO_PKG_VERSION"))
}

#[tokio::test]
async fn the_npm_package_brings_the_binary() {
    let _time = TestTime::begin();
    if !can_run(&[PACKER, &["node", "--version"], &["npm", "--version"]]) {
        return;
    }
    let folder = folder("npm");
    let guard = Guard::new(Some(&folder)).unwrap();
    let packages: Vec<_> = pack(&folder)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "tgz"))
        .collect();
    let names = [String::new(), format!("-{}", PLATFORM.1)];
    let names = names.map(|end| format!("wakeq-emulator{end}-{}.tgz", env!("CARGO_PKG_VERSION")));
    assert_eq!(packages, names.map(|name| folder.join(name)));

    std::fs::write(folder.join("package.json"), r#"{"private": true}"#).unwrap();
    let mut install = Command::new("npm");
    install.args(["install", "--offline", "--no-audit", "--no-fund", "--cache"]).arg(folder.join("cache"));
    succeed(install.args(&packages).current_dir(&folder));
    for name in ["wakeq-emulator", "pubsub-emulator"] {
        let mut npx = Command::new("npx");
        npx.args(["--offline", name, "--version"]).current_dir(&folder);
        assert_eq!(succeed(&mut npx), version(), "{name}");
    }
    starts_and_ends(&guard, Launch::new(folder.join("node_modules/.bin/pubsub-emulator"))).await;
}

#[tokio::test]
async fn the_npm_package_says_which_one_is_missing() {
    let _time = TestTime::begin();
    if !can_run(&[&["node", "--version"]]) {
        return;
    }
    let launcher = Path::new(env!("CARGO_MANIFEST_DIR")).join("npm/pubsub-emulator.js");
    let output = Command::new("node").arg(launcher).arg("--version").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("the package wakeq-emulator-{} is not installed", PLATFORM.1)), "{said}");
}

/// A program in place of the binary, which interrupts the one that started it.
fn interrupting(folder: &Path, name: &str, then: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let script = format!("#!/bin/sh\ntrap 'exit 3' INT\nkill -INT $PPID\n{then}\nexit 5\n");
    std::fs::write(&path, script).unwrap();
    succeed(Command::new("chmod").arg("755").arg(&path));
    path
}

/// The launcher's handler comes before the one that makes the file.
const INTERRUPTED: &str = r#"
    Object.defineProperty(process, "platform", { value: process.env.PLATFORM });
    process.on("SIGINT", () => {});
    require(process.env.LAUNCHER);
    process.on("SIGINT", () => require("node:fs").writeFileSync(process.env.HANDLED, ""));
"#;

#[tokio::test]
async fn the_npm_package_passes_signals_on_but_on_windows() {
    let _time = TestTime::begin();
    if !can_run(&[&["node", "--version"]]) {
        return;
    }
    let launcher = Path::new(env!("CARGO_MANIFEST_DIR")).join("npm/pubsub-emulator.js");
    let (system, processor) = PLATFORM.1.split_once('-').unwrap();
    for (system, suffix, code) in [(system, "", 3), ("win32", ".exe", 5)] {
        let folder = folder(&format!("signals-{system}"));
        let binary = format!("wakeq-emulator-{system}-{processor}/bin/pubsub-emulator{suffix}");
        interrupting(&folder, &binary, "until [ -e \"$HANDLED\" ]; do sleep 0.01; done");
        let mut node = Command::new("node");
        node.args(["-e", INTERRUPTED]).env("PLATFORM", system).env("LAUNCHER", &launcher);
        node.env("NODE_PATH", &folder).env("HANDLED", folder.join("handled"));
        assert_eq!(node.status().unwrap().code(), Some(code), "{system}");
    }
}

/// What runs on Windows, here.
const AS_ON_WINDOWS: &str = r#"
import sys
from wakeq_emulator import __main__
__main__.find = lambda: sys.argv[1]
__main__.sys.platform = "win32"
__main__.main()
"#;

#[tokio::test]
async fn the_pypi_package_ends_with_the_binary_on_windows() {
    let _time = TestTime::begin();
    if !can_run(&[PACKER]) {
        return;
    }
    let folder = folder("interrupt");
    let binary = interrupting(&folder, "pubsub-emulator", "");
    let mut python = Command::new("python3");
    python.args(["-c", AS_ON_WINDOWS]).arg(&binary);
    python.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("pypi"));
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    assert_eq!(python.status().unwrap().code(), Some(5));
}

#[tokio::test]
async fn the_pypi_package_brings_the_binary() {
    let _time = TestTime::begin();
    if !can_run(&[PACKER, &["python3", "-m", "pip", "--version"]]) {
        return;
    }
    let folder = folder("pypi");
    let guard = Guard::new(Some(&folder)).unwrap();
    let packages = pack(&folder);
    let wheel = packages.iter().find(|path| path.extension().is_some_and(|ending| ending == "whl")).unwrap();
    let installed = folder.join("installed");
    let mut install = Command::new("python3");
    install.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-cache-dir", "--target"]);
    succeed(install.arg(&installed).arg(wheel));
    assert_eq!(succeed(Command::new(installed.join("bin/pubsub-emulator")).arg("--version")), version());
    let launch = Launch::new("python3").arguments(["-m", "wakeq_emulator"]);
    starts_and_ends(&guard, launch.environment("PYTHONPATH", installed)).await;
}
