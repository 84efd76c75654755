//! What an operation does not declare, it refuses: generated for every operation of the document,
//! so that a new one can't forget it.

use std::collections::BTreeSet;

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::contents::contents;
use super::requests::{Operation, Targets, operations};
use crate::support::service::{Answer, Service};

/// Whether an operation declares a parameter of this name.
fn declares(operation: &Operation, name: &str) -> bool {
    let parameters = operation.described["parameters"].as_array();
    parameters.is_some_and(|all| all.iter().any(|parameter| parameter["name"] == name))
}

/// Sends a request for each operation as `change` makes it, and asserts that it is refused with
/// these words, and that nothing in the database changed.
async fn all_refused(
    wanted: impl Fn(&Operation) -> bool,
    change: impl Fn(RequestBuilder) -> RequestBuilder,
    words: &str,
) -> usize {
    let service = Service::start().await;
    let targets = Targets::prepare(&service).await;
    let before = contents(&service).await;
    let mut refused = 0;
    for operation in operations(&service).await.iter().filter(|operation| wanted(operation)) {
        let good = targets.good(&service, operation).bearer_auth(targets.key(&service, operation));
        let answer = Answer::of(change(good)).await;
        assert_eq!(answer.problem(), (400, "bad-request".into()), "{}: {}", operation.id, answer.text);
        assert!(answer.text.contains(words) && !answer.text.contains("5ecre7"), "{}", answer.text);
        refused += 1;
    }
    assert_eq!(contents(&service).await, before);
    service.stop().await;
    refused
}

#[tokio::test]
async fn an_unknown_query_parameter_is_refused_by_every_operation() {
    let refused = all_refused(|_| true, |request| request.query(&[("5ecre7", "1")]), "this accepts").await;
    assert!(refused > 60, "{refused} operations");
}

/// Operations that declare the header honour it: `http::idempotency` and `http::operations`.
#[tokio::test]
async fn an_idempotency_key_is_honoured_or_refused_by_every_operation_that_writes() {
    let ignores =
        |operation: &Operation| operation.method != Method::GET && !declares(operation, "idempotency-key");
    let with_key = |request: RequestBuilder| request.header("idempotency-key", "5ecre7");
    let refused = all_refused(ignores, with_key, "does not honour an Idempotency-Key").await;
    assert!(refused > 30, "{refused} operations");
    let service = Service::start().await;
    let all = operations(&service).await;
    let honouring = all.iter().filter(|operation| declares(operation, "idempotency-key"));
    let honouring: Vec<_> = honouring.map(|operation| operation.id.as_str()).collect();
    assert_eq!(honouring, ["run_cron_now", "emit", "emit_batch", "change_object", "begin_operation"]);
    service.stop().await;
}

/// Arrays of objects that are no lists to be continued, by schema and property, and why nothing is
/// left out of them unsaid.
const WHOLE: [(&str, &str, &str); 17] = [
    ("AppendedAll", "events", "one for each event of the request"),
    ("CanvasCounts", "busiest", "the 50 with the most of its `handlers`; `list_handlers` has all"),
    ("CanvasCounts", "stopped", "the first 50 of its `stopped_handlers`"),
    ("CanvasCounts", "unknown", "the first 50 of its `unknown_handlers`"),
    ("Cron", "next", "the next five ticks, or one, of a sequence without end"),
    ("DoctorReport", "findings", "all that it has found: each check has a bounded number"),
    ("EmittedBatch", "events", "one for each event of the request"),
    ("EventDetail", "attempts", "the last 100, of which the description says that they are (ADR 0084)"),
    ("Group", "sources", "all of them"),
    ("Group", "subscribers", "all of them"),
    ("Handler", "rules", "one of each kind at most"),
    ("Leased", "copies", "as many as the request asks for; what is left is leased by the next one"),
    ("LeasedEvents", "events", "as many as the request asks for; what is left is leased by the next one"),
    ("List_Cron", "next", "as `Cron`"),
    ("List_Handler", "rules", "as `Handler`"),
    ("Queue", "settings", "only `show_queue` answers with them, and takes a cursor"),
    ("Worker", "runs", "the longest 100 of `worker.running`; `list_events` has all with `worker`"),
];

