//! Whatever people and programs write, and wherever they may write it, no page makes mark-up of it.
//!
//! Names that have only letters, digits and few signs can't be mark-up, and are left out.

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use wakeq::CanvasId;
use wakeq::control::ErrorGroupId;
use wakeq_service::access::Scope;

use super::scene::EVIL;
use super::visitor::{Shown, Visitor};
use crate::support::scope;
use crate::support::service::Service;

/// Mark-up after a word by which it is found again.
fn evil(word: &str) -> String {
    format!("~{word}{EVIL}")
}

/// The same without blanks.
fn evil_name(word: &str) -> String {
    evil(word).replace(' ', "/")
}

/// Every word that some page has to show.
const WORDS: [&str; 37] = [
    "signed-in",
    "browser",
    "value",
    "unique-key",
    "tag",
    "last-error",
    "attempt-error",
    "checkpoint",
    "batch",
    "dead-error",
    "dead-tag",
    "note",
    "ended-value",
    "ended-error",
    "result",
    "canceller",
    "reason",
    "cron-value",
    "cron-reason",
    "cron-author",
    "audience",
    "payload",
    "metadata",
    "object-state",
    "pattern",
    "holder",
    "added-tag",
    "error-text",
    "entity-state",
    "entity-result",
    "entity-error",
    "unhealthy",
    "failing-error",
    "group-payload",
    "group-error",
    "host",
    "detail",
];

/// What no route of the API writes, or only in the course of things. What stands in brackets is
/// evil.
const FILL: &str = r#"
    update wakeq.events_v2 set locked_at = now(), claims = 2, retries = 1, nonce = 5, last_error = [last-error]
     where name = 'hostile-run';
    insert into wakeq.attempts (canvas_id, event_id, number, nonce, outcome, started_at, took_us, error)
    select canvas_id, id, 1, 7, 'retried', now(), 250000, [attempt-error] from wakeq.events_v2
     where name = 'hostile-run';
    insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                   cause, last_error, options)
    values (gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'hostile', '_', '1', 2, now(), 3, 0,
            'retries', [dead-error], jsonb_build_object('tags', jsonb_build_array([dead-tag])));
    insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, result, outcome, error,
                                    ended_by, enqueued_at, due_at, ended_at, started_at, took_us, claims, retries,
                                    losses)
    select '00000000-0000-0000-0000-000000000000', lpad(n::text, 32, '0')::uuid, now() + interval '1 day', 'WORKER',
           'hostile', '_', to_json([ended-value]::text)::text, case n when 1 then to_json([result]::text)::text end,
           (array['completed', 'cancelled'])[n], [ended-error], case n when 2 then [canceller] end,
           now(), now(), now(), now(), 1500000, 1, 0, 0
      from generate_series(1, 2) n;
    update wakeq.cron_records set created_by = [cron-author];
    update wakeq.http_targets set audience = [audience];
    insert into wakeq.entities (entity_type, canvas_id, id, version, last_link, state, state_version, state_seq)
    values ('hostile', '00000000-0000-0000-0000-000000000000', 'a', 1, 1, to_json([entity-state]::text)::text, 1, 1);
    insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev,
                                     status, version, result, error, ended_at)
    values ('00000000-0000-0000-0000-000000000000', '00000000-0000-7000-8000-000000000011',
            '00000000-0000-7000-8000-000000000010', 'hostile', 'a', 'done', 2, 1, 'processed', 1,
            to_json([entity-result]::text)::text, null, now()),
           ('00000000-0000-0000-0000-000000000000', '00000000-0000-7000-8000-000000000012',
            '00000000-0000-7000-8000-000000000010', 'hostile', 'a', 'failed', 3, 2, 'failed', null,
            null, [entity-error], now());
    insert into wakeq.nodes (node_id, expires_at) values ('00000000-0000-7000-8000-000000000001', 'infinity');
    insert into wakeq.subscribers (subscriber_name, subscriber_id, node_id, expires_at, requests, request_count,
                                   unhealthy)
    values ('hostile', '00000000-0000-7000-8000-000000000003', '00000000-0000-7000-8000-000000000001', 'infinity',
            '[{"type":"category","category":"companies","partitions":["1","2"],"of":2}]', 2, [unhealthy]);
    insert into wakeq.consumer_positions (consumer_group, source, position, epoch, failing_seq, failing_since,
                                          failing_attempts, failing_error)
    values ('hostile', 'category/companies/1-of-2', 0, 3, 1, now(), 3, [failing-error]);
    insert into wakeq.consumer_dead (consumer_group, source, seq, id, canvas_id, category, stream, name, payload,
                                     attempts, last_error)
    values ('hostile', 'log', 5, gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'companies', 'a',
            'changed', to_json([group-payload]::text)::text, 1, [group-error]);
    insert into wakeq.workers (name, instance, host, release, capacity, handler_count, handlers, has_targets)
    values ('hostile', gen_random_uuid(), [host], '0.1.0', 8, 1, '{WORKER/hostile/_}', false);
    insert into wakeq.audit_log (canvas_id, actor, action, outcome, detail)
    values ('00000000-0000-0000-0000-000000000000', 'key:ada', 'mend', 'done', [detail])"#;

