//! Which handlers a metric names: the first few hundred, and `other` for the rest, so that invented
//! names can't make this process, or what collects its metrics, grow.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use opentelemetry::StringValue;

use crate::event::{HandlerScope, Name};

/// Most handlers that one metric names.
pub(super) const HANDLERS_MAX: usize = 200;
/// The name of all others.
const OTHER: &str = "other";

/// The names that are in use.
#[derive(Debug, Default)]
pub(super) struct Labels(RwLock<HashMap<String, StringValue>>);

impl Labels {
    /// `MODULE/name`, without the canvas.
    pub(super) fn of(&self, scope: &HandlerScope) -> StringValue {
        self.named(label(scope))
    }

    /// The name of a queue.
    pub(super) fn of_queue(&self, queue: &Name) -> StringValue {
        self.named(queue.to_string())
    }

    /// Whether the handler has a name of its own.
    pub(super) fn knows(&self, scope: &HandlerScope) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&label(scope))
    }

    fn named(&self, name: String) -> StringValue {
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return known.clone();
        }
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= HANDLERS_MAX && !names.contains_key(&name) {
            return OTHER.into();
        }
        names.entry(name).or_insert_with_key(|name| name.clone().into()).clone()
    }
}

fn label(scope: &HandlerScope) -> String {
    [scope.module.as_str(), "/", scope.name.as_str()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CanvasId;

    #[test]
    fn the_first_handlers_keep_their_names_and_the_rest_share_one() {
        let labels = Labels::default();
        let label = |index: usize| {
            let scope = HandlerScope::worker(CanvasId::DEFAULT, &format!("h{index}")).unwrap();
            labels.of(&scope).as_str().to_owned()
        };
        for index in 0..10 * HANDLERS_MAX {
            let expected = if index < HANDLERS_MAX { format!("WORKER/h{index}") } else { OTHER.to_owned() };
            assert_eq!(label(index), expected);
        }
        assert_eq!(label(0), "WORKER/h0");
        assert_eq!(labels.0.read().unwrap().len(), HANDLERS_MAX);
    }

    #[test]
    fn a_canvas_is_no_part_of_a_name() {
        let labels = Labels::default();
        let other = HandlerScope::worker(CanvasId(uuid::Uuid::max()), "h").unwrap();
        let scope = HandlerScope::worker(CanvasId::DEFAULT, "h").unwrap();
        assert_eq!(labels.of(&other), labels.of(&scope));
    }
}
