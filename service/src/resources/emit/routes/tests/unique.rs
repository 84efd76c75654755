//! Unique keys in plain JSON, valid and refused in all their shapes.

use wakeq::events::{OnConflict, Unique};

use super::*;

fn read_key(unique: &str) -> Result<Unique, Refusal> {
    let event = one(&[JSON], format!(r#"{{"name":"greet","unique":{unique}}}"#))?;
    Ok(event.fields().unique.expect("it has a key").clone())
}

#[test]
fn every_field_of_a_key_is_read() {
    let key = || Unique::key("invoice:42").unwrap();
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    let postponed = OnConflict::Postpone { by: Duration::from_millis(1500), at_most: minute };
    for (fields, expected) in [
        ("", key()),
        (r#","until":"started","on_conflict":"keep""#, key()),
        (r#","until":null,"remember_s":null,"on_conflict":null,"postpone_s":null,"at_most_s":null"#, key()),
        (r#","until":"ended""#, key().until_ended()),
        (r#","remember_s":1"#, key().remembered_for(second)),
        (r#","until":"ended","remember_s":1.0"#, key().remembered_for(second)),
        (r#","on_conflict":"replace""#, key().on_conflict(OnConflict::Replace)),
        (
            r#","until":"ended","on_conflict":"postpone","postpone_s":1.5,"at_most_s":60"#,
            key().until_ended().on_conflict(postponed),
        ),
    ] {
        assert_eq!(read_key(&format!(r#"{{"key":"invoice:42"{fields}}}"#)).unwrap(), expected, "{fields}");
    }
    assert!(plain(r#"{"name":"greet","unique":null}"#).fields().unique.is_none());
}

#[test]
fn what_is_no_key_is_refused() {
    for (unique, part) in [
        (r#""secret""#, "`unique` must be a JSON object"),
        ("{}", "`key` in `unique` is missing"),
        (r#"{"key":null}"#, "`key` in `unique` is missing"),
        (r#"{"key":1}"#, "`key` must be a string"),
        (r#"{"key":""}"#, "1 to 255 visible ASCII characters"),
        (r#"{"key":"sec ret"}"#, "1 to 255 visible ASCII characters"),
        (r#"{"key":"k","keys":"secret"}"#, "`keys` in `unique` must be left out"),
        (r#"{"key":"k","key":"secret"}"#, "`key` is given twice"),
        (r#"{"key":"k","until":"secret"}"#, "`until` must be started or ended"),
        (r#"{"key":"k","until":"started","remember_s":1}"#, "exclude each other"),
        (r#"{"key":"k","remember_s":0}"#, "a microsecond to 366 days"),
        (r#"{"key":"k","remember_s":1e9}"#, "a microsecond to 366 days"),
        (r#"{"key":"k","remember_s":-1}"#, "`remember_s` must be a number of seconds"),
        (r#"{"key":"k","on_conflict":"secret"}"#, "keep, replace or postpone"),
        (r#"{"key":"k","on_conflict":"postpone"}"#, "given with `on_conflict` postpone"),
        (r#"{"key":"k","on_conflict":"postpone","postpone_s":1}"#, "given with `on_conflict` postpone"),
        (r#"{"key":"k","postpone_s":1,"at_most_s":2}"#, "given with `on_conflict` postpone"),
        (r#"{"key":"k","on_conflict":"postpone","postpone_s":2,"at_most_s":1}"#, "must not be shorter"),
    ] {
        check_refused(read_key(unique), part);
    }
}
