//! The previews of a session, and whether an operation may start after one of them. No I/O.
//!
//! An agent shall not change more than was counted: an operation starts only after its own preview,
//! on the events that were there then, and if about as many of them are left.

use std::collections::VecDeque;

use crate::cli::failure::Failure;
use crate::cli::show;
use crate::resources::operations::wire::{NewOperationJson, OperationPreviewJson};

/// Maximum number of previews that are remembered.
const KEPT: usize = 16;
/// How much a count may have changed since its preview: by one in so many, and by one at least.
const ONE_IN: u64 = 20;

/// The previews after which an operation may start, the latest last.
#[derive(Default)]
pub(super) struct Previews(VecDeque<Previewed>);

/// An operation that was previewed.
pub(super) struct Previewed {
    /// With `before`, so that it is on the events that were counted.
    pub(super) operation: NewOperationJson,
    count: u64,
}

impl Previews {
    /// Remembers a preview, unless there are more events than it could count.
    pub(super) fn remember(&mut self, new: &NewOperationJson, preview: &OperationPreviewJson) {
        self.0.retain(|known| !known.is_of(new));
        if preview.more {
            return;
        }
        let operation = NewOperationJson { before: Some(preview.before), ..new.clone() };
        self.0.push_back(Previewed { operation, count: preview.count });
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// The preview of an operation, if it has counted as expected. It is forgotten, so that each
    /// start has one of its own.
    pub(super) fn take(&mut self, new: &NewOperationJson, expected: u64) -> Result<Previewed, Failure> {
        let at = self.0.iter().position(|known| known.is_of(new));
        let Some(previewed) = at.and_then(|at| self.0.remove(at)) else {
            let words = "call preview_operation first, with the same kind and filter, and have its count \
                         confirmed; if it answers `more`, narrow the filter";
            return Err(Failure::Conflict(words.to_owned()));
        };
        if previewed.count == expected {
            return Ok(previewed);
        }
        let counted = show::count(previewed.count, "event");
        self.0.push_back(previewed);
        Err(Failure::Conflict(format!("the preview has counted {counted}, not {expected}")))
    }
}

impl Previewed {
    fn is_of(&self, new: &NewOperationJson) -> bool {
        self.operation.kind == new.kind && self.operation.filter == new.filter
    }

    /// Fails if the count now is another one than that of the preview, apart from a few.
    pub(super) fn check(&self, now: &OperationPreviewJson) -> Result<(), Failure> {
        let few = (self.count / ONE_IN).max(1);
        if !now.more && now.count.abs_diff(self.count) <= few {
            return Ok(());
        }
        let (then, now) = (self.count, show::at_least(now.count, now.more, "event"));
        Err(Failure::Conflict(format!(
            "nothing was started: the preview has counted {then}, and now it would be {now}: call \
             preview_operation again"
        )))
    }
}

#[cfg(test)]
mod tests {
    use wakeq::Timestamp;

    use super::*;
    use crate::resources::operations::wire::{OperationFilter, OperationKindJson};

    fn cancel(handler: &str) -> NewOperationJson {
        let filter = OperationFilter { name: Some(handler.to_owned()), ..OperationFilter::default() };
        NewOperationJson::new(OperationKindJson::Cancel, filter)
    }

    fn counted(count: u64, more: bool) -> OperationPreviewJson {
        OperationPreviewJson { count, more, looked_at: count, before: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn each_start_has_a_preview_of_its_own() {
        let mut previews = Previews::default();
        assert!(previews.take(&cancel("greet"), 3).is_err(), "not previewed");
        previews.remember(&cancel("greet"), &counted(3, false));
        let run_now = NewOperationJson { kind: OperationKindJson::RunNow, ..cancel("greet") };
        assert!(previews.take(&run_now, 3).is_err(), "of another kind");
        assert!(previews.take(&cancel("mail"), 3).is_err(), "of other events");
        assert!(previews.take(&cancel("greet"), 4).is_err(), "another count");
        let taken = previews.take(&cancel("greet"), 3).map(|previewed| previewed.operation.before);
        assert_eq!(taken.unwrap(), Some(Timestamp::UNIX_EPOCH));
        assert!(previews.take(&cancel("greet"), 3).is_err(), "once");
    }

    #[test]
    fn the_latest_preview_counts_and_few_are_remembered() {
        let mut previews = Previews::default();
        previews.remember(&cancel("greet"), &counted(3, false));
        previews.remember(&cancel("greet"), &counted(5, false));
        assert!(previews.take(&cancel("greet"), 3).is_err());
        previews.remember(&cancel("greet"), &counted(1_000_000, true));
        assert!(previews.take(&cancel("greet"), 1_000_000).is_err(), "there are more than that");
        for at in 0..=KEPT {
            previews.remember(&cancel(&at.to_string()), &counted(1, false));
        }
        assert_eq!(previews.0.len(), KEPT);
        assert!(previews.take(&cancel("0"), 1).is_err());
        assert!(previews.take(&cancel("1"), 1).is_ok());
    }

    #[test]
    fn a_count_may_have_changed_by_a_few() {
        for (then, now, more, holds) in [
            (0, 0, false, true),
            (3, 2, false, true),
            (3, 1, false, false),
            (100, 95, false, true),
            (100, 106, false, false),
            (100, 100, true, false),
        ] {
            let previewed = Previewed { operation: cancel("greet"), count: then };
            assert_eq!(previewed.check(&counted(now, more)).is_ok(), holds, "{then} {now} {more}");
        }
    }
}
