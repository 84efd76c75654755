//! The partitioner: how a source becomes sources that can be worked on side by side.

use super::{EventSource, Partition};

/// Splits an event sequence into buckets of ordered streams. Every stream is in one bucket, now and after every restart, so
/// that the order of its events is kept.
///
/// ```
/// use wakeq::{EventSequencePartitioner, EventSource};
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
    /// Leaves a category in one piece.
    pub fn whole() -> Self {
        Self(None)
    }

    /// Splits a category into so many partitions, 1 to 1,024; none for another number. The number is fixed once a group has
    /// read some of them: with another one a stream's events would be in a partition without a position.
    pub fn of(partitions: u16) -> Option<Self> {
        Partition::new(1, partitions).map(|_| Self(Some(partitions)))
    }

    /// The parts of a source, in their order. The log and a stream have one part, and so has a partition.
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

    // SUB-02, SUB-34
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
    fn what_has_no_parts_stays_whole() {
        let split = EventSequencePartitioner::of(4).unwrap();
        let log = EventSource::Log { canvas: None };
        assert_eq!(split.partition(&log), std::slice::from_ref(&log));
        let part = split.partition(&EventSource::category("companies").unwrap()).remove(2);
        assert_eq!(split.partition(&part), std::slice::from_ref(&part));
    }
}
