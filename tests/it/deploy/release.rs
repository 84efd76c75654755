//! What the release workflow makes of the tree, as far as it runs here: the text of a release. It
//! publishes nothing.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::support::repository::root;

fn notes(version: &str, changelog: &str) -> Output {
    let mut script = Command::new(root().join(".ci/release-notes"));
    script.args([version, "https://x.example/ada/wakeq"]);
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut script = script.spawn().unwrap();
    script.stdin.take().unwrap().write_all(changelog.as_bytes()).unwrap();
    script.wait_with_output().unwrap()
}

/// Of its version alone: not of 0.1.1 before it, nor of 0.1.0-rc.1 after it.
#[test]
fn a_release_has_the_text_of_its_section_in_the_changelog() {
    let changelog = "# Changelog\n\n## [0.1.1] - 2027-02-03\n\n- Later.\n\n\
                     ## [0.1.0] - 2027-01-02\n\nOne\ntwo [three\nfour](docs/a.md#b).\n\n### Added\n\n- Five\n  \
                     **[six](https://y.example/)**.\n- Seven.\n\n## [0.1.0-rc.1] - 2027-01-01\n\n- Earlier.\n";
    let told = notes("0.1.0", changelog);
    assert!(told.status.success(), "{told:?}");
    assert_eq!(
        String::from_utf8(told.stdout).unwrap(),
        "One two [three four](https://x.example/ada/wakeq/blob/v0.1.0/docs/a.md#b).\n\n### Added\n\n\
         - Five **[six](https://y.example/)**.\n- Seven.\n"
    );
}

#[test]
fn a_version_without_a_dated_section_is_not_released() {
    for changelog in
        ["## [0.1.0]\n\n- New.\n", "## [0.1.0] - 2027-01-02\n\n## [0.0.9] - 2026-01-02\n\n- Old.\n"]
    {
        let refused = notes("0.1.0", changelog);
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
        assert!(String::from_utf8(refused.stderr).unwrap().contains("no section \"## [0.1.0] - DATE\""));
    }
}
