//! Changes of objects, valid and refused.

use super::*;
use crate::resources::emit::routes::emission::Change;
use crate::resources::emit::routes::request::read_change;

fn change(headers: &[(&str, &str)], body: &str) -> Result<Change, Refusal> {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let incoming = Incoming {
        canvas: CANVAS,
        batch: true,
        keep: Keep::Data,
        headers: Headers(&headers),
        body: body.as_bytes(),
    };
    match read_change(&"work:1".parse().unwrap(), &incoming)? {
        Emission::On(change) => Ok(*change),
        Emission::One(_) | Emission::Batch(_) => panic!("no change"),
    }
}

#[test]
fn a_change_has_a_main_event_and_perhaps_more() {
    let least = change(&[JSON], r#"{"main": {"name": "index"}}"#).unwrap();
    assert_eq!((least.object.as_str(), address(&least.main).as_str()), ("work:1", "WORKER/index/_"));
    assert_eq!((least.subevents.len(), least.state), (0, None));
    let body = r#"{"subevents": [{"name": "a", "object": "work:1/post:7"}, {"name": "b", "delay_s": 2}], "state": {"n": 1.50},
                   "main": {"name": "index", "value": 1.0, "object": "work:1"}}"#;
    let whole = change(&[JSON, ("traceparent", TRACE)], body).unwrap();
    assert_eq!((whole.main.fields().value, whole.state.as_deref()), ("1.0", Some(r#"{"n": 1.50}"#)));
    assert_eq!(whole.subevents.iter().map(address).collect::<Vec<_>>(), ["WORKER/a/_", "WORKER/b/_"]);
    assert!(
        whole
            .subevents
            .iter()
            .all(|event| event.fields().canvas == Some(CANVAS)
                && event.fields().metadata.traceparent.is_some())
    );
    let nothing =
        change(&[JSON], r#"{"main": {"name": "index"}, "subevents": null, "state": null}"#).unwrap();
    assert_eq!((nothing.subevents.len(), nothing.state), (0, None));
}

#[test]
fn rejects_invalid_changes_with_the_position() {
    let many =
        format!(r#"{{"main": {{"name": "a"}}, "subevents": [{}]}}"#, vec![r#"{"name":"a"}"#; 1000].join(","));
    for (body, part) in [
        ("[]", "the body must be a JSON object"),
        ("{}", "`main` is missing"),
        (r#"{"main": null}"#, "`main` is missing"),
        (r#"{"main": {"value": "secret"}}"#, "main: `name` is missing"),
        (r#"{"main": {"name": "a", "object": "secret:2"}}"#, "main: `object` must be that of the path"),
        (r#"{"main": {"name": "a"}, "subevents": {}}"#, "`subevents` must be a JSON array"),
        (r#"{"main": {"name": "a"}, "subevents": [{"name": "a"}, 7]}"#, "subevents[1]: "),
        (r#"{"main": {"name": "a"}, "events": []}"#, "`events` in a change must be left out"),
        (r#"{"main": {"name": "a"}, "main": {"name": "a"}}"#, "`main` is given twice"),
        (many.as_str(), "1001 events, a request holds 1 to 1000"),
    ] {
        check_refused(change(&[JSON], body), part);
    }
    check_refused(change(&[], r#"{"main": {"name": "a"}}"#), "send `content-type: application/json`");
    check_refused(
        change(&[STRUCTURED], r#"{"main": {"name": "a"}}"#),
        "send `content-type: application/json`",
    );
}
