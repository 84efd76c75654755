//! CloudEvents in their three modes.

use super::*;

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
        assert_eq!((address(&event).as_str(), event.fields().value), ("WORKER/greet/_", r#"{"a":1}"#));
        // Computed elsewhere: uuid.uuid5(uuid.NAMESPACE_URL, "5//shop/1").
        assert_eq!(event.fields().id, Some("168e3736-6f89-55f6-b088-514e46227a72".parse().unwrap()));
        assert_eq!((event.fields().canvas, event.fields().due), (Some(CANVAS), Due::Now));
    }
    assert!(many(&[BATCHED], "[]").unwrap().is_empty(), "a batch may be empty");
    let full = format!("[{}]", vec![cloud_event(""); 1001].join(","));
    check_refused(many(&[BATCHED], full), "1001 events, a request holds 0 to 1000");
    let bad = format!("[{},{}]", cloud_event(""), cloud_event(r#","time":"secret""#));
    check_refused(many(&[BATCHED], bad), "events[1]: `time` must be a moment");
}

#[test]
fn an_id_stands_for_source_and_id() {
    let id = |source: &str, id: &str| {
        let body = format!(r#"{{"specversion":"1.0","id":"{id}","source":"{source}","type":"greet"}}"#);
        let headers = [(STRUCTURED.0, STRUCTURED.1.as_bytes())];
        let incoming = Incoming {
            canvas: CANVAS,
            batch: false,
            keep: Keep::Data,
            headers: Headers(&headers),
            body: body.as_bytes(),
        };
        match read(&incoming).unwrap() {
            Emission::One(event) => event.fields().id.unwrap(),
            Emission::Batch(_) | Emission::On(_) => panic!("not one event"),
        }
    };
    let ids: Vec<EventId> = vec![id("/a", "b/c"), id("/a/b", "c"), id("/a", "b"), id("a", "/b/c")];
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
    assert_eq!(id("/a", "b/c"), ids[0]);
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
        ("/b", "not a valid name"),
        ("a%20b", "not a valid name"),
        ("", "`type` must be non-empty"),
    ] {
        check_refused(one(&[BINARY[0], BINARY[1], BINARY[2], ("ce-type", kind)], ""), part);
    }
    let both = [BINARY[0], BINARY[1], BINARY[2], ("ce-type", "A/b/c"), ("ce-modifier", "d")];
    check_refused(one(&both, ""), "exclude each other");
}

#[test]
fn delays_and_traces_are_extensions() {
    let event = one(&[STRUCTURED], cloud_event(r#","delayseconds":90"#)).unwrap();
    assert_eq!(event.fields().due, Due::After(Duration::from_secs(90)));
    assert_eq!(
        binary(&[("ce-delayseconds", "0.5")], "").unwrap().fields().due,
        Due::After(Duration::from_millis(500))
    );
    let event = binary(&[("ce-delayuntil", "2030-01-31T08:00:00Z")], "").unwrap();
    assert_eq!(event.fields().due, Due::At("2030-01-31T08:00:00Z".parse().unwrap()));
    check_refused(binary(&[("ce-delayuntil", "secret")], ""), "`delayuntil` must be a moment");
    check_refused(binary(&[("ce-delayseconds", "NaN")], ""), "`delayseconds` must be a number");
    check_refused(binary(&[("ce-delayseconds", "inf")], ""), "`delayseconds` must be a number");
    check_refused(binary(&[("ce-delayseconds", "-1")], ""), "`delayseconds` must be a number");
    let both = [("ce-delayuntil", "2030-01-31T08:00:00Z"), ("ce-delayseconds", "1")];
    check_refused(binary(&both, ""), "exclude each other");

    let event = binary(&[("ce-expirytime", "2030-01-31T08:00:00Z")], "").unwrap();
    let not_after = event.fields().options.and_then(|options| options.not_after());
    assert_eq!(not_after, Some("2030-01-31T08:00:00Z".parse().unwrap()));
    check_refused(binary(&[("ce-expirytime", "secret")], ""), "`expirytime` must be a moment");

    let expected =
        Event::new("greet", &()).unwrap().limit("customer:7").unwrap().limit("mails").unwrap().urgent();
    for event in [
        binary(&[("ce-limits", "customer:7, mails"), ("ce-urgent", "true")], ""),
        one(&[STRUCTURED], cloud_event(r#","limits":"customer:7,mails","urgent":true"#)),
    ] {
        assert_eq!(event.unwrap().fields().options, expected.fields().options);
    }
    assert!(binary(&[("ce-urgent", "false")], "").unwrap().fields().options.is_none());
    check_refused(binary(&[("ce-urgent", "secret")], ""), "`urgent` must be true or false");
    check_refused(binary(&[("ce-limits", "a,,b")], ""), "a limit's key has 1 to 200");
    check_refused(binary(&[("ce-limits", "a,b,c,d")], ""), "at most 3 different keys");

    let other = TRACE.replace("4bf9", "5bf9");
    let trace = |headers: &[(&str, &str)]| {
        binary(headers, "")
            .unwrap()
            .fields()
            .metadata
            .traceparent
            .as_ref()
            .map(|trace| trace.to_string())
            .unwrap_or_default()
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
        (r#","subject":"""#, "`subject` must be non-empty"),
        (r#","subject":"secret\n""#, "without control characters"),
        (r#","subject":"\ud800""#, "`subject` must be a string of whole Unicode"),
        (r#","dataschema":"not a uri""#, "`dataschema` must be a URI"),
        (r#","datacontenttype":"json","data":1"#, "not of the form"),
        (r#","My_Extension":1"#, "`My_Extension` must be renamed"),
        (r#","extra":{"secret":1}"#, "`extra` must be a string, a boolean or an integer"),
        (r#","extra":["secret"]"#, "`extra` must be"),
        (r#","extra":1.5"#, "`extra` must be"),
        (r#","extra":2147483648"#, "`extra` must be"),
        (r#","id":"2""#, "`id` is given twice"),
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
        (r#""id":"1""#, r#""id":"""#, "`id` must be non-empty"),
        (r#""source":"/shop","#, "", "source is missing"),
        (r#""/shop""#, r#""""#, "`source` must be non-empty"),
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
        let envelope = one_kept(Keep::Envelope, &headers, "")?.fields().value.to_owned();
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
    check_refused(binary(&[("ce-id", "2")], ""), "the header ce-`id` is given twice");
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
        assert_eq!(one(&[STRUCTURED], cloud_event(members)).unwrap().fields().value, value, "{members}");
    }
    for (headers, body, value) in [
        (vec![], "", "null"),
        (vec![JSON], "", "null"),
        (vec![], r#"{"a":1}"#, r#"{"a":1}"#),
        (vec![("content-type", "text/plain")], "a\"b", r#""a\"b""#),
        (vec![("content-type", "text/plain")], "", r#""""#),
        (vec![("content-type", "application/octet-stream")], "", "null"),
    ] {
        assert_eq!(binary(&headers, body).unwrap().fields().value, value);
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
        one_kept(Keep::Envelope, &[STRUCTURED], format!(" {body}\n")).unwrap().fields().value,
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
        let value = one_kept(Keep::Envelope, &headers, body).unwrap().fields().value.to_owned();
        assert_eq!(value, format!("{start}{rest}"));
        let again = one_kept(Keep::Data, &[STRUCTURED], &value);
        if !value.contains("image") {
            assert_eq!(
                again.unwrap().fields().value,
                binary(&more, body).unwrap().fields().value,
                "it is a CloudEvent itself"
            );
        }
    }
    let broken = one_kept(Keep::Envelope, &[BINARY.as_slice(), &[JSON]].concat(), "{secret");
    check_refused(broken, "not JSON");
}
