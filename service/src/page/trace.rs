//! Where traces are shown: an address of another program, to which pages link. Must never ask it
//! for anything.

use std::str::FromStr;

use url::Url;

use wakeq::events::Traceparent;

/// What stands for the id of a trace.
const PLACE: &str = "{trace_id}";
/// Some id of a trace, with which the address has to be one.
const SOME_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// Maximum length in bytes.
const BYTES_MAX: usize = 2_048;

/// Where a trace is shown: an address with `{trace_id}` in it, such as
/// `https://trace.example/t/{trace_id}`.
///
/// ```
/// use wakeq_service::server::TraceUrl;
///
/// assert!("https://trace.example/t/{trace_id}".parse::<TraceUrl>().is_ok());
/// assert!("https://trace.example/".parse::<TraceUrl>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceUrl(Box<str>);

/// An address that can't be a [`TraceUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write an http or https URL with {{trace_id}} in it: https://trace.example/t/{{trace_id}}")]
pub struct InvalidTraceUrl;

impl FromStr for TraceUrl {
    type Err = InvalidTraceUrl;

    fn from_str(text: &str) -> Result<Self, InvalidTraceUrl> {
        let url = Url::parse(&text.replace(PLACE, SOME_ID)).map_err(|_| InvalidTraceUrl)?;
        let is_web = matches!(url.scheme(), "http" | "https");
        // Whoever sees an event would see the password, too.
        let is_open = url.username().is_empty() && url.password().is_none();
        let is_whole = text.contains(PLACE) && text.len() <= BYTES_MAX;
        if is_web && is_open && is_whole { Ok(Self(text.into())) } else { Err(InvalidTraceUrl) }
    }
}

impl TraceUrl {
    /// Where the trace of an event is shown, by its `traceparent`.
    pub(super) fn of(&self, traceparent: &str) -> Option<String> {
        let parent: Traceparent = traceparent.parse().ok()?;
        Some(self.0.replace(PLACE, parent.trace_id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_place_for_the_id() {
        let parent = format!("00-{SOME_ID}-00f067aa0ba902b7-01");
        for (text, shown) in [
            ("https://trace.example/t/{trace_id}", "https://trace.example/t/ID"),
            ("http://[::1]:16686/?q={trace_id}&again={trace_id}", "http://[::1]:16686/?q=ID&again=ID"),
            ("https://trace.example/#/{trace_id}", "https://trace.example/#/ID"),
        ] {
            let url: TraceUrl = text.parse().unwrap();
            assert_eq!(url.of(&parent), Some(shown.replace("ID", SOME_ID)), "{text}");
            assert_eq!(url.of("a trace"), None);
        }
        let long = format!("https://trace.example/{{trace_id}}?{}", "x".repeat(BYTES_MAX));
        for text in [
            "",
            "{trace_id}",
            "/t/{trace_id}",
            "https://trace.example/t/{traceid}",
            "javascript:alert('{trace_id}')",
            "ftp://trace.example/{trace_id}",
            "https://ada:secret@trace.example/{trace_id}",
            &long,
        ] {
            assert_eq!(text.parse::<TraceUrl>(), Err(InvalidTraceUrl), "{text}");
        }
    }
}