/// Somebody who may do everything, and has chosen a name.
struct Writer<'s> {
    service: &'s Service,
    key: String,
}

impl Writer<'_> {
    async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let answer = self.service.ask(&self.key, method, path, body).await;
        assert!(answer.status.is_success(), "{path}: {} {}", answer.status, answer.text);
        serde_json::from_str(&answer.text).unwrap_or_default()
    }

    /// On the default canvas.
    async fn here(&self, method: Method, path: &str, body: Value) -> Value {
        self.ask(method, &format!("/canvases/{}{path}", CanvasId::DEFAULT), body).await
    }

    /// Returns the ids of two events: one that waits, and one that runs.
    async fn emits(&self) -> [String; 2] {
        let batch = json!({"on_end": {"name": "imported", "value": evil("end")}});
        self.here(Method::POST, &format!("/batches/{}", encoded(&evil_name("batch"))), batch).await;
        self.here(Method::POST, "/events", json!({"name": "row", "batch": evil_name("batch")})).await;
        let waiting = json!({"name": "hostile", "value": {"text": evil("value")}, "delay_s": 3600,
                             "unique": {"key": evil_name("unique-key")}, "options": {"tags": [evil("tag")]}});
        let running = json!({"name": "hostile-run", "value": 1});
        let emitted = async |event: Value| {
            let emitted = self.here(Method::POST, "/events", event).await;
            emitted["id"].as_str().unwrap().to_owned()
        };
        let ids = [emitted(waiting).await, emitted(running).await];
        let on_object = json!({"main": {"name": "index"}, "state": {"is": evil("object-state")}});
        self.here(Method::POST, "/objects/hostile:1/events", on_object).await;
        let events =
            json!([{"name": "said", "payload": evil("payload"), "metadata": {"by": evil("metadata")}}]);
        let appends = json!({"appends": [{"category": "companies", "stream": "a", "events": events}]});
        self.here(Method::POST, "/log", appends).await;
        ids
    }

    async fn sets_up(&self) {
        let reason = json!({"reason": evil("reason")});
        let cron_reason = json!({"reason": evil("cron-reason")});
        let hook = json!({"kind": "github", "handler": {"name": "on-push"}});
        for (path, body) in [
            ("/handlers/WORKER/hostile/pause", reason),
            ("/cron/hostile", json!({"expression": "@yearly", "value": evil("cron-value")})),
            ("/cron/hostile/pause", cron_reason),
            ("/handlers/WORKER/remote", json!({"url": "https://remote.example/"})),
            ("/handlers/WORKER/pulled/pull", json!({})),
            ("/hooks/hostile", hook),
            ("/limits/customer", json!({"concurrency": 2})),
        ] {
            self.here(Method::PUT, path, body).await;
        }
        let queue = json!({"patterns": [evil("pattern")]});
        self.ask(Method::PUT, "/admin/queues/hostile", queue).await;
        let key = json!({"holder": evil("holder"), "scopes": ["read"]});
        self.ask(Method::POST, &format!("/admin/canvases/{}/keys", CanvasId::DEFAULT), key).await;
    }

    /// Writes what is about what is there by now. Returns the pages of an error and an operation.
    async fn comments(&self, running: &str) -> [String; 2] {
        let checkpoint = json!({"claim": "0000000200000005", "value": evil("checkpoint")});
        self.here(Method::PUT, &format!("/events/{running}/checkpoint"), checkpoint).await;
        let error = evil("dead-error");
        let group = ErrorGroupId::of(&scope("hostile"), "retries", Some(error.as_str()));
        let group = format!("/dead-events/groups/{group}");
        self.here(Method::PUT, &format!("{group}/known"), json!({"note": evil("note")})).await;
        let retag = json!({"kind": "retag", "filter": {"name": "hostile", "error_text": evil("error-text")},
                           "add_tags": [evil("added-tag")]});
        let begun = self.here(Method::POST, "/operations", retag).await;
        [group, format!("/operations/{}", begun["id"].as_str().unwrap())]
    }
}

