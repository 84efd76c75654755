//! Field masks of updates: which paths an update may name, and the service's messages for the
//! others.
//!
//! It does not apply them: each resource does that itself.

use super::{Answer, Refusal};
use crate::proto::protobuf::FieldMask;

/// The fields of a resource in updates.
pub(super) struct Fields {
    /// The resource type, like `Topic`.
    pub(super) resource: &'static str,
    /// A field's name as it has to be in a mask, and as it must not be.
    pub(super) example: (&'static str, &'static str),
    pub(super) mutable: &'static [&'static str],
    /// Known, but not changeable.
    pub(super) immutable: &'static [&'static str],
}

impl Fields {
    /// The mask's paths: at least one, and all of them changeable.
    pub(super) fn paths<'mask>(&self, mask: Option<&'mask FieldMask>) -> Answer<&'mask [String]> {
        let paths = mask.map(|mask| mask.paths.as_slice()).unwrap_or_default();
        if paths.is_empty() {
            return Err(Refusal::invalid(format!(
                "The update_mask in the Update{}Request must be set, and must contain a non-empty paths list.",
                self.resource
            )));
        }
        for path in paths {
            self.check(path)?;
        }
        Ok(paths)
    }

    fn check(&self, path: &str) -> Answer<()> {
        let resource = self.resource;
        let beginning = format!("Invalid update_mask provided in the Update{resource}Request: ");
        let field = path.split('.').next().unwrap_or(path);
        if self.mutable.contains(&path) {
            return Ok(());
        }
        if self.immutable.contains(&field) {
            let words = format!("{beginning}the '{field}' field in the {resource} is not mutable.");
            return Err(Refusal::invalid(words));
        }
        let (right, wrong) = self.example;
        Err(Refusal::invalid(format!(
            "{beginning}'{path}' is not a known {resource} field. Note that field paths must be of the form \
             '{right}' rather than '{wrong}'."
        )))
    }
}

/// A path that `Fields` accepts but the resource does not apply: its two lists of fields differ.
pub(super) fn unapplied(path: &str) -> Refusal {
    Refusal::new(tonic::Code::Internal, format!("The field '{path}' cannot be updated."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: Fields = Fields {
        resource: "Subscription",
        example: ("push_config", "pushConfig"),
        mutable: &["labels", "retry_policy", "retry_policy.minimum_backoff"],
        immutable: &["filter"],
    };

    fn refusal(paths: &[&str]) -> String {
        let mask = FieldMask { paths: paths.iter().map(ToString::to_string).collect() };
        FIELDS.paths(Some(&mask)).map(|_| ()).map_or_else(|refusal| refusal.message, |()| String::new())
    }

    #[test]
    fn each_wrong_mask_is_refused_in_the_service_s_words() {
        let empty = "The update_mask in the UpdateSubscriptionRequest must be set, and must contain a non-empty \
                     paths list.";
        assert_eq!(FIELDS.paths(None).unwrap_err().message, empty);
        let begins = "Invalid update_mask provided in the UpdateSubscriptionRequest: ";
        let form = "Note that field paths must be of the form 'push_config' rather than 'pushConfig'.";
        let table: [(&[&str], String); 7] = [
            (&[], empty.to_owned()),
            (&["labels", "retry_policy.minimum_backoff"], String::new()),
            (
                &["labels", "filter"],
                format!("{begins}the 'filter' field in the Subscription is not mutable."),
            ),
            (&["retryPolicy"], format!("{begins}'retryPolicy' is not a known Subscription field. {form}")),
            (
                &["retry_policy.nonsense"],
                format!("{begins}'retry_policy.nonsense' is not a known Subscription field. {form}"),
            ),
            (&["*"], format!("{begins}'*' is not a known Subscription field. {form}")),
            (&[""], format!("{begins}'' is not a known Subscription field. {form}")),
        ];
        for (paths, words) in table {
            assert_eq!(refusal(paths), words, "{paths:?}");
        }
    }
}
