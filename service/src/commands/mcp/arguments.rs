//! The arguments of the tools, with their JSON schemas, and the request that each of them makes.
//!
//! Sends nothing. What is wrong with an event's value, a time or a name is for the API to say.

use rmcp::model::JsonObject;
use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::filter::{Among, EventFilter};
use crate::cli::arguments::{HandlerName, event_id};
use crate::cli::client::{Page, Request};
use crate::cli::failure::Failure;
use crate::resources::events::command::filter::text;
use crate::resources::handlers::wire::StopRequest;
use crate::resources::limits::command::limit_name;
use crate::resources::operations::wire::{NewOperationJson, OperationKindJson};
use wakeq::Timestamp;

/// Items of a list by default, and at most.
const ITEMS: u32 = 20;
const ITEMS_MAX: u32 = 100;
/// The length of a step of statistics by default: a day is 24 steps, and 14 days still fit into an
/// answer.
const STEP_S: u64 = 3_600;

/// Which page of a list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct List {
    /// Maximum number of items. Default 20.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Which events to list, and which page of them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct ListEvents {
    #[serde(default)]
    filter: EventFilter,
    /// Maximum number of items. Default 20.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Which events to count.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct CountEvents {
    #[serde(default)]
    filter: EventFilter,
    /// The `next_cursor` of the previous count, to go on.
    cursor: Option<String>,
}

/// Which event to explain.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct ExplainEvent {
    /// The event's id, a uuid.
    id: String,
    /// Whether to include the event's value, its checkpoint and its result. This is recorded.
    #[serde(default)]
    with_value: bool,
}

/// Which error groups to list, and which page of them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct ListErrorGroups {
    /// The handler of the events: its name, or MODULE/name. Default: all handlers.
    handler: Option<String>,
    /// Only groups that somebody has marked as known, or only those that nobody has. Default: both.
    known: Option<bool>,
    /// Maximum number of items. Default 20.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Which error group.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct OneErrorGroup {
    /// The group's id, a uuid.
    id: String,
}

/// Of which limit to list what is in use, and which page of it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct ListLimitUses {
    /// The limit's name: `canvas`, `handler:MODULE/name`, a key such as `customer:7`, or a family
    /// of keys such as `customer`.
    name: String,
    /// Maximum number of items. Default 20.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Which time, and in which steps.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Statistics {
    /// The handler: its name, or MODULE/name. Default: all handlers together.
    handler: Option<String>,
    /// The beginning, at most 14 days ago. Default: a day before the end.
    from: Option<Timestamp>,
    /// The end. Default: now.
    to: Option<Timestamp>,
    /// The length of a step in seconds: whole minutes within the last day, else whole hours.
    /// Default 3600.
    step_s: Option<u64>,
}

/// Which operation.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct OneOperation {
    /// The operation's id, a uuid.
    id: String,
}

/// Which handler to pause, and why.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct PauseHandler {
    /// The handler: its name, or MODULE/name.
    handler: String,
    /// The reason, which others see.
    reason: String,
    /// Lift the pause after so many seconds. Default: never.
    for_s: Option<f64>,
}

/// Which handler.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct OneHandler {
    /// The handler: its name, or MODULE/name.
    handler: String,
}

/// Which event.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct OneEvent {
    /// The event's id, a uuid.
    id: String,
}

/// Which event to cancel.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct CancelEvent {
    /// The event's id, a uuid.
    id: String,
    /// Whether to cancel it also if it is running: its handler is told to stop.
    #[serde(default)]
    running: bool,
}

/// What to do with which events.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct PreviewOperation {
    kind: AllowedOperation,
    filter: EventFilter,
}

/// The same operation as in the preview, and what the preview has counted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct StartOperation {
    kind: AllowedOperation,
    filter: EventFilter,
    /// The `count` that `preview_operation` has answered for this kind and filter.
    pub(super) expected_count: u64,
}

/// What is done with each event: `redrive` brings dead ones back, `cancel` deletes those that wait
/// and tells the handlers of running ones to stop, `run-now` makes those that wait due at once.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(crate = "rmcp::schemars", inline)]
enum AllowedOperation {
    Redrive,
    Cancel,
    RunNow,
}

/// The arguments of a call.
pub(super) fn read<A: DeserializeOwned>(arguments: JsonObject) -> anyhow::Result<A> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| Failure::Usage(format!("the arguments do not fit the tool: {error}")).into())
}

pub(super) fn page(limit: Option<u32>, cursor: Option<String>) -> Result<Page, Failure> {
    match limit.unwrap_or(ITEMS) {
        limit @ 1..=ITEMS_MAX => Ok(Page { limit, cursor }),
        _ => Err(Failure::Usage(format!("`limit` is from 1 to {ITEMS_MAX}"))),
    }
}

fn handler(name: &str) -> anyhow::Result<HandlerName> {
    Ok(name.parse::<HandlerName>()?)
}

