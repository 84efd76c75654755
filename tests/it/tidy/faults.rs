//! Code that ends a process on purpose is only in builds for tests.

use super::source::Source;

/// The attribute that keeps such functions out of builds for users.
const TESTS_ONLY: &str = "#[cfg(all(debug_assertions, feature = \"testing\"))]";
/// What marks such a function.
const FAULTS: [&str; 3] = ["\"WAKEQ_FAULT\"", "process::abort(", "Signal::SIGSTOP"];

/// Complaints about functions with a fault that are compiled into every build, and the number of
/// those that are not.
pub(super) fn complaints(source: &Source) -> (Vec<String>, usize) {
    let lines: Vec<&str> = source.text.lines().collect();
    let is_faulty = |line: usize, count: usize| {
        let body =
            lines[line - 1..line - 1 + count].iter().filter(|line| !line.trim_start().starts_with("//"));
        body.clone().any(|line| FAULTS.iter().any(|fault| line.contains(fault)))
    };
    let faulty = source.functions().into_iter().filter(|function| is_faulty(function.line, function.lines));
    let (guarded, open): (Vec<_>, Vec<_>) = faulty.partition(|function| {
        let before = lines[..function.line - 1].iter().rev();
        before.take_while(|line| line.trim_start().starts_with('#')).any(|line| line.trim() == TESTS_ONLY)
    });
    let complain = |function: &super::source::Function| {
        format!(
            "{}:{}: `{}` may end a user's process: put {TESTS_ONLY} before it",
            source.name, function.line, function.name
        )
    };
    (open.iter().map(complain).collect(), guarded.len())
}

/// Features of a manifest that bring `testing` although a user may enable them without asking for
/// it, and profiles with debug assertions that are not for development.
pub(super) fn manifest_complaints(file: &str, manifest: &str) -> Vec<String> {
    let section = |name: &str| {
        let (_, section) = manifest.split_once(&format!("\n[{name}]\n"))?;
        let section = section.split("\n[").next()?;
        Some(section.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join(" "))
    };
    let brings_testing =
        |text: &str| text.split('"').any(|brought| brought == "testing" || brought.ends_with("/testing"));
    let features = section("features").unwrap_or_default();
    let mut complaints = Vec::new();
    for feature in features.split(']') {
        let Some((name, brings)) = feature.split_once('=') else { continue };
        if brings_testing(brings) {
            complaints.push(format!("{file}: the feature {} brings `testing`", name.trim()));
        }
    }
    if brings_testing(&section("dependencies").unwrap_or_default()) {
        complaints.push(format!("{file}: a dependency brings `testing`"));
    }
    if manifest.contains("debug-assertions") {
        complaints.push(format!("{file}: a profile sets debug-assertions: leave them to `dev`"));
    }
    complaints
}

#[test]
fn a_fault_in_every_build_is_found() {
    let read = "fn point() {\n    std::env::var(\"WAKEQ_FAULT\").ok();\n}\n";
    let source = Source::new("src/a.rs", &format!("//! It.\n{TESTS_ONLY}\n{read}"));
    assert_eq!(complaints(&source), (Vec::new(), 1));
    for guard in ["", "#[cfg(debug_assertions)]\n", "#[cfg(feature = \"testing\")]\n", "#[inline]\n"] {
        let source = Source::new("src/a.rs", &format!("//! It.\n{guard}{read}"));
        let (found, guarded) = complaints(&source);
        assert_eq!((found.len(), guarded), (1, 0), "{guard}");
    }
    assert_eq!(complaints(&Source::new("src/a.rs", "fn a() {\n    // WAKEQ_FAULT\n}\n")), (Vec::new(), 0));
}

#[test]
fn a_feature_that_brings_testing_is_found() {
    let manifest = |features: &str| format!("[package]\n\n[features]\n{features}\n[lib]\n");
    let good = manifest(
        "default = [\"cli\"]\n# of \"testing\"\ncli = [\n    \"dep:nix\",\n]\ntesting = [\"dep:nix\"]\n",
    );
    assert_eq!(manifest_complaints("Cargo.toml", &good), Vec::<String>::new());
    for bad in ["default = [\"testing\"]", "default = [\"cli\"]\ncli = [\n    \"wakeq/testing\",\n]"] {
        assert_eq!(manifest_complaints("Cargo.toml", &manifest(bad)).len(), 1, "{bad}");
    }
    let profile = good + "[profile.release]\ndebug-assertions = true\n";
    assert_eq!(manifest_complaints("Cargo.toml", &profile).len(), 1);
}
