//! The page for people at `/`: the resources, their backlogs, who holds which messages, and the
//! faults in force. Programs get the same as JSON, or a line that says that the emulator is
//! running.
//!
//! It loads nothing from elsewhere, and all text from users passes through `escaped`.

use std::fmt::{Display, Write as _};
use std::sync::OnceLock;
use std::time::Duration;

use aws_lc_rs::digest;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Admin;
use crate::broker::{Faults, Overview, PushFigures, SubscriptionOverview};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The most rows of one kind on the page; the rest is only counted.
const ROWS_MAX: usize = 500;

/// Answers with a page, JSON or text, by what the caller accepts.
pub(super) async fn show(state: State<Admin>, headers: HeaderMap) -> Response<Body> {
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accepted.contains("application/json") && !accepted.contains("text/html") {
        return super::state(state).await;
    }
    let (overview, faults) = state.core.with(|broker, now| (broker.overview(now), broker.faults().clone()));
    if accepted.contains("text/html") {
        written("text/html; charset=utf-8", page(&overview, &faults))
    } else {
        written("text/plain; charset=utf-8", text(&overview))
    }
}

fn written(kind: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(HeaderName::from_static("content-security-policy"), policy());
    response
}

/// Allows only this page's own style and script.
fn policy() -> HeaderValue {
    static POLICY: OnceLock<HeaderValue> = OnceLock::new();
    let hash = |text: &str| STANDARD.encode(digest::digest(&digest::SHA256, text.as_bytes()));
    let policy = POLICY.get_or_init(|| {
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            hash(STYLE),
            hash(SCRIPT)
        );
        HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
    });
    policy.clone()
}

/// The first word is the answer of Google's emulator, for clients that check whether it is running.
fn text(overview: &Overview) -> String {
    let waiting: usize =
        overview.subscriptions.iter().map(|subscription| subscription.messages.backlog).sum();
    format!(
        "Ok\n{} topics, {} subscriptions, {waiting} messages not acknowledged.\nGET /admin/state has everything as \
         JSON; a browser gets a page here.\n",
        overview.topics.len(),
        overview.subscriptions.len()
    )
}

