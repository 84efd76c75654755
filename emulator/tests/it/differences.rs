//! Where an emulator does not do what the service's documentation says.

use std::collections::BTreeSet;

use crate::cases;
use crate::sides::Side;

/// A case that fails on one side.
pub(crate) struct Difference {
    pub(crate) side: Side,
    pub(crate) case: &'static str,
    /// What that side does.
    pub(crate) does: &'static str,
    /// What the documentation says, and where: `proto` is `google/pubsub/v1/pubsub.proto`.
    pub(crate) documented: &'static str,
    /// Words of the failure, so that no other failure hides behind this one.
    pub(crate) sign: &'static str,
}

pub(crate) const DIFFERENCES: &[Difference] = &[];

#[test]
fn every_difference_names_a_case_and_its_source() {
    let known: BTreeSet<_> = cases().collect();
    assert_eq!(known.len(), cases().count(), "two cases have one name");
    let mut seen = Vec::new();
    for Difference { side, case, does, documented, sign } in DIFFERENCES {
        assert!(known.contains(case), "there is no case {case}");
        assert!(!seen.contains(&(side, case)), "{case} is listed twice");
        seen.push((side, case));
        assert!(!does.is_empty() && !documented.is_empty() && !sign.is_empty(), "{case}");
    }
}
