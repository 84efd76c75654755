//! Rules for documents: links lead somewhere, indexes list what they should, pages are short, tests
//! that are named exist.
//!
//! Nothing here looks at the wording: that is for people to judge.

use std::collections::BTreeSet;

use super::prose;

/// Relative links of a document that lead nowhere. `exists` says whether there is a file at a
/// target, and `text_of` returns its text.
pub(super) fn link_complaints(
    name: &str,
    text: &str,
    exists: impl Fn(&str) -> bool,
    text_of: impl Fn(&str) -> String,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, link) in links(text).filter(|(_, link)| !link.contains(':')) {
        let (target, part) = link.split_once('#').unwrap_or((link, ""));
        if !target.is_empty() && !exists(target) {
            complaints.push(format!("{name}:{number}: nothing is at `{link}`"));
        } else if !part.is_empty() {
            let linked = if target.is_empty() { text.to_owned() } else { text_of(target) };
            if !parts(&linked).contains(part) {
                complaints.push(format!("{name}:{number}: no heading makes `#{part}` in `{link}`"));
            }
        }
    }
    complaints
}

/// The targets of a document's links, with their lines.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose::of_document(text).into_iter().flat_map(|(number, line)| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.map(move |target| (number, target))
    })
}

/// What a link can name after `#`, made of the headings as code forges and mdBook make it.
fn parts(text: &str) -> BTreeSet<String> {
    let mut parts = BTreeSet::new();
    for (_, line) in prose::of_document(text) {
        let Some((_, heading)) =
            line.split_once("# ").filter(|(marks, _)| marks.trim_matches('#').is_empty())
        else {
            continue;
        };
        let kept = |letter: &char| letter.is_alphanumeric() || ['-', '_', ' '].contains(letter);
        let part = heading.chars().filter(kept).collect::<String>().to_lowercase().replace(' ', "-");
        let again = (1..).map(|number| format!("{part}-{number}"));
        let free = std::iter::once(part.clone()).chain(again).find(|part| !parts.contains(part));
        parts.extend(free);
    }
    parts
}

/// Documents that an index does not link to. Both are paths from the root.
pub(super) fn unlisted(index: &str, text: &str, documents: &[String]) -> Vec<String> {
    let folder = index.rsplit_once('/').map_or("", |(folder, _)| folder);
    let listed: BTreeSet<_> = links(text).map(|(_, link)| format!("{folder}/{link}")).collect();
    let missing = documents.iter().filter(|path| *path != index && !listed.contains(*path));
    missing.map(|path| format!("{path}: link to it in {index}")).collect()
}

#[test]
fn a_dead_link_is_found() {
    let text = "# A `part`\n[a](here.md) [b](gone.md#part) [c](https://example.com) [d](#a-part) [e](#part)\n\
                ```\n[f](code.md)\n# Code\n```\n![g](gone.png) [h](here.md#b-c) [i](here.md#b--d-1) [j](#code)";
    let there = "## B: c\n### B & d\n### B & d";
    let complaints = link_complaints("a.md", text, |target| target == "here.md", |_| there.to_owned());
    assert_eq!(
        complaints,
        [
            "a.md:2: nothing is at `gone.md#part`",
            "a.md:2: no heading makes `#part` in `#part`",
            "a.md:7: nothing is at `gone.png`",
            "a.md:7: no heading makes `#code` in `#code`",
        ]
    );
}

#[test]
fn an_unlisted_document_is_found() {
    let documents = ["docs/adr/0001-a.md", "docs/adr/0002-b.md", "docs/adr/README.md"].map(str::to_owned);
    assert_eq!(
        unlisted("docs/adr/README.md", "- [a](0001-a.md)", &documents),
        ["docs/adr/0002-b.md: link to it in docs/adr/README.md"]
    );
}

/// Most words of a page, which is read from its beginning to its end.
const PAGE_WORDS_MAX: usize = 1_200;
/// Most words of a page for looking things up.
const REFERENCE_WORDS_MAX: usize = 2_000;

/// The pages for looking things up.
pub(super) const REFERENCES: [&str; 11] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/cli.md",
    "docs/delivery.md",
    "docs/http.md",
    "docs/operations.md",
    "docs/running.md",
    "docs/settings.md",
    "docs/sql.md",
    "docs/telemetry.md",
    "docs/troubleshooting.md",
];

/// A page that has too many words outside fenced code.
pub(super) fn length_complaint(name: &str, text: &str) -> Option<String> {
    let words: usize = prose::of_document(text).iter().map(|(_, line)| line.split_whitespace().count()).sum();
    let most = if REFERENCES.contains(&name) { REFERENCE_WORDS_MAX } else { PAGE_WORDS_MAX };
    (words > most).then(|| format!("{name}: {words} words, at most {most}: say things once, or split it"))
}

