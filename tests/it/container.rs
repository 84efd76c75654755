//! The Dockerfile, as far as it can be judged without building it: what it copies is there, what it builds is locked,
//! what comes out runs as nobody.

use std::fs;
use std::path::PathBuf;

/// An instruction with its arguments, continued lines joined.
#[derive(Clone, Debug)]
struct Instruction {
    name: String,
    arguments: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
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

/// The arguments of all instructions of this name; after the last `FROM` only, if `last_stage`.
fn all(name: &str, last_stage: bool) -> Vec<String> {
    let instructions = instructions();
    let last = instructions.iter().rposition(|instruction| instruction.name == "FROM").unwrap();
    let from = if last_stage { last } else { 0 };
    let of_name = instructions[from..].iter().filter(|instruction| instruction.name == name);
    of_name.map(|instruction| instruction.arguments.clone()).collect()
}

#[test]
fn what_the_dockerfile_copies_is_there_and_is_sent_to_the_build() {
    let sent = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let sent: Vec<_> = sent.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let copied: Vec<_> =
        all("COPY", false).into_iter().filter(|arguments| !arguments.contains("--from=")).collect();
    assert!(copied.len() > 4, "{copied:?}");
    for arguments in copied {
        let words: Vec<_> = arguments.split(' ').collect();
        for source in &words[..words.len() - 1] {
            assert!(root().join(source).exists(), "{source} is not there");
            assert!(sent.contains(source), "{source} is not sent to the build: name it in .dockerignore");
        }
    }
}

/// The first build compiles the dependencies only if the manifests of all members are there, and nothing else.
#[test]
fn the_dependency_layer_knows_every_member() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).unwrap();
    let first_build = instructions();
    let first_build = first_build.iter().position(|it| it.arguments.contains("cargo build")).unwrap();
    let before: Vec<_> = instructions()[..first_build].iter().map(|it| it.arguments.clone()).collect();
    let before = before.join("\n");
    for member in members.trim_end_matches(']').split(", ").map(|name| name.trim_matches('"')) {
        assert!(before.contains(&format!("{member}/Cargo.toml")), "{member}");
        for file in
            ["lib.rs", "main.rs"].iter().filter(|file| root().join(member).join("src").join(file).exists())
        {
            let made =
                before.contains(&format!("{member}/src/{file}")) || before.contains(&format!("{member}/src"));
            assert!(made, "{member}/src/{file} is not stood in for");
        }
    }
    assert!(!before.lines().any(|line| line.starts_with("src ") || line.starts_with(". ")), "{before}");
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
    assert_eq!(stages, ["${BUILDER} AS build", "${RUNTIME}"]);
}

#[test]
fn the_container_runs_as_nobody_and_needs_no_shell() {
    let user = all("USER", true);
    let (user, group) = user[0].split_once(':').unwrap();
    assert!(user.parse::<u32>().unwrap() > 0 && group.parse::<u32>().unwrap() > 0);
    for name in ["ENTRYPOINT", "CMD"] {
        let words: Vec<String> = serde_json::from_str(&all(name, true)[0]).unwrap();
        assert!(!words.is_empty());
    }
    let check = all("HEALTHCHECK", true);
    let (_, check) = check[0].split_once(" CMD ").unwrap();
    assert_eq!(serde_json::from_str::<Vec<String>>(check).unwrap(), ["/wakeq", "health"]);
    assert_eq!(all("STOPSIGNAL", true), ["SIGTERM"]);
    assert!(all("RUN", true).is_empty(), "the last stage has no shell");
}
