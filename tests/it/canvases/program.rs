//! The requests of a tenant, made from the OpenAPI document: each operation, with another tenant's
//! values wherever something is named.

use std::collections::BTreeSet;

use chrono::{SecondsFormat, TimeDelta, Utc};
use reqwest::Method;
use serde_json::{Value, json};
use wakeq_service::access::Scope;

use super::fields;
use super::seed::Values;
use crate::edge::bodies::body;
use crate::edge::requests::Operation;

/// Endless answers about the canvases that the caller may read: the tests of `listening` use other
/// canvases. What is done after the answer, in no fixed order with other requests: the tests of
/// operations do.
const LEFT_OUT: [&str; 2] = ["begin_operation", "listen"];

#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The same in every world.
    pub(super) label: String,
    pub(super) operation: String,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<Value>,
    /// The scopes that it needs.
    scopes: Vec<Scope>,
    /// The first of its operation, or the first of its operation on the victim's canvas.
    is_first: bool,
    pub(super) is_last_of_operation: bool,
}

impl Request {
    pub(super) fn only_reads(&self) -> bool {
        self.method == Method::GET
    }

    /// Whether a caller with these scopes may see something in its answer that others of its
    /// operation do not show: without a needed scope all of them are refused before anything is
    /// looked up, so that the first ones stand for the rest.
    pub(super) fn tells_with(&self, scopes: &[Scope]) -> bool {
        self.is_first || self.scopes.iter().all(|needed| scopes.contains(needed))
    }

    pub(super) fn forget_what_it_says(&self, secrets: &mut BTreeSet<String>) {
        let said = format!("{} {:?} {:?}", self.path, self.headers, self.body);
        secrets.retain(|secret| !said.contains(secret.as_str()));
    }
}

/// Requests on the attacker's canvas that name the victim's things, and requests on the victim's
/// canvas.
pub(super) fn attacks(
    document: &Value,
    operations: &[Operation],
    attacker: &Values,
    victim: &Values,
) -> Vec<Request> {
    let mut requests = Vec::new();
    for operation in ordered(operations) {
        let drafts = Drafts { document, operation, canvas: &attacker.canvas, values: victim };
        let mut of_one = drafts.all();
        let foreign = Drafts { canvas: &victim.canvas, ..drafts };
        of_one.extend(foreign.paths().into_iter().map(Draft::on_another_canvas));
        requests.extend(numbered(operation, of_one));
    }
    requests
}

/// Requests of a tenant about its own things.
pub(super) fn own(document: &Value, operations: &[Operation], values: &Values) -> Vec<Request> {
    let drafts = |operation| Drafts { document, operation, canvas: &values.canvas, values }.all();
    let ordered = ordered(operations).into_iter();
    ordered.flat_map(|operation| numbered(operation, drafts(operation))).collect()
}

/// Reads first, then emits; operations that end something come last.
fn ordered(operations: &[Operation]) -> Vec<&Operation> {
    let rank = |operation: &&Operation| match operation.id.as_str() {
        _ if operation.method == Method::GET => 0,
        _ if operation.scopes == [Scope::Emit] => 1,
        id if ["un", "cancel"].iter().any(|start| id.starts_with(start)) => 3,
        id if ["delete", "erase", "purge", "revoke"].iter().any(|start| id.starts_with(start)) => 4,
        _ => 2,
    };
    let asked = operations.iter().filter(|operation| {
        !operation.scopes.is_empty() && !operation.pushed && !LEFT_OUT.contains(&operation.id.as_str())
    });
    let mut ordered: Vec<_> = asked.collect();
    ordered.sort_by_key(rank);
    ordered
}

