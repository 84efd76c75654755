//! The rule that dependabot watches every file that pins versions.

/// Files that pin versions but are in no directory that `.github/dependabot.yml` lists for their
/// ecosystem.
pub(super) fn unwatched(dependabot: &str, files: &[String]) -> Vec<String> {
    let watched = |ecosystem: &str, folder: &str| {
        let updates = dependabot.split("- package-ecosystem: ").skip(1);
        let of_ecosystem = updates.filter(|update| update.lines().next() == Some(ecosystem));
        let listed = of_ecosystem.flat_map(|update| update.lines()).filter_map(|line| {
            line.trim().strip_prefix("directories: [").and_then(|rest| rest.strip_suffix(']'))
        });
        listed.flat_map(|folders| folders.split(", ")).any(|listed| listed == folder)
    };
    let complaint = |file: &String| {
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
        let folder = format!("/{folder}");
        let ecosystem = ecosystem(name)?;
        (!watched(ecosystem, &folder))
            .then(|| format!("{file}: add {folder} to {ecosystem} in .github/dependabot.yml"))
    };
    files.iter().filter_map(complaint).collect()
}

/// What dependabot calls the files of this name, if they pin versions.
pub(super) fn ecosystem(name: &str) -> Option<&'static str> {
    match name {
        "Cargo.lock" => Some("cargo"),
        "package-lock.json" => Some("npm"),
        name if name.starts_with("requirements") && name.ends_with(".txt") => Some("pip"),
        _ => None,
    }
}

#[test]
fn a_file_that_is_not_watched_is_found() {
    let dependabot = "  - package-ecosystem: cargo\n    directories: [/, /a]\n\n  \
                      - package-ecosystem: npm\n    directories: [/b]\n";
    let files =
        ["Cargo.lock", "a/Cargo.lock", "b/Cargo.lock", "b/package-lock.json", "b/requirements-dev.txt"];
    let files = files.map(str::to_owned);
    assert_eq!(
        unwatched(dependabot, &files),
        [
            "b/Cargo.lock: add /b to cargo in .github/dependabot.yml",
            "b/requirements-dev.txt: add /b to pip in .github/dependabot.yml",
        ]
    );
}
