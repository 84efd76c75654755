//! The filter of events in a page's address: its fields, and what the API is asked for with it.

use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, html};
use uuid::Uuid;

use crate::http::problem::Problem;
use crate::page::visit::Visit;
use crate::page::{form, given};
use crate::resources::operations::wire::{OperationFilter, SelectedState};

/// The conditions, as the API's lists name them.
const CONDITIONS: [&str; 16] = [
    "state",
    "module",
    "name",
    "modifier",
    "tag",
    "object",
    "batch",
    "worker",
    "waits_for",
    "emitted_since",
    "emitted_before",
    "due_since",
    "due_before",
    "error_text",
    "value_text",
    "value",
];

/// Conditions on dead events, which lists of the others don't have.
const OF_DEAD: [&str; 3] = ["died_since", "died_before", "error_group"];

/// Conditions on events that have not ended, which lists of dead ones don't have.
const OF_LIVE: [&str; 5] = ["state", "worker", "waits_for", "due_since", "due_before"];

/// The conditions that are lines of a form, each with its label and what may be written there.
const LINES: [(&str, &str, &str); 18] = [
    ("name", "Handler", "send-email"),
    ("tag", "Tags, all of them", "customer:7"),
    ("error_text", "Last error contains", "timeout"),
    ("died_since", "Died since", "1 d"),
    ("died_before", "Died before", "1 h"),
    ("module", "Module", "WORKER"),
    ("modifier", "Modifier", "_"),
    ("object", "Object", "order:42"),
    ("batch", "Batch", "import:42"),
    ("worker", "Worker", "orders-6d4cf-x7k2p"),
    ("waits_for", "Waits for the limit", "customer:7"),
    ("emitted_since", "Emitted since", "1 h"),
    ("emitted_before", "Emitted before", "2030-01-31T08:00"),
    ("due_since", "Due since", "1 h"),
    ("due_before", "Due before", "in 10 min"),
    ("value_text", "Value contains", "order 42"),
    ("value", "Value at a path", "$.customer.id = \"7\""),
    ("error_group", "Error group", "its id"),
];

/// Lines that are always shown. The others can be folded away.
const FIRST: [&str; 3] = ["name", "tag", "error_text"];
const FIRST_OF_DEAD: [&str; 5] = ["name", "tag", "error_text", "died_since", "died_before"];

/// Conditions that are moments.
const MOMENTS: [&str; 6] =
    ["emitted_since", "emitted_before", "due_since", "due_before", "died_since", "died_before"];

/// Conditions that are looked for as they are written.
const TEXTS: [&str; 2] = ["error_text", "value_text"];

/// The states of events that have not ended, and some together.
const STATES: [(&str, &str); 12] = [
    ("", "any state"),
    ("ready", "ready"),
    ("running", "running"),
    ("delayed", "delayed"),
    ("behind", "behind another"),
    ("limited", "waits for a limit"),
    ("paused", "paused"),
    ("blocked", "blocked"),
    ("held", "held by its queue"),
    ("halted", "halted"),
    ("ready,behind,limited,held", "due, and waiting"),
    ("paused,blocked", "paused or blocked"),
];

/// The conditions that are given, as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter(Vec<(&'static str, String)>);

impl Filter {
    /// The filter in the address of a page.
    pub(crate) fn of(visit: &Visit) -> Self {
        Self::read(&visit.parameters())
    }

