//! Which events a tool is about: the same conditions for all tools, and their way into a request.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

use crate::cli::arguments::HandlerName;
use crate::cli::client::Request;
use crate::cli::failure::Failure;
use crate::resources::events::command::filter::text;
use crate::resources::operations::wire::{OperationFilter, SelectedState};
use wakeq::Timestamp;
use wakeq::control::EventState;
use wakeq::events::Tag;

/// Only events that meet every condition that is given.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars", inline)]
pub(super) struct EventFilter {
    /// The handler of the events: its name, or MODULE/name.
    handler: Option<String>,
    /// The modifier of their handler.
    modifier: Option<String>,
    /// Any of these states: ready, behind, halted, held, delayed, running, paused, blocked,
    /// limited, or dead alone.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    states: Vec<SelectedState>,
    /// All of these tags.
    #[serde(default)]
    tags: Vec<String>,
    /// The object that they are on, by which they are ordered.
    object: Option<String>,
    /// The batch that they are members of.
    batch: Option<String>,
    /// The name of the worker that has claimed them.
    worker: Option<String>,
    /// The limit that they wait for: `canvas`, `handler:MODULE/name`, or a key such as
    /// `customer:7`.
    waits_for: Option<String>,
    /// Emitted at or after this time, such as 2030-01-31T08:00:00Z.
    emitted_since: Option<Timestamp>,
    /// Emitted before this time.
    emitted_before: Option<Timestamp>,
    /// Due at or after this time.
    due_since: Option<Timestamp>,
    /// Due before this time.
    due_before: Option<Timestamp>,
    /// Of dead events: died at or after this time.
    died_since: Option<Timestamp>,
    /// Of dead events: died before this time.
    died_before: Option<Timestamp>,
    /// Of dead events: the id of an error group, or the `error_group` of one of them, for all that
    /// died of the same error.
    #[schemars(with = "Option<String>")]
    error_group: Option<Uuid>,
    /// Text in their last error.
    error_text: Option<String>,
    /// Text in their value. The search is recorded.
    value_text: Option<String>,
    /// A scalar at a path of their value, such as `$.customer.id = "7"`. The search is recorded.
    value: Option<String>,
}

/// The events that a request is about, which says what can be asked of them.
#[derive(Clone, Copy)]
pub(super) enum Among {
    /// Those that have not ended.
    Living,
    Dead,
    Both,
    /// Those that are kept after they have ended.
    Ended,
}

impl Among {
    /// The conditions that such a request does not have.
    fn without(self) -> &'static [&'static str] {
        match self {
            Self::Living => &["died_since", "died_before", "error_group"],
            Self::Dead => &["states", "worker", "waits_for", "due_since", "due_before"],
            Self::Both => &["worker"],
            Self::Ended => &[
                "states",
                "worker",
                "waits_for",
                "due_since",
                "due_before",
                "died_since",
                "died_before",
                "error_group",
            ],
        }
    }

    /// The names of the parameters about when events died.
    fn died(self) -> [&'static str; 2] {
        match self {
            Self::Dead => ["since", "before"],
            Self::Living | Self::Both | Self::Ended => ["died_since", "died_before"],
        }
    }
}

impl EventFilter {
    /// As parameters of a list or a count.
    pub(super) fn add_to(self, request: Request, among: Among) -> anyhow::Result<Request> {
        self.check(among)?;
        let handler = self.handler()?;
        let states: Vec<&str> = self.states.iter().map(|state| EventState::from(*state).as_str()).collect();
        // A comma would make two tags of one.
        let tags = self.tags.iter().map(|tag| tag.parse::<Tag>()).collect::<Result<Vec<_>, _>>()?;
        let tags: Vec<&str> = tags.iter().map(Tag::as_str).collect();
        let [died_since, died_before] = among.died();
        Ok(request
            .query("module", handler.as_ref().map(|handler| &handler.module))
            .query("name", handler.as_ref().map(|handler| &handler.name))
            .query("modifier", self.modifier)
            .query("state", Some(states.join(",")).filter(|states| !states.is_empty()))
            .query("tag", Some(tags.join(",")).filter(|tags| !tags.is_empty()))
            .query("object", self.object)
            .query("batch", self.batch)
            .query("worker", self.worker)
            .query("waits_for", self.waits_for)
            .query("emitted_since", text(self.emitted_since))
            .query("emitted_before", text(self.emitted_before))
            .query("due_since", text(self.due_since))
            .query("due_before", text(self.due_before))
            .query(died_since, text(self.died_since))
            .query(died_before, text(self.died_before))
            .query("error_group", self.error_group)
            .query("error_text", self.error_text)
            .query("value_text", self.value_text)
            .query("value", self.value))
    }

