//! What the pages for people are made of: the document, its policy, tables, names and figures.
//!
//! A page loads nothing from elsewhere. All text from users passes through `escaped`, or through
//! `encoded` if it is part of an address.

use std::fmt::{Display, Write as _};
use std::sync::OnceLock;
use std::time::Duration;

use aws_lc_rs::digest;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::broker::{LISTED_MAX, Refusal};
use crate::server::rest;

/// The paths of the pages of single resources.
pub(super) const SUBSCRIPTION: &str = "/admin/subscription";
pub(super) const TOPIC: &str = "/admin/topic";

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The title of the page of everything.
pub(super) const HOME: &str = "Pub/Sub emulator";
/// The most rows of one kind on a page; the rest is only counted.
const ROWS_MAX: usize = LISTED_MAX;
/// Characters that are encoded in the query of an address.
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_');

/// A page. `fixed` is HTML that stays as it is; each live part, by its id, is refreshed.
pub(super) fn document(title: &str, fixed: &str, live: &[(&str, &str)]) -> String {
    let mut page = head(title);
    let _infallible =
        write!(page, "<button type=\"button\" id=\"pause\" hidden>Pause</button></header>\n{fixed}\n");
    for (id, part) in live {
        let _infallible = writeln!(page, "<div class=\"live\" id=\"{id}\">\n{part}</div>");
    }
    let _infallible = write!(
        page,
        "<footer>As JSON: <a href=\"/admin/state\">/admin/state</a>, <a href=\"/admin/faults\">/admin/faults</a>\
         </footer>\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    );
    page
}

fn head(title: &str) -> String {
    let up = if title == HOME { String::new() } else { format!("<a href=\"/\">{HOME}</a>") };
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<main>\n<header><h1>{title}</h1>{up}"
    )
}

/// The answer to a request that was refused, which has changed nothing.
pub(super) fn refused(refusal: &Refusal) -> Response<Body> {
    let mut page = head("Refused");
    let _infallible = write!(
        page,
        "</header>\n<section><h2>{}</h2><p>{}</p></section>\n</main>\n</body>\n</html>\n",
        rest::name_of(refusal.code),
        escaped(&refusal.message)
    );
    let mut response = shown(page);
    *response.status_mut() = rest::status_of(refusal.code);
    response
}

/// The answer with a page.
pub(super) fn shown(page: String) -> Response<Body> {
    written("text/html; charset=utf-8", page)
}

pub(super) fn written(kind: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(HeaderName::from_static("content-security-policy"), policy());
    response
}

/// Allows only the pages' own style, script and forms.
fn policy() -> HeaderValue {
    static POLICY: OnceLock<HeaderValue> = OnceLock::new();
    let hash = |text: &str| STANDARD.encode(digest::digest(&digest::SHA256, text.as_bytes()));
    let policy = POLICY.get_or_init(|| {
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; \
             form-action 'self'; frame-ancestors 'none'",
            hash(STYLE),
            hash(SCRIPT)
        );
        HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
    });
    policy.clone()
}

/// A section with a table of the first items of this many.
pub(super) fn table<T>(
    page: &mut String,
    title: &str,
    heads: &[&str],
    (first, count): (&[T], usize),
    write_row: impl Fn(&mut String, &T),
) {
    let _infallible = write!(page, "<section><h2>{title} <small>{count}</small></h2>");
    if first.is_empty() {
        page.push_str("<p>None yet.</p></section>\n");
        return;
    }
    let heads: Vec<String> = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let _infallible =
        writeln!(page, "<div class=\"wide\"><table><thead><tr>{}</tr></thead><tbody>", heads.concat());
    for item in first.iter().take(ROWS_MAX) {
        page.push_str("<tr>");
        write_row(page, item);
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>");
    if count > ROWS_MAX {
        let _infallible = write!(page, "<p>And {} more in /admin/state.</p>", count - ROWS_MAX);
    }
    page.push_str("</section>\n");
}

/// A cell with a name.
pub(super) fn named(row: &mut String, name: &str) {
    let _infallible = write!(row, "<td>{}</td>", emphasised(name));
}

/// A cell with a name that leads to the page of the resource, unless that was deleted.
pub(super) fn linked(row: &mut String, page: &str, name: &str) {
    if name.contains('/') {
        let _infallible = write!(row, "<td>{}</td>", link(page, name));
    } else {
        named(row, name);
    }
}

/// A link to the page of a resource.
pub(super) fn link(page: &str, name: &str) -> String {
    format!("<a href=\"{}\">{}</a>", address(page, name), emphasised(name))
}

/// The address of the page of a resource.
pub(super) fn address(page: &str, name: &str) -> String {
    format!("{page}?name={}", encoded(name))
}

/// Emphasises the id over the path before it.
fn emphasised(name: &str) -> String {
    let (path, id) = name.rsplit_once('/').map_or(("", name), |(path, id)| (path, id));
    let slash = if path.is_empty() { "" } else { "/" };
    format!("<span>{}{slash}</span>{}", broken(path), escaped(id))
}

/// Allows a line break after each slash of a long name.
fn broken(path: &str) -> String {
    escaped(path).replace('/', "/<wbr>")
}

/// A cell with a figure.
pub(super) fn number(row: &mut String, value: &dyn Display) {
    let _infallible = write!(row, "<td class=\"number\">{value}</td>");
}

/// Two units are precise enough: `3m 20s`.
pub(super) fn spoken(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds < 10 => format!("{:.1}s", duration.as_secs_f64()),
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m {}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

pub(super) fn size(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// Encodes text for the query of an address.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, IN_QUERY).to_string()
}

/// Escapes text for HTML.
pub(super) fn escaped(text: &(impl Display + ?Sized)) -> String {
    let mut harmless = String::new();
    for character in text.to_string().chars() {
        match character {
            '&' => harmless.push_str("&amp;"),
            '<' => harmless.push_str("&lt;"),
            '>' => harmless.push_str("&gt;"),
            '"' => harmless.push_str("&quot;"),
            '\'' => harmless.push_str("&#39;"),
            other => harmless.push(other),
        }
    }
    harmless
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_readable_units() {
        let spoken = |millis| spoken(Duration::from_millis(millis));
        assert_eq!([spoken(250), spoken(12_900), spoken(200_000)], ["0.2s", "12s", "3m 20s"]);
        assert_eq!([spoken(7_500_000), spoken(200_000_000)], ["2h 5m", "2d 7h"]);
        assert_eq!(
            [size(0), size(9_999), size(12_345), size(100_000_000)],
            ["0 B", "9999 B", "12 kB", "100 MB"]
        );
    }

    #[test]
    fn the_page_allows_its_own_script_and_no_other() {
        let policy = policy();
        let policy = policy.to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }

    #[test]
    fn a_name_is_harmless_in_an_address() {
        assert_eq!(
            address(TOPIC, "projects/p/topics/a-b_c.d"),
            "/admin/topic?name=projects/p/topics/a-b_c.d"
        );
        let link = link(TOPIC, "projects/\"><b>&x=1#/topics/a+b%");
        let expected = "<a href=\"/admin/topic?name=projects/%22%3E%3Cb%3E%26x%3D1%23/topics/a%2Bb%25\">";
        assert!(link.starts_with(expected), "{link}");
        assert_eq!(link.matches('<').count(), 6, "{link}");
    }

    #[test]
    fn a_refusal_is_a_page_of_its_status() {
        let response = refused(&Refusal::invalid("<script>"));
        assert_eq!(response.status(), 400);
    }
}
