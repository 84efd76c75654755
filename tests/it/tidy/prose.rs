//! Rules for prose, in documents and in comments: it wraps, and it is plain English as far as a
//! program can see that.

/// Columns of prose. Tables, code and links may be wider.
const COLUMNS_MAX: usize = 100;

/// What a native writer would not say, in lower case: a bare "who" that stands for a caller, a
/// worker or a process, and its relatives.
const FOREIGN: [&str; 9] = [
    " for who ",
    " to who ",
    " by who ",
    " from who ",
    "the how-manyth",
    "as many as may",
    " is no such thing",
    " there is no such ",
    " that nobody is ",
];

/// A line of prose and its number, from 1.
type Line<'a> = (usize, &'a str);

/// The lines of a document that are outside fenced code.
pub(super) fn of_document(text: &str) -> Vec<Line<'_>> {
    outside_code(text.lines().enumerate().map(|(index, line)| (index + 1, line)))
}

/// The lines of a source file's comments that are outside fenced code, each as it stands in the
/// file. Comments begin with `//` or, in SQL, with `--`.
pub(super) fn of_comments<'a>(text: &'a str, mark: &str) -> Vec<Line<'a>> {
    let comments = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with(mark));
    outside_code(comments.map(|(index, line)| (index + 1, line)))
}

fn outside_code<'a>(lines: impl Iterator<Item = Line<'a>>) -> Vec<Line<'a>> {
    let mut in_code = false;
    let is_prose = |(_, line): &Line<'_>| {
        let is_fence = words(line).starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    };
    lines.filter(is_prose).collect()
}

/// A line without what makes it a comment.
fn words(line: &str) -> &str {
    line.trim_start().trim_start_matches(['/', '!', '-']).trim_start()
}

/// Lines that are too wide and have a place to break, and words of no native writer.
pub(super) fn complaints(name: &str, lines: &[Line<'_>]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in lines {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && can_break(words(line)) {
            complaints.push(format!("{name}:{number}: {columns} columns, at most {COLUMNS_MAX}; wrap it"));
        }
        let lower = format!(" {} ", words(line).to_lowercase());
        let foreign = FOREIGN.iter().filter(|foreign| lower.contains(**foreign));
        complaints
            .extend(foreign.map(|foreign| format!("{name}:{number}: say {foreign:?} in plain English")));
    }
    complaints
}

/// Not a row of a table, nor a single link or path that is too long by itself, with its list mark.
fn can_break(words: &str) -> bool {
    !words.starts_with('|') && words.split_whitespace().count() > 2
}

#[test]
fn wide_prose_is_found_and_wide_code_is_not() {
    let wide = "word ".repeat(21);
    let text = format!("{wide}\n```text\n{wide}\n```\n| {wide} |\n- {}\n{}", "x".repeat(101), "é".repeat(50));
    assert_eq!(complaints("a.md", &of_document(&text)), ["a.md:1: 105 columns, at most 100; wrap it"]);
    let text = format!("/// {wide}\n/// ```\n/// {wide}\n/// ```\nlet a = 1; // {wide}\n    // {wide}");
    let found = complaints("a.rs", &of_comments(&text, "//"));
    let complaint = |line, columns| format!("a.rs:{line}: {columns} columns, at most 100; wrap it");
    assert_eq!(found, [complaint(1, 109), complaint(6, 112)]);
    let found = complaints("a.rs", &of_comments(&format!("-- {wide}\nselect {wide}"), "--"));
    assert_eq!(found, [complaint(1, 108)]);
}

#[test]
fn a_bare_who_is_found() {
    let text = "It waits for who comes.\nFor who comes.\nIt waits for the caller, who comes.";
    let found = complaints("a.md", &of_document(text));
    assert_eq!(found, [1, 2].map(|line| format!("a.md:{line}: say \" for who \" in plain English")));
}