/// With unique labels, in a fixed order.
fn numbered(operation: &Operation, drafts: Vec<Draft>) -> Vec<Request> {
    let count = drafts.len();
    let first_on_another = drafts.iter().position(|draft| draft.is_on_another_canvas);
    let of_draft = |(index, draft): (usize, Draft)| Request {
        label: format!("{} {index}: {}", operation.id, draft.label),
        operation: operation.id.clone(),
        method: operation.method.clone(),
        path: draft.path,
        headers: draft.headers,
        body: draft.body,
        scopes: operation.scopes.clone(),
        is_first: index == 0 || Some(index) == first_on_another,
        is_last_of_operation: index + 1 == count,
    };
    drafts.into_iter().enumerate().map(of_draft).collect()
}

#[derive(Clone)]
struct Draft {
    label: String,
    is_on_another_canvas: bool,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Value>,
}

impl Draft {
    fn labelled(mut self, words: &str) -> Self {
        self.label = format!("{words}, {}", self.label);
        self
    }

    fn on_another_canvas(self) -> Self {
        Self { is_on_another_canvas: true, ..self.labelled("on the victim's canvas") }
    }
}

#[derive(Clone, Copy)]
struct Drafts<'a> {
    document: &'a Value,
    operation: &'a Operation,
    canvas: &'a str,
    values: &'a Values,
}

impl Drafts<'_> {
    /// Every path with the usual body; then the first path with each query and each body.
    fn all(&self) -> Vec<Draft> {
        let mut drafts = self.paths();
        let first = drafts[0].clone();
        for query in self.queries() {
            let pairs: Vec<_> =
                query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
            let names: Vec<_> = query.iter().map(|(name, _)| *name).collect();
            let mark = if first.path.contains('?') { '&' } else { '?' };
            let path = format!("{}{mark}{}", first.path, pairs.join("&"));
            drafts.push(Draft { path, ..first.clone() }.labelled(&names.join(" and ")));
        }
        for (label, body) in self.bodies() {
            drafts.push(Draft { body: Some(body), ..first.clone() }.labelled(&label));
        }
        if self.operation.scopes == [Scope::Emit] && first.body.is_some() {
            for key in &self.values.idempotency_keys {
                let mut draft = first.clone();
                draft.headers.push(("idempotency-key".into(), key.clone()));
                drafts.push(draft.labelled("under an idempotency key"));
            }
        }
        if ["emit", "emit_batch"].contains(&self.operation.id.as_str()) {
            drafts.push(self.cloud_event(&first));
        }
        drafts
    }

    fn cloud_event(&self, first: &Draft) -> Draft {
        let event = json!({"specversion": "1.0", "id": "1", "source": "/shop", "type": "greet", "data": 1});
        let one = self.operation.id == "emit";
        let (kind, body) =
            if one { ("cloudevents+json", event) } else { ("cloudevents-batch+json", json!([event])) };
        let headers = vec![("content-type".to_owned(), format!("application/{kind}"))];
        Draft { headers, body: Some(body), ..first.clone() }.labelled("a CloudEvent")
    }

    /// Every value that the path may name. An operation that names two kinds of things uses the
    /// first value of the second.
    fn paths(&self) -> Vec<Draft> {
        let parts =
            self.operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.split('}').next());
        let mut paths = vec![self.operation.path.replace("{canvas}", self.canvas)];
        if self.operation.id == "list_audit" {
            // The whole record: worlds write some of its lines at different times.
            paths[0].push_str("?limit=1000");
        }
        if self.operation.id.ends_with("_statistics") {
            // Three days up to a few hours ago: worlds write what happens now at different times.
            let ago = |hours| hours_ago(hours).to_rfc3339_opts(SecondsFormat::Secs, true);
            paths[0].push_str(&format!("?from={}&to={}&step_s=259200", ago(75), ago(4)));
        }
        for part in parts.filter(|part| !["canvas", "name", "modifier", "entity"].contains(part)) {
            let values = fields::of_path(part, self.values);
            let filled = |path: &String| {
                let fill = |value: &Vec<(&str, String)>| {
                    value
                        .iter()
                        .fold(path.clone(), |path, (name, value)| path.replace(&format!("{{{name}}}"), value))
                };
                values.iter().map(fill).collect::<Vec<_>>()
            };
            paths = paths.iter().flat_map(filled).collect();
        }
        let body = self.usual_body();
        let headers = body.iter().map(|_| ("content-type".to_owned(), "application/json".to_owned()));
        let headers: Vec<_> = headers.collect();
        let draft = |path| Draft {
            label: "path".into(),
            is_on_another_canvas: false,
            path,
            headers: headers.clone(),
            body: body.clone(),
        };
        paths.into_iter().map(draft).collect()
    }

    fn usual_body(&self) -> Option<Value> {
        match self.operation.id.as_str() {
            // Dry runs, so that something is left for the requests that follow.
            "purge_handler" => Some(json!({"dry_run": true})),
            "redrive_dead_events" => Some(json!({"all": true, "dry_run": true})),
            id => body(id),
        }
    }

    fn queries(&self) -> Vec<Vec<(&'static str, String)>> {
        let parameters = self.operation.described["parameters"].as_array().cloned().unwrap_or_default();
        let named = parameters.iter().filter(|parameter| parameter["in"] == "query");
        let names = named.map(|parameter| parameter["name"].as_str().unwrap());
        names.flat_map(|name| fields::of_query(&self.operation.id, name, self.values)).collect()
    }

    fn bodies(&self) -> Vec<(String, Value)> {
        let schema = &self.operation.described["requestBody"]["content"]["application/json"]["schema"];
        let mut pointers = BTreeSet::new();
        pointers_of(self.document, schema, "", 0, &mut pointers);
        let Some(usual) = body(&self.operation.id) else { return Vec::new() };
        let mut bodies = Vec::new();
        for pointer in pointers {
            let (parent, _) = pointer.rsplit_once('/').unwrap();
            for values in fields::of_body(&self.operation.id, &pointer, self.values) {
                let mut body = usual.clone();
                for (name, value) in values {
                    place(&mut body, parent, name, value);
                }
                bodies.push((pointer.clone(), body));
            }
        }
        bodies.extend(match self.operation.id.as_str() {
            "purge_handler" | "redrive_dead_events" | "delete_dead_events" => {
                vec![("for good".into(), usual)]
            }
            _ => vec![],
        });
        bodies
    }
}

