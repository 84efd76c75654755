//! The checkpoint in a delivery: what the attempt before has left goes along in a header, and the
//! target leaves the next one in a header of an answer that does not complete the event. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};

use wakeq::Execution;

/// The checkpoint itself, as base64url.
const VALUE: HeaderName = HeaderName::from_static("wakeq-checkpoint");
/// The path of the API at which a longer one can be read.
const PLACE: HeaderName = HeaderName::from_static("wakeq-checkpoint-at");

/// Longest JSON that is sent in a header, in bytes: many servers accept 8 KiB of headers in all,
/// and this is 4 KiB as base64url.
const SENT_MAX_BYTES: usize = 3 * 1024;

/// Adds what the attempt before has left.
pub(super) fn add(headers: &mut HeaderMap, event: &Execution, json: &str) -> Result<(), InvalidHeaderValue> {
    let (name, value) = if json.len() <= SENT_MAX_BYTES {
        (VALUE, URL_SAFE_NO_PAD.encode(json))
    } else {
        (PLACE, format!("/v1/canvases/{}/events/{}/checkpoint", event.address.scope.canvas, event.id))
    };
    headers.insert(name, HeaderValue::from_str(&value)?);
    Ok(())
}

/// What a target leaves with its answer; `None` if it leaves nothing, or completes the event. The
/// error is for the owner of the target, and repeats nothing that it sent.
pub(super) fn left(status: StatusCode, headers: &HeaderMap) -> Option<Result<String, &'static str>> {
    let value = headers.get(VALUE).filter(|_| !status.is_success())?;
    let bytes = URL_SAFE_NO_PAD.decode(value.as_bytes().trim_ascii());
    let json = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    Some(json.ok_or("its `wakeq-checkpoint` is not JSON as base64url without padding"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeq::{CanvasId, HandlerAddress, HandlerScope};

    fn event() -> Execution {
        let scope = HandlerScope::worker(CanvasId::DEFAULT, "import").unwrap();
        let address = HandlerAddress { scope, modifier: "_".parse().unwrap() };
        Execution::new(address, "1", "2026-01-31T08:00:00Z".parse().unwrap())
    }

    fn sent(json: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        add(&mut headers, &event(), json).unwrap();
        headers
    }

    #[test]
    fn a_short_checkpoint_is_a_header_and_a_long_one_a_path() {
        assert_eq!(sent(r#"{"page":7}"#)[VALUE], "eyJwYWdlIjo3fQ");
        let longest = format!("\"{}\"", "x".repeat(SENT_MAX_BYTES - 2));
        assert_eq!(sent(&longest)[VALUE].len(), 4096);
        let long = sent(&format!("{longest} "));
        assert!(!long.contains_key(VALUE));
        let place = long[PLACE].to_str().unwrap();
        assert!(place.starts_with("/v1/canvases/00000000-0000-0000-0000-000000000000/events/"), "{place}");
        assert!(place.ends_with("/checkpoint"), "{place}");
    }

    #[test]
    fn a_target_leaves_a_checkpoint_unless_the_event_completes() {
        let json = r#"{"cursor":"ü"}"#;
        let answer = |status: u16, headers: &HeaderMap| left(StatusCode::from_u16(status).unwrap(), headers);
        assert_eq!(answer(503, &sent(json)), Some(Ok(json.to_owned())));
        assert_eq!(answer(204, &sent(json)), None);
        assert_eq!(answer(503, &HeaderMap::new()), None);
        for broken in ["{}", "e30=", "_w"] {
            let headers: HeaderMap = [(VALUE, HeaderValue::from_static(broken))].into_iter().collect();
            assert!(matches!(answer(503, &headers), Some(Err(_))), "{broken}");
        }
    }
}
