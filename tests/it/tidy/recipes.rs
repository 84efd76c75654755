//! The recipe *Add a field* names every place of the field that it follows.
//!
//! It knows names of files alone, and must never judge what the recipe says of them.

use super::source::words;

/// How the recipe begins in CONTRIBUTING.md, and the field that it follows.
const RECIPE: &str = "\n## Add a field to an event";
const FIELD: &str = "traceparent";
/// Folders in which each file that has the field is named.
const FOLDERS: [&str; 4] = ["migrations/", "src/store/", "service/src/resources/", "clients/rust/src/"];
/// How the names of files begin that the recipe leaves out, each with the reason.
const LEFT_OUT: [(&str, &str); 3] = [
    ("src/store/tests/", "the recipe has a step for tests"),
    ("service/src/resources/emit/routes/tests/", "the recipe has a step for tests"),
    ("service/src/resources/emit/routes/mod.rs", "describes a header, which no other field has"),
];

/// Files with the field that the recipe does not name, and files that it no longer has to leave
/// out. Each file has a name and a text.
pub(super) fn complaints<'a>(document: &str, files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let recipe = document.split(RECIPE).nth(1).and_then(|rest| rest.split("\n## ").next());
    let spans: Vec<&str> = recipe.unwrap_or_default().split('`').skip(1).step_by(2).collect();
    let have_field: Vec<&str> = files
        .filter(|(name, _)| FOLDERS.iter().any(|folder| name.starts_with(folder)))
        .filter(|(_, text)| words(text, FIELD).next().is_some())
        .map(|(name, _)| name)
        .collect();
    let is_left_out = |name: &&str| LEFT_OUT.iter().any(|(beginning, _)| name.starts_with(beginning));
    let (left_out, places): (Vec<&str>, Vec<&str>) = have_field.into_iter().partition(is_left_out);
    let is_named = |place: &&str| spans.iter().any(|span| only_one_ends(&places, span) == Some(*place));
    let unnamed = places.iter().filter(|place| !is_named(place));
    let unnamed =
        unnamed.map(|place| format!("{place}: name it in the recipe, or leave it out with a reason"));
    let stale =
        LEFT_OUT.iter().filter(|(beginning, _)| !left_out.iter().any(|name| name.starts_with(beginning)));
    unnamed.chain(stale.map(|(beginning, _)| format!("{beginning}: it need not be left out"))).collect()
}

/// The only one of these paths that ends with this one.
fn only_one_ends<'a>(paths: &[&'a str], end: &str) -> Option<&'a str> {
    let ends =
        |path: &str| path.strip_suffix(end).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'));
    let mut found = paths.iter().copied().filter(|path| ends(path));
    found.next().filter(|_| found.next().is_none())
}

#[test]
fn places_that_the_recipe_forgets_are_found() {
    let document = "# A\n`d.rs`\n## Add a field to an event, end to end\nSee `0001_a.sql`,\n`a/rows.rs`, \
                    `one.rs` and `e.rs`.\n## B\n`c.rs`\n";
    let with = "let traceparent = 1;";
    let mut files = vec![
        ("migrations/0001_a.sql", "    traceparent text"),
        ("src/store/a/rows.rs", with),
        ("src/store/b/rows.rs", with),
        ("src/store/a/one.rs", with),
        ("src/store/b/one.rs", with),
        ("src/store/c.rs", with),
        ("src/store/d.rs", with),
        ("src/store/f.rs", "let traceparents = 1;"),
        ("src/other.rs", with),
        ("src/store/tests/a.rs", with),
        ("service/src/resources/emit/routes/tests/a.rs", with),
    ];
    let forgotten = ["b/rows.rs", "a/one.rs", "b/one.rs", "c.rs", "d.rs"]
        .map(|name| format!("src/store/{name}: name it in the recipe, or leave it out with a reason"));
    let header = "service/src/resources/emit/routes/mod.rs";
    let mut all = forgotten.to_vec();
    all.push(format!("{header}: it need not be left out"));
    assert_eq!(complaints(document, files.iter().copied()), all);
    files.push((header, with));
    assert_eq!(complaints(document, files.into_iter()), forgotten);
}