/// An id in the form that paths have.
fn id(text: &str) -> Result<String, Failure> {
    event_id(text).map(|id| id.to_string()).map_err(|_| Failure::Usage("an id is a uuid".to_owned()))
}

/// The request about a handler.
fn about(verb: fn(&[&str]) -> Request, handler: &HandlerName, part: &str) -> Request {
    verb(&["handlers", handler.module.as_str(), handler.name.as_str(), part])
}

impl List {
    pub(super) fn of(self, request: Request) -> anyhow::Result<Request> {
        Ok(request.page(page(self.limit, self.cursor)?))
    }
}

impl ListEvents {
    pub(super) fn waiting(self) -> anyhow::Result<Request> {
        self.of(&["events"], Among::Living)
    }

    pub(super) fn dead(self) -> anyhow::Result<Request> {
        self.of(&["dead-events"], Among::Dead)
    }

    fn of(self, path: &[&str], among: Among) -> anyhow::Result<Request> {
        let request = self.filter.add_to(Request::get(path), among)?;
        Ok(request.page(page(self.limit, self.cursor)?))
    }
}

impl CountEvents {
    pub(super) fn request(self) -> anyhow::Result<Request> {
        let request = self.filter.add_to(Request::get(&["events", "count"]), Among::Both)?;
        Ok(request.query("cursor", self.cursor))
    }
}

impl ListErrorGroups {
    pub(super) fn request(self) -> anyhow::Result<Request> {
        let handler = self.handler.as_deref().map(handler).transpose()?;
        let request = Request::get(&["dead-events", "groups"])
            .query("module", handler.as_ref().map(|handler| &handler.module))
            .query("name", handler.as_ref().map(|handler| &handler.name))
            .query("known", self.known);
        Ok(request.page(page(self.limit, self.cursor)?))
    }
}

impl OneErrorGroup {
    pub(super) fn request(self) -> anyhow::Result<Request> {
        Ok(Request::get(&["dead-events", "groups", &id(&self.id)?]))
    }
}

impl ListLimitUses {
    pub(super) fn request(self) -> anyhow::Result<Request> {
        let name = limit_name(&self.name)?;
        let request = Request::get(&["limits", name.as_str(), "uses"]);
        Ok(request.page(page(self.limit, self.cursor)?))
    }
}

impl ExplainEvent {
    pub(super) fn request(self) -> anyhow::Result<Request> {
        let request = Request::get(&["events", &id(&self.id)?]);
        Ok(request.query("view", self.with_value.then_some("full")))
    }
}

impl Statistics {
    pub(super) fn request(self) -> anyhow::Result<Request> {
        let request = match self.handler {
            Some(name) => about(Request::get, &handler(&name)?, "statistics"),
            None => Request::get(&["statistics"]),
        };
        Ok(request
            .query("from", text(self.from))
            .query("to", text(self.to))
            .query("step_s", Some(self.step_s.unwrap_or(STEP_S))))
    }
}

impl OneOperation {
    pub(super) fn request(self) -> anyhow::Result<Request> {
        Ok(Request::get(&["operations", &id(&self.id)?]))
    }
}

impl PauseHandler {
    pub(super) fn request(self) -> anyhow::Result<Request> {
        if self.reason.trim().is_empty() {
            return Err(Failure::Usage("give the `reason`, which others see".to_owned()).into());
        }
        let stop = StopRequest { reason: Some(self.reason), until: None, for_s: self.for_s };
        about(Request::put, &handler(&self.handler)?, "pause").silent().body(&stop)
    }
}

impl OneHandler {
    pub(super) fn unpause(self) -> anyhow::Result<Request> {
        Ok(about(Request::delete, &handler(&self.handler)?, "pause").for_a_while())
    }
}

impl OneEvent {
    pub(super) fn redrive(self) -> anyhow::Result<Request> {
        Ok(Request::post(&["dead-events", &id(&self.id)?, "redrive"]))
    }

    pub(super) fn run_now(self) -> anyhow::Result<Request> {
        Ok(Request::post(&["events", &id(&self.id)?, "run-now"]))
    }
}

impl CancelEvent {
    pub(super) fn request(self) -> anyhow::Result<Request> {
        let request = Request::post(&["events", &id(&self.id)?, "cancel"]);
        // Workers are signalled, and otherwise nothing is published.
        Ok(if self.running { request.query("running", Some(true)) } else { request.silent() })
    }
}

impl PreviewOperation {
    pub(super) fn operation(self) -> anyhow::Result<NewOperationJson> {
        Ok(NewOperationJson::new(self.kind.into(), self.filter.of_operation()?))
    }
}

impl StartOperation {
    pub(super) fn operation(self) -> anyhow::Result<NewOperationJson> {
        PreviewOperation { kind: self.kind, filter: self.filter }.operation()
    }
}

