//! `cargo xtask book`: the documents as a site, in `target/book`. mdBook builds what is in one
//! folder, so they are copied to `target/documents` with their pictures, and links that leave the
//! site lead to the repository's pages. Links of the built site are checked.
//!
//! It must never change a document.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{links, read_toml, root, site, succeed};

const SUMMARY: &str = "docs/SUMMARY.md";
/// A document of the summary that lists documents of its own.
const DECISIONS: &str = "docs/adr/README.md";
/// As `book.toml` says.
const COPIES: &str = "target/documents";
const SITE: &str = "target/book";
/// How the names of pictures end.
const PICTURES: [&str; 2] = [".png", ".svg"];

pub(crate) fn run() -> Result<()> {
    let manifest = read_toml("Cargo.toml")?;
    let repository =
        manifest["workspace"]["package"]["repository"].as_str().context("Cargo.toml has no `repository`")?;
    let summary = summary(&read(SUMMARY)?, &read(DECISIONS)?);
    let documents: BTreeSet<_> = links::targets(&summary).into_iter().collect();
    let copies = root().join(COPIES);
    if copies.exists() {
        fs::remove_dir_all(&copies)?;
    }
    let write = |name: &str, contents: &[u8]| -> Result<()> {
        let path = copies.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&copies))?;
        Ok(fs::write(path, contents)?)
    };
    write("SUMMARY.md", summary.as_bytes())?;
    let mut pictures = BTreeSet::new();
    for name in &documents {
        let text = read(name)?;
        pictures.extend(pictures_of(name, &text));
        write(name, links::map(&text, |target| moved(name, target, &documents, repository)).as_bytes())?;
    }
    for name in &pictures {
        write(name, &fs::read(root().join(name)).with_context(|| format!("{name} can't be read"))?)?;
    }
    let mut mdbook = Command::new("mdbook");
    mdbook.arg("build").current_dir(root()).env("MDBOOK_OUTPUT__HTML__GIT_REPOSITORY_URL", repository);
    succeed(&mut mdbook).context("mdBook is needed: `cargo install --locked mdbook`")?;
    site::check(&root().join(SITE))
}

/// The summary with paths from the root, and with each decision below their list, one level deeper.
fn summary(text: &str, decisions: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = links::map(line, |target| links::resolve(SUMMARY, target));
        let has_decisions = links::targets(&line).iter().any(|target| target == DECISIONS);
        let indent = line.len() - line.trim_start().len() + 2;
        lines.push(line);
        if has_decisions {
            let listed = decisions.lines().filter(|line| line.starts_with("- ["));
            let from_root = |line| links::map(line, |target| links::resolve(DECISIONS, target));
            lines.extend(listed.map(|line| format!("{:indent$}{}", "", from_root(line))));
        }
    }
    lines.join("\n") + "\n"
}

/// Where a link of a document leads from its copy.
fn moved(document: &str, target: &str, documents: &BTreeSet<String>, repository: &str) -> String {
    if target.starts_with('#') || target.contains(':') {
        return target.to_owned();
    }
    let file = links::resolve(document, target.split('#').next().unwrap_or_default());
    let stays = documents.contains(&file) || is_picture(&file);
    if stays { target.to_owned() } else { format!("{repository}/blob/main/{file}") }
}

/// The pictures in the repository that a document links to.
fn pictures_of(document: &str, text: &str) -> Vec<String> {
    let targets = links::targets(text).into_iter().filter(|target| !target.contains(':'));
    targets.map(|target| links::resolve(document, &target)).filter(|file| is_picture(file)).collect()
}

fn is_picture(file: &str) -> bool {
    PICTURES.iter().any(|ending| file.ends_with(ending))
}

fn read(name: &str) -> Result<String> {
    fs::read_to_string(root().join(name)).with_context(|| format!("{name} can't be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_follow_their_list() {
        let found = summary(
            "# Inside\n\n- [Guide](guide.md)\n  - [Decisions](adr/README.md)\n- [Read me](../README.md)",
            "All:\n\n- [1](1.md)\n",
        );
        let lines = [
            "# Inside",
            "",
            "- [Guide](docs/guide.md)",
            "  - [Decisions](docs/adr/README.md)",
            "    - [1](docs/adr/1.md)",
            "- [Read me](README.md)",
        ];
        assert_eq!(found.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn only_links_that_leave_the_site_move() {
        let documents = BTreeSet::from(["docs/cli.md".to_owned()]);
        let moved = |target| moved("docs/sql.md", target, &documents, "https://x.example/y");
        for stays in ["cli.md#output", "#rights", "https://z.example/cli.md", "pictures/a.png"] {
            assert_eq!(moved(stays), stays);
        }
        assert_eq!(moved("../src/lib.rs"), "https://x.example/y/blob/main/src/lib.rs");
        let text = "![A](pictures/a.png) [b](../b.svg) [c](c.md) ![d](https://x.example/d.png)";
        assert_eq!(pictures_of("docs/page.md", text), ["docs/pictures/a.png", "b.svg"]);
    }
}
