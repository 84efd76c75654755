//! A filter of events: what lists, counts and operations on many events select by. Its conditions
//! are checked here for the test kit, and by the function `wakeq.matches` in Postgres, which takes
//! the filter's JSON. The two must say the same of every event.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::tag::TAGS_MAX;
use super::value_condition::{InvalidFilter, ValueCondition};
use super::{
    BatchName, ErrorGroupId, HandlerAddress, LimitName, Name, ObjectKey, Tag, Timestamp, is_storable,
};

/// Longest text that is searched for, in bytes.
const TEXT_MAX: usize = 200;

/// Which events to select: those that meet every condition that is set, and by default all of the
/// canvas. A condition on what an event does not have, such as an error, is not met.
///
/// ```
/// use wakeq::control::{EventFilter, EventState};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let filter = EventFilter {
///     name: Some("send-email".parse()?),
///     states: vec![EventState::Paused, EventState::Blocked],
///     tags: vec!["customer:7".parse()?],
///     value: Some(r#"$.kind = "invoice""#.parse()?),
///     ..EventFilter::default()
/// };
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventFilter {
    /// Only handlers of this module; `WORKER` if only a name is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<Name>,
    /// Only handlers with this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// Only handlers with this modifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modifier: Option<Name>,
    /// Only events in one of these states; if empty, in any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<EventState>,
    /// Only events that have all of these tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// Only events on this object. Of those that have not ended, copies in queues are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectKey>,
    /// Only members of this batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchName>,
    /// Only events that this worker has claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<Name>,
    /// Only events that wait for this limit, for a place or for its rate, by the name under which
    /// it counts: `canvas`, a handler's, or a key that they name. A family of keys counts nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<LimitName>,
    /// Only events that were emitted at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emitted_since: Option<Timestamp>,
    /// Only events that were emitted before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emitted_before: Option<Timestamp>,
    /// Only events that have not ended and are due at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_since: Option<Timestamp>,
    /// Only events that have not ended and are due before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_before: Option<Timestamp>,
    /// Only dead events that died at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub died_since: Option<Timestamp>,
    /// Only dead events that died before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub died_before: Option<Timestamp>,
    /// Only dead events of this error group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_group: Option<ErrorGroupId>,
    /// Only events whose last error contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_text: Option<SearchText>,
    /// Only events whose value contains this text, as it was emitted: in JSON, with its escapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_text: Option<SearchText>,
    /// Only events whose value meets this condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<ValueCondition>,
}

/// What an event waits for, or that it is dead: the states by which events are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventState {
    /// Due, and free to run.
    Ready,
    /// Waiting for an earlier event of its object to end.
    Behind,
    /// Its object is halted by a dead event.
    Halted,
    /// Its canvas receives nothing from its queue at present.
    Held,
    /// Not due yet.
    Delayed,
    /// Running on a worker.
    Running,
    /// Due, and held by a pause.
    Paused,
    /// Due, and held by a block.
    Blocked,
    /// Due, and waiting for a place of a limit.
    Limited,
    /// No longer retried, and kept.
    Dead,
}

/// A text that is searched for: 1 to 200 bytes, without NUL.
///
/// ```
/// use wakeq::control::SearchText;
///
/// assert_eq!("timed out".parse::<SearchText>().unwrap().as_str(), "timed out");
/// assert!("".parse::<SearchText>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct SearchText(Box<str>);

/// What a filter looks at in an event. The canvas is not part of it: nothing crosses canvases.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct EventFacts<'e> {
    /// Its handler.
    pub address: &'e HandlerAddress,
    /// Its state.
    pub state: EventState,
    /// The worker that has claimed it.
    pub worker: Option<&'e Name>,
    /// The counted name of the limit that it waits for.
    pub waits_for: Option<&'e str>,
    /// Its tags.
    pub tags: &'e [Tag],
    /// The object that it is on.
    pub object: Option<&'e ObjectKey>,
    /// The batch that it is a member of.
    pub batch: Option<&'e BatchName>,
    /// When it was emitted.
    pub emitted: Timestamp,
    /// When it is due, if it has not ended.
    pub due: Option<Timestamp>,
    /// When it died.
    pub died: Option<Timestamp>,
    /// Its error group, if it is dead.
    pub group: Option<ErrorGroupId>,
    /// Its last error.
    pub error: Option<&'e str>,
    /// Its value, as JSON.
    pub value: &'e str,
}

