//! What an operation does not declare, it refuses: generated for every operation of the document,
//! so that a new one can't forget it.

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

/// What is answered in items can be continued: what has a `next_cursor` takes a `cursor`. The log
/// is continued after the number that its page is `through`. A lease of copies is not a list.
#[tokio::test]
async fn every_list_has_a_limit_and_a_cursor() {
    let service = Service::start().await;
    let document = Answer::of(service.request(Method::GET, "/openapi.json")).await.json();
    let mut lists = 0;
    for operation in operations(&service).await {
        let schema = &operation.described["responses"]["200"]["content"]["application/json"]["schema"];
        let resolved = match schema["$ref"].as_str() {
            Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null),
            None => schema,
        };
        if resolved["properties"]["items"].is_object() && operation.id != "lease_copies" {
            let [given, taken] =
                if operation.id == "read_log" { ["through", "after"] } else { ["next_cursor", "cursor"] };
            assert!(resolved["properties"][given].is_object(), "{} has no {given}", operation.id);
            assert!(declares(&operation, "limit"), "{} has no limit", operation.id);
            assert!(declares(&operation, taken), "{} has no {taken}", operation.id);
            lists += 1;
        }
    }
    assert!(lists >= 17, "{lists} lists");
    service.stop().await;
}
