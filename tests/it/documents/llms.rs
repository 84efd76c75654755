//! `llms.txt`, which tells programs what each document is about: it is what the list of the
//! documents and their first sentences say.

use std::fs;
use std::path::{Component, Path};

use regex::Regex;

use crate::support::repository::root;

const LIST: &str = "llms.txt";
const SUMMARY: &str = "docs/SUMMARY.md";
/// What the list says of itself.
const INTRODUCTION: &str = "\
These are its documents. A running server describes its HTTP API at `/openapi.json`, and
[`wakeq mcp`](docs/mcp.md) gives agents tools that use it.";

/// The list of these documents, with links from the root. The first of the summary, which is in no
/// part of it, is what all is about.
fn list(summary: &str, read: impl Fn(&str) -> String) -> String {
    let link = Regex::new(r"^\s*(- )?\[([^\]]*)\]\(([^)]*)\)$").unwrap();
    let mut list = String::new();
    for line in summary.lines() {
        if let Some(part) = line.strip_prefix("# ").filter(|part| *part != "Summary") {
            list += &format!("\n## {part}\n\n");
        }
        let Some(found) = link.captures(line) else { continue };
        let (name, path) = (&found[2], from_root(&found[3]));
        let sentence = first_sentence(&read(&path));
        list += &match (found.get(1), sentence) {
            (None, sentence) => format!("# {name}\n\n> {}\n\n{INTRODUCTION}\n", sentence.unwrap_or_default()),
            (Some(_), Some(sentence)) => format!("- [{name}]({path}): {sentence}\n"),
            (Some(_), None) => format!("- [{name}]({path})\n"),
        };
    }
    list
}

/// The path of a link in the summary.
fn from_root(link: &str) -> String {
    let mut path = Vec::new();
    for part in Path::new("docs").join(link).components() {
        if part == Component::ParentDir {
            path.pop();
        } else {
            path.push(part.as_os_str().to_str().unwrap().to_owned());
        }
    }
    path.join("/")
}

/// The first sentence of the first paragraph that is prose, without links and emphasis.
fn first_sentence(document: &str) -> Option<String> {
    let mut in_code = false;
    let outside = document.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    let text = outside.collect::<Vec<_>>().join("\n");
    let other = Regex::new(r"^([#|]|(-|\*|>|[0-9]+\.) )").unwrap();
    let prose = text.split("\n\n").map(str::trim).find(|part| !part.is_empty() && !other.is_match(part))?;
    let words = prose.split_whitespace().collect::<Vec<_>>().join(" ");
    let links = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let plain = links.replace_all(&words, "$1").replace("**", "");
    Some(plain.split_once(". ").map_or_else(|| plain.clone(), |(first, _)| format!("{first}.")))
}

fn of_the_repository() -> String {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    list(&read(SUMMARY), read)
}

#[test]
fn the_list_for_programs_says_what_the_documents_say() {
    let written = fs::read_to_string(root().join(LIST)).unwrap();
    let words = "the documents have changed: write llms.txt anew with `cargo test --package wakeq-service --test it -- \
                 --ignored the_list_for_programs_is_written`";
    assert_eq!(written, of_the_repository(), "{words}");
}

#[test]
#[ignore = "writes llms.txt: the test above says when"]
fn the_list_for_programs_is_written() {
    fs::write(root().join(LIST), of_the_repository()).unwrap();
}

#[test]
fn a_list_has_the_parts_of_the_summary() {
    let summary = "# Summary\n\n[it](../README.md)\n\n# Learn\n\n- [Guide](guide.md)\n  - [More](a/b.md)\n";
    let read = |path: &str| match path {
        "README.md" => "# It\n\nIt **queues**. Well.\n".to_owned(),
        "docs/guide.md" => "# Guide\n\n| a |\n|---|\n\n- b\n\n1. c\n".to_owned(),
        "docs/a/b.md" => {
            "# B\n\n```sh\ntrue. No.\n```\n\nSee\n[the `guide`](../guide.md#a) of 1.2, and (a\n[b](c)). D."
                .to_owned()
        }
        other => panic!("{other} is no document"),
    };
    let expected = format!(
        "# it\n\n> It queues.\n\n{INTRODUCTION}\n\n## Learn\n\n- [Guide](docs/guide.md)\n\
         - [More](docs/a/b.md): See the `guide` of 1.2, and (a b).\n"
    );
    assert_eq!(list(summary, read), expected);
}
