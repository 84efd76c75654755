//! Circles of files: files of a package that import from each other, even by way of others.
//!
//! A file in a circle can't be read, changed or tested without the others. Most circles end when
//! what two files need moves into a file below both. On purpose, `impl` blocks of one type may be
//! spread over child files, and no circle is seen in calls between them.

mod components;
mod files;
mod samples;

use std::collections::BTreeSet;

use super::arrows::PACKAGES;
use super::source::Source;
use components::{circles, way};

/// Circles that are left, each with its reason. The list may only get shorter.
const LEFT: &[(&[&str], &str)] = &[
    (&["src/wake.rs", "src/wake/backlog.rs"], "a pass makes its backlog, which goes on with the waker"),
    (
        &["src/worker/intake.rs", "src/worker/intake/surplus.rs"],
        "the surplus is a part of the intake's state, and its methods are the intake's",
    ),
];

pub(super) fn complaints(sources: &[Source]) -> Vec<String> {
    let left: Vec<_> = LEFT.iter().map(|(files, _)| *files).collect();
    beside(&left, sources)
}

/// Complaints about circles that are not among these, and about those of them that are gone.
fn beside(left: &[&[&str]], sources: &[Source]) -> Vec<String> {
    let left: Vec<BTreeSet<String>> =
        left.iter().map(|files| files.iter().map(|&file| file.to_owned()).collect()).collect();
    let (mut complaints, mut found) = (Vec::new(), Vec::new());
    for package in &PACKAGES {
        let arrows = files::arrows(package.folder, sources);
        for circle in circles(&arrows) {
            let known = nearest(&circle, &left);
            if let Some(file) = circle.difference(&known).next() {
                complaints.push(format!(
                    "{file}: files in a circle: {}; move what both need into a file below them",
                    way(&arrows, file)
                ));
            }
            found.push(circle);
        }
    }
    for circle in &left {
        let gone: Vec<_> = circle.difference(&nearest(circle, &found)).cloned().collect();
        if !gone.is_empty() {
            let gone = gone.join(", ");
            complaints.push(format!("{gone}: no longer in a circle: remove from tests/it/tidy/circles.rs"));
        }
    }
    complaints
}

/// The one of these circles that has most files of this one.
fn nearest(circle: &BTreeSet<String>, others: &[BTreeSet<String>]) -> BTreeSet<String> {
    let nearest = others.iter().max_by_key(|other| other.intersection(circle).count());
    nearest.cloned().unwrap_or_default()
}