    /// As the filter of an operation, which is never on all events of the canvas.
    pub(super) fn of_operation(self) -> anyhow::Result<OperationFilter> {
        let handler = self.handler()?;
        let filter = OperationFilter {
            module: handler.as_ref().map(|handler| handler.module.to_string()),
            name: handler.as_ref().map(|handler| handler.name.to_string()),
            modifier: self.modifier,
            states: self.states,
            tags: self.tags,
            object: self.object,
            batch: self.batch,
            worker: self.worker,
            waits_for: self.waits_for,
            emitted_since: self.emitted_since,
            emitted_before: self.emitted_before,
            due_since: self.due_since,
            due_before: self.due_before,
            died_since: self.died_since,
            died_before: self.died_before,
            error_group: self.error_group,
            error_text: self.error_text,
            value_text: self.value_text,
            value: self.value,
        };
        if filter == OperationFilter::default() {
            let words = "say which events: `filter` needs a condition, such as `handler`";
            return Err(Failure::Usage(words.to_owned()).into());
        }
        Ok(filter)
    }

    /// The API would not say which one it does not know.
    fn check(&self, among: Among) -> Result<(), Failure> {
        let given = [
            ("states", !self.states.is_empty()),
            ("worker", self.worker.is_some()),
            ("waits_for", self.waits_for.is_some()),
            ("due_since", self.due_since.is_some()),
            ("due_before", self.due_before.is_some()),
            ("died_since", self.died_since.is_some()),
            ("died_before", self.died_before.is_some()),
            ("error_group", self.error_group.is_some()),
        ];
        let wrong = given.into_iter().find(|(name, is_given)| *is_given && among.without().contains(name));
        wrong.map_or(Ok(()), |(name, _)| {
            Err(Failure::Usage(format!("this tool has no condition `{name}`: leave it out")))
        })
    }

    fn handler(&self) -> anyhow::Result<Option<HandlerName>> {
        Ok(self.handler.as_deref().map(str::parse::<HandlerName>).transpose()?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filter(given: serde_json::Value) -> EventFilter {
        serde_json::from_value(given).unwrap()
    }

    fn path(given: serde_json::Value) -> String {
        let request = filter(given).add_to(Request::get(&["events"]), Among::Both);
        let canvas = wakeq::CanvasId::DEFAULT;
        let path = request.unwrap().about(canvas).path_and_query(canvas.0).unwrap();
        path.split_once('?').map_or_else(String::new, |(_, query)| query.to_owned())
    }

    #[test]
    fn conditions_become_parameters() {
        assert_eq!(path(json!({})), "");
        let handler =
            json!({"handler": "greet", "states": ["paused", "ready"], "tags": ["customer:7", "late"]});
        assert_eq!(path(handler), "module=WORKER&name=greet&state=paused%2Cready&tag=customer%3A7%2Clate");
        assert_eq!(path(json!({"object": "work:1", "batch": "a&b"})), "object=work%3A1&batch=a%26b");
        let other =
            json!({"handler": "REPORTS/weekly", "died_since": "2030-01-31T08:00:00Z", "value": "$ = 3"});
        assert!(path(other).starts_with("module=REPORTS&name=weekly&died_since=2030-01-31T08%3A00%3A00"));
        let wrong = filter(json!({"tags": ["a,b"]})).add_to(Request::get(&["events"]), Among::Living);
        assert!(wrong.is_err(), "it would be two tags");
        assert!(serde_json::from_value::<EventFilter>(json!({"hander": "greet"})).is_err());
    }

    #[test]
    fn a_condition_that_a_request_does_not_have_is_named() {
        let died = json!({"died_before": "2030-01-31T08:00:00Z"});
        for (given, among, wrong) in [
            (died.clone(), Among::Living, Some("`died_before`")),
            (died.clone(), Among::Both, None),
            (died, Among::Dead, None),
            (json!({"error_group": Uuid::nil()}), Among::Living, Some("`error_group`")),
            (json!({"error_group": Uuid::nil()}), Among::Dead, None),
            (json!({"worker": "one"}), Among::Living, None),
            (json!({"worker": "one"}), Among::Both, Some("`worker`")),
            (json!({"states": ["ready"]}), Among::Dead, Some("`states`")),
            (json!({"waits_for": "customer:7"}), Among::Both, None),
            (json!({"waits_for": "customer:7"}), Among::Dead, Some("`waits_for`")),
            (json!({"states": ["dead"]}), Among::Ended, Some("`states`")),
            (json!({"due_since": "2030-01-31T08:00:00Z"}), Among::Ended, Some("`due_since`")),
            (json!({"tags": ["customer:7"], "value_text": "7"}), Among::Ended, None),
        ] {
            let words = filter(given).check(among).err().map(|error| error.to_string());
            assert_eq!(words.is_some(), wrong.is_some(), "{words:?}");
            assert!(words.unwrap_or_default().contains(wrong.unwrap_or_default()), "{wrong:?}");
        }
    }

    #[test]
    fn an_operation_is_never_on_all_events() {
        assert!(filter(json!({})).of_operation().is_err());
        assert!(filter(json!({"states": []})).of_operation().is_err());
        assert!(filter(json!({"handler": "a/b/c"})).of_operation().is_err());
        let found = filter(json!({"handler": "greet", "states": ["dead"]})).of_operation().unwrap();
        assert_eq!((found.module.as_deref(), found.name.as_deref()), (Some("WORKER"), Some("greet")));
        assert_eq!(found.states, [SelectedState::Dead]);
    }
}