impl EventFilter {
    /// Refuses what exceeds a limit. Whoever takes a filter from a caller checks it first.
    ///
    /// ```
    /// use wakeq::control::EventFilter;
    /// use wakeq::events::Tag;
    ///
    /// let tags = (0..11).map(|number| format!("n:{number}").parse::<Tag>().unwrap()).collect();
    /// assert!(EventFilter { tags, ..EventFilter::default() }.check().is_err());
    /// ```
    pub fn check(&self) -> Result<(), InvalidFilter> {
        if self.tags.len() > TAGS_MAX {
            return Err(InvalidFilter("a filter has at most 10 tags, as an event has: leave some out"));
        }
        if self.states.len() > EventState::ALL.len() {
            return Err(InvalidFilter("a filter names each state once: leave the repeated ones out"));
        }
        let moments = [
            self.emitted_since,
            self.emitted_before,
            self.due_since,
            self.due_before,
            self.died_since,
            self.died_before,
        ];
        if moments.into_iter().flatten().any(|moment| !is_storable(moment)) {
            return Err(InvalidFilter("a moment is in the years 1 to 9999"));
        }
        Ok(())
    }

    /// The module and the name of the handlers, with the module that is meant if only a name is
    /// given.
    #[doc(hidden)]
    pub fn handler(&self) -> (Option<Name>, Option<Name>) {
        let module = self.module.clone().or_else(|| self.name.is_some().then(Name::worker));
        (module, self.name.clone())
    }

    /// The handlers among whose events are those that it selects: also those of the handler whose
    /// limit they wait for.
    pub(crate) fn range(&self) -> (Option<Name>, Option<Name>) {
        match (self.handler(), self.waits_for.as_ref().and_then(LimitName::handler)) {
            ((None, None), Some((module, name))) => (Some(module), Some(name)),
            (given, _) => given,
        }
    }

    /// The limit under whose name an index has the events that wait for it. An operator's limit of
    /// a handler may count those of all canvases under one name.
    pub(crate) fn limit_in_index(&self) -> Option<&LimitName> {
        self.waits_for.as_ref().filter(|name| !name.is_handler())
    }

    /// The filter as `wakeq.matches` takes it: as JSON, with the module that is meant.
    #[doc(hidden)]
    pub fn json(&self) -> String {
        let meant = Self { module: self.handler().0, ..self.clone() };
        // There is no other text of which the function says that no event matches.
        serde_json::to_string(&meant).unwrap_or_else(|_| "null".to_owned())
    }

    /// Whether it asks for more than a handler, which an index finds.
    pub(crate) fn asks_more(&self) -> bool {
        let handlers = Self { module: self.module.clone(), name: self.name.clone(), ..Self::default() };
        *self != handlers
    }

    /// Whether indexes alone count what it selects: by handler, and by one tag at most.
    pub(crate) fn is_counted_by_index(&self) -> bool {
        let tags = self.tags.iter().take(1).cloned().collect();
        let counted = Self { module: self.module.clone(), name: self.name.clone(), tags, ..Self::default() };
        *self == counted
    }

    /// Whether it asks for what is in an event's value or its last error, which no index has.
    #[doc(hidden)]
    pub fn looks_inside(&self) -> bool {
        self.error_text.is_some() || self.value_text.is_some() || self.value.is_some()
    }

