//! What a page shows without escaping it: only what this program has made itself.

use super::source::{Source, words};

/// What puts text into a document as it is, and the files that need it: the first for the mark and
/// for charts, the second for charts, which are drawn from numbers, and the third for documents
/// that are escaped already.
const RAW: [(&str, &[&str]); 3] = [
    ("PreEscaped", &["service/src/page/layout.rs", "service/src/page/parts.rs"]),
    ("svg(", &["service/src/page/chart.rs", "service/src/page/parts.rs"]),
    ("Html", &["service/src/page/document.rs"]),
];

/// Complaints about other files that do, and those of these that do.
pub(super) fn complaints(source: &Source) -> (Vec<String>, usize) {
    let mut complaints = Vec::new();
    let mut needed = 0;
    for (raw, files) in RAW {
        let places: Vec<_> = words(&source.code, raw.trim_end_matches('('))
            .filter(|start| source.code[*start..].starts_with(raw))
            .collect();
        if files.contains(&source.name.as_str()) {
            needed += usize::from(!places.is_empty());
            continue;
        }
        complaints.extend(places.into_iter().map(|start| {
            let line = source.line_at(start);
            format!("{}:{line}: let maud escape it: `{raw}` is for {}", source.name, files.join(" and "))
        }));
    }
    (complaints, needed)
}

/// How many files need what they are listed for.
pub(super) fn listed() -> usize {
    RAW.iter().map(|(_, files)| files.len()).sum()
}

#[test]
fn text_that_is_not_escaped_is_found() {
    let text = "use maud::{Markup, PreEscaped, html};\nfn a(b: String) -> Markup {\n    // svg(b)\n    \
                svg(PreEscaped(b))\n}\n";
    let of = |name: &str| {
        let (found, needed) = complaints(&Source::new(name, text));
        let lines = found.iter().map(|found| found.split(':').nth(1).unwrap().to_owned());
        (lines.collect::<Vec<_>>().join(" "), needed)
    };
    assert_eq!(of("service/src/resources/a/page.rs"), ("1 4 4".to_owned(), 0));
    assert_eq!(of("service/src/page/layout.rs"), ("4".to_owned(), 1));
    assert_eq!(of("service/src/page/parts.rs"), (String::new(), 2));
    let drawn = Source::new("a.rs", "html! { svg viewBox=(a) { svg.bar {} (svgs(b)) } HtmlText(c) }");
    assert_eq!(complaints(&drawn), (Vec::new(), 0));
}
