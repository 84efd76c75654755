//! The page for people at `/`: the resources, their backlogs, who holds which messages, and the
//! faults in force. Programs get the same as JSON, or a line that says that the emulator is
//! running.

use std::fmt::Write as _;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, header};

use super::Admin;
use super::html::{self, SUBSCRIPTION, TOPIC, escaped, linked, named, number, size, spoken, table, written};
use crate::broker::{Counts, Faults, Overview, PushFigures, SubscriptionOverview};

/// Answers with a page, JSON or text, by what the caller accepts.
pub(super) async fn show(state: State<Admin>, headers: HeaderMap) -> Response<Body> {
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accepted.contains("application/json") && !accepted.contains("text/html") {
        return super::state(state).await;
    }
    if !accepted.contains("text/html") {
        return written("text/plain; charset=utf-8", text(state.core.with(|broker, _| broker.counts())));
    }
    let (overview, faults) = state.core.with(|broker, now| (broker.overview(now), broker.faults().clone()));
    written("text/html; charset=utf-8", page(&overview, &faults))
}

/// The first word is the answer of Google's emulator, for clients that check whether it is running.
/// The second line is what `pubsub-emulator health` knows this emulator by.
fn text(Counts { topics, subscriptions, backlog }: Counts) -> String {
    format!(
        "Ok\n{topics} topics, {subscriptions} subscriptions, {backlog} messages not acknowledged.\n\
         GET /admin/state has everything as JSON; a browser gets a page here.\n"
    )
}

fn page(overview: &Overview, faults: &Faults) -> String {
    let mut live = String::new();
    faults_in_force(&mut live, faults);
    subscriptions(&mut live, "Subscriptions", all(&overview.subscriptions));
    topics(&mut live, overview);
    snapshots(&mut live, overview);
    schemas(&mut live, overview);
    streams(&mut live, overview);
    html::document(html::HOME, "", &[("everything", live.as_str())])
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

/// All items, and how many they are.
fn all<T>(items: &[T]) -> (&[T], usize) {
    (items, items.len())
}

/// A table of the first of this many subscriptions, whose names lead to their messages.
pub(super) fn subscriptions(page: &mut String, title: &str, listed: (&[SubscriptionOverview], usize)) {
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
    table(page, title, &heads, listed, |row, subscription| {
        let SubscriptionOverview { name, topic, push, detached, messages, .. } = subscription;
        let oldest = messages.oldest_unacked.map(spoken).unwrap_or_default();
        linked(row, SUBSCRIPTION, name);
        linked(row, TOPIC, topic);
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
    table(page, "Topics", &heads, all(&overview.topics), |row, topic| {
        linked(row, TOPIC, &topic.name);
        for count in [topic.subscriptions, topic.snapshots, topic.retained] {
            number(row, &count);
        }
    });
}

fn snapshots(page: &mut String, overview: &Overview) {
    if overview.snapshots.is_empty() {
        return;
    }
    let heads = ["Snapshot", "Topic", "Messages"];
    table(page, "Snapshots", &heads, all(&overview.snapshots), |row, snapshot| {
        named(row, &snapshot.name);
        linked(row, TOPIC, &snapshot.topic);
        number(row, &snapshot.messages);
    });
}

fn schemas(page: &mut String, overview: &Overview) {
    if overview.schemas.is_empty() {
        return;
    }
    let heads = ["Schema", "Type", "Revisions", "Latest revision", "Topics"];
    table(page, "Schemas", &heads, all(&overview.schemas), |row, schema| {
        named(row, &schema.name);
        let _infallible = write!(row, "<td>{}</td>", schema.kind);
        number(row, &schema.revisions.len());
        let latest = schema.revisions.last().map(String::as_str).unwrap_or_default();
        let _infallible = write!(row, "<td><code>{latest}</code></td>");
        number(row, &schema.topics);
    });
}

fn streams(page: &mut String, overview: &Overview) {
    if overview.streams.is_empty() {
        return;
    }
    let heads = ["Subscription", "Client", "Messages held", "Size"];
    table(page, "Open streaming pulls", &heads, all(&overview.streams), |row, stream| {
        linked(row, SUBSCRIPTION, &stream.subscription);
        let _infallible = write!(row, "<td>{}</td>", escaped(&stream.client_id));
        number(row, &stream.messages);
        number(row, &size(stream.bytes));
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