    /// A condition that is given several times is given once, with commas.
    fn read(parameters: &[(String, String)]) -> Self {
        let given = |name: &'static str| {
            let values =
                parameters.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str());
            let values: Vec<&str> =
                values.map(|value| if TEXTS.contains(&name) { value } else { value.trim() }).collect();
            (!values.is_empty()).then(|| (name, values.join(",")))
        };
        Self(CONDITIONS.into_iter().chain(OF_DEAD).filter_map(given).collect())
    }

    /// A condition as it was written; empty if it is not given.
    fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(given, _)| *given == name).map_or("", |(_, text)| text)
    }

    fn has_any(&self, names: &[&str]) -> bool {
        self.0.iter().any(|(given, _)| names.contains(given))
    }

    /// Whether it asks for what is in values: such a search is recorded.
    pub(crate) fn searches_values(&self) -> bool {
        self.has_any(&["value", "value_text"])
    }

    /// Whether the API counts what it selects.
    pub(crate) fn is_countable(&self) -> bool {
        !self.has_any(&["worker"])
    }

    /// The address of a page with this filter, behind some other parameters.
    pub(crate) fn link(&self, visit: &Visit, path: &[&str], others: &[(&str, &str)]) -> String {
        let own = self.0.iter().map(|(name, text)| (*name, text.as_str()));
        visit.link_with(path, &others.iter().copied().chain(own).collect::<Vec<_>>())
    }

    /// The address of the list of dead events that are like this, which have no other states.
    pub(crate) fn link_to_dead(&self, visit: &Visit) -> String {
        let of_dead = self.0.iter().filter(|(name, _)| !OF_LIVE.contains(name));
        let own: Vec<_> = of_dead.map(|(name, text)| (*name, text.as_str())).collect();
        visit.link_with(&["dead-events", "list"], &own)
    }

    /// The parameters of the API's list, with distances as moments before or after `now`.
    pub(crate) fn query(&self, now: DateTime<Utc>) -> Result<Vec<(String, String)>, Problem> {
        self.asked(now, |name| (!OF_DEAD.contains(&name)).then_some(name))
    }

    /// The same for the list of dead events, which has no other states, and its own names.
    pub(crate) fn query_of_dead(&self, now: DateTime<Utc>) -> Result<Vec<(String, String)>, Problem> {
        self.asked(now, |name| match name {
            name if OF_LIVE.contains(&name) => None,
            "died_since" => Some("since"),
            "died_before" => Some("before"),
            name => Some(name),
        })
    }

    /// The conditions that a list has, by the names that it has for them.
    fn asked(
        &self,
        now: DateTime<Utc>,
        named: fn(&'static str) -> Option<&'static str>,
    ) -> Result<Vec<(String, String)>, Problem> {
        let listed = self.0.iter().filter_map(|(name, text)| Some((named(name)?, *name, text)));
        let pairs = listed.map(|(named, name, text)| {
            let text = match self.moment(name, now)? {
                Some(moment) => moment.to_rfc3339_opts(SecondsFormat::Micros, true),
                None if name == "error_group" => error_group(text)?.to_string(),
                None => text.clone(),
            };
            Ok((named.to_owned(), text))
        });
        pairs.collect()
    }

    /// The same for an operation.
    pub(crate) fn selected(&self, now: DateTime<Utc>) -> Result<OperationFilter, Problem> {
        let text = |name: &str| Some(self.text(name)).filter(|text| !text.is_empty()).map(str::to_owned);
        let moment = |name: &str| self.moment(name, now);
        Ok(OperationFilter {
            module: text("module"),
            name: text("name"),
            modifier: text("modifier"),
            states: self.several("state").map(state).collect::<Result<_, _>>()?,
            tags: self.several("tag").map(str::to_owned).collect(),
            object: text("object"),
            batch: text("batch"),
            worker: text("worker"),
            waits_for: text("waits_for"),
            emitted_since: moment("emitted_since")?,
            emitted_before: moment("emitted_before")?,
            due_since: moment("due_since")?,
            due_before: moment("due_before")?,
            died_since: moment("died_since")?,
            died_before: moment("died_before")?,
            error_group: text("error_group").map(|id| error_group(&id)).transpose()?,
            error_text: text("error_text"),
            value_text: text("value_text"),
            value: text("value"),
        })
    }

    fn several(&self, name: &str) -> impl Iterator<Item = &str> {
        self.text(name).split(',').map(str::trim).filter(|text| !text.is_empty())
    }

    /// A condition that is a moment, if it is one and is given.
    fn moment(&self, name: &str, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, Problem> {
        if MOMENTS.contains(&name) { given::moment(name, self.text(name), now) } else { Ok(None) }
    }

    /// The fields of the list of events that have not ended. Its first ones record nothing.
    pub(crate) fn fields(&self) -> Markup {
        let first = html! { (self.states()) (self.first(&FIRST)) };
        html! { (form::found_as_typed(first)) (self.further(&FIRST, &OF_DEAD)) }
    }

    /// The fields of the list of dead events.
    pub(crate) fn fields_of_dead(&self) -> Markup {
        html! { (self.first(&FIRST_OF_DEAD)) (self.further(&FIRST_OF_DEAD, &OF_LIVE)) }
    }

    /// The fields of what may be about both.
    pub(crate) fn fields_of_all(&self) -> Markup {
        html! { (self.states()) (self.first(&FIRST)) (self.further(&FIRST, &[])) }
    }

    /// The lines that are always shown.
    fn first(&self, first: &[&str]) -> Markup {
        html! { @for line in LINES.iter().filter(|(name, ..)| first.contains(name)) { (self.line(line)) } }
    }

    /// The other lines but for some conditions. They can be folded away.
    fn further(&self, first: &[&str], without: &[&str]) -> Markup {
        let is_further = |name: &str| !first.contains(&name) && !without.contains(&name);
        let is_open = self.0.iter().any(|(name, _)| *name != "state" && !first.contains(name));
        html! {
            details.more open[is_open] {
                summary { "More conditions" }
                div.fields { @for line in LINES.iter().filter(|(name, ..)| is_further(name)) { (self.line(line)) } }
                p.quiet {
                    "A time is a length, such as " code { "1 h" } " for an hour ago, " code { "in 2 d" }
                    ", or a moment in UTC. A search in values is recorded with your name."
                }
            }
        }
    }

    fn line(&self, (name, label, example): &(&str, &str, &str)) -> Markup {
        form::text(name, label, self.text(name), example)
    }

    /// The choice of a state, with what the address has, even if that is several.
    fn states(&self) -> Markup {
        let chosen = self.text("state");
        let mut choices = STATES.to_vec();
        if choices.iter().all(|(value, _)| *value != chosen) {
            choices.push((chosen, chosen));
        }
        form::select("state", "State", chosen, &choices)
    }
}

fn error_group(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| Problem::bad_request("an error group's id is a uuid, as its page has it"))
}