#[test]
fn a_page_that_is_too_long_is_found() {
    let page = |words: usize| format!("{}\n```sh\ntrue\n```\n", "word ".repeat(words));
    for (name, most) in [("docs/a.md", PAGE_WORDS_MAX), ("docs/http.md", REFERENCE_WORDS_MAX)] {
        assert_eq!(length_complaint(name, &page(most)), None);
        let complaint = length_complaint(name, &page(most + 1)).unwrap();
        assert!(complaint.starts_with(&format!("{name}: {} words, at most {most}", most + 1)), "{complaint}");
    }
}

/// Most colons and semicolons in a hundred words: with more, a page is a list of fragments.
const COLONS_MAX: usize = 3;

/// A page whose prose has too many colons and semicolons. Code, tables and links do not count.
pub(super) fn colons_complaint(name: &str, text: &str) -> Option<String> {
    let lines = prose::of_document(text).into_iter().map(|(_, line)| line);
    let prose = lines.filter(|line| !line.starts_with('|')).collect::<Vec<_>>().join("\n");
    let without_code: String = prose.split('`').step_by(2).collect();
    let words: Vec<_> = without_code.split_whitespace().collect();
    let colons = words.iter().filter(|word| word.ends_with([':', ';'])).count();
    let (most, words) = (words.len() * COLONS_MAX / 100, words.len());
    (colons > most).then(|| {
        format!("{name}: {colons} colons and semicolons in {words} words, at most {most}: write sentences")
    })
}

#[test]
fn a_page_with_too_many_colons_is_found() {
    let page = |colons: usize| {
        let prose = "word: word; ".repeat(colons / 2) + &"word ".repeat(100 - colons);
        format!("{prose}\n`a: b` [c](https://d.example)\n| e: f; |\n```sh\nhere: there;\n```\n")
    };
    assert_eq!(colons_complaint("a.md", &page(2)), None);
    let complaint = "a.md: 4 colons and semicolons in 101 words, at most 3: write sentences";
    assert_eq!(colons_complaint("a.md", &page(4)).as_deref(), Some(complaint));
}

/// Most words in the table of those that users have to learn.
const WORDS_MAX: usize = 25;

/// A table of words that has too many, or one twice. A row may explain several, between commas.
pub(super) fn word_complaints(name: &str, text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    let words: Vec<_> = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(',')).collect();
    let mut complaints = Vec::new();
    if words.is_empty() || words.len() > WORDS_MAX {
        complaints.push(format!("{name}: {} words, at most {WORDS_MAX}", words.len()));
    }
    let mut known = BTreeSet::new();
    let again = words.iter().map(|word| word.trim()).filter(|word| !known.insert(*word));
    complaints.extend(again.map(|word| format!("{name}: `{word}` is explained twice")));
    complaints
}

#[test]
fn too_many_words_are_found() {
    let table =
        |words: &[String]| format!("| Word | Meaning |\n|---|---|\n| {} | a, b |\n", words.join(", "));
    let words: Vec<_> = (0..=WORDS_MAX).map(|word| word.to_string()).collect();
    assert_eq!(word_complaints("w.md", &table(&words[1..])), Vec::<String>::new());
    assert_eq!(word_complaints("w.md", &table(&words)), ["w.md: 26 words, at most 25"]);
    assert_eq!(
        word_complaints("w.md", &(table(&words[..1]) + "| 0 | again |")),
        ["w.md: `0` is explained twice"]
    );
    assert_eq!(word_complaints("w.md", "# Words").len(), 1);
}

/// Words in the rows of a table that look like names of tests but are not: in backticks, with three
/// underscores or more.
pub(super) fn unknown_tests(table: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let words = rows.flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_name = |word: &&str| {
        word.matches('_').count() >= 3
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
    };
    let unknown = words.filter(is_name).filter(|word| !tests.contains(*word));
    unknown.map(|word| format!("no test is called `{word}`")).collect()
}

#[test]
fn a_row_that_names_no_test_is_found() {
    let tests = BTreeSet::from(["a_key_is_kept".to_owned()]);
    let table = "| 1.1 | a | `a_key_is_kept`, `deny_unknown_fields`, `TEST?`, `src/a_b_c_d.rs` |\n";
    assert_eq!(unknown_tests(table, &tests), Vec::<String>::new());
    let wrong = table.replace("a_key_is_kept", "a_key_is_lost");
    assert_eq!(unknown_tests(&wrong, &tests), ["no test is called `a_key_is_lost`"]);
}