impl From<AllowedOperation> for OperationKindJson {
    fn from(kind: AllowedOperation) -> Self {
        match kind {
            AllowedOperation::Redrive => Self::Redrive,
            AllowedOperation::Cancel => Self::Cancel,
            AllowedOperation::RunNow => Self::RunNow,
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::handler::server::tool::schema_for_input;
    use serde_json::json;

    use super::*;

    fn given<A: DeserializeOwned>(arguments: Value) -> anyhow::Result<A> {
        read(arguments.as_object().unwrap().clone())
    }

    fn path(request: anyhow::Result<Request>) -> String {
        let canvas = wakeq::CanvasId::DEFAULT;
        let path = request.unwrap().about(canvas).path_and_query(canvas.0).unwrap();
        path.replace(&format!("/canvases/{canvas}"), "")
    }

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn a_list_has_a_limit() {
        let list = |arguments| given::<ListEvents>(arguments).unwrap().waiting();
        assert_eq!(path(list(json!({}))), "/v1/events?limit=20");
        assert_eq!(path(list(json!({"limit": 100, "cursor": "c"}))), "/v1/events?limit=100&cursor=c");
        for wrong in [0, 101] {
            assert!(list(json!({ "limit": wrong })).is_err(), "{wrong}");
        }
        assert!(given::<ListEvents>(json!({"limt": 3})).is_err());
    }

    #[test]
    fn error_groups_are_asked_for_by_handler_or_by_id() {
        let list = |arguments| path(given::<ListErrorGroups>(arguments).unwrap().request());
        assert_eq!(list(json!({})), "/v1/dead-events/groups?limit=20");
        let asked = json!({"handler": "mail", "known": false, "limit": 5});
        assert_eq!(list(asked), "/v1/dead-events/groups?module=WORKER&name=mail&known=false&limit=5");
        let one = |id| given::<OneErrorGroup>(json!({ "id": id })).unwrap().request();
        assert_eq!(path(one(ID)), format!("/v1/dead-events/groups/{ID}"));
        assert!(one("../handlers").is_err());
    }

    #[test]
    fn the_uses_of_a_limit_are_asked_for_by_its_name() {
        let list = |arguments| given::<ListLimitUses>(arguments).unwrap().request();
        let uses = |name: &str| path(list(json!({ "name": name })));
        assert_eq!(uses("customer"), "/v1/limits/customer/uses?limit=20");
        assert_eq!(uses("handler:mail"), uses("handler:WORKER/mail"));
        assert!(uses("handler:mail").starts_with("/v1/limits/handler"), "{}", uses("handler:mail"));
        let second = json!({"name": "customer:7", "limit": 5, "cursor": "c"});
        assert!(path(list(second)).ends_with("/uses?limit=5&cursor=c"));
        for wrong in ["", "..", "a/b", "handler:a/b/c"] {
            assert!(list(json!({ "name": wrong })).is_err(), "{wrong}");
        }
        assert!(list(json!({"name": "customer", "limit": 101})).is_err());
    }

    #[test]
    fn a_value_is_asked_for_only_if_that_is_said() {
        let explain = |arguments| path(given::<ExplainEvent>(arguments).unwrap().request());
        assert_eq!(explain(json!({"id": ID})), format!("/v1/events/{ID}"));
        assert_eq!(explain(json!({"id": ID, "with_value": true})), format!("/v1/events/{ID}?view=full"));
        assert!(given::<ExplainEvent>(json!({"id": "../handlers"})).unwrap().request().is_err());
    }

    #[test]
    fn a_pause_has_a_reason() {
        let pause = |reason| given::<PauseHandler>(json!({"handler": "greet", "reason": reason}));
        assert!(pause(" ").unwrap().request().is_err());
        let request = pause("it sends twice").unwrap().request();
        assert_eq!(path(request), "/v1/handlers/WORKER/greet/pause");
        assert!(given::<PauseHandler>(json!({"handler": "greet"})).is_err());
    }

    #[test]
    fn no_operation_deletes_dead_events() {
        for kind in ["redrive", "cancel", "run-now"] {
            let preview = given::<PreviewOperation>(json!({"kind": kind, "filter": {"handler": "greet"}}));
            assert!(preview.unwrap().operation().is_ok(), "{kind}");
        }
        for kind in ["delete", "delete-dead", "retag"] {
            let preview = given::<PreviewOperation>(json!({"kind": kind, "filter": {"handler": "greet"}}));
            assert!(preview.is_err(), "{kind}");
        }
    }

    /// Clients that do not follow references see every argument.
    #[test]
    fn a_schema_stands_by_itself() {
        let schema = Value::Object(schema_for_input::<StartOperation>().unwrap().as_ref().clone());
        let properties = &schema["properties"];
        assert_eq!(properties["kind"]["enum"], json!(["redrive", "cancel", "run-now"]), "{schema}");
        assert_eq!(properties["filter"]["properties"]["tags"]["type"], "array", "{schema}");
        assert_eq!(schema["required"], json!(["kind", "filter", "expected_count"]), "{schema}");
        assert!(!schema.to_string().contains("$ref"), "{schema}");
    }
}
