//! Definitions, messages and pairs of definitions in Avro: what is taken, and what is refused.

use super::AvroSchema;

const ORDER: &str = r#"{
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": null},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "lines", "type": {"type": "array", "items": "long"}},
        {"name": "prices", "type": {"type": "map", "values": "double"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "last", "type": ["null", "State", "Order"]}
    ]
}"#;

fn schema(text: &str) -> AvroSchema {
    AvroSchema::parse(text).unwrap()
}

/// A record with one field of this type.
fn holding(field: &str) -> String {
    format!(r#"{{"type": "record", "name": "R", "fields": [{{"name": "f", "type": {field}}}]}}"#)
}

#[test]
fn definitions_that_are_none_are_refused_with_a_reason() {
    let whole = [
        ("", "EOF"),
        (r#"{"BAD_VALUE": null}"#, "has no \"type\""),
        (r#""string""#, "not a record"),
        (r#"{"type": "enum", "name": "E", "symbols": ["A"]}"#, "not a record"),
        (r#"{"type": "record", "fields": []}"#, "no name"),
        (r#"{"type": "record", "name": "a-b", "fields": []}"#, "not a valid name"),
        (r#"{"type": "record", "name": "int", "fields": []}"#, "not a valid name"),
        (r#"{"type": "record", "name": "R"}"#, "no list of fields"),
        (r#"{"type": "record", "name": "R", "fields": [{"name": "f"}]}"#, "has no type"),
    ];
    let of_field = [
        (r#""Missing""#, "not declared"),
        (r#"["int", "int"]"#, "more than one branch int"),
        (r#"["int", ["null", "string"]]"#, "a branch of another union"),
        ("[]", "no branch"),
        (r#"{"type": "array"}"#, "no \"items\""),
        (r#"{"type": "fixed", "name": "F", "size": -1}"#, "no size"),
        (r#"{"type": "enum", "name": "E", "symbols": ["A", "A"]}"#, "no symbols"),
        (r#"{"type": "record", "name": "R", "fields": []}"#, "declared more than once"),
        (r#""int", "default": "x""#, "the default of f"),
    ];
    let of_field = of_field.map(|(text, words)| (holding(text), words));
    for (text, words) in whole.map(|(text, words)| (text.to_owned(), words)).into_iter().chain(of_field) {
        let refusal = AvroSchema::parse(&text).unwrap_err();
        assert!(refusal.contains(words), "{text}: {refusal}");
    }
    let nested = format!("{}\"int\"{}", r#"{"type": "array", "items": "#.repeat(5_000), "}".repeat(5_000));
    assert!(AvroSchema::parse(&holding(&nested)).is_err());
    for fine in [
        r#"{"type": "string", "logicalType": "uuid"}"#,
        r#"{"type": "int"}, "default": 0"#,
        r#"["R", "null"]"#,
    ] {
        schema(&holding(fine));
    }
}

#[test]
fn messages_in_json_fit_the_types() {
    let order = schema(ORDER);
    let message = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = serde_json::json!({
            "id": 7, "note": {"string": "soon"}, "state": "NEW", "lines": [1, -9_000_000_000_i64],
            "prices": {"a": 1.5, "b": 2, "c": "NaN"}, "hash": "\u{0}\u{ff}", "last": null,
        });
        change(&mut value);
        order.check_json(value.to_string().as_bytes())
    };
    assert_eq!(message(&|_| ()), Ok(()));
    assert_eq!(message(&|value| value["last"] = serde_json::json!({"shop.State": "PAID"})), Ok(()));
    let inner = serde_json::json!({"shop.Order": {"id": 1, "note": null, "state": "NEW", "lines": [],
        "prices": {}, "hash": "ab", "last": null}});
    assert_eq!(message(&|value| value["last"] = inner.clone()), Ok(()));

    let refused = |field: &str, new: serde_json::Value, words: &str| {
        let why = message(&|value| value[field] = new.clone()).unwrap_err();
        assert!(why.contains(words), "{why}");
    };
    let integer = "JSON object with type string does not match schema which expected number_integer";
    refused("id", "7".into(), integer);
    refused("id", 1.5.into(), "number_float");
    refused("id", 3_000_000_000_i64.into(), "range");
    refused("note", "soon".into(), "union");
    refused("note", serde_json::json!({"int": 1}), "no type int");
    refused("state", "OLD".into(), "no such symbol");
    refused("lines", 1.into(), "array");
    refused("prices", serde_json::json!({"a": "1"}), "number_float");
    refused("hash", "abc".into(), "3 bytes");
    refused("hash", "\u{100}a".into(), "U+00FF");
    refused("extra", 1.into(), "unknown");
    let missing = message(&|value| {
        value.as_object_mut().unwrap().remove("note");
    });
    assert_eq!(missing, Err("the field note is missing".to_owned()));
    for other in ["", "[]", "{", "7"] {
        assert!(order.check_json(other.as_bytes()).is_err(), "{other}");
    }
}

#[test]
fn binary_messages_fit_the_types() {
    let order = schema(ORDER);
    let message = [
        14, // id: 7
        2, 4, b'h', b'i', // note: the second type, two bytes
        2,    // state: the second symbol
        3, 4, 2, 2, 0, // lines: a block of two, which states its size
        2, 2, b'a', 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0, // prices: a block of one
        1, 2, // hash
        0, // last: null
    ];
    assert_eq!(order.check_binary(&message), Ok(()));
    let longer = [message.as_slice(), &[0]].concat();
    assert_eq!(order.check_binary(&longer), Err("Too much data to parse for schema".to_owned()));
    for length in 0..message.len() {
        assert!(order.check_binary(&message[..length]).is_err(), "{length}");
    }
    let text = schema(&holding(r#""string""#));
    assert!(text.check_binary(&[2, 0xff]).unwrap_err().contains("UTF-8"));
    assert!(text.check_binary(&[1]).unwrap_err().contains("not a size"));
    let union = schema(&holding(r#"["null", "int"]"#));
    assert!(union.check_binary(&[4]).unwrap_err().contains("no type 2"));
    assert!(union.check_binary(&[2, 0x80, 0x80, 0x80, 0x80, 0x10]).unwrap_err().contains("range"));
}

#[test]
fn a_few_bytes_do_not_take_long() {
    let nothing = schema(&holding(r#"{"type": "array", "items": "null"}"#));
    let billions = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert!(nothing.check_binary(&billions).unwrap_err().contains("more than"));
    let list = schema(&holding(r#"["null", "R"]"#));
    assert!(list.check_binary(&[2; 100_000]).unwrap_err().contains("nested"));
    let endless = schema(&holding(r#""R""#));
    assert!(endless.check_binary(&[]).unwrap_err().contains("nested"));
    // A thousand of such messages are one publish.
    assert!((0..1_000).all(|_| nothing.check_binary(&billions).is_err()));
    let some = [0x80, 0x40, 0];
    assert_eq!(nothing.check_binary(&some), Ok(()), "4,096 items that take no bytes");
}

#[test]
fn definitions_do_not_take_long() {
    // Each level of the default fits neither record, for which all levels below are looked at
    // twice.
    let record = |name: &str, of: &str| {
        format!(r#"{{"type": "record", "name": "{name}", "fields": [{{"name": "f", "type": {of}}}]}}"#)
    };
    let either = format!("[{}, \"A\"]", record("B", r#"["A", "B"]"#));
    let default = format!("{}7{}", r#"{"f": "#.repeat(60), "}".repeat(60));
    let field = format!("{}, \"default\": {default}", record("A", &either));
    assert!(AvroSchema::parse(&holding(&field)).unwrap_err().contains("the default of f"));

    let types = |namespace: &str| {
        let types: Vec<String> = (0..5_000)
            .map(|number| format!(r#"{{"type": "fixed", "name": "{namespace}.F{number}", "size": 1}}"#))
            .collect();
        schema(&holding(&format!("[{}]", types.join(","))))
    };
    assert_eq!(types("a").is_read_by(&types("a")), Ok(()));
    assert!(types("a").is_read_by(&types("b")).unwrap_err().contains("pairs of types"));
}

#[test]
fn many_symbols_and_types_do_not_take_long() {
    let symbols: Vec<String> = (0..40_000).map(|number| format!("S{number}")).collect();
    let listed = serde_json::to_string(&symbols).unwrap();
    let symbol = format!(r#"{{"type": "enum", "name": "E", "symbols": {listed}}}"#);
    let one = schema(&holding(&symbol));
    assert_eq!(one.is_read_by(&one), Ok(()));
    let items = format!(r#"{{"type": "array", "items": {symbol}}}"#);
    let message = format!(r#"{{"f": {listed}}}"#);
    assert_eq!(schema(&holding(&items)).check_json(message.as_bytes()), Ok(()));

    let numbers = || 0..5_000;
    let types: Vec<String> =
        numbers().map(|number| format!(r#"{{"type": "fixed", "name": "F{number}", "size": 1}}"#)).collect();
    let items = format!(r#"{{"type": "array", "items": [{}]}}"#, types.join(","));
    let values: Vec<String> = numbers().map(|number| format!(r#"{{"F{number}": "x"}}"#)).collect();
    let message = format!(r#"{{"f": [{}]}}"#, values.join(","));
    assert_eq!(schema(&holding(&items)).check_json(message.as_bytes()), Ok(()));
}

#[test]
fn a_revision_is_read_by_the_other_and_reads_it() {
    let fields =
        |fields: &str| schema(&format!(r#"{{"type": "record", "name": "R", "fields": [{fields}]}}"#));
    let both = |old: &str, new: &str| {
        let (old, new) = (fields(old), fields(new));
        old.is_read_by(&new).and_then(|()| new.is_read_by(&old))
    };
    let a = r#"{"name": "a", "type": "int"}"#;
    let optional = r#"{"name": "b", "type": ["null", "string"], "default": null}"#;
    let with_optional = format!("{a}, {optional}");
    assert_eq!(both(a, &with_optional), Ok(()));
    assert_eq!(both(&with_optional, a), Ok(()));
    let needed = format!(r#"{a}, {{"name": "b", "type": "string"}}"#);
    assert!(both(a, &needed).unwrap_err().contains("has no default"));
    assert!(both(&needed, a).unwrap_err().contains("has no default"));
    assert!(both(a, r#"{"name": "a", "type": "long"}"#).is_err(), "it is only read in one direction");
    assert!(both(a, r#"{"name": "a", "type": "string"}"#).is_err());
    assert_eq!(both(r#"{"name": "a", "type": "bytes"}"#, r#"{"name": "a", "type": "string"}"#), Ok(()));
    let list = r#"{"name": "next", "type": ["null", "R"], "default": null}"#;
    assert_eq!(both(list, list), Ok(()), "a type of itself");
    let symbols = |symbols: &str| {
        let e = format!(r#"{{"type": "enum", "name": "E", "symbols": {symbols}, "default": "A"}}"#);
        format!(r#"{{"name": "e", "type": {e}}}"#)
    };
    assert_eq!(both(&symbols(r#"["A"]"#), &symbols(r#"["A", "B"]"#)), Ok(()));
}
