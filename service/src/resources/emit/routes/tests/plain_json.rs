//! Plain JSON with its headers, valid and refused in all its shapes.

use super::*;

#[test]
fn the_smallest_event_has_a_name_only() {
    let event = plain(r#"{"name":"greet"}"#);
    assert_eq!((address(&event).as_str(), event.fields().value), ("WORKER/greet/_", "null"));
    assert_eq!(
        (event.fields().canvas, event.fields().due, event.fields().id),
        (Some(CANVAS), Due::Now, None)
    );
    assert!(event.fields().metadata.traceparent.is_none());
}

#[test]
fn every_field_of_an_event_is_read() {
    let event = plain(
        r#"{"module":"MAIL","name":"greet","modifier":"eu","value":[1],"delay_s":1.5,
            "id":"01A1FA2A-7101-7382-922f-e03ca3c19953"}"#,
    );
    assert_eq!(address(&event), "MAIL/greet/eu");
    assert_eq!(event.fields().due, Due::After(Duration::from_millis(1500)));
    assert_eq!(event.fields().id.unwrap().to_string(), "01a1fa2a-7101-7382-922f-e03ca3c19953");
    let event = plain(r#"{"name":"greet","delay_until":"2030-01-31T09:00:00.5+01:00"}"#);
    assert_eq!(event.fields().due, Due::At("2030-01-31T08:00:00.5Z".parse().unwrap()));
    let event =
        plain(r#"{"name":"a","module":null,"modifier":null,"id":null,"delay_until":null,"delay_s":0}"#);
    assert_eq!((address(&event).as_str(), event.fields().due), ("WORKER/a/_", Due::After(Duration::ZERO)));
}

/// EV2-32: every value is kept verbatim.
#[test]
fn a_value_is_kept_to_the_letter() {
    let deepest = nested(64);
    for value in [
        "null",
        "true",
        "0.10",
        "-1E-3",
        "123456789012345678901234567890",
        r#""é\u00e9\ud83d\ude00\/""#,
        r#"{ "b" : [1.0, 2],"a":{},"a":"twice" }"#,
        deepest.as_str(),
    ] {
        let body = format!(r#" {{"value": {value} ,"name":"greet"}} "#);
        assert_eq!(plain(&body).fields().value, value);
        let event = one(&[STRUCTURED], cloud_event(&format!(r#","data": {value} "#))).unwrap();
        assert_eq!(event.fields().value, value);
        assert_eq!(binary(&[JSON], format!(" {value}\n")).unwrap().fields().value, value);
    }
}

#[test]
fn rejects_values_that_readers_cannot_represent() {
    let too_deep = nested(65);
    let hollow = nested(100_000);
    for (value, part) in [
        (r#""secret\u0000""#, "NUL"),
        (r#"{"secret\u0000":1}"#, "NUL"),
        (r#""secret\ud800""#, "lone surrogate"),
        (r#"["secret\udc00x"]"#, "lone surrogate"),
        (r#"{"secret\ud800\ud800":1}"#, "lone surrogate"),
        ("1e999", "beyond 1.8e308"),
        ("[-1e999]", "beyond 1.8e308"),
        (too_deep.as_str(), "deeper than 64"),
        (hollow.as_str(), "deeper than 64"),
    ] {
        check_refused(one(&[JSON], format!(r#"{{"name":"greet","value":{value}}}"#)), part);
        check_refused(one(&[STRUCTURED], cloud_event(&format!(r#","data":{value}"#))), part);
        check_refused(binary(&[JSON], value), part);
    }
}

#[test]
fn bodies_that_are_no_json_are_refused() {
    for (body, part) in [
        ("", "not JSON: EOF"),
        ("  ", "not JSON: EOF"),
        ("{", "not JSON: EOF"),
        ("{\"name\":\"greet\"} secret", "not JSON: trailing characters"),
        ("{\"name\":\"greet\",}", "not JSON: key must be a string"),
        ("{'name':'secret'}", "not JSON"),
        ("{\"name\":\"a\nb\"}", "not JSON: control character"),
        ("{\"name\":\"greet\",\"value\":NaN}", "not JSON"),
        ("{\"name\":\"greet\",\"value\":01}", "not JSON"),
        ("\"secret\"", "the event must be a JSON object"),
        ("[]", "the event must be a JSON object"),
        ("null", "the event must be a JSON object"),
        ("\u{feff}{\"name\":\"greet\"}", "byte-order mark"),
    ] {
        check_refused(one(&[JSON], body), part);
    }
    check_refused(one(&[JSON], b"{\"name\":\"gr\xc3\x28eet\"}"), "UTF-8");
    check_refused(one(&[JSON], b"\xff\xfe{\0}\0"), "UTF-8");
    check_refused(binary(&[JSON], b"\"\xc3\x28\""), "UTF-8");
}

#[test]
fn wrong_fields_are_refused_by_their_names() {
    let many_fields = (0..102).map(|at| format!("\"f{at}\":0")).collect::<Vec<_>>().join(",");
    for (fields, part) in [
        ("", "`name` is missing"),
        (r#""name":null"#, "`name` is missing"),
        (r#""name":"""#, "not a valid name"),
        (r#""name":"a b""#, "not a valid name"),
        (r#""name":"a\u0000""#, "not a valid name"),
        (r#""name":7"#, "`name` must be a string"),
        (r#""name":"\ud800""#, "`name` must be a string of whole Unicode"),
        (r#""name":"a","module":"a/b""#, "not a valid name"),
        (r#""name":"a","modifier":["secret"]"#, "`modifier` must be a string"),
        (r#""name":"a","nam":1"#, "`nam` is not a field"),
        (r#""name":"a","my secret":1"#, "unusual name"),
        (r#""name":"a","canvas":"secret""#, "`canvas` is not a field"),
        (r#""name":"a","canvas_id":"00000000-0000-0000-0000-000000000009""#, "`canvas_id` is not a field"),
        (r#""name":"a","name":"b""#, "`name` is given twice"),
        (r#""name":"a","value":1,"v\u0061lue":2"#, "`value` is given twice"),
        (r#""name":"a","id":"secret""#, "`id` must be a uuid"),
        (r#""name":"a","id":"01a1fa2a71017382922fe03ca3c19953""#, "`id` must be a uuid"),
        (r#""name":"a","id":1"#, "`id` must be a string"),
        (r#""name":"a","delay_s":"secret""#, "`delay_s` must be a number"),
        (r#""name":"a","delay_s":-1"#, "`delay_s` must be a number"),
        (r#""name":"a","delay_s":1e999"#, "`delay_s` must be a number"),
        (r#""name":"a","delay_s":1e300"#, "the delay is out of range"),
        (r#""name":"a","delay_s":3162240001"#, "the delay is out of range"),
        (r#""name":"a","delay_until":"tomorrow""#, "`delay_until` must be a moment"),
        (r#""name":"a","delay_until":"2030-01-31""#, "`delay_until` must be a moment"),
        (r#""name":"a","delay_until":1893456000"#, "`delay_until` must be a string"),
        (r#""name":"a","delay_until":"2030-01-31T08:00:00Z","delay_s":1"#, "exclude each other"),
        (many_fields.as_str(), "more than 100 fields"),
    ] {
        check_refused(one(&[JSON], format!("{{{fields}}}")), part);
    }
}

#[test]
fn a_batch_says_which_event_is_wrong() {
    let events = many(&[JSON], r#"{"events":[{"name":"a"},{"name":"b","value":2}]}"#).unwrap();
    let read: Vec<_> = events
        .iter()
        .map(|event| (address(event), event.fields().canvas, event.fields().value.to_owned()))
        .collect();
    let expected = [("WORKER/a/_", "null"), ("WORKER/b/_", "2")];
    assert_eq!(read, expected.map(|(address, value)| (address.to_owned(), Some(CANVAS), value.to_owned())));
    for (body, part) in [
        (
            r#"{"events":[{"name":"a"},{"name":"a"},{"name":"b","valu":2}]}"#,
            "events[2]: `valu` is not a field",
        ),
        (r#"{"events":[{"name":"a"},["secret"]]}"#, "events[1]: the event must be a JSON object"),
        (
            r#"{"events":[{"name":"a"},{"name":"a","value":"\ud800"}]}"#,
            "events[1]: the value has a lone surrogate",
        ),
        (r#"{"events":[{"name":"a"},{"name":"a","delay_s":1e12}]}"#, "events[1]: the delay"),
        (r#"{"events":[]}"#, "0 events, a request holds 1 to 1000"),
        (r#"{"events":{}}"#, "`events` must be a JSON array"),
        (r#"{"events":null}"#, "`events` must be a JSON array"),
        ("{}", "`events` is missing"),
        (r#"{"name":"a"}"#, "`name` in a batch must be left out"),
        (r#"{"events":[],"events":[{"name":"a"}]}"#, "`events` is given twice"),
        ("[]", "the body must be a JSON object"),
    ] {
        check_refused(many(&[JSON], body), part);
    }
    let filled = |count| format!(r#"{{"events":[{}]}}"#, vec![r#"{"name":"a"}"#; count].join(","));
    assert_eq!(many(&[JSON], filled(1000)).unwrap().len(), 1000);
    check_refused(many(&[JSON], filled(1001)), "1001 events");
}

#[test]
fn the_header_traceparent_counts_when_it_is_one() {
    let trace = |headers: &[(&str, &str)]| {
        let event = one(&[&[JSON], headers].concat(), r#"{"name":"a"}"#).unwrap();
        event.fields().metadata.traceparent.as_ref().map(|trace| trace.to_string())
    };
    assert_eq!(trace(&[("traceparent", TRACE)]).as_deref(), Some(TRACE));
    assert_eq!(trace(&[("traceparent", "00-nonsense")]), None);
    assert_eq!(trace(&[("traceparent", "é")]), None);
    assert_eq!(trace(&[("traceparent", TRACE), ("traceparent", TRACE)]), None, "which of them?");
}

#[test]
fn other_content_types_are_refused() {
    let batch = format!("[{}]", cloud_event(""));
    for (headers, batched) in [
        (vec![], false),
        (vec![("content-type", "text/plain")], false),
        (vec![("content-type", "application/x-www-form-urlencoded")], false),
        (vec![("content-type", "application/json; charset=latin1")], false),
        (vec![("content-type", "nonsense")], false),
        (vec![("content-type", "application/cloudevents+xml")], false),
        (vec![("content-type", "application/cloudevents")], false),
        (vec![STRUCTURED], true),
        (vec![("content-type", "application/cloudevents+xml")], true),
        ([[JSON].as_slice(), &BINARY].concat(), true),
    ] {
        let refused = send(batched, Keep::Data, &headers, b"{}").unwrap_err();
        assert!(matches!(refused.fault, Fault::MediaType(_)), "{headers:?}: {refused}");
    }
    check_refused(one(&[JSON, JSON], r#"{"name":"a"}"#), "`content-type` is given twice");
    for batched in [false, true] {
        let emission = send(batched, Keep::Data, &[BATCHED], batch.as_bytes()).unwrap();
        assert!(matches!(emission, Emission::Batch(events) if events.len() == 1), "on both paths");
    }
}

#[test]
fn a_refusal_keeps_the_kind_of_the_events_own_error() {
    let refusal = one(&[JSON], r#"{"name":"a","delay_s":1e300}"#).unwrap_err();
    assert!(matches!(refusal.fault, Fault::Event(EventError::TooLate)));
}