    /// Whether an event meets every condition: what `wakeq.matches` says in Postgres.
    #[doc(hidden)]
    pub fn matches(&self, event: &EventFacts<'_>) -> bool {
        let (module, name) = self.handler();
        let HandlerAddress { scope, modifier } = event.address;
        let is_of_handler = module.is_none_or(|module| module == scope.module)
            && name.is_none_or(|name| name == scope.name)
            && self.modifier.as_ref().is_none_or(|meant| meant == modifier);
        is_of_handler
            && (self.states.is_empty() || self.states.contains(&event.state))
            && self.tags.iter().all(|tag| event.tags.contains(tag))
            && self.object.as_ref().is_none_or(|object| event.object == Some(object))
            && self.batch.as_ref().is_none_or(|batch| event.batch == Some(batch))
            && self.worker.as_ref().is_none_or(|worker| event.worker == Some(worker))
            && self.waits_for.as_ref().is_none_or(|limit| event.waits_for == Some(limit.as_str()))
            && is_between(Some(event.emitted), self.emitted_since, self.emitted_before)
            && is_between(event.due, self.due_since, self.due_before)
            && is_between(event.died, self.died_since, self.died_before)
            && self.error_group.is_none_or(|group| event.group == Some(group))
            && self.error_text.as_ref().is_none_or(|text| text.is_in(event.error.unwrap_or_default()))
            && self.value_text.as_ref().is_none_or(|text| text.is_in(event.value))
            && self.value.as_ref().is_none_or(|condition| condition.is_met_by(event.value))
    }
}

/// Whether a moment is in a range. One that there is not is in a range without bounds only.
fn is_between(moment: Option<Timestamp>, since: Option<Timestamp>, before: Option<Timestamp>) -> bool {
    since.is_none_or(|since| moment.is_some_and(|moment| moment >= since))
        && before.is_none_or(|before| moment.is_some_and(|moment| moment < before))
}

impl EventState {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Ready,
        Self::Behind,
        Self::Halted,
        Self::Held,
        Self::Delayed,
        Self::Running,
        Self::Paused,
        Self::Blocked,
        Self::Limited,
        Self::Dead,
    ];

    /// The state as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Behind => "behind",
            Self::Halted => "halted",
            Self::Held => "held",
            Self::Delayed => "delayed",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Blocked => "blocked",
            Self::Limited => "limited",
            Self::Dead => "dead",
        }
    }
}

impl FromStr for EventState {
    type Err = InvalidFilter;

    fn from_str(word: &str) -> Result<Self, InvalidFilter> {
        Self::ALL.into_iter().find(|state| state.as_str() == word).ok_or(InvalidFilter(
            "a state is ready, behind, halted, held, delayed, running, paused, blocked, limited or dead",
        ))
    }
}

displayed_as_text!(EventState);

impl SearchText {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_in(&self, text: &str) -> bool {
        text.contains(&*self.0)
    }
}

impl FromStr for SearchText {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        if (1..=TEXT_MAX).contains(&text.len()) && !text.contains('\0') {
            Ok(Self(text.into()))
        } else {
            Err(InvalidFilter("a text that is searched for has 1 to 200 bytes, without NUL"))
        }
    }
}

impl TryFrom<String> for SearchText {
    type Error = InvalidFilter;

    fn try_from(text: String) -> Result<Self, InvalidFilter> {
        text.parse()
    }
}

