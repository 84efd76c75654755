//! The partitioner: splits a source into sources that can be consumed in parallel.

use super::{EventSource, Partition};

/// Splits an event sequence into partitions of ordered streams. A stream is always in the same
/// partition, also after a restart, so the order of its events is kept.
///
/// ```
/// use wakeq::log::{EventSequencePartitioner, EventSource};
///
/// let companies = EventSource::category("companies").unwrap();
/// assert_eq!(EventSequencePartitioner::whole().partition(&companies), [companies.clone()]);
/// let partitions = EventSequencePartitioner::of(15).unwrap().partition(&companies);
/// assert_eq!(partitions.len(), 15);
/// assert_eq!(partitions[9].to_string(), "category/companies/a-of-f");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSequencePartitioner(Option<u16>);

impl Default for EventSequencePartitioner {
    fn default() -> Self {
        Self::whole()
    }
}

impl EventSequencePartitioner {
    /// Does not split.
    pub fn whole() -> Self {
        Self(None)
    }

    /// Splits a category into 1 to 1,024 partitions; `None` for any other number. Do not change the
    /// number once a group has read partitions: a stream's events would move to a partition that
    /// has no position.
    pub fn of(partitions: u16) -> Option<Self> {
        Partition::new(1, partitions).map(|_| Self(Some(partitions)))
    }

    /// The partitions of a source, in order. Only a whole category is split: the log, a stream and
    /// a partition are returned as they are.
    pub fn partition(&self, source: &EventSource) -> Vec<EventSource> {
        let is_whole = matches!(source, EventSource::Category { partition: None, .. });
        match self.0 {
            Some(of) if is_whole => {
                Partition::all(of).into_iter().filter_map(|partition| source.partition(partition)).collect()
            }
            Some(_) | None => vec![source.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CanvasId, StreamId};

    // Shows: SUB-02, SUB-19, SUB-34
    #[test]
    fn every_stream_is_in_one_part_whatever_the_number() {
        let companies = EventSource::category("companies").unwrap();
        for of in [1, 2, 15, 16, 1_024] {
            let parts = EventSequencePartitioner::of(of).unwrap().partition(&companies);
            assert_eq!(parts.len(), usize::from(of));
            for number in 0..200 {
                let stream = StreamId::new(CanvasId::DEFAULT, "companies", &format!("c-{number}")).unwrap();
                assert_eq!(parts.iter().filter(|part| part.has(&stream)).count(), 1);
            }
        }
        assert_eq!(EventSequencePartitioner::default().partition(&companies), [companies]);
        assert!(EventSequencePartitioner::of(0).is_none() && EventSequencePartitioner::of(1_025).is_none());
    }

    #[test]
    fn sources_that_cannot_be_divided_stay_whole() {
        let split = EventSequencePartitioner::of(4).unwrap();
        let log = EventSource::Log { canvas: None };
        assert_eq!(split.partition(&log), std::slice::from_ref(&log));
        let part = split.partition(&EventSource::category("companies").unwrap()).remove(2);
        assert_eq!(split.partition(&part), std::slice::from_ref(&part));
    }
}
