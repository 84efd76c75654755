//! Requests to emit and what is read from them, good and bad, in tables.

use std::time::Duration;

use super::cloudevents::Keep;
use super::refusal::{Fault, Refusal};
use super::request::{Emission, Headers, Incoming, read};
use crate::event::{CanvasId, Due, Event, EventError, EventId};

const CANVAS: CanvasId = CanvasId(uuid::Uuid::from_u128(7));
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const JSON: (&str, &str) = ("content-type", "application/json");
const STRUCTURED: (&str, &str) = ("content-type", "application/cloudevents+json; charset=UTF-8");
const BATCHED: (&str, &str) = ("content-type", "application/cloudevents-batch+json");
/// The required attributes as headers.
const BINARY: [(&str, &str); 4] =
    [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/shop"), ("ce-type", "greet")];

fn send(batch: bool, keep: Keep, headers: &[(&str, &str)], body: &[u8]) -> Result<Emission, Refusal> {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    read(&Incoming { canvas: CANVAS, batch, keep, headers: Headers(&headers), body })
}

fn one(headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Result<Event, Refusal> {
    one_kept(Keep::Data, headers, body)
}

fn one_kept(keep: Keep, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Result<Event, Refusal> {
    match send(false, keep, headers, body.as_ref())? {
        Emission::One(event) => Ok(*event),
        Emission::Batch(events) => panic!("a batch of {}", events.len()),
    }
}

fn many(headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Result<Vec<Event>, Refusal> {
    match send(true, Keep::Data, headers, body.as_ref())? {
        Emission::Batch(events) => Ok(events),
        Emission::One(event) => panic!("one event: {event:?}"),
    }
}

fn plain(body: &str) -> Event {
    one(&[JSON], body).unwrap()
}

fn address(event: &Event) -> String {
    event.address(CanvasId::DEFAULT).to_string()
}

#[track_caller]
fn check_refused(refused: Result<impl std::fmt::Debug, Refusal>, part: &str) {
    let words = refused.unwrap_err().to_string();
    assert!(words.contains(part), "{words:?} lacks {part:?}");
    assert!(!words.contains("secret"), "{words:?} repeats what was sent");
}

/// A CloudEvent in JSON format with these members besides the required ones.
fn cloud_event(members: &str) -> String {
    format!(r#"{{"specversion":"1.0","id":"1","source":"/shop","type":"greet"{members}}}"#)
}

/// Binary mode with these headers besides the required ones.
fn binary(more: &[(&str, &str)], body: impl AsRef<[u8]>) -> Result<Event, Refusal> {
    one(&[BINARY.as_slice(), more].concat(), body)
}

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[test]
fn the_smallest_event_has_a_name_only() {
    let event = plain(r#"{"name":"greet"}"#);
    assert_eq!((address(&event).as_str(), event.value.as_str()), ("WORKER/greet/_", "null"));
    assert_eq!((event.canvas, event.due, event.id), (Some(CANVAS), Due::Now, None));
    assert!(event.traceparent.is_none());
}

#[test]
fn every_field_of_an_event_is_read() {
    let event = plain(
        r#"{"module":"MAIL","name":"greet","modifier":"eu","value":[1],"delay_s":1.5,
            "id":"01A1FA2A-7101-7382-922f-e03ca3c19953"}"#,
    );
    assert_eq!(address(&event), "MAIL/greet/eu");
    assert_eq!(event.due, Due::After(Duration::from_millis(1500)));
    assert_eq!(event.id.unwrap().to_string(), "01a1fa2a-7101-7382-922f-e03ca3c19953");
    let event = plain(r#"{"name":"greet","delay_until":"2030-01-31T09:00:00.5+01:00"}"#);
    assert_eq!(event.due, Due::At("2030-01-31T08:00:00.5Z".parse().unwrap()));
    let event =
        plain(r#"{"name":"a","module":null,"modifier":null,"id":null,"delay_until":null,"delay_s":0}"#);
    assert_eq!((address(&event).as_str(), event.due), ("WORKER/a/_", Due::After(Duration::ZERO)));
}

/// EV2-32: the value comes out as it went in, whatever it is.
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
        assert_eq!(plain(&body).value, value);
        let event = one(&[STRUCTURED], cloud_event(&format!(r#","data": {value} "#))).unwrap();
        assert_eq!(event.value, value);
        assert_eq!(binary(&[JSON], format!(" {value}\n")).unwrap().value, value);
    }
}

#[test]
fn what_no_reader_can_hold_is_refused_as_a_value() {
    let too_deep = nested(65);
    let hollow = nested(100_000);
    for (value, part) in [
        (r#""secret\u0000""#, "NUL"),
        (r#"{"secret\u0000":1}"#, "NUL"),
        (r#""secret\ud800""#, "not JSON"),
        (r#"["secret\udc00x"]"#, "not JSON: lone leading surrogate"),
        (r#"{"secret\ud800\ud800":1}"#, "not JSON: lone leading surrogate"),
        ("1e999", "not JSON: number out of range"),
        ("[-1e999]", "not JSON: number out of range"),
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
        (r#""name":"""#, "no valid name"),
        (r#""name":"a b""#, "no valid name"),
        (r#""name":"a\u0000""#, "no valid name"),
        (r#""name":7"#, "`name` must be a string"),
        (r#""name":"\ud800""#, "`name` must be a string of whole Unicode"),
        (r#""name":"a","module":"a/b""#, "no valid name"),
        (r#""name":"a","modifier":["secret"]"#, "`modifier` must be a string"),
        (r#""name":"a","nam":1"#, "`nam` is no field"),
        (r#""name":"a","my secret":1"#, "unusual name"),
        (r#""name":"a","canvas":"secret""#, "`canvas` is no field"),
        (r#""name":"a","canvas_id":"00000000-0000-0000-0000-000000000009""#, "`canvas_id` is no field"),
        (r#""name":"a","name":"b""#, "`name` stands there twice"),
        (r#""name":"a","value":1,"v\u0061lue":2"#, "`value` stands there twice"),
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
    let read: Vec<_> =
        events.iter().map(|event| (address(event), event.canvas, event.value.clone())).collect();
    let expected = [("WORKER/a/_", "null"), ("WORKER/b/_", "2")];
    assert_eq!(read, expected.map(|(address, value)| (address.to_owned(), Some(CANVAS), value.to_owned())));
    for (body, part) in [
        (r#"{"events":[{"name":"a"},{"name":"a"},{"name":"b","valu":2}]}"#, "events[2]: `valu` is no field"),
        (r#"{"events":[{"name":"a"},["secret"]]}"#, "events[1]: the event must be a JSON object"),
        (r#"{"events":[{"name":"a"},{"name":"a","value":"\ud800"}]}"#, "events[1]: not JSON: "),
        (r#"{"events":[{"name":"a"},{"name":"a","delay_s":1e12}]}"#, "events[1]: the delay"),
        (r#"{"events":[]}"#, "0 events, a request holds 1 to 1000"),
        (r#"{"events":{}}"#, "`events` must be a JSON array"),
        (r#"{"events":null}"#, "`events` must be a JSON array"),
        ("{}", "`events` is missing"),
        (r#"{"name":"a"}"#, "`name` in a batch must be left out"),
        (r#"{"events":[],"events":[{"name":"a"}]}"#, "`events` stands there twice"),
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
        event.traceparent.map(|trace| trace.to_string())
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
    check_refused(one(&[JSON, JSON], r#"{"name":"a"}"#), "`content-type` stands there twice");
    for batched in [false, true] {
        let emission = send(batched, Keep::Data, &[BATCHED], batch.as_bytes()).unwrap();
        assert!(matches!(emission, Emission::Batch(events) if events.len() == 1), "on both paths");
    }
}

#[test]
fn a_cloud_event_is_read_alike_in_its_modes() {
    let members = r#","subject":"x","time":"2030-01-31T08:00:00Z","extra":true,"number":-5,"unset":null,"data":{"a":1}"#;
    let headers = [
        ("ce-subject", "x"),
        ("ce-time", "2030-01-31T08:00:00Z"),
        ("ce-extra", "true"),
        ("ce-number", "-5"),
        JSON,
    ];
    let batch = format!("[{}]", cloud_event(members));
    let of_batch = many(&[BATCHED], batch).unwrap().remove(0);
    for event in
        [one(&[STRUCTURED], cloud_event(members)).unwrap(), of_batch, binary(&headers, r#"{"a":1}"#).unwrap()]
    {
        assert_eq!((address(&event).as_str(), event.value.as_str()), ("WORKER/greet/_", r#"{"a":1}"#));
        // Computed elsewhere: uuid.uuid5(namespace, "00000000-0000-0000-0000-000000000007/5//shop/1").
        assert_eq!(event.id, Some("614692e5-56b1-5697-9346-ce089760d99d".parse().unwrap()));
        assert_eq!((event.canvas, event.due), (Some(CANVAS), Due::Now));
    }
    assert!(many(&[BATCHED], "[]").unwrap().is_empty(), "a batch may be empty");
    let full = format!("[{}]", vec![cloud_event(""); 1001].join(","));
    check_refused(many(&[BATCHED], full), "1001 events, a request holds 0 to 1000");
    let bad = format!("[{},{}]", cloud_event(""), cloud_event(r#","time":"secret""#));
    check_refused(many(&[BATCHED], bad), "events[1]: `time` must be a moment");
}

#[test]
fn an_id_stands_for_canvas_source_and_id() {
    let id = |canvas, source: &str, id: &str| {
        let body = format!(r#"{{"specversion":"1.0","id":"{id}","source":"{source}","type":"greet"}}"#);
        let headers = [(STRUCTURED.0, STRUCTURED.1.as_bytes())];
        let incoming = Incoming {
            canvas: CanvasId(uuid::Uuid::from_u128(canvas)),
            batch: false,
            keep: Keep::Data,
            headers: Headers(&headers),
            body: body.as_bytes(),
        };
        match read(&incoming).unwrap() {
            Emission::One(event) => event.id.unwrap(),
            Emission::Batch(_) => panic!("a batch"),
        }
    };
    let ids: Vec<EventId> = vec![
        id(7, "/a", "b/c"),
        id(7, "/a/b", "c"),
        id(8, "/a", "b/c"),
        id(7, "/a", "b"),
        id(7, "a", "/b/c"),
    ];
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
    assert_eq!(id(7, "/a", "b/c"), ids[0]);
}

#[test]
fn a_type_names_the_handler() {
    for (kind, modifier, expected) in [
        ("com.example.greet", "", "WORKER/com.example.greet/_"),
        ("MAIL/greet", "", "MAIL/greet/_"),
        ("MAIL/greet/eu", "", "MAIL/greet/eu"),
        ("greet", "eu", "WORKER/greet/eu"),
        ("MAIL/greet", "eu", "MAIL/greet/eu"),
    ] {
        let mut headers = vec![BINARY[0], BINARY[1], BINARY[2], ("ce-type", kind)];
        if !modifier.is_empty() {
            headers.push(("ce-modifier", modifier));
        }
        assert_eq!(address(&one(&headers, "").unwrap()), expected);
    }
    for (kind, part) in [
        ("a/b/c/d", "`type` must be name, MODULE/name"),
        ("/b", "no valid name"),
        ("a%20b", "no valid name"),
        ("", "`type` must be longer than nothing"),
    ] {
        check_refused(one(&[BINARY[0], BINARY[1], BINARY[2], ("ce-type", kind)], ""), part);
    }
    let both = [BINARY[0], BINARY[1], BINARY[2], ("ce-type", "A/b/c"), ("ce-modifier", "d")];
    check_refused(one(&both, ""), "exclude each other");
}

#[test]
fn delays_and_traces_are_extensions() {
    let event = one(&[STRUCTURED], cloud_event(r#","delayseconds":90"#)).unwrap();
    assert_eq!(event.due, Due::After(Duration::from_secs(90)));
    assert_eq!(
        binary(&[("ce-delayseconds", "0.5")], "").unwrap().due,
        Due::After(Duration::from_millis(500))
    );
    let event = binary(&[("ce-delayuntil", "2030-01-31T08:00:00Z")], "").unwrap();
    assert_eq!(event.due, Due::At("2030-01-31T08:00:00Z".parse().unwrap()));
    check_refused(binary(&[("ce-delayuntil", "secret")], ""), "`delayuntil` must be a moment");
    check_refused(binary(&[("ce-delayseconds", "NaN")], ""), "`delayseconds` must be a number");
    check_refused(binary(&[("ce-delayseconds", "inf")], ""), "`delayseconds` must be a number");
    check_refused(binary(&[("ce-delayseconds", "-1")], ""), "`delayseconds` must be a number");
    let both = [("ce-delayuntil", "2030-01-31T08:00:00Z"), ("ce-delayseconds", "1")];
    check_refused(binary(&both, ""), "exclude each other");

    let other = TRACE.replace("4bf9", "5bf9");
    let trace = |headers: &[(&str, &str)]| {
        binary(headers, "").unwrap().traceparent.map(|trace| trace.to_string()).unwrap_or_default()
    };
    assert_eq!(trace(&[("ce-traceparent", TRACE), ("traceparent", &other)]), TRACE, "the event's own");
    assert_eq!(trace(&[("traceparent", &other)]), other);
    assert_eq!(trace(&[("ce-traceparent", "nonsense"), ("traceparent", &other)]), other);
    assert_eq!(trace(&[("ce-traceparent", "nonsense")]), "");
}

#[test]
fn attributes_are_held_to_their_types() {
    let long = "a".repeat(4097);
    let long = format!(r#","subject":"{long}""#);
    let crowd: String = (0..61).map(|at| format!(r#","x{at}":1"#)).collect();
    for (members, part) in [
        (r#","time":"2030-01-31""#, "`time` must be a moment"),
        (r#","time":5"#, "`time` must be a string"),
        (r#","subject":"""#, "`subject` must be longer than nothing"),
        (r#","subject":"secret\n""#, "without control characters"),
        (r#","subject":"\ud800""#, "`subject` must be a string of whole Unicode"),
        (r#","dataschema":"not a uri""#, "`dataschema` must be a URI"),
        (r#","datacontenttype":"json","data":1"#, "not of the form"),
        (r#","My_Extension":1"#, "`My_Extension` must be renamed"),
        (r#","extra":{"secret":1}"#, "`extra` must be a string, a boolean or an integer"),
        (r#","extra":["secret"]"#, "`extra` must be"),
        (r#","extra":1.5"#, "`extra` must be"),
        (r#","extra":2147483648"#, "`extra` must be"),
        (r#","id":"2""#, "`id` stands there twice"),
        (r#","data":1,"data_base64":"MQ==""#, "exclude each other"),
        (r#","data_base64":"secret!""#, "`data_base64` must be base64"),
        (r#","data_base64":7"#, "`data_base64` must be a string"),
        (long.as_str(), "at most 4096 bytes"),
        (crowd.as_str(), "more than 64 fields"),
    ] {
        check_refused(one(&[STRUCTURED], cloud_event(members)), part);
    }
    for (from, to, part) in [
        (r#""specversion":"1.0""#, r#""specversion":"0.3""#, "`specversion` must be 1.0"),
        (r#""specversion":"1.0","#, "", "specversion is missing"),
        (r#""id":"1","#, "", "id is missing"),
        (r#""id":"1""#, r#""id":null"#, "id is missing"),
        (r#""id":"1""#, r#""id":1"#, "`id` must be a string"),
        (r#""id":"1""#, r#""id":"""#, "`id` must be longer than nothing"),
        (r#""source":"/shop","#, "", "source is missing"),
        (r#""/shop""#, r#""""#, "`source` must be longer than nothing"),
        (r#""/shop""#, r#""/my shop""#, "`source` must be a URI"),
        (r#""/shop""#, r#""/a%2""#, "`source` must be a URI"),
        (r#","type":"greet""#, "", "type is missing"),
    ] {
        let good = cloud_event("");
        assert!(good.contains(from));
        check_refused(one(&[STRUCTURED], good.replace(from, to)), part);
    }
}

#[test]
fn headers_are_decoded_as_the_binding_says() {
    let subject = |value: &str| {
        let headers = [BINARY.as_slice(), &[("ce-subject", value)]].concat();
        let envelope = one_kept(Keep::Envelope, &headers, "")?.value;
        let envelope: serde_json::Value = serde_json::from_str(&envelope).unwrap();
        Ok::<_, Refusal>(envelope["subject"].as_str().unwrap().to_owned())
    };
    for (sent, meant) in [
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        ("%e2%82%ac", "€"),
        ("%41%2541", "A%41"),
        ("a b", "a b"),
        (r#""a \"b\" \\c""#, r#"a "b" \c"#),
        (r#""a%20b""#, "a b"),
    ] {
        assert_eq!(subject(sent).unwrap(), meant, "{sent}");
    }
    for sent in ["%C0%A0", "%", "%4", "%zz", "%+1", "€", "\"a\"b\"", "\"a\\\"", "%ff", "%00", "a%0Ab"] {
        let words = subject(sent).unwrap_err().to_string();
        assert!(words.contains("`subject`"), "{sent}: {words}");
    }
    check_refused(binary(&[("ce-id", "2")], ""), "the header ce-`id` stands there twice");
    check_refused(
        binary(&[("ce-datacontenttype", "text/plain")], ""),
        "`ce-datacontenttype` must be left out",
    );
    check_refused(binary(&[("ce-data", "1")], ""), "`ce-data` must be left out");
    check_refused(binary(&[("ce-my-extension", "1")], ""), "must be renamed");
    check_refused(one(&[BINARY[0], BINARY[1], BINARY[2], JSON], "1"), "type is missing");
}

#[test]
fn data_becomes_the_value_when_it_is_json_or_text() {
    for (members, value) in [
        ("", "null"),
        (r#","data":null"#, "null"),
        (r#","data":"text""#, r#""text""#),
        (r#","datacontenttype":"application/vnd.a+json","data":[1]"#, "[1]"),
        (r#","datacontenttype":"text/plain","data":"a\u00e9""#, r#""a\u00e9""#),
        (r#","datacontenttype":"application/json","data_base64":"eyJhIjogMX0=""#, r#"{"a": 1}"#),
        (r#","datacontenttype":"text/plain","data_base64":"w6k=","data":null"#, r#""é""#),
        (r#","data_base64":"MQ==""#, "1"),
    ] {
        assert_eq!(one(&[STRUCTURED], cloud_event(members)).unwrap().value, value, "{members}");
    }
    for (headers, body, value) in [
        (vec![], "", "null"),
        (vec![JSON], "", "null"),
        (vec![], r#"{"a":1}"#, r#"{"a":1}"#),
        (vec![("content-type", "text/plain")], "a\"b", r#""a\"b""#),
        (vec![("content-type", "text/plain")], "", r#""""#),
        (vec![("content-type", "application/octet-stream")], "", "null"),
    ] {
        assert_eq!(binary(&headers, body).unwrap().value, value);
    }
    for refused in [
        binary(&[("content-type", "application/xml")], "<secret/>"),
        one(&[STRUCTURED], cloud_event(r#","datacontenttype":"image/png","data_base64":"MQ==""#)),
        one(&[STRUCTURED], cloud_event(r#","datacontenttype":"application/xml","data":"<secret/>""#)),
    ] {
        assert!(matches!(refused.as_ref().unwrap_err().fault, Fault::MediaType(_)));
        check_refused(refused, "?value=envelope");
    }
    check_refused(binary(&[], "secret"), "not JSON");
    check_refused(binary(&[("content-type", "text/plain; charset=latin1")], "secret"), "charset");
    check_refused(binary(&[("content-type", "text/plain")], "secret\0"), "NUL");
    let text = one(&[STRUCTURED], cloud_event(r#","datacontenttype":"text/plain","data":{"secret":1}"#));
    check_refused(text, "`data` of a text type must be a string");
}

#[test]
fn the_whole_cloud_event_can_be_the_value() {
    let body = cloud_event(r#", "extra":true,"datacontenttype":"image/png","data_base64":"MQ==""#);
    assert_eq!(
        one_kept(Keep::Envelope, &[STRUCTURED], format!(" {body}\n")).unwrap().value,
        body,
        "to the letter"
    );

    let start = r#"{"specversion":"1.0","id":"1","source":"/shop","type":"greet""#;
    for (more, body, rest) in [
        (vec![JSON], "[1.0]", r#","datacontenttype":"application/json","data":[1.0]}"#),
        (vec![], "[1.0]", r#","data":[1.0]}"#),
        (
            vec![("ce-extra", "a%22"), ("content-type", "text/plain")],
            "hi",
            r#","extra":"a\"","datacontenttype":"text/plain","data":"hi"}"#,
        ),
        (vec![("content-type", "image/png")], "1", r#","datacontenttype":"image/png","data_base64":"MQ=="}"#),
        (vec![], "", "}"),
    ] {
        let headers = [BINARY.as_slice(), &more].concat();
        let value = one_kept(Keep::Envelope, &headers, body).unwrap().value;
        assert_eq!(value, format!("{start}{rest}"));
        let again = one_kept(Keep::Data, &[STRUCTURED], &value);
        if !value.contains("image") {
            assert_eq!(again.unwrap().value, binary(&more, body).unwrap().value, "it is a CloudEvent itself");
        }
    }
    let broken = one_kept(Keep::Envelope, &[BINARY.as_slice(), &[JSON]].concat(), "{secret");
    check_refused(broken, "not JSON");
}

#[test]
fn a_refusal_keeps_the_kind_of_the_events_own_error() {
    let refusal = one(&[JSON], r#"{"name":"a","delay_s":1e300}"#).unwrap_err();
    assert!(matches!(refusal.fault, Fault::Event(EventError::TooLate)));
}