fn page(overview: &Overview, faults: &Faults) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Pub/Sub emulator</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>Pub/Sub emulator</h1>\n"
    );
    faults_in_force(&mut page, faults);
    subscriptions(&mut page, overview);
    topics(&mut page, overview);
    snapshots(&mut page, overview);
    streams(&mut page, overview);
    page.push_str(
        "<footer>As JSON: <a href=\"/admin/state\">/admin/state</a>, <a href=\"/admin/faults\">/admin/faults</a></footer>\n\
         </main>\n",
    );
    let _infallible = write!(page, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

fn faults_in_force(page: &mut String, faults: &Faults) {
    let all = serde_json::to_value(faults).unwrap_or_default();
    let none = serde_json::to_value(Faults::default()).unwrap_or_default();
    let fields = all.as_object().into_iter().flatten();
    let items: Vec<String> = fields
        .filter(|(name, value)| none.get(name) != Some(value))
        .map(|(name, value)| format!("<li><b>{}</b> {}</li>", escaped(name), escaped(value)))
        .collect();
    if !items.is_empty() {
        let _infallible = writeln!(
            page,
            "<section class=\"faults\"><h2>Faults in force</h2><ul>{}</ul></section>",
            items.concat()
        );
    }
}

fn subscriptions(page: &mut String, overview: &Overview) {
    let heads = [
        "Subscription",
        "Topic",
        "Backlog",
        "Leased",
        "Waiting",
        "Blocked keys",
        "Oldest",
        "Size",
        "Delivery",
    ];
    table(page, "Subscriptions", &heads, &overview.subscriptions, |row, subscription| {
        let SubscriptionOverview { name, topic, push, detached, messages, .. } = subscription;
        let oldest = messages.oldest_unacked.map(spoken).unwrap_or_default();
        named(row, name);
        named(row, topic);
        for count in [messages.backlog, messages.leased, messages.waiting, messages.ordering_keys_blocked] {
            number(row, &count);
        }
        number(row, &oldest);
        number(row, &size(messages.bytes));
        let delivery = match push {
            _ if *detached => "detached".to_owned(),
            Some(push) => pushes(push),
            None => "pull".to_owned(),
        };
        let _infallible = write!(row, "<td>{delivery}</td>");
    });
}

fn pushes(push: &PushFigures) -> String {
    let mut words =
        format!("push to {}, {} of {} under way", escaped(&push.endpoint), push.under_way, push.window);
    if !push.pauses_for.is_zero() {
        let _infallible = write!(words, ", pauses for {}", spoken(push.pauses_for));
    }
    if let Some(failure) = &push.last_failure {
        let _infallible = write!(words, "<br><small>last failure: {}</small>", escaped(failure));
    }
    words
}

fn topics(page: &mut String, overview: &Overview) {
    let heads = ["Topic", "Subscriptions", "Snapshots", "Messages kept"];
    table(page, "Topics", &heads, &overview.topics, |row, topic| {
        named(row, &topic.name);
        for count in [topic.subscriptions, topic.snapshots, topic.retained] {
            number(row, &count);
        }
    });
}

fn snapshots(page: &mut String, overview: &Overview) {
    if overview.snapshots.is_empty() {
        return;
    }
    table(page, "Snapshots", &["Snapshot", "Topic", "Messages"], &overview.snapshots, |row, snapshot| {
        named(row, &snapshot.name);
        named(row, &snapshot.topic);
        number(row, &snapshot.messages);
    });
}

fn streams(page: &mut String, overview: &Overview) {
    if overview.streams.is_empty() {
        return;
    }
    let heads = ["Subscription", "Client", "Messages held", "Size"];
    table(page, "Open streaming pulls", &heads, &overview.streams, |row, stream| {
        named(row, &stream.subscription);
        let _infallible = write!(row, "<td>{}</td>", escaped(&stream.client_id));
        number(row, &stream.messages);
        number(row, &size(stream.bytes));
    });
}

fn table<T>(page: &mut String, title: &str, heads: &[&str], all: &[T], write_row: impl Fn(&mut String, &T)) {
    let _infallible = write!(page, "<section><h2>{title} <small>{}</small></h2>", all.len());
    if all.is_empty() {
        page.push_str("<p>None yet.</p></section>\n");
        return;
    }
    let heads: Vec<String> = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let _infallible =
        writeln!(page, "<div class=\"wide\"><table><thead><tr>{}</tr></thead><tbody>", heads.concat());
    for item in all.iter().take(ROWS_MAX) {
        page.push_str("<tr>");
        write_row(page, item);
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>");
    if all.len() > ROWS_MAX {
        let _infallible = write!(page, "<p>And {} more in /admin/state.</p>", all.len() - ROWS_MAX);
    }
    page.push_str("</section>\n");
}

/// Emphasises the id over the path before it.
fn named(row: &mut String, name: &str) {
    let (path, id) = name.rsplit_once('/').map_or(("", name), |(path, id)| (path, id));
    let slash = if path.is_empty() { "" } else { "/" };
    let _infallible = write!(row, "<td><span>{}{slash}</span>{}</td>", broken(path), escaped(id));
}

/// Allows a line break after each slash of a long name.
fn broken(path: &str) -> String {
    escaped(path).replace('/', "/<wbr>")
}

fn number(row: &mut String, value: &dyn Display) {
    let _infallible = write!(row, "<td class=\"number\">{value}</td>");
}

/// Two units are precise enough: `3m 20s`.
fn spoken(duration: Duration) -> String {
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

fn size(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// Escapes text for HTML.
fn escaped(text: &(impl Display + ?Sized)) -> String {
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
    use crate::broker::Figures;

    fn subscription(name: &str, push: Option<PushFigures>) -> SubscriptionOverview {
        let messages =
            Figures { backlog: 3, oldest_unacked: Some(Duration::from_secs(200)), ..Figures::default() };
        SubscriptionOverview {
            name: name.into(),
            topic: "projects/demo/topics/orders".into(),
            push,
            detached: false,
            expires: None,
            messages,
        }
    }

    #[test]
    fn names_from_users_are_escaped_in_html() {
        let evil = "</td><script>alert('1')</script>&\"";
        let push =
            PushFigures { endpoint: evil.into(), last_failure: Some(evil.into()), ..PushFigures::default() };
        let overview = Overview {
            subscriptions: vec![subscription(evil, Some(push)), subscription("a/<b>", None)],
            ..Overview::default()
        };
        let page = page(&overview, &Faults::default());
        assert_eq!(page.matches("<script>").count(), 1, "the page's own");
        assert!(!page.contains("<b>"), "{page}");
        assert_eq!(page.matches("&lt;script&gt;alert(&#39;1&#39;)&lt;/").count(), 3);
    }

    #[test]
    fn only_faults_in_force_are_shown() {
        let page_of = |faults: &Faults| page(&Overview::default(), faults);
        assert!(!page_of(&Faults::default()).contains("Faults in force"));
        let page = page_of(&Faults { lose: 0.25, ..Faults::default() });
        assert!(page.contains("<ul><li><b>lose</b> 0.25</li></ul>"), "{page}");
    }

    #[test]
    fn a_page_stays_small_however_much_there_is() {
        let subscriptions = (0..10_000).map(|number| subscription(&format!("s/{number}"), None)).collect();
        let page = page(&Overview { subscriptions, ..Overview::default() }, &Faults::default());
        assert!(page.contains("And 9500 more"));
        assert!(page.len() < 300_000, "{}", page.len());
    }

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
}
