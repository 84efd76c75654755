//! Tests of the rule for circles, on small trees.

use super::beside;
use crate::tidy::source::Source;

const FACE: (&str, &str) = ("src/lib.rs", "mod a;\nmod b;\nmod q;\npub use a::A;\npub use q::B;");

#[cfg(test)]
fn found(left: &[&[&str]], files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<_> = files.iter().chain([&FACE]).map(|(name, text)| Source::new(name, text)).collect();
    beside(left, &sources)
}

/// That there is one circle, of which this is the way.
#[track_caller]
fn check_found(files: &[(&str, &str)], way: &str) {
    let found = found(&[], files);
    assert!(found.len() == 1 && found[0].contains(&format!("circle: {way};")), "{way}: {found:?}");
}

#[track_caller]
fn check_none(files: &[(&str, &str)]) {
    assert_eq!(found(&[], files), Vec::<String>::new());
}

#[test]
fn files_that_import_from_each_other_are_found() {
    let two = "src/a.rs -> src/b.rs -> src/a.rs";
    check_found(&[("src/a.rs", "use crate::b::B;"), ("src/b.rs", "use crate::a::A;")], two);
    check_found(&[("src/a.rs", "fn a(b: &crate::b::B) {}"), ("src/b.rs", "use crate::{A, c};")], two);
    check_found(&[("src/a.rs", "use crate::b;\nfn a() { b::b() }"), ("src/b.rs", "use crate::a::*;")], two);
    check_found(
        &[
            ("src/a.rs", "use crate::{b::{self, c::C as D}, std::fmt};"),
            ("src/b.rs", "pub(crate) mod c;\nfn b() { crate::a::a() }"),
            ("src/b/c.rs", "use super::b;\npub struct C;"),
        ],
        "src/a.rs -> src/b/c.rs -> src/b.rs -> src/a.rs",
    );
    check_found(
        &[
            ("streams/src/a.rs", "use crate::b::B;"),
            ("streams/src/b.rs", "use crate::c::C;"),
            ("streams/src/c/mod.rs", "fn c() { crate::a::a() }"),
        ],
        "streams/src/a.rs -> streams/src/b.rs -> streams/src/c/mod.rs -> streams/src/a.rs",
    );
}

/// What a `mod.rs` passes on is the file's that defines it.
#[test]
fn imports_are_followed_to_the_file_that_defines_them() {
    let face = ("src/q/mod.rs", "mod a;\nmod b;\npub use a::A;\npub(crate) use b::{B, b};");
    let two = "src/q/a.rs -> src/q/b.rs -> src/q/a.rs";
    check_found(&[face, ("src/q/a.rs", "use super::B;"), ("src/q/b.rs", "use crate::q::{A, C};")], two);
    check_found(&[face, ("src/q/a.rs", "fn a() { super::b() }"), ("src/q/b.rs", "use super::a::A;")], two);
    check_none(&[face, ("src/q/a.rs", "use super::b::B;"), ("src/q/b.rs", "use crate::b::B;")]);
    check_none(&[face, ("src/a.rs", "use crate::q::B;"), ("src/q/b.rs", "use crate::q::A;")]);
}

#[test]
fn a_parent_that_only_declares_its_child_is_not_in_a_circle() {
    let child = ("src/q/a.rs", "use super::Q;\npub struct A;");
    check_none(&[("src/q/mod.rs", "mod a;\npub use a::A;\npub struct Q;"), child]);
    check_none(&[("src/q.rs", "mod a;\npub struct Q;"), child]);
    check_none(&[("src/q.rs", "mod a;\nuse a::A;\npub struct Q(A);"), ("src/q/a.rs", "pub struct A;")]);
    let way = "src/q.rs -> src/q/a.rs -> src/q.rs";
    check_found(&[("src/q.rs", "mod a;\nuse a::A;\npub struct Q(A);"), child], way);
    check_found(&[("src/q.rs", "mod a;\npub use a::A;\npub struct Q(A);"), child], way);
    check_found(&[("src/q.rs", "mod a;\npub struct Q;\nfn q() { a::a() }"), child], way);
}

#[test]
fn tests_and_other_packages_are_in_no_circle() {
    let a = ("src/a.rs", "use crate::b::B;");
    check_none(&[a, ("src/b.rs", "pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}")]);
    check_none(&[a, ("src/b.rs", "#[cfg(test)]\nuse crate::a::A;\npub struct B;")]);
    check_none(&[a, ("src/b/mod.rs", "#[cfg(test)]\nmod tests;"), ("src/b/tests.rs", "use crate::a::A;")]);
    check_none(&[
        a,
        ("src/b.rs", "#[cfg(test)]\nmod same;\nuse a::A;"),
        ("src/b/same.rs", "use crate::a::A;"),
    ]);
    check_none(&[a, ("src/b.rs", "/// See `crate::a::A`.\nconst B: &str = \"crate::a::A\";")]);
    check_none(&[a, ("src/b.rs", "pub(in crate::a) struct B;\nfn b() { std::a::A }")]);
    check_none(&[("streams/src/a.rs", "use crate::b::B;"), ("src/b.rs", "use crate::a::A;")]);
}

#[test]
fn a_circle_that_is_left_passes_until_it_is_gone_or_another_joins() {
    let two: [(&str, &str); 2] = [("src/a.rs", "use crate::b::B;"), ("src/b.rs", "use crate::a::A;")];
    let left: &[&[&str]] = &[&["src/a.rs", "src/b.rs"]];
    assert_eq!(found(left, &two), Vec::<String>::new());

    let gone = found(left, &two[..1]);
    assert_eq!(gone, ["src/a.rs, src/b.rs: no longer in a circle: remove from tests/it/tidy/circles.rs"]);

    let joined = [two[0], two[1], ("src/q.rs", "use crate::a::A;\nuse crate::b::B;")];
    assert_eq!(found(left, &joined), Vec::<String>::new(), "it is not in the circle");
    let joined = [two[0], ("src/b.rs", "use crate::a::A;\nuse crate::q::Q;"), joined[2]];
    let found_now = found(left, &joined);
    assert!(found_now.len() == 1 && found_now[0].starts_with("src/q.rs: files in a circle"), "{found_now:?}");

    let left: &[&[&str]] = &[&["src/a.rs", "src/b.rs", "src/q.rs"]];
    let smaller = found(left, &two);
    assert!(smaller.len() == 1 && smaller[0].starts_with("src/q.rs: no longer in a circle"), "{smaller:?}");
}