fn state(word: &str) -> Result<SelectedState, Problem> {
    let known = ALL.into_iter().find(|state| state_word(*state) == word);
    known.ok_or_else(|| {
        let words: Vec<_> = ALL.into_iter().map(state_word).collect();
        Problem::bad_request(format!("a state is one of {}", words.join(", ")))
    })
}

const ALL: [SelectedState; 10] = [
    SelectedState::Ready,
    SelectedState::Behind,
    SelectedState::Halted,
    SelectedState::Held,
    SelectedState::Delayed,
    SelectedState::Running,
    SelectedState::Paused,
    SelectedState::Blocked,
    SelectedState::Limited,
    SelectedState::Dead,
];

/// The state as the API writes it.
pub(crate) fn state_word(state: SelectedState) -> &'static str {
    match state {
        SelectedState::Ready => "ready",
        SelectedState::Behind => "behind",
        SelectedState::Halted => "halted",
        SelectedState::Held => "held",
        SelectedState::Delayed => "delayed",
        SelectedState::Running => "running",
        SelectedState::Paused => "paused",
        SelectedState::Blocked => "blocked",
        SelectedState::Limited => "limited",
        SelectedState::Dead => "dead",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(query: &str) -> Filter {
        let pairs = url::form_urlencoded::parse(query.as_bytes()).into_owned();
        Filter::read(&pairs.collect::<Vec<_>>())
    }

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_900_000_000, 0).unwrap()
    }

    #[test]
    fn an_address_is_read_for_lists_and_for_operations() {
        let filter = filter(
            "state=paused&state=blocked&name=+mail+&tag=a,b&emitted_since=1+h&died_before=1+d&error_text=+no+\
             &object=work%3A1&batch=+a+&cursor=x&id=7",
        );
        let query = filter.query(now()).unwrap();
        let pairs: Vec<_> = query.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("state", "paused,blocked"),
                ("name", "mail"),
                ("tag", "a,b"),
                ("object", "work:1"),
                ("batch", "a"),
                ("emitted_since", "2030-03-17T16:46:40.000000Z"),
                ("error_text", " no "),
            ]
        );
        let selected = filter.selected(now()).unwrap();
        assert_eq!(selected.states, [SelectedState::Paused, SelectedState::Blocked]);
        assert_eq!((selected.name.as_deref(), selected.tags.len()), (Some("mail"), 2));
        assert_eq!((selected.object.as_deref(), selected.batch.as_deref()), (Some("work:1"), Some("a")));
        assert_eq!(selected.died_before, DateTime::from_timestamp(1_900_000_000 - 86_400, 0));
        assert!(!filter.searches_values() && filter.is_countable());
    }

    #[test]
    fn an_address_is_read_for_dead_events() {
        let id = "9f1c0c5e-3d5c-8a31-9a3f-3a1de14a0b2c";
        let filter = filter(&format!(
            "state=paused&worker=w&due_since=1+h&name=mail&died_since=1+h&died_before=2030-01-01\
             &error_group={id}"
        ));
        let query = filter.query_of_dead(now()).unwrap();
        let pairs: Vec<_> = query.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("name", "mail"),
                ("since", "2030-03-17T16:46:40.000000Z"),
                ("before", "2030-01-01T00:00:00.000000Z"),
                ("error_group", id),
            ]
        );
        assert_eq!(filter.selected(now()).unwrap().error_group, id.parse().ok());
        assert!(filter.query(now()).unwrap().iter().all(|(name, _)| name != "error_group"));
    }

    #[test]
    fn what_can_not_be_read_is_refused_with_what_to_write() {
        for (query, words) in [
            ("due_since=soon", "such as `1 h`"),
            ("state=lost", "one of ready, behind"),
            ("error_group=7", "is a uuid"),
        ] {
            let refused = filter(query).selected(now()).unwrap_err();
            assert!(refused.detail().contains(words), "{}", refused.detail());
        }
        assert!(filter("due_since=soon").query(now()).is_err());
        assert_eq!(filter("state=&nonsense=1").selected(now()).unwrap(), OperationFilter::default());
    }

    #[test]
    fn every_condition_is_a_line_of_a_form() {
        let all: Vec<_> = CONDITIONS.into_iter().chain(OF_DEAD).filter(|name| *name != "state").collect();
        assert!(all.iter().all(|name| LINES.iter().any(|(line, ..)| line == name)), "{all:?}");
        assert_eq!(all.len(), LINES.len());
    }

    #[test]
    fn every_state_is_the_apis() {
        for state in ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state_word(state));
        }
    }
}
