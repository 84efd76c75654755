//! The JSON forms, both ways, and what is refused.

use prost::Message as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Duration, Empty, Struct, Timestamp, Value, value::Kind};

fn json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

#[test]
fn durations_have_as_many_digits_as_they_need_of_0_3_6_and_9() {
    let table = [
        ("0s", 0, 0),
        ("600s", 600, 0),
        ("1.500s", 1, 500_000_000),
        ("0.000001s", 0, 1_000),
        ("0.000123456s", 0, 123_456),
        ("3.999999999s", 3, 999_999_999),
        ("-1s", -1, 0),
        ("-0.500s", 0, -500_000_000),
        ("-90.002456301s", -90, -2_456_301),
        ("315576000000s", 315_576_000_000, 0),
        ("-315576000000s", -315_576_000_000, 0),
        ("315575999999.999999999s", 315_575_999_999, 999_999_999),
    ];
    for (text, seconds, nanos) in table {
        let duration = Duration { seconds, nanos };
        assert_eq!(json(&duration), Ok(format!("{text:?}")));
        assert_eq!(read(text), Ok(duration), "{text}");
    }
    let other_forms = [("1.5s", 1, 500_000_000), ("01.5000s", 1, 500_000_000), ("-0s", 0, 0)];
    for (text, seconds, nanos) in other_forms {
        assert_eq!(read(text), Ok(Duration { seconds, nanos }), "{text}");
    }
}

#[test]
fn rejects_invalid_durations() {
    let form =
        "a duration is written in seconds, with at most nine digits after the point, and ends in s: 1.5s";
    let malformed = [
        "",
        "s",
        "10",
        "10m",
        "10 s",
        " 10s",
        "+1s",
        "--1s",
        ".5s",
        "1.s",
        "1.+5s",
        "1.-5s",
        "1e3s",
        "1.0000000001s",
        "1,5s",
        "1.5.5s",
        "١s",
    ];
    for text in malformed {
        assert_eq!(read::<Duration>(text), Err(format!("{text:?}: {form}")));
    }
    let range = "a duration must be within 315576000000 s of zero, with less than a second of nanoseconds of the same sign";
    for text in ["315576000001s", "-315576000000.000000001s", "99999999999999999999s"] {
        assert_eq!(read::<Duration>(text), Err(format!("{text:?}: {range}")));
    }
    let out_of_range = [(90, -1), (-90, 1), (0, 1_000_000_000), (i64::MIN, 0), (i64::MAX, 0), (0, i32::MIN)];
    for (seconds, nanos) in out_of_range {
        assert_eq!(json(&Duration { seconds, nanos }), Err(range.to_owned()), "{seconds} {nanos}");
    }
    let number = serde_json::from_str::<Duration>("10").unwrap_err().to_string();
    assert!(number.starts_with("invalid type: integer `10`, expected a duration as a string: \"1.5s\""));
}

#[test]
fn times_have_as_many_digits_as_they_need_of_0_3_6_and_9() {
    let table = [
        ("1970-01-01T00:00:00Z", 0, 0),
        ("2026-11-21T17:38:07.195Z", 1_795_282_687, 195_000_000),
        ("2000-02-29T23:59:59.000001Z", 951_868_799, 1_000),
        ("1969-12-31T23:59:59.000000001Z", -1, 1),
        ("0001-01-01T00:00:00Z", -62_135_596_800, 0),
        ("9999-12-31T23:59:59.999999999Z", 253_402_300_799, 999_999_999),
    ];
    for (text, seconds, nanos) in table {
        let time = Timestamp { seconds, nanos };
        assert_eq!(json(&time), Ok(format!("{text:?}")));
        assert_eq!(read(text), Ok(time), "{text}");
    }
    let other_forms = [
        ("1970-01-01T05:30:00+05:30", 0, 0),
        ("1969-12-31T16:00:07.5-08:00", 7, 500_000_000),
        ("1970-01-01T00:00:00.10Z", 0, 100_000_000),
    ];
    for (text, seconds, nanos) in other_forms {
        assert_eq!(read(text), Ok(Timestamp { seconds, nanos }), "{text}");
    }
}

#[test]
fn rejects_invalid_timestamps() {
    let form = "a timestamp is written as in RFC 3339, with an offset or Z and at most nine digits of a second: \
                2026-11-21T17:38:07.195Z";
    let malformed = [
        "",
        "yesterday",
        "2026-11-21",
        "2026-11-21T17:38:07",
        "2026-02-30T00:00:00Z",
        "2026-11-21T24:00:00Z",
        "2026-11-21T17:38:07.Z",
        "2026-11-21T17:38:07.0000000001Z",
        "2016-12-31T23:59:60Z",
        "2026-11-21T17:38:07+0100",
        "10000-01-01T00:00:00Z",
    ];
    for text in malformed {
        assert_eq!(read::<Timestamp>(text), Err(format!("{text:?}: {form}")));
    }
    let range = "a timestamp must be in the years 1 to 9999 (UTC), with 0 to 999999999 nanoseconds";
    for text in ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "0000-12-31T00:00:00Z"] {
        assert_eq!(read::<Timestamp>(text), Err(format!("{text:?}: {range}")));
    }
    let out_of_range =
        [(0, -1), (0, 1_000_000_000), (-62_135_596_801, 0), (253_402_300_800, 0), (i64::MIN, 0)];
    for (seconds, nanos) in out_of_range {
        assert_eq!(json(&Timestamp { seconds, nanos }), Err(range.to_owned()), "{seconds} {nanos}");
    }
}

#[test]
fn structs_are_json_objects() {
    let text = r#"{"bool":true,"list":[1.0,"two",[]],"none":null,"object":{"deep":{}},"whole":7}"#;
    let object: Struct = serde_json::from_str(text).unwrap();
    assert_eq!(object.fields["whole"].kind, Some(Kind::NumberValue(7.0)));
    assert_eq!(json(&object), Ok(text.replace('7', "7.0")));
    assert_eq!(Struct::decode(object.encode_to_vec().as_slice()), Ok(object));
    assert!(serde_json::from_str::<Struct>("[]").is_err());
    let infinite = Value { kind: Some(Kind::NumberValue(f64::INFINITY)) };
    assert_eq!(json(&infinite), Err("a number in a struct is inf, which JSON cannot represent".into()));
    assert_eq!(json(&Value { kind: None }), Err("a value in a struct has no kind".into()));
}

#[test]
fn empty_is_an_empty_object() {
    assert_eq!(json(&Empty {}), Ok("{}".into()));
    assert_eq!(serde_json::from_str::<Empty>("{}").unwrap(), Empty {});
    assert!(serde_json::from_str::<Empty>(r#"{"some":1}"#).is_err());
}

/// Field 1 is the seconds, field 2 the nanoseconds, both as varints.
#[test]
fn wire_encoding_uses_the_proto_field_numbers() {
    let bytes = [0x08, 0x07, 0x10, 0x05];
    assert_eq!(Duration { seconds: 7, nanos: 5 }.encode_to_vec(), bytes);
    assert_eq!(Timestamp::decode(bytes.as_slice()), Ok(Timestamp { seconds: 7, nanos: 5 }));
    let negative = Duration { seconds: -1, nanos: -1 };
    assert_eq!(Duration::decode(negative.encode_to_vec().as_slice()), Ok(negative));
    assert!(Empty {}.encode_to_vec().is_empty());
}
