//! The packages that the queue is built on: declared, and used outside tests.

use std::fs;
use std::path::{Path, PathBuf};

const PACKAGES: [&str; 7] = ["google-cloud-pubsub", "sqlx", "tokio", "serde", "chrono", "uuid", "tracing"];

fn code_under(folder: &Path) -> String {
    let mut code = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Folders of tests inside the library do not count as use.
            if path.file_name().is_some_and(|name| name != "tests") {
                code.push_str(&code_under(&path));
            }
        } else {
            let text = fs::read_to_string(&path).unwrap();
            code.push_str(text.split("#[cfg(test)]").next().unwrap());
        }
    }
    code
}

/// CARD-01.
#[test]
fn the_agreed_packages_are_declared_and_used() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap();
    let (dependencies, _) = dependencies.split_once("\n[").unwrap();
    let code = code_under(&root.join("src"));
    let declares = |package: &&str| dependencies.lines().any(|line| line.starts_with(package));
    let uses = |package: &&str| code.contains(&format!("{}::", package.replace('-', "_")));
    let idle: Vec<_> = PACKAGES.into_iter().filter(|package| !(declares(package) && uses(package))).collect();
    assert_eq!(idle, Vec::<&str>::new());
}
