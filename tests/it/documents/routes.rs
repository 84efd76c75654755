//! `docs/routes.md`, which lists the routes of the HTTP API: its tables are what the OpenAPI
//! document says. What is above them is written by hand.

use std::fs;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::repository::root;
use crate::support::service::{Answer, Service};

const PAGE: &str = "docs/routes.md";
/// In the order of the rows of a path.
const METHODS: [&str; 4] = ["get", "post", "put", "delete"];
/// Beginnings of paths, and what the page writes for them.
const SHORT: [(&str, &str); 2] =
    [("/v1/admin/canvases/{canvas}", "$ADMIN"), ("/v1/canvases/{canvas}", "$API")];

/// The page with a table for each tag of the document, below what is above the first one.
fn page(text: &str, document: &Value) -> String {
    let introduction = text.split("\n## ").next().unwrap_or_default();
    let mut page = format!("{}\n", introduction.trim_end());
    for tag in document["tags"].as_array().unwrap() {
        let tag = tag["name"].as_str().unwrap();
        let (first, rest) = tag.split_at(1);
        let heading = format!("{}{rest}", first.to_uppercase());
        page += &format!("\n## {heading}\n\n| Route | Scope | What it does |\n|---|---|---|\n");
        page.extend(rows(document, tag));
    }
    page
}

/// The rows of a tag, by path and method.
fn rows(document: &Value, tag: &str) -> Vec<String> {
    let mut rows = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = shown(path);
        for (place, method) in METHODS.into_iter().enumerate() {
            let operation = &item[method];
            if operation["tags"][0] == tag {
                let summary = operation["summary"].as_str().unwrap();
                let route = format!("{} {path}", method.to_uppercase());
                let row = format!("| `{route}` | {} | {summary} |\n", needed(operation));
                rows.push((path.clone(), place, row));
            }
        }
    }
    rows.sort();
    rows.into_iter().map(|(_, _, row)| row).collect()
}

fn shown(path: &str) -> String {
    let short = SHORT.iter().find_map(|(long, short)| Some(format!("{short}{}", path.strip_prefix(long)?)));
    short.unwrap_or_else(|| path.to_owned())
}

/// What a caller needs.
fn needed(operation: &Value) -> String {
    let security = &operation["security"][0];
    if security["push"].is_array() {
        return "the push account's token".to_owned();
    }
    if security["signature"].is_array() {
        return "a signature".to_owned();
    }
    let scopes = security["bearer"].as_array().into_iter().flatten();
    let scopes: Vec<_> = scopes.map(|scope| format!("`{}`", scope.as_str().unwrap())).collect();
    let words = operation["description"].as_str().unwrap_or_default();
    let scopes = match &scopes[..] {
        [] => return "none".to_owned(),
        [scope] => scope.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    };
    if words.contains("` on every canvas;") { format!("{scopes} on every canvas") } else { scopes }
}

/// What a server says of its routes.
async fn served() -> Value {
    let service = Service::start().await;
    let document = Answer::of(service.request(Method::GET, "/openapi.json")).await.json();
    service.stop().await;
    document
}

#[tokio::test]
async fn the_list_of_routes_says_what_the_openapi_document_says() {
    let written = fs::read_to_string(root().join(PAGE)).unwrap();
    let words = "the routes have changed: write docs/routes.md anew with `cargo test --package wakeq-service \
                 --test it -- --ignored the_list_of_routes_is_written`";
    assert_eq!(written, page(&written, &served().await), "{words}");
}

#[tokio::test]
#[ignore = "writes docs/routes.md: the test above says when"]
async fn the_list_of_routes_is_written() {
    let path = root().join(PAGE);
    let written = fs::read_to_string(&path).unwrap();
    fs::write(path, page(&written, &served().await)).unwrap();
}

#[test]
fn a_route_has_a_row_in_the_table_of_its_tag() {
    let route = |tag: &str, summary: &str, security: Value, words: &str| {
        let (tags, security) = ([tag], [security]);
        json!({"tags": tags, "summary": summary, "security": security, "description": words})
    };
    let document = json!({
        "tags": [{"name": "dead events"}, {"name": "admin"}],
        "paths": {
            "/v1/admin/nodes": {"get": route("admin", "List", json!({"bearer": ["read", "operate"]}),
                                             "Requires `read` and `operate` on every canvas; no less.")},
            "/v1/admin/canvases/{canvas}/keys": {
                "post": route("admin", "Create", json!({"bearer": ["admin"]}), "Requires `admin` on the canvas."),
                "get": route("admin", "Show", json!({}), ""),
            },
            "/v1/canvases/{canvas}/dead": {"delete": route("dead events", "Push", json!({"push": []}), ""),
                                           "put": route("dead events", "Sign", json!({"signature": []}), "")},
        },
    });
    let table = "| Route | Scope | What it does |\n|---|---|---|\n";
    let expected = format!(
        "# Routes\n\nThese.\n\n## Dead events\n\n{table}\
         | `PUT $API/dead` | a signature | Sign |\n\
         | `DELETE $API/dead` | the push account's token | Push |\n\n## Admin\n\n{table}\
         | `GET $ADMIN/keys` | none | Show |\n\
         | `POST $ADMIN/keys` | `admin` | Create |\n\
         | `GET /v1/admin/nodes` | `read` and `operate` on every canvas | List |\n"
    );
    assert_eq!(page("# Routes\n\nThese.\n\n## Old\n\nrow\n", &document), expected);
    assert_eq!(page(&expected, &document), expected);
}