/// Executes [`FILL`].
async fn fill(service: &Service) {
    let sql = WORDS.iter().fold(FILL.to_owned(), |sql, word| {
        sql.replace(&format!("[{word}]"), &format!("$evil${}$evil$", evil(word)))
    });
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&service.stage.pool).await.unwrap();
}

/// A name as a part of a path.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn pages([waiting, running]: [String; 2], about: [String; 2]) -> Vec<String> {
    let mut pages: Vec<_> = [
        "",
        "/events",
        "/dead-events?known=true",
        "/dead-events/list",
        "/ended-events",
        "/events/00000000-0000-0000-0000-000000000001?value=shown",
        "/events/00000000-0000-0000-0000-000000000002?value=shown",
        "/handlers",
        "/handlers/WORKER/hostile",
        "/handlers/WORKER/hostile/pause",
        "/targets",
        "/handlers/WORKER/remote",
        "/handlers/WORKER/remote/targets/_",
        "/handlers/WORKER/remote/targets/_/change",
        "/handlers/WORKER/remote/targets/_/delete",
        "/cron",
        "/cron/hostile",
        "/hooks",
        "/hooks/hostile",
        "/batches",
        "/pulled-handlers",
        "/pulled-handlers/WORKER/pulled",
        "/queues",
        "/queues/hostile",
        "/objects/hostile:1",
        "/entities?type=hostile",
        "/entities/hostile/a",
        "/entities/status/00000000-0000-7000-8000-000000000010",
        "/log",
        "/groups",
        "/groups/hostile",
        "/groups/hostile/dead",
        "/workers",
        "/workers/hostile",
        "/limits",
        "/limits/customer",
        "/operations",
        "/keys",
        "/record",
        "/switches",
    ]
    .map(str::to_owned)
    .into();
    let batch = encoded(&evil_name("batch"));
    pages.extend(["", "/close", "/give-up"].map(|what| format!("/batches/{batch}{what}")));
    pages.push(format!("/events?batch={batch}&tag={}", encoded(&evil("tag"))));
    pages.extend([waiting, running].map(|id| format!("/events/{id}?value=shown")));
    pages.extend(about);
    pages
}

/// Neither an element nor the end of an attribute.
#[track_caller]
fn is_harmless(page: &Shown) {
    page.says_nothing_of("<script>document").says_nothing_of("<img").says_nothing_of("&gt;\"'");
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn no_text_of_others_is_mark_up_on_any_page() {
    let service = Service::start().await;
    let key = service.wide_key(&evil("signed-in"), &Scope::ALL).await;
    let writer = Writer { service: &service, key };
    let events = writer.emits().await;
    writer.sets_up().await;
    fill(&service).await;
    let about = writer.comments(&events[1]).await;

    let elsewhere = Visitor::stranger(&service).sending("user-agent", evil("browser"));
    elsewhere.post("/sign-in", &[("key", writer.key.as_str())]).await;
    let visitor = Visitor::with_key(&service, &writer.key).await;
    let sessions = visitor.get("/sessions").await.found();
    is_harmless(&sessions);
    let mut shown = sessions.html;
    for path in pages(events, about) {
        let page = visitor.page(&path).await.found();
        is_harmless(&page);
        shown.push_str(&page.html);
    }
    let unseen: Vec<_> =
        WORDS.iter().filter(|word| !shown.contains(&format!("~{word}&lt;/script&gt;"))).collect();
    assert!(unseen.is_empty(), "no page has shown these, so that they were not tried: {unseen:?}");
}
