//! The cookies of pages: how they are named, kept and read.
//!
//! Over TLS their names begin with `__Host-`, so that a browser takes them from this host alone:
//! another host of the same domain can't put a session of its own in their place. Such a cookie has
//! the path `/`; if the pages are below a path, that is a part of the name.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;

use crate::http::mounted::Root;

const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// How many characters of what was done are kept for the next page: a browser drops cookies beyond
/// 4 KiB, and each byte may take three.
const SAID_MAX: usize = 300;
/// How long that is kept, if no page follows.
const SAID_S: u64 = 10;

/// A cookie of ours.
#[derive(Clone, Copy)]
pub(super) enum Cookie {
    /// The session.
    Session,
    /// What the last request has done, to be said once.
    Said,
    /// A sign-in at a provider that is on its way.
    Flow,
}

impl Cookie {
    /// Its value in a request.
    pub(super) fn of(self, root: &Root, request: &HeaderMap) -> Option<String> {
        let name = self.name(root, request);
        let lines = request.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(given, _)| *given == name).map(|(_, value)| value.to_owned())
    }

    /// Sets it in the browser that sent a request. The value has no character with a meaning in the
    /// header.
    pub(super) fn set(
        self,
        root: &Root,
        request: &HeaderMap,
        answer: &mut Response,
        (value, seconds): (&str, u64),
    ) {
        let secure = if needs_tls(request) { "; Secure" } else { "" };
        let name = self.name(root, request);
        let site = self.same_site();
        let line = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite={site}{secure}");
        if let Ok(line) = HeaderValue::from_str(&line) {
            answer.headers_mut().append(header::SET_COOKIE, line);
        }
    }

    /// Removes it from the browser.
    pub(super) fn unset(self, root: &Root, request: &HeaderMap, answer: &mut Response) {
        self.set(root, request, answer, ("", 0));
    }

    /// A provider's site leads back here, and only to a page of ours does a browser then send what
    /// is strict.
    fn same_site(self) -> &'static str {
        match self {
            Self::Session | Self::Said => "Strict",
            Self::Flow => "Lax",
        }
    }

    fn name(self, root: &Root, request: &HeaderMap) -> String {
        let prefix = if needs_tls(request) { "__Host-" } else { "" };
        let own = match self {
            Self::Session => "wakeq_session",
            Self::Said => "wakeq_said",
            Self::Flow => "wakeq_oidc",
        };
        let place = root.path("").replace(|sign: char| !sign.is_ascii_alphanumeric(), "-");
        format!("{prefix}{own}{place}")
    }
}

/// Says on the next page what was done.
pub(super) fn say(root: &Root, request: &HeaderMap, answer: &mut Response, said: &str) {
    let said: String = said.chars().take(SAID_MAX).collect();
    let escaped: String = url::form_urlencoded::byte_serialize(said.as_bytes()).collect();
    Cookie::Said.set(root, request, answer, (&escaped, SAID_S));
}

/// What is to be said on this page.
pub(super) fn said(root: &Root, request: &HeaderMap) -> Option<String> {
    let line = format!("said={}", Cookie::Said.of(root, request)?);
    let mut pairs = url::form_urlencoded::parse(line.as_bytes());
    pairs.next().map(|(_, said)| said.chars().take(SAID_MAX).collect())
}

/// Whether the browser must send its cookies over TLS only. Without TLS it may speak to this
/// machine alone.
fn needs_tls(request: &HeaderMap) -> bool {
    let forwarded = request.get(FORWARDED_PROTO).is_some_and(|proto| proto == "https");
    forwarded || !is_loopback(request)
}

/// Whether the browser is on this machine.
fn is_loopback(request: &HeaderMap) -> bool {
    let host = request.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name =
        host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    fn request(headers: &[(HeaderName, &str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &str)| (name.clone(), HeaderValue::from_str(value).unwrap());
        HeaderMap::from_iter(headers.iter().map(pair))
    }

    fn set(root: &Root, request: &HeaderMap) -> String {
        let mut answer = ().into_response();
        Cookie::Session.set(root, request, &mut answer, ("token", 9));
        answer.headers()[header::SET_COOKIE].to_str().unwrap().to_owned()
    }

    #[test]
    fn a_cookie_without_tls_is_for_this_machine_only() {
        for (host, own) in [
            ("localhost", true),
            ("localhost:8080", true),
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("[::1]", true),
            ("queue.example", false),
            ("localhost.example:8080", false),
            ("10.0.0.1:8080", false),
            ("[fe80::1]:80", false),
            ("", false),
        ] {
            assert_eq!(needs_tls(&request(&[(header::HOST, host)])), !own, "{host}");
        }
        let behind = [(header::HOST, "127.0.0.1:8080"), (FORWARDED_PROTO, "https")];
        assert!(needs_tls(&request(&behind)), "a proxy on this machine has the certificate");
    }

    #[test]
    fn no_other_host_can_set_a_cookie_of_ours() {
        let root = Root::default();
        let public = request(&[(header::HOST, "queue.example")]);
        assert_eq!(
            set(&root, &public),
            "__Host-wakeq_session=token; Path=/; Max-Age=9; HttpOnly; SameSite=Strict; Secure"
        );
        let tossed = request(&[
            (header::HOST, "queue.example"),
            (header::COOKIE, "wakeq_session=of-another-host; a=b; __Host-wakeq_session=token"),
        ]);
        assert_eq!(Cookie::Session.of(&root, &tossed).as_deref(), Some("token"));
        let local = request(&[(header::HOST, "localhost:8080"), (header::COOKIE, "wakeq_session=token")]);
        assert_eq!(set(&root, &local), "wakeq_session=token; Path=/; Max-Age=9; HttpOnly; SameSite=Strict");
        assert_eq!(Cookie::Session.of(&root, &local).as_deref(), Some("token"));
    }

    #[test]
    fn what_was_done_comes_back_as_it_was_said() {
        let root = Root::default();
        for said in ["Done: 7 events.", "a; b=c, \"d\"\r\nSet-Cookie: x=y", "é + %3B"] {
            let mut answer = ().into_response();
            say(&root, &HeaderMap::new(), &mut answer, said);
            assert_eq!(answer.headers().len(), 1);
            let line = answer.headers()[header::SET_COOKIE].to_str().unwrap();
            let pair = line.split(';').next().unwrap();
            let next = request(&[(header::COOKIE, pair)]);
            assert_eq!(super::said(&root, &next).as_deref(), Some(said));
        }
        let mut answer = ().into_response();
        say(&root, &HeaderMap::new(), &mut answer, &"é".repeat(5_000));
        assert!(answer.headers()[header::SET_COOKIE].len() < 4_000);
    }
}