displayed_as_text!(SearchText);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CanvasId, HandlerScope};

    fn moment(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(seconds, 0).unwrap()
    }

    /// Whether the filter selects one event that fails again and again.
    fn selects(filter: &EventFilter) -> bool {
        let scope = HandlerScope::worker(CanvasId::DEFAULT, "send-email").unwrap();
        let address = HandlerAddress { scope, modifier: "big".parse().unwrap() };
        let worker: Name = "w1".parse().unwrap();
        let tags: [Tag; 2] = ["a:1".parse().unwrap(), "b".parse().unwrap()];
        let (object, batch) = ("work:1".parse().unwrap(), "import:42".parse().unwrap());
        filter.matches(&EventFacts {
            address: &address,
            state: EventState::Running,
            worker: Some(&worker),
            waits_for: Some("customer:7"),
            tags: &tags,
            object: Some(&object),
            batch: Some(&batch),
            emitted: moment(100),
            due: Some(moment(200)),
            died: None,
            group: None,
            error: Some("it timed out"),
            value: r#"{"kind":"invoice","lines":[{"sku":7}]}"#,
        })
    }

    /// Whether the filter in JSON selects it.
    fn selected(json: &str) -> bool {
        selects(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn every_condition_has_to_be_met() {
        assert!(selects(&EventFilter::default()));
        for met in [
            r#"{"module":"WORKER"}"#,
            r#"{"name":"send-email"}"#,
            r#"{"modifier":"big"}"#,
            r#"{"states":["paused","running"]}"#,
            r#"{"tags":["b","a:1"]}"#,
            r#"{"object":"work:1"}"#,
            r#"{"object":"work:1/post:7","batch":"import:42"}"#,
            r#"{"worker":"w1"}"#,
            r#"{"waits_for":"customer:7"}"#,
            r#"{"emitted_since":"1970-01-01T00:01:40Z","emitted_before":"1970-01-01T00:01:41Z"}"#,
            r#"{"due_since":"1970-01-01T00:03:20Z","due_before":"1970-01-01T00:03:21Z"}"#,
            r#"{"error_text":"timed"}"#,
            r#"{"value_text":"\"sku\":7"}"#,
            r#"{"value":{"path":["lines","0","sku"],"equals":7}}"#,
        ] {
            assert!(selected(met), "{met}");
        }
        for not_met in [
            r#"{"module":"REPORTS"}"#,
            r#"{"name":"other"}"#,
            r#"{"module":"REPORTS","name":"send-email"}"#,
            r#"{"modifier":"_"}"#,
            r#"{"states":["paused"]}"#,
            r#"{"tags":["a:1","c"]}"#,
            r#"{"object":"work:2"}"#,
            r#"{"batch":"import:4"}"#,
            r#"{"worker":"w2"}"#,
            r#"{"waits_for":"customer"}"#,
            r#"{"waits_for":"canvas"}"#,
            r#"{"emitted_since":"1970-01-01T00:01:41Z"}"#,
            r#"{"emitted_before":"1970-01-01T00:01:40Z"}"#,
            r#"{"due_before":"1970-01-01T00:03:20Z"}"#,
            r#"{"died_before":"9999-01-01T00:00:00Z"}"#,
            r#"{"error_group":"00000000-0000-8000-8000-000000000000"}"#,
            r#"{"error_text":"refused"}"#,
            r#"{"value_text":"sku: 7"}"#,
            r#"{"value":{"path":["kind"],"equals":"receipt"}}"#,
            r#"{"tags":["a:1"],"error_text":"refused"}"#,
        ] {
            assert!(!selected(not_met), "{not_met}");
        }
    }

    #[test]
    fn a_filter_is_json_and_says_what_it_means() {
        let text = r#"{"name":"greet","states":["dead"],"tags":["a"],"error_text":"x"}"#;
        let filter: EventFilter = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&filter).unwrap(), text);
        assert_eq!(filter.json(), text.replace(r#"{"name""#, r#"{"module":"WORKER","name""#));
        assert_eq!(EventFilter::default().json(), "{}");
        for refused in [r#"{"names":1}"#, r#"{"tags":["a,b"]}"#, r#"{"name":"a b"}"#, r#"{"error_text":""}"#]
        {
            assert!(serde_json::from_str::<EventFilter>(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn filters_have_limits() {
        let many = EventFilter { states: vec![EventState::Dead; 11], ..EventFilter::default() };
        assert!(many.check().is_err());
        let late = Timestamp::from_timestamp(253_402_300_800, 0).unwrap();
        assert!(EventFilter { due_before: Some(late), ..EventFilter::default() }.check().is_err());
        assert_eq!(EventFilter { due_before: Some(moment(0)), ..EventFilter::default() }.check(), Ok(()));
        assert!("x".repeat(201).parse::<SearchText>().is_err() && "a\0".parse::<SearchText>().is_err());
    }

    #[test]
    fn states_are_their_words() {
        for state in EventState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
        assert!("gone".parse::<EventState>().is_err());
    }
}