/// The arrays of objects in a schema and in what it refers to: the name of the schema that has it,
/// the property, and the other properties beside it.
struct Arrays<'a> {
    document: &'a Value,
    seen: BTreeSet<String>,
    found: Vec<(String, String, &'a Value)>,
}

impl<'a> Arrays<'a> {
    fn of(document: &'a Value, schema: &'a Value, operation: &str) -> Vec<(String, String, &'a Value)> {
        let mut arrays = Self { document, seen: BTreeSet::new(), found: Vec::new() };
        arrays.look(schema, operation);
        arrays.found
    }

    /// What a schema refers to, and its name.
    fn resolved(&self, schema: &'a Value) -> (Option<&'a str>, &'a Value) {
        match schema["$ref"].as_str() {
            Some(reference) => {
                let target = self.document.pointer(reference.trim_start_matches('#'));
                (reference.rsplit('/').next(), target.expect(reference))
            }
            None => (None, schema),
        }
    }

    /// Whether values of a schema have properties.
    fn is_object(&self, schema: &'a Value) -> bool {
        let (_, schema) = self.resolved(schema);
        schema["properties"].is_object() || alternatives(schema).any(|schema| self.is_object(schema))
    }

    fn look(&mut self, schema: &'a Value, name: &str) {
        let (reference, schema) = self.resolved(schema);
        let name = reference.unwrap_or(name);
        if reference.is_some() && !self.seen.insert(name.to_owned()) {
            return;
        }
        for (property, described) in schema["properties"].as_object().into_iter().flatten() {
            if described["items"].is_object() && self.is_object(&described["items"]) {
                self.found.push((name.to_owned(), property.clone(), &schema["properties"]));
            }
            self.look(described, name);
        }
        for inner in [&schema["items"], &schema["additionalProperties"]] {
            if inner.is_object() {
                self.look(inner, name);
            }
        }
        for alternative in alternatives(schema) {
            self.look(alternative, name);
        }
    }
}

/// The parts and the alternatives of a schema.
fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    ["allOf", "anyOf", "oneOf"].into_iter().filter_map(move |word| schema[word].as_array()).flatten()
}

/// No array of objects in an answer is cut without a sign: it can be continued, by a `next_cursor`
/// beside it that the operation takes as its `cursor`, or a property `more` or `more_NAME` says
/// that there are more, or it is one of [`WHOLE`]. Those named `items` are lists, which need the
/// first.
#[tokio::test]
async fn every_list_has_a_limit_and_a_cursor() {
    let service = Service::start().await;
    let document = Answer::of(service.request(Method::GET, "/openapi.json")).await.json();
    let (mut lists, mut whole) = (0, BTreeSet::new());
    for operation in operations(&service).await {
        let responses = operation.described["responses"].as_object().unwrap().iter();
        let successes = responses.filter(|(status, _)| status.starts_with('2'));
        let schemas = successes.map(|(_, response)| &response["content"]["application/json"]["schema"]);
        let arrays = schemas.flat_map(|schema| Arrays::of(&document, schema, &operation.id));
        for (schema, property, beside) in arrays {
            let has = |name: &str| beside[name].is_object();
            let taken = if has("through") { "after" } else { "cursor" };
            let goes_on = has("next_cursor") || has("through");
            if goes_on && declares(&operation, "limit") && declares(&operation, taken) {
                lists += 1;
            } else if property != "items" && (has("more") || has(&format!("more_{property}"))) {
                // It says so.
            } else {
                let known = WHOLE.iter().find(|(of, name, _)| *of == schema && *name == property);
                let known = known.unwrap_or_else(|| panic!("{}: {schema}.{property} is cut", operation.id));
                whole.insert((known.0, known.1));
            }
        }
    }
    assert!(lists >= 30, "{lists} lists");
    assert_eq!(whole.len(), WHOLE.len(), "{whole:?}");
    service.stop().await;
}
