//! The rule that no test waits for something without an end: it would hold up all others of its
//! binary. `wait_while!` has one.

use regex::Regex;

use super::source::Source;

/// Loops of tests that do nothing but yield until something has happened.
pub(super) fn complaints(source: &Source) -> Vec<String> {
    let waits = Regex::new(r"\bwhile [^{}]*\{\s*tokio::task::yield_now\(\)\.await;\s*\}").unwrap();
    let tests = if source.name.contains("tests/") { Some(0) } else { source.code.find("\nmod tests {") };
    let Some(tests) = tests else { return Vec::new() };
    let found = waits.find_iter(&source.code[tests..]);
    let line = |at: usize| source.line_at(tests + at);
    let complaint = |at| format!("{}:{}: write `wait_while!`, which ends", source.name, line(at));
    found.map(|wait| complaint(wait.start())).collect()
}

#[test]
fn a_wait_without_an_end_is_found() {
    let wait = "    while !is_there() {\n        tokio::task::yield_now().await;\n    }\n";
    let test = format!("async fn it_comes() {{\n{wait}}}\n");
    let found = complaints(&Source::new("tests/it/a.rs", &test));
    assert_eq!(found, ["tests/it/a.rs:2: write `wait_while!`, which ends"]);
    assert_eq!(complaints(&Source::new("src/a.rs", &test)), Vec::<String>::new());
    let within = format!("fn a() {{}}\n\n#[cfg(test)]\nmod tests {{\n{test}}}\n");
    let found = complaints(&Source::new("src/a.rs", &within));
    assert_eq!(found, ["src/a.rs:6: write `wait_while!`, which ends"]);
    let good = "async fn it_comes() {\n    wait_while!(!is_there(), \"it does not come\");\n}\n";
    assert_eq!(complaints(&Source::new("tests/it/a.rs", good)), Vec::<String>::new());
}
