//! The OpenAPI document compared with the server.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::Value;

use super::requests::{Operation, Targets, operations};
use crate::support::service::{Answer, Service};

const METHODS: [&str; 7] = ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE"];

/// Each method of each path: served if the document has it, refused by the router if not.
#[tokio::test]
async fn what_is_documented_is_served_and_nothing_else() {
    let service = Service::start().await;
    let targets = Targets::prepare(&service).await;
    let mut paths: BTreeMap<String, Vec<Operation>> = BTreeMap::new();
    for operation in operations(&service).await {
        paths.entry(operation.path.clone()).or_default().push(operation);
    }
    for (path, documented) in paths {
        for method in METHODS {
            let method: Method = method.parse().unwrap();
            let known = documented.iter().find(|operation| operation.method == method);
            let mut asked = known.unwrap_or(&documented[0]).clone();
            asked.method = method.clone();
            // Without a credential: a request that reaches the guard gets a 401.
            let answer = Answer::of(targets.good(&service, &asked)).await;
            match known {
                Some(operation) if !operation.scopes.is_empty() => {
                    assert_eq!(answer.problem(), (401, "unauthenticated".into()), "{method} {path}");
                }
                Some(operation) if operation.pushed => {
                    assert_eq!(answer.problem(), (404, "not-found".into()), "{method} {path}");
                }
                Some(_) => assert!(answer.status.is_success(), "{method} {path}"),
                None => {
                    assert_eq!(answer.problem(), (405, "method-not-allowed".into()), "{method} {path}");
                    let allowed = answer.headers["allow"].to_str().unwrap();
                    let mut expected: BTreeSet<_> =
                        documented.iter().map(|operation| operation.method.as_str()).collect();
                    if expected.contains("GET") {
                        expected.insert("HEAD");
                    }
                    assert_eq!(allowed.split(',').collect::<BTreeSet<_>>(), expected, "{path}");
                }
            }
        }
    }
    for undocumented in ["/v1", "/v1/canvases", "/metrics", "/v1/admin", "/livez/", "//livez", "/LIVEZ"] {
        let answer = Answer::of(service.request(Method::GET, undocumented)).await;
        assert_eq!(answer.problem(), (404, "not-found".into()), "{undocumented}");
    }
    service.stop().await;
}

/// The table of `requests` has a request for each; its objects are recreated after each success, so
/// that no request spoils another.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn every_documented_status_is_answered() {
    let service = Service::start().await;
    let mut seen = 0;
    let all: Vec<_> = operations(&service).await.into_iter().filter(|operation| !operation.pushed).collect();
    let targets = Targets::prepare(&service).await;
    let asked = |status: &u16| if *status < 300 { 2 } else { u16::from(*status == 503) };
    let mut pairs: Vec<_> = all
        .iter()
        .flat_map(|operation| operation.statuses.iter().map(move |status| (operation, *status)))
        // An endless answer, of services that broadcast: `listening` tests it.
        .filter(|(operation, status)| operation.id != "listen" || *status >= 400)
        .collect();
    // Failures first: they change nothing. The status for which the database is closed comes last.
    pairs.sort_by_key(|(_, status)| (*status == 503, asked(status)));
    let mut renewed = Some(targets);
    for (operation, status) in pairs {
        if (200..300).contains(&status) {
            renewed = None;
        }
        let fresh;
        let targets = match &renewed {
            Some(targets) => targets,
            None => {
                let revoke =
                    "update wakeq.access_keys set revoked_at = now(), revoked_by = 'test', slot = null
                              where holder <> 'tests' and revoked_at is null";
                service.stage.execute(revoke).await;
                fresh = Targets::prepare(&service).await;
                &fresh
            }
        };
        let service = if status == 503 { &Service::start().await } else { &service };
        let request = targets.asking_for(service, operation, status).await;
        let answer = Answer::of(request).await;
        assert_eq!(answer.status.as_u16(), status, "{}: {}", operation.id, answer.text);
        conforms(operation, &answer);
        seen += 1;
    }
    println!("{} operations, {seen} documented statuses, all seen", all.len());
    service.stop().await;
}

/// The content type is the documented one; every problem has the form of problem details.
fn conforms(operation: &Operation, answer: &Answer) {
    let status = answer.status.as_u16();
    let described = &operation.described["responses"][status.to_string()];
    match described["content"].as_object() {
        Some(content) => {
            let kind = answer.headers["content-type"].to_str().unwrap();
            assert!(content.contains_key(kind), "{} {status}: {kind}", operation.id);
        }
        None => assert_eq!(answer.text, "", "{} {status}", operation.id),
    }
    if status >= 400 && !operation.scopes.is_empty() {
        assert_eq!(answer.problem().0, status);
    }
}

/// Each operation has a unique id and a summary, each parameter a description, and each tag is in
/// the list.
#[tokio::test]
async fn every_operation_is_described() {
    let service = Service::start().await;
    let document = Answer::of(service.request(Method::GET, "/openapi.json")).await.json();
    let tags: BTreeSet<_> =
        document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).map(Value::as_str).collect();
    let mut ids = BTreeSet::new();
    for operation in operations(&service).await {
        let Operation { id, described, .. } = &operation;
        assert!(ids.insert(id.clone()), "{id} twice");
        assert!(described["summary"].as_str().is_some_and(|words| words.len() > 8), "{id} has no summary");
        assert!(tags.contains(&described["tags"][0].as_str()), "{id} has no tag of the list");
        let parameters = described["parameters"].as_array().cloned().unwrap_or_default();
        let shared = document["paths"][&operation.path]["parameters"].as_array().cloned().unwrap_or_default();
        for parameter in parameters.iter().chain(&shared) {
            assert!(parameter["description"].is_string(), "{id}: {}", parameter["name"]);
            assert!(parameter["schema"].is_object(), "{id}: {}", parameter["name"]);
        }
        for part in operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            let named = |parameter: &&Value| parameter["name"] == part && parameter["in"] == "path";
            let count = parameters.iter().chain(&shared).filter(named).count();
            assert_eq!(count, 1, "{id}: {part}");
        }
        for (status, response) in described["responses"].as_object().unwrap() {
            assert!(response["description"].as_str().is_some_and(|words| words.len() > 3), "{id} {status}");
        }
    }
    service.stop().await;
}
