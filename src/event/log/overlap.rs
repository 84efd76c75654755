//! Whether two sources have streams in common, and whether they split a category in the same way.

use std::collections::BTreeSet;

use super::{EventSource, Partition};
use crate::event::CanvasId;

impl EventSource {
    /// Whether a stream may be in both: consuming both at the same time could then break its order.
    #[doc(hidden)]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stream(stream), _) => other.has(stream),
            (_, Self::Stream(stream)) => self.has(stream),
            (
                Self::Category { canvas: of, category, partition },
                Self::Category { canvas, category: same, partition: second },
            ) => category == same && canvases_meet(*of, *canvas) && partitions_meet(*partition, *second),
            (Self::Log { canvas: of }, Self::Log { canvas } | Self::Category { canvas, .. })
            | (Self::Category { canvas: of, .. }, Self::Log { canvas }) => canvases_meet(*of, *canvas),
        }
    }

    /// Why members of one group can't request these two lists: a source that only the first has,
    /// and one that only the second has. `None` if one list contains the other.
    #[doc(hidden)]
    pub fn incomparable(first: &[Self], second: &[Self]) -> Option<(Self, Self)> {
        let [first, second] = [first, second].map(|list| list.iter().collect::<BTreeSet<&Self>>());
        let lacks = |of: &BTreeSet<&Self>, from| of.difference(from).next().map(|source| Self::clone(source));
        lacks(&first, &second).zip(lacks(&second, &first))
    }

    /// Whether both are of the same category, split into different numbers of partitions.
    #[doc(hidden)]
    pub fn is_split_differently(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Category { canvas, category, partition },
                Self::Category { canvas: same_canvas, category: same_category, partition: second },
            ) => {
                canvas == same_canvas
                    && category == same_category
                    && partition.map(Partition::of) != second.map(Partition::of)
            }
            (Self::Log { .. } | Self::Stream(_) | Self::Category { .. }, _) => false,
        }
    }
}

fn canvases_meet(one: Option<CanvasId>, other: Option<CanvasId>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// A bucket with remainder `a` modulo `m` and `b` modulo `n` exists if and only if `a` and `b` are
/// congruent modulo the greatest common divisor of `m` and `n`.
fn partitions_meet(one: Option<Partition>, other: Option<Partition>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return true };
    let (mut divisor, mut rest) = (one.of(), other.of());
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    one.number() % divisor == other.number() % divisor
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::StreamId;

    #[test]
    fn sources_overlap_if_a_stream_is_in_both() {
        let canvas = CanvasId::DEFAULT;
        let streams: Vec<StreamId> = (0..400)
            .map(|number| StreamId::new(canvas, ["a", "b"][number % 2], &format!("s{number}")).unwrap())
            .collect();
        let mut sources =
            vec![EventSource::Log { canvas: None }, "log".parse::<EventSource>().unwrap().on(canvas)];
        for category in ["a", "b"] {
            let whole = EventSource::category(category).unwrap();
            for of in [1, 2, 3, 4, 6] {
                sources.extend(
                    Partition::all(of).into_iter().filter_map(|partition| whole.partition(partition)),
                );
            }
            sources.push(whole);
        }
        sources.extend(streams.iter().take(2).cloned().map(EventSource::Stream));
        for one in &sources {
            for other in &sources {
                let common = streams.iter().any(|stream| one.has(stream) && other.has(stream));
                assert_eq!(one.overlaps(other), common, "{one} {other}");
            }
        }
        let elsewhere = EventSource::category("a").unwrap().on(CanvasId(uuid::Uuid::max()));
        assert!(!elsewhere.overlaps(&EventSource::category("a").unwrap().on(canvas)));
    }

    #[test]
    fn a_category_is_split_in_one_way() {
        let split = |text: &str, other: &str| {
            text.parse::<EventSource>().unwrap().is_split_differently(&other.parse().unwrap())
        };
        assert!(split("category/a", "category/a/1-of-2"));
        assert!(split("category/a/1-of-3", "category/a/1-of-2"));
        assert!(!split("category/a/1-of-2", "category/a/2-of-2"));
        assert!(!split("category/a", "category/b/1-of-2"));
        assert!(!split("log", "category/b/1-of-2"));
    }
}
