//! A corpus of filters: what passes each, what is wrong with the invalid ones, and that no text
//! causes a panic.

use proptest::prelude::*;

use super::*;

fn attributes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The messages of the corpus, by number.
fn messages() -> [BTreeMap<String, String>; 7] {
    [
        attributes(&[]),
        attributes(&[("name", "com")]),
        attributes(&[("name", "co")]),
        attributes(&[("name", "org"), ("lang", "en")]),
        attributes(&[("lang", "jp")]),
        attributes(&[("iana.org/language_tag", "en"), ("a-b_1", "")]),
        attributes(&[("name", "say \"hi\"\n"), ("ключ", "é")]),
    ]
}

#[test]
fn filters_match_the_expected_messages_of_the_corpus() {
    let corpus: [(&str, &[usize]); 33] = [
        ("attributes:name", &[1, 2, 3, 6]),
        (" attributes : name ", &[1, 2, 3, 6]),
        ("NOT attributes:name", &[0, 4, 5]),
        ("-attributes:name", &[0, 4, 5]),
        ("- attributes:name", &[0, 4, 5]),
        ("NOT NOT attributes:name", &[1, 2, 3, 6]),
        ("--attributes:name", &[1, 2, 3, 6]),
        ("attributes.name = \"com\"", &[1]),
        ("attributes.name=\"com\"", &[1]),
        ("attributes.name = \"COM\"", &[]),
        ("attributes.Name = \"com\"", &[]),
        ("attributes.name != \"com\"", &[0, 2, 3, 4, 5, 6]),
        ("-attributes.name = \"com\"", &[0, 2, 3, 4, 5, 6]),
        ("attributes:name AND attributes.name != \"com\"", &[2, 3, 6]),
        ("hasPrefix(attributes.name, \"co\")", &[1, 2]),
        ("hasPrefix ( attributes . name , \"\" )", &[1, 2, 3, 6]),
        ("NOT hasPrefix(attributes.name, \"co\")", &[0, 3, 4, 5, 6]),
        ("attributes:\"iana.org/language_tag\"", &[5]),
        ("attributes.\"iana.org/language_tag\" = \"en\"", &[5]),
        ("attributes:a-b_1", &[5]),
        ("attributes.a-b_1 = \"\"", &[5]),
        ("attributes:\"ключ\"", &[6]),
        ("attributes.\"ключ\" = \"\\u00e9\"", &[6]),
        ("attributes.\"ключ\" = \"\\xc3\\251\"", &[6]),
        ("attributes.name = \"say \\\"hi\\\"\\n\"", &[6]),
        ("attributes:\"\\u043a\\u043b\\u044e\\u0447\"", &[6]),
        ("attributes:\"iana.org/language_tag\" AND NOT attributes.name = \"com\"", &[5]),
        ("attributes:name OR attributes:lang", &[1, 2, 3, 4, 6]),
        ("attributes:name AND attributes:lang", &[3]),
        ("attributes:name AND NOT attributes:lang AND attributes.name != \"com\"", &[2, 6]),
        ("NOT attributes:name AND attributes:lang", &[4]),
        ("NOT (attributes:name OR attributes:lang)", &[0, 5]),
        ("(attributes.name = \"com\" OR attributes.name = \"org\") AND -attributes:lang", &[1]),
    ];
    for (text, passing) in corpus {
        let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found: Vec<usize> = messages()
            .iter()
            .enumerate()
            .filter(|(_, message)| filter.matches(message))
            .map(|(i, _)| i)
            .collect();
        assert_eq!(found, passing, "{text}");
    }
}

