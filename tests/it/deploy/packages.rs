//! The packages that the queue and its tests are built on: declared, and used, each where it
//! belongs. And the module for testcontainers, which must not be built on the emulator.

use std::fs;
use std::path::Path;

use crate::support::repository::root;

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
            code.push_str(fs::read_to_string(&path).unwrap().split("#[cfg(test)]").next().unwrap());
        }
    }
    code
}

/// A table of a manifest, as text.
fn table(manifest: &str, header: &str) -> String {
    let text = fs::read_to_string(root().join(manifest)).unwrap();
    let (_, rest) =
        text.split_once(&format!("\n[{header}]\n")).unwrap_or_else(|| panic!("{manifest}: no [{header}]"));
    rest.split_once("\n[").map_or(rest, |(table, _)| table).to_owned()
}

fn declares(table: &str, package: &str) -> bool {
    table.lines().any(|line| line.starts_with(package))
}

fn uses(code: &str, package: &str) -> bool {
    code.contains(&format!("{}::", package.replace('-', "_")))
}

// Shows: CARD-01
#[test]
fn the_agreed_packages_are_declared_and_used() {
    let (dependencies, code) = (table("Cargo.toml", "dependencies"), code_under(&root().join("src")));
    let serves = |package: &&str| declares(&dependencies, package) && uses(&code, package);
    let idle: Vec<_> = PACKAGES.into_iter().filter(|package| !serves(package)).collect();
    assert_eq!(idle, Vec::<&str>::new());
}

/// Wiremock is a dev-dependency, and so are the services that testcontainers starts on request.
// Shows: CARD-02
#[test]
fn wiremock_and_testcontainers_are_for_tests() {
    for (manifest, tests) in
        [("service/Cargo.toml", "tests/it"), ("emulator/Cargo.toml", "emulator/tests/it")]
    {
        let (always, in_tests) = (table(manifest, "dependencies"), table(manifest, "dev-dependencies"));
        for package in ["wiremock", "wakeq-testbed"] {
            assert!(declares(&in_tests, package) && !declares(&always, package), "{manifest}: {package}");
            assert!(uses(&code_under(&root().join(tests)), package), "{tests}: {package}");
        }
    }
    assert!(declares(&table("tools/testbed/Cargo.toml", "dependencies.testcontainers"), "optional = true"));
    assert!(declares(&table("tools/testbed/Cargo.toml", "features"), "containers = [\"dep:testcontainers\""));
    assert!(uses(&code_under(&root().join("tools/testbed/src")), "testcontainers"));
    for folder in ["src", "streams/src", "service/src", "emulator/src"] {
        let code = code_under(&root().join(folder));
        assert!(!uses(&code, "wiremock") && !uses(&code, "testcontainers"));
    }
}

/// Its users have the emulator as an image, and compile neither it nor anything else of ours.
#[test]
fn the_testcontainers_module_depends_on_testcontainers_alone() {
    let dependencies = table("emulator/testcontainers/Cargo.toml", "dependencies");
    let is_dependency = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let names: Vec<_> =
        dependencies.lines().filter(is_dependency).filter_map(|line| line.split([' ', '.']).next()).collect();
    assert_eq!(names, ["testcontainers"]);
}

/// The module's default name and tag are what the release pushes.
#[test]
fn the_release_publishes_the_image_of_the_testcontainers_module() {
    let module = fs::read_to_string(root().join("emulator/testcontainers/src/lib.rs")).unwrap();
    assert!(module.contains(r#"format!("ghcr.io/{}/wakeq-emulator", "#));
    assert!(module.contains(r#"concat!("v", env!("CARGO_PKG_VERSION"))"#));
    let release = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    assert_eq!(release.matches("        image: [wakeq, wakeq-emulator]\n").count(), 2);
    assert!(release.contains("IMAGE: ghcr.io/${{ github.repository_owner }}/${{ matrix.image }}"));
    assert!(release.contains(r#"--tag "$IMAGE:$GITHUB_REF_NAME""#));
    let images = fs::read_to_string(root().join("Dockerfile")).unwrap();
    assert!(images.contains("FROM ${RUNTIME} AS wakeq-emulator\n"));
}
