//! What is read, what is refused, and that neither takes long or panics.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Node, parse};

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

#[track_caller]
fn read(text: &str) -> Value {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}")).into_value()
}

#[track_caller]
fn refused(text: &str) -> String {
    parse(text).map(Node::into_value).unwrap_err().to_string()
}

#[test]
fn blocks_are_read_whatever_their_indentation_is() {
    let expected = json!({"project": "demo",
        "topics": [{"name": "a", "labels": {"team": "shop"}}, {"name": "b"}],
        "lists": [[1, 2], ["x", [null]]], "empty": null, "last": {"deep": {"deeper": true}}});
    for text in [
        "project: demo\ntopics:\n- name: a\n  labels:\n    team: shop\n- name: b\nlists:\n- - 1\n  - 2\n\
         - - x\n  - -\nempty:\nlast:\n  deep:\n    deeper: true\n",
        "--- # one document\n\u{20}project:   demo # a comment\n\n topics:\n    # another\n\
         \u{20}  -   name: a\n       labels: {team: shop}\n   -\n        name: b\n\
         \u{20}lists: [[1, 2], [x, [null]]]\n empty: ~\n last:\n        deep: {deeper: true}",
        "\u{feff}{\"project\":\"demo\",\r\n  topics: [{name: a, labels: {team: shop}}, # here\r\n\
         \u{20}   {name: b,}],\r\n 'lists': [[1,2],[x,[~]]], empty: ,\r\n\
         last: {deep: {deeper: true}}} # end\r\n",
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
    for empty in ["", "\n\n", "# nothing\n", "---\n", "{}"] {
        assert_eq!(read(empty), json!({}), "{empty:?}");
    }
}

#[test]
fn a_word_means_what_yaml_1_2_says() {
    for (text, expected) in [
        ("no", json!("no")),
        ("on", json!("on")),
        ("True", json!(true)),
        ("false", json!(false)),
        ("~", json!(null)),
        ("NULL", json!(null)),
        ("7", json!(7)),
        ("-7", json!(-7)),
        ("18446744073709551615", json!(u64::MAX)),
        ("0x1f", json!(31)),
        ("0.05", json!(0.05)),
        ("1e3", json!(1000.0)),
        ("3600s", json!("3600s")),
        ("0.2s", json!("0.2s")),
        ("2026-11-28", json!("2026-11-28")),
        ("1.2.3", json!("1.2.3")),
        ("inf", json!("inf")),
        (".inf", json!(".inf")),
        ("http://localhost:8080/push", json!("http://localhost:8080/push")),
        ("a#b", json!("a#b")),
        ("a # b", json!("a")),
        ("attributes.kind = \"a\"", json!("attributes.kind = \"a\"")),
        ("'it''s # here: 7'", json!("it's # here: 7")),
        (r#""a\n\"b\" \u00e9 \x41""#, json!("a\n\"b\" é A")),
        ("\"7\" # a text", json!("7")),
    ] {
        assert_eq!(read(&format!("value: {text}")), json!({ "value": expected }), "{text}");
        assert_eq!(read(&format!("- {text}")), json!([expected]), "{text}");
        if !text.contains('#') {
            assert_eq!(read(&format!("[{text}, {{value: {text}}}]")), json!([expected, {"value": expected}]));
        }
    }
}

#[test]
fn a_text_of_several_lines_stands_as_it_is() {
    let text = "a:\n  - definition: |\n      # not a comment\n\n        indented: \"as it is\"\n\
                \u{20}     last\n\n    name: x\n  - |-\n    without its end\n\n  - |+\n    with all\n\n\
                b: |\nc: |\n  to the end";
    let definition = "# not a comment\n\n  indented: \"as it is\"\nlast\n";
    let expected = json!({
        "a": [{"definition": definition, "name": "x"}, "without its end", "with all\n\n"],
        "b": "",
        "c": "to the end\n",
    });
    assert_eq!(read(text), expected);
}

#[test]
fn whatever_else_there_is_is_refused_with_its_line() {
    for (text, line, words) in [
        ("a: 1\n\nb: &x 2", 3, "has to be in quotes"),
        ("a: *x", 1, "has to be in quotes"),
        ("a: !!str 7", 1, "has to be in quotes"),
        ("%YAML 1.2\n---\na: 1", 1, "has to be in quotes"),
        ("a: >\n  folded", 1, "has to be in quotes"),
        ("? a\n: b", 1, "can't stand here"),
        ("a: |2\n   text", 1, "only `|`"),
        ("a: 1\n---\nb: 2", 2, "a key is expected"),
        ("a: one\n  two", 2, "indentation"),
        ("a:\n    b: 1\n  c: 2", 3, "indentation"),
        ("- a\n b: 1", 2, "indentation"),
        (" a: 1\nb: 2", 2, "belongs to nothing"),
        ("a: 1\n- b", 2, "a key is expected"),
        ("a:\n\tb: 1", 2, "not with tabs"),
        ("a: b: c", 1, "because of its colon"),
        ("a: - b", 1, "can't stand here"),
        (": a", 1, "no key"),
        ("a: 1\nb: 2\na: 3", 3, "`a` is there twice"),
        ("{a: 1,\n a: 2}", 2, "`a` is there twice"),
        ("a: \"open\nb: 1", 1, "has to end on its line"),
        ("a: 'one\n  two'", 1, "has to end on its line"),
        (r#"a: "\q""#, 1, "is not read in a text"),
        (r#"a: "\ud800""#, 1, "is not a character"),
        ("a: \"b\" c", 1, "nothing is expected"),
        ("a: [1, 2] 3", 1, "nothing is expected"),
        ("a: [1,\n\n 2", 3, "`,` or `]` is expected"),
        ("a: [1,,2]", 1, "a value is expected"),
        ("a: {b}", 1, "`:` is expected"),
        ("a: {b: 1 c: 2}", 1, "expected"),
    ] {
        let said = refused(text);
        assert!(
            said.starts_with(&format!("YAML error at line {line}: ")) && said.contains(words),
            "{text}: {said}"
        );
    }
    for deep in ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(100_000)] {
        assert!(refused(&deep).contains("are nested"));
    }
}

/// A value as JSON is read as it is, on one line and on several.
#[test]
fn json_is_yaml() {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~äöü]{0,8}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ -~]{0,6}", inner, 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    });
    proptest!(config(), |(value in value)| {
        prop_assert_eq!(parse(&value.to_string()).unwrap().into_value(), value.clone());
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(parse(&pretty).unwrap().into_value(), value);
    });
}

#[test]
fn nothing_makes_it_panic() {
    proptest!(config(), |(text in "[-a:#|>\\[\\]{},\"'\\\\ \t\r\n&*?~1é]{0,40}")| {
        if let Ok(node) = parse(&text) {
            // What it reads can be told.
            let _told = node.into_value().to_string();
        }
    });
}
