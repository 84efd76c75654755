//! A filter of events that are kept after they have ended: what their lists and counts select by.

use super::value_condition::{InvalidFilter, ValueCondition};
use super::{
    BatchName, CanvasId, EndedOutcome, EventFilter, HandlerScope, Name, ObjectKey, SearchText, Tag,
    Timestamp, is_storable,
};

/// Which ended events to select: those of the canvas that meet every condition that is set. A
/// condition on what an event does not have, such as an error or a result, is not met.
///
/// ```
/// use wakeq::events::{EndedFilter, EndedOutcome};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let filter = EndedFilter {
///     outcome: Some(EndedOutcome::Failed),
///     tags: vec!["customer:7".parse()?],
///     result: Some("$.receipt = 9".parse()?),
///     ..EndedFilter::default()
/// };
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedFilter {
    /// The tenant.
    pub canvas: CanvasId,
    /// Only those of this handler.
    pub scope: Option<HandlerScope>,
    /// Only those that ended like this.
    pub outcome: Option<EndedOutcome>,
    /// Only those of handlers with this modifier.
    pub modifier: Option<Name>,
    /// Only those that have all of these tags.
    pub tags: Vec<Tag>,
    /// Only those that were on this object.
    pub object: Option<ObjectKey>,
    /// Only those that were members of this batch.
    pub batch: Option<BatchName>,
    /// Only those that were emitted at or after this time.
    pub emitted_since: Option<Timestamp>,
    /// Only those that were emitted before this time.
    pub emitted_before: Option<Timestamp>,
    /// Only those that ended at or after this time.
    pub ended_since: Option<Timestamp>,
    /// Only those that ended before this time.
    pub ended_before: Option<Timestamp>,
    /// Only those whose error contains this text.
    pub error_text: Option<SearchText>,
    /// Only those whose value contains this text, as it was emitted.
    pub value_text: Option<SearchText>,
    /// Only those whose value meets this condition.
    pub value: Option<ValueCondition>,
    /// Only those whose result contains this text, as it was recorded.
    pub result_text: Option<SearchText>,
    /// Only those whose result meets this condition.
    pub result: Option<ValueCondition>,
}

impl EndedFilter {
    /// Refuses what exceeds a limit. Whoever takes a filter from a caller checks it first.
    ///
    /// ```
    /// use wakeq::events::{EndedFilter, Tag};
    ///
    /// let tags = (0..11).map(|number| format!("n:{number}").parse::<Tag>().unwrap()).collect();
    /// assert!(EndedFilter { tags, ..EndedFilter::default() }.check().is_err());
    /// ```
    pub fn check(&self) -> Result<(), InvalidFilter> {
        let ended = [self.ended_since, self.ended_before];
        if ended.into_iter().flatten().any(|moment| !is_storable(moment)) {
            return Err(InvalidFilter("a moment is in the years 1 to 9999"));
        }
        self.of_event().check()
    }

    /// The conditions that no index has, but for those on results: as a filter of events.
    pub(crate) fn of_event(&self) -> EventFilter {
        EventFilter {
            modifier: self.modifier.clone(),
            tags: self.tags.clone(),
            object: self.object.clone(),
            batch: self.batch.clone(),
            emitted_since: self.emitted_since,
            emitted_before: self.emitted_before,
            error_text: self.error_text.clone(),
            value_text: self.value_text.clone(),
            value: self.value.clone(),
            ..EventFilter::default()
        }
    }

    /// The conditions on results: as a filter of events that have the result as their value.
    pub(crate) fn of_result(&self) -> EventFilter {
        EventFilter {
            value_text: self.result_text.clone(),
            value: self.result.clone(),
            ..EventFilter::default()
        }
    }

    /// Whether it asks for what is in values or results.
    pub(crate) fn looks_into_values(&self) -> bool {
        self.value_text.is_some()
            || self.value.is_some()
            || self.result_text.is_some()
            || self.result.is_some()
    }

    /// Whether it asks for what is in texts that may be long: errors, values and results.
    pub(crate) fn looks_inside(&self) -> bool {
        self.error_text.is_some() || self.looks_into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_on_results_are_apart() {
        let filter = EndedFilter {
            tags: vec!["a".parse().unwrap()],
            ended_since: Timestamp::from_timestamp(0, 0),
            result_text: Some("paid".parse().unwrap()),
            result: Some("$.receipt = 9".parse().unwrap()),
            ..EndedFilter::default()
        };
        assert_eq!(filter.of_event().json(), r#"{"tags":["a"]}"#);
        let of_result = r#"{"value_text":"paid","value":{"path":["receipt"],"equals":9}}"#;
        assert_eq!(filter.of_result().json(), of_result);
        assert!(filter.looks_inside() && filter.looks_into_values());
        let of_error = EndedFilter { error_text: Some("no".parse().unwrap()), ..EndedFilter::default() };
        assert!(of_error.looks_inside() && !of_error.looks_into_values());
        assert_eq!(EndedFilter::default().of_result(), EventFilter::default());
    }

    #[test]
    fn moments_can_be_stored() {
        let late = Timestamp::from_timestamp(253_402_300_800, 0);
        for filter in [
            EndedFilter { ended_since: late, ..EndedFilter::default() },
            EndedFilter { ended_before: late, ..EndedFilter::default() },
            EndedFilter { emitted_before: late, ..EndedFilter::default() },
        ] {
            assert!(filter.check().is_err(), "{filter:?}");
        }
        let past = EndedFilter { ended_before: Timestamp::from_timestamp(0, 0), ..EndedFilter::default() };
        assert_eq!(past.check(), Ok(()));
    }
}
