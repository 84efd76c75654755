//! Options of events in plain JSON, valid and refused in all their shapes.

use super::*;

fn read_options(options: &str) -> Result<Event, Refusal> {
    one(&[JSON], format!(r#"{{"name":"greet","options":{options}}}"#))
}

#[test]
fn every_option_is_read() {
    let event = || Event::new("greet", &()).unwrap();
    let delays = [0, 1_500].map(Duration::from_millis);
    let moment = "2030-01-31T08:00:00Z".parse().unwrap();
    for (options, expected) in [
        ("{}", event()),
        (r#"{"retries":null,"delays_s":null,"timeout_s":null,"not_after":null}"#, event()),
        (r#"{"retries":0}"#, event().retries(0).unwrap()),
        (r#"{"retries":1000}"#, event().retries(1000).unwrap()),
        (r#"{"delays_s":[0,1.5]}"#, event().delays(delays).unwrap()),
        (r#"{"keep_s":0}"#, event().keep(Duration::ZERO).unwrap()),
        (r#"{"timeout_s":0.25}"#, event().timeout(Duration::from_millis(250)).unwrap()),
        (r#"{"limits":["a","b","a"]}"#, event().limit("a").and_then(|event| event.limit("b")).unwrap()),
        (r#"{"limits":[],"urgent":false}"#, event()),
        (r#"{"limits":null,"urgent":null}"#, event()),
        (r#"{"urgent":true}"#, event().urgent()),
        (r#"{"not_after":"2030-01-31T09:00:00+01:00"}"#, event().not_after(moment).unwrap()),
        (
            r#"{"retries":3,"delays_s":[0,1.5],"timeout_s":1,"not_after":"2030-01-31T08:00:00Z"}"#,
            event()
                .retries(3)
                .and_then(|event| event.delays(delays))
                .and_then(|event| event.timeout(Duration::from_secs(1)))
                .and_then(|event| event.not_after(moment))
                .unwrap(),
        ),
    ] {
        let read = read_options(options).unwrap();
        assert_eq!(read.fields().options, expected.fields().options, "{options}");
    }
    assert!(plain(r#"{"name":"greet","options":null}"#).fields().options.is_none());
}

#[test]
fn what_is_no_option_is_refused() {
    for (options, part) in [
        (r#""secret""#, "`options` must be a JSON object"),
        ("[]", "`options` must be a JSON object"),
        (r#"{"tries":"secret"}"#, "`tries` in `options` must be left out"),
        (r#"{"retries":1,"retries":2}"#, "`retries` is given twice"),
        (r#"{"retries":"secret"}"#, "`retries` must be a whole number"),
        (r#"{"retries":1.5}"#, "`retries` must be a whole number"),
        (r#"{"retries":-1}"#, "`retries` must be a whole number"),
        (r#"{"retries":1001}"#, "retried 1,000 times at most"),
        (r#"{"delays_s":1}"#, "`delays_s` must be a JSON array"),
        (r#"{"delays_s":["secret"]}"#, "each of `delays_s` must be a number of seconds"),
        (r#"{"delays_s":[-1]}"#, "each of `delays_s` must be a number of seconds"),
        (r#"{"delays_s":[]}"#, "1 to 100 delays"),
        (r#"{"delays_s":[2592001]}"#, "each of 30 days at most"),
        (r#"{"delays_s":[1e300]}"#, "each of 30 days at most"),
        (r#"{"timeout_s":0}"#, "a millisecond to 30 days"),
        (r#"{"timeout_s":1e300}"#, "a millisecond to 30 days"),
        (r#"{"timeout_s":"secret"}"#, "`timeout_s` must be a number of seconds"),
        (r#"{"keep_s":7776001}"#, "90 days at most"),
        (r#"{"keep_s":1e300}"#, "90 days at most"),
        (r#"{"keep_s":"secret"}"#, "`keep_s` must be a number of seconds"),
        (r#"{"limits":"secret"}"#, "`limits` must be a JSON array"),
        (r#"{"limits":[1]}"#, "each of `limits` must be a string"),
        (r#"{"limits":["canvas"]}"#, "nor canvas"),
        (r#"{"limits":["handler:WORKER/greet"]}"#, "a limit's key has 1 to 200"),
        (r#"{"limits":["a","b","c","d"]}"#, "at most 3 different keys"),
        (r#"{"urgent":"secret"}"#, "`urgent` must be true or false"),
        (r#"{"urgent":1}"#, "`urgent` must be true or false"),
        (r#"{"not_after":1}"#, "`not_after` must be a string"),
        (r#"{"not_after":"secret"}"#, "`not_after` must be a moment"),
    ] {
        check_refused(read_options(options), part);
    }
}
