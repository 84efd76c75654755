//! Forms: each carries the hidden field of the visitor's session, without which it is refused, and
//! a key of its own, by which it is known if it is sent twice.

use maud::{Markup, html};
use uuid::Uuid;

use super::partial::RESULTS;
use super::sent::KEY;
use super::visit::Visit;

/// The name of the hidden field.
pub(super) const TOKEN: &str = "form_token";

/// A form that changes something, at an address that a [`Visit`] has made.
pub(crate) fn change(visit: &Visit, action: &str, contents: Markup) -> Markup {
    html! {
        form.change method="post" action=(action) {
            input type="hidden" name=(TOKEN) value=(visit.parts().form_token);
            input type="hidden" name=(KEY) value=(Uuid::new_v4().to_string());
            (contents)
        }
    }
}

/// A button that changes something at once, since that can be taken back.
pub(crate) fn button(visit: &Visit, action: &str, label: &str) -> Markup {
    change(visit, action, html! { button type="submit" { (label) } })
}

/// A question before something is destroyed, which names how much that is. `back` leads away.
pub(crate) fn confirm(
    visit: &Visit,
    action: &str,
    question: &str,
    yes: &str,
    back: &str,
    fields: Markup,
) -> Markup {
    change(
        visit,
        action,
        html! {
            p.question { (question) }
            (fields)
            p.choices { button.danger type="submit" { (yes) } " " a.button href=(back) { "Keep things as they are" } }
        },
    )
}

/// When a script asks for what a filter finds: at once when it is sent, and a moment after somebody
/// has typed into one of the [`found_as_typed`] fields.
const ASKED: &str = "submit, input delay:500ms from:(form.filter .typed)";

/// A filter: its fields stand in the address, so that it can be sent to others. A script shows what
/// it finds in place of the results, without loading the page again.
pub(crate) fn filter(visit: &Visit, contents: Markup) -> Markup {
    let here = visit.here();
    html! {
        form.filter method="get" action=(here) role="search" hx-get=(here) hx-target={ "#" (RESULTS) }
            hx-trigger=(ASKED) hx-push-url="true" hx-sync="this:replace" {
            (contents)
            button type="submit" { "Filter" } " " a.button href="?" { "Clear" }
        }
    }
}

/// Fields of a filter whose results are shown while somebody types. Not for what is recorded.
pub(crate) fn found_as_typed(fields: Markup) -> Markup {
    html! { div.typed { (fields) } }
}

/// The filters that this browser keeps for this page. Without scripts, the address is one.
pub(crate) fn saved() -> Markup {
    html! {
        noscript { p.quiet { "The address of this page holds the filter: keep it as a bookmark." } }
        details.saved data-saved hidden {
            summary { "Saved filters" }
            ul {}
            form {
                p.field {
                    label for="saved-title" { "Save the filter of this page as" }
                    input id="saved-title" maxlength="60" required autocomplete="off";
                }
                button type="submit" { "Save" }
            }
        }
    }
}

/// A line of text with its label.
pub(crate) fn text(name: &str, label: &str, value: &str, placeholder: &str) -> Markup {
    html! {
        p.field {
            label for=(name) { (label) }
            input id=(name) name=(name) value=(value) placeholder=(placeholder) spellcheck="false" autocomplete="off";
        }
    }
}

/// A moment, which a browser with scripts shows and takes in its own zone, and others in UTC. What
/// is sent is in UTC.
pub(crate) fn moment(name: &str, label: &str, value: &str) -> Markup {
    html! {
        p.field {
            label for=(name) { (label) " (" span data-zone=(name) { "UTC" } ")" }
            input id=(name) name=(name) value=(value) type="datetime-local" step="any" autocomplete="off" data-moment;
        }
    }
}

/// Lines of text with their label.
pub(crate) fn area(name: &str, label: &str, value: &str, rows: u32) -> Markup {
    html! {
        p.field.wide {
            label for=(name) { (label) }
            textarea id=(name) name=(name) rows=(rows) spellcheck="false" { (value) }
        }
    }
}

/// A choice of some, each with its value and its words.
pub(crate) fn select(name: &str, label: &str, chosen: &str, choices: &[(&str, &str)]) -> Markup {
    html! {
        p.field {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                @for (value, words) in choices { option value=(value) selected[*value == chosen] { (words) } }
            }
        }
    }
}

/// Yes or no.
pub(crate) fn check(name: &str, label: &str, is_checked: bool) -> Markup {
    html! {
        p.field.check {
            input id=(name) name=(name) type="checkbox" value="true" checked[is_checked];
            label for=(name) { (label) }
        }
    }
}

/// A value that the form carries on.
pub(crate) fn hidden(name: &str, value: &str) -> Markup {
    html! { input type="hidden" name=(name) value=(value); }
}