#[test]
fn rejects_invalid_filters_with_the_position() {
    let corpus = [
        ("", "at byte 0: expected attributes, hasPrefix, NOT, or '(', found the end"),
        ("name", "at byte 0: expected attributes, hasPrefix, NOT, or '(', found 'name'"),
        ("data:x", "at byte 0: expected attributes, hasPrefix, NOT, or '(', found 'data'"),
        ("attributes", "at byte 10: expected ':' or '.' after attributes, found the end"),
        ("attributes:", "at byte 11: expected an attribute's key, found the end"),
        ("attributes.name", "at byte 15: expected '=' or '!=' after the key, found the end"),
        ("attributes.name = ", "at byte 18: expected a value in quotation marks, found the end"),
        ("attributes.name = com", "at byte 18: expected a value in quotation marks, found 'com'"),
        ("attributes.name = $", "at byte 18: unexpected character '$'"),
        ("attributes.name ! \"x\"", "at byte 16: unexpected character '!'"),
        ("attributes.name = 'com'", "at byte 18: unexpected character '\\''"),
        ("attributes.name = \"com", "at byte 18: this string has no closing quotation mark"),
        ("attributes.name = \"a\\q\"", "at byte 20: unknown escape sequence '\\q'"),
        ("attributes.name = \"\\x1\"", "at byte 19: this escape sequence needs 2 digits of base 16"),
        ("attributes.name = \"\\ud800\"", "at byte 19: there is no character U+D800"),
        ("attributes.name = \"\\xff\"", "at byte 18: the escapes in this string do not spell valid UTF-8"),
        (
            "\"com\" = attributes.name",
            "at byte 0: expected attributes, hasPrefix, NOT, or '(', found \"com\"",
        ),
        (
            "attributes.name = attributes.website",
            "at byte 18: expected a value in quotation marks, found 'attributes'",
        ),
        ("attributes:\\u307F", "at byte 11: unexpected character '\\\\'"),
        (
            "attributes.name = \"com\" AND (\"net\" OR \"org\")",
            "at byte 29: expected attributes, hasPrefix, NOT, or '(', found \"net\"",
        ),
        ("attributes:iana.org", "at byte 15: expected AND, OR, or the end, found '.'"),
        ("attributes:a attributes:b", "at byte 13: expected AND, OR, or the end, found 'attributes'"),
        ("attributes:a and attributes:b", "at byte 13: expected AND, OR, or the end, found 'and'"),
        ("attributes:a AND", "at byte 16: expected attributes, hasPrefix, NOT, or '(', found the end"),
        (
            "attributes:a AND attributes:b OR attributes:c",
            "at byte 30: AND and OR can only be combined with parentheses around one of them",
        ),
        (
            "attributes:a OR attributes:b AND attributes:c",
            "at byte 29: AND and OR can only be combined with parentheses around one of them",
        ),
        ("(attributes:a", "at byte 13: expected ')', AND, or OR, found the end"),
        ("attributes:a)", "at byte 12: expected AND, OR, or the end, found ')'"),
        ("()", "at byte 1: expected attributes, hasPrefix, NOT, or '(', found ')'"),
        ("hasPrefix(attributes.name)", "at byte 25: expected ',' after the key, found ')'"),
        ("hasPrefix(attributes:name, \"a\")", "at byte 20: expected '.' after attributes, found ':'"),
        (
            "hasprefix(attributes.name, \"a\")",
            "at byte 0: expected attributes, hasPrefix, NOT, or '(', found 'hasprefix'",
        ),
        ("not attributes:name", "at byte 0: expected attributes, hasPrefix, NOT, or '(', found 'not'"),
    ];
    for (text, words) in corpus {
        assert_eq!(Filter::parse(text).unwrap_err().to_string(), words, "{text}");
    }
}

#[test]
fn nesting_without_end_is_refused() {
    assert!(Filter::parse(&"(".repeat(100_000)).is_err());
    assert!(Filter::parse(&format!("{}attributes:a", "-".repeat(100_000))).is_err());
    assert!(Filter::parse(&format!("{}attributes:a{}", "(".repeat(100), ")".repeat(100))).is_ok());
}

fn condition() -> impl Strategy<Value = (String, Condition)> {
    let key = "[a-zA-Z0-9_-]{1,4}";
    let value = "[ -!#-\\[\\]-~é]{0,4}";
    let leaf = prop_oneof![
        key.prop_map(|key| (format!("attributes:{key}"), Condition::Has { key })),
        (key, value).prop_map(|(key, value)| {
            (format!("attributes.{key} = \"{value}\""), Condition::Is { key, value })
        }),
        (key, value).prop_map(|(key, prefix)| {
            (format!("hasPrefix(attributes.{key}, \"{prefix}\")"), Condition::HasPrefix { key, prefix })
        }),
    ];
    leaf.prop_recursive(4, 16, 3, |inner| {
        let several = proptest::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            inner.prop_map(|(text, inner)| (format!("NOT ({text})"), Condition::Not(Box::new(inner)))),
            (several, any::<bool>()).prop_map(|(several, all)| {
                let (texts, conditions): (Vec<_>, Vec<_>) =
                    several.into_iter().map(|(text, condition)| (format!("({text})"), condition)).unzip();
                let joint = if all { " AND " } else { " OR " };
                let whole = if all { Condition::All(conditions) } else { Condition::Any(conditions) };
                (texts.join(joint), whole)
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,300}") {
        let _ = Filter::parse(&text).map(|filter| filter.matches(&attributes(&[("a", "b")])));
    }

    #[test]
    fn random_filter_tokens_never_panic(
        words in proptest::collection::vec(
            prop::sample::select(vec![
                "attributes", ":", ".", "name", "=", "!=", "!", "\"x\"", "\"", "\\", "hasPrefix", "(", ")", ",",
                "AND", "OR", "NOT", "-", "\\u12", " ", "é",
            ]),
            0..40,
        ),
    ) {
        let _ = Filter::parse(&words.concat());
    }

    #[test]
    fn filters_round_trip((text, condition) in condition()) {
        prop_assert_eq!(Filter::parse(&text), Ok(Filter(condition)));
    }
}