/// Every field below a schema, as a JSON pointer; of a list, its first element.
fn pointers_of(document: &Value, schema: &Value, at: &str, depth: usize, into: &mut BTreeSet<String>) {
    assert!(depth < 12, "{at}");
    if let Some(name) = schema["$ref"].as_str() {
        let named = document.pointer(name.trim_start_matches('#')).unwrap();
        return pointers_of(document, named, at, depth + 1, into);
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        for schema in schema[choice].as_array().into_iter().flatten() {
            pointers_of(document, schema, at, depth + 1, into);
        }
    }
    if schema["items"].is_object() {
        pointers_of(document, &schema["items"], &format!("{at}/0"), depth + 1, into);
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let below = format!("{at}/{name}");
        let mut further = BTreeSet::new();
        pointers_of(document, schema, &below, depth + 1, &mut further);
        if further.is_empty() {
            into.insert(below)
        } else {
            into.append(&mut further);
            true
        };
    }
}

/// Sets a field, creating missing parents.
fn place(body: &mut Value, parent: &str, name: &str, value: Value) {
    let mut at = body;
    for part in parent.split('/').filter(|part| !part.is_empty()) {
        at = match part.parse::<usize>() {
            Ok(index) => {
                if !at.is_array() {
                    *at = json!([{}]);
                }
                at.get_mut(index).expect("a usual body has one of each list")
            }
            Err(_) => {
                if !at.is_object() {
                    *at = json!({});
                }
                at.as_object_mut().unwrap().entry(part).or_insert(Value::Null)
            }
        };
    }
    if !at.is_object() {
        *at = json!({});
    }
    at[name] = value;
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "hours matter here, and a program knows no database")]
fn hours_ago(hours: i64) -> wakeq::Timestamp {
    Utc::now() - TimeDelta::hours(hours)
}
