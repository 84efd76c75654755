//! Operations in words: what is done, and to which events.

use maud::{Markup, html};

use crate::page::parts::{events, facts};
use crate::page::time::moment;
use crate::resources::events::page::state_word;
use crate::resources::operations::wire::{OperationFilter, OperationJson, OperationKindJson};

/// The kinds as a choice.
pub(super) const CHOICES: [(&str, &str); 7] = [
    ("", "choose what to do"),
    ("cancel", "cancel, also those that run"),
    ("delete", "delete those that wait, leave running ones alone"),
    ("run-now", "run now"),
    ("retag", "re-tag"),
    ("redrive", "redrive dead events"),
    ("delete-dead", "delete dead events"),
];

/// The kind that the API calls so.
pub(super) fn kind(word: &str) -> Option<OperationKindJson> {
    match word {
        "cancel" => Some(OperationKindJson::Cancel),
        "delete" => Some(OperationKindJson::Delete),
        "run-now" => Some(OperationKindJson::RunNow),
        "retag" => Some(OperationKindJson::Retag),
        "redrive" => Some(OperationKindJson::Redrive),
        "delete-dead" => Some(OperationKindJson::DeleteDead),
        _ => None,
    }
}

/// What it does.
pub(super) fn verb(kind: OperationKindJson) -> &'static str {
    match kind {
        OperationKindJson::Cancel => "Cancel",
        OperationKindJson::RunNow => "Run now",
        OperationKindJson::Delete => "Delete",
        OperationKindJson::Redrive => "Redrive",
        OperationKindJson::DeleteDead => "Delete the dead",
        OperationKindJson::Retag => "Re-tag",
    }
}

/// The question before it begins, about so many events.
pub(super) fn question(kind: OperationKindJson, events: &str) -> String {
    match kind {
        OperationKindJson::Cancel => {
            format!(
                "Cancel {events}? Those that wait are deleted, and the handlers of running ones told to stop."
            )
        }
        OperationKindJson::RunNow => format!("Run {events} now? They are due at once."),
        OperationKindJson::Delete => format!("Delete {events}? Those that run are left alone."),
        OperationKindJson::Redrive => {
            format!("Redrive {events}? They run again, with their retries counted anew.")
        }
        OperationKindJson::DeleteDead => format!("Delete {events} for good?"),
        OperationKindJson::Retag => format!("Change the tags of {events}?"),
    }
}

/// The events of an operation in one line.
pub(super) fn brief_of(operation: &OperationJson) -> String {
    operation
        .named
        .map_or_else(|| brief(&operation.filter), |named| format!("{} by their ids", events(named)))
}

/// The same in full.
pub(super) fn which(operation: &OperationJson) -> Markup {
    match operation.named {
        Some(named) => html! { p { (events(named)) ", by their ids." } },
        None => conditions(&operation.filter),
    }
}

/// A filter in one line.
fn brief(filter: &OperationFilter) -> String {
    let is_of_handler = filter.module.is_some() || filter.name.is_some();
    let handler = is_of_handler.then(|| handler(filter));
    let states = filter.states.iter().map(|state| state_word(*state)).collect::<Vec<_>>();
    let texts = [
        filter.modifier.as_ref().map(|modifier| format!("modifier {modifier}")),
        (!states.is_empty()).then(|| states.join(" or ")),
        (!filter.tags.is_empty()).then(|| format!("tagged {}", filter.tags.join(" and "))),
        filter.object.as_ref().map(|object| format!("on the object {object}")),
        filter.batch.as_ref().map(|batch| format!("of the batch {batch}")),
        filter.worker.as_ref().map(|worker| format!("on {worker}")),
        filter.waits_for.as_ref().map(|limit| format!("waiting for {limit}")),
        filter.error_group.map(|group| format!("of the error group {group}")),
        filter.error_text.as_ref().map(|text| format!("error has {text:?}")),
        filter.value_text.as_ref().map(|text| format!("value has {text:?}")),
        filter.value.clone(),
        has_moments(filter).then(|| "in a time".to_owned()),
    ];
    let words: Vec<_> = handler.into_iter().chain(texts.into_iter().flatten()).collect();
    if words.is_empty() { "all of the canvas".to_owned() } else { words.join(", ") }
}

fn has_moments(filter: &OperationFilter) -> bool {
    let OperationFilter {
        emitted_since, emitted_before, due_since, due_before, died_since, died_before, ..
    } = filter;
    let moments = [emitted_since, emitted_before, due_since, due_before, died_since, died_before];
    moments.into_iter().any(Option::is_some)
}

fn handler(filter: &OperationFilter) -> String {
    let module = filter.module.as_deref().unwrap_or("WORKER");
    format!("{module}/{}", filter.name.as_deref().unwrap_or("*"))
}

/// A filter in full.
pub(super) fn conditions(filter: &OperationFilter) -> Markup {
    if *filter == OperationFilter::default() {
        return html! { p { "All events of the canvas." } };
    }
    let text = |text: &Option<String>| text.as_ref().map(|text| html! { (text) });
    let several = |texts: Vec<&str>| (!texts.is_empty()).then(|| html! { (texts.join(", ")) });
    let is_of_handler = filter.module.is_some() || filter.name.is_some();
    html! {
        (facts(&[
            ("Handler", is_of_handler.then(|| html! { (handler(filter)) })),
            ("Modifier", text(&filter.modifier)),
            ("State", several(filter.states.iter().map(|state| state_word(*state)).collect())),
            ("Tags, all of them", several(filter.tags.iter().map(String::as_str).collect())),
            ("Object", text(&filter.object)),
            ("Batch", text(&filter.batch)),
            ("Worker", text(&filter.worker)),
            ("Waits for the limit", text(&filter.waits_for)),
            ("Error group", filter.error_group.map(|group| html! { code { (group) } })),
            ("Last error contains", text(&filter.error_text)),
            ("Value contains", text(&filter.value_text)),
            ("Value at a path", text(&filter.value)),
            ("Emitted since", filter.emitted_since.map(moment)),
            ("Emitted before", filter.emitted_before.map(moment)),
            ("Due since", filter.due_since.map(moment)),
            ("Due before", filter.due_before.map(moment)),
            ("Died since", filter.died_since.map(moment)),
            ("Died before", filter.died_before.map(moment)),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_the_apis_and_can_be_chosen() {
        for (word, _) in CHOICES.into_iter().skip(1) {
            let kind = kind(word).unwrap();
            assert_eq!(serde_json::to_value(kind).unwrap(), word);
        }
        assert_eq!(kind("stop"), None);
    }

    #[test]
    fn a_filter_is_one_line() {
        assert_eq!(brief(&OperationFilter::default()), "all of the canvas");
        let filter = OperationFilter {
            name: Some("mail".to_owned()),
            tags: vec!["a".to_owned(), "b".to_owned()],
            error_text: Some("no".to_owned()),
            died_since: Some(chrono::DateTime::UNIX_EPOCH),
            ..OperationFilter::default()
        };
        assert_eq!(brief(&filter), "WORKER/mail, tagged a and b, error has \"no\", in a time");
    }
}
