//! What goes to make room for one more, where answers about all canvases share a place: something
//! of the canvas that has the most of it, until each has the same. Decides only; forgets nothing.

use std::collections::HashMap;

use super::question::About;

/// Something that takes room.
pub(super) struct Stored<K> {
    pub(super) about: About,
    pub(super) size: usize,
    /// None if it can't go now.
    pub(super) key: Option<K>,
}

/// The largest thing about whatever has the most, if that is more than there would be about
/// `asking` with one more of this size. So nothing goes for what is about the same.
pub(super) fn first_to_go<K>(held: Vec<Stored<K>>, asking: About, size: usize) -> Option<K> {
    let mut totals: HashMap<About, usize> = HashMap::new();
    for one in &held {
        let total = totals.entry(one.about).or_default();
        *total = total.saturating_add(one.size);
    }
    let own = totals.remove(&asking).unwrap_or(0).saturating_add(size);
    let larger = totals.into_iter().filter(|(_, total)| *total > own);
    let (largest, _) = larger.max_by_key(|(_, total)| *total)?;
    let can_go = held.into_iter().filter(|one| one.about == largest);
    let can_go = can_go.filter_map(|one| Some((one.size, one.key?)));
    can_go.max_by_key(|(size, _)| *size).map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;
    use wakeq::CanvasId;

    use super::*;

    fn canvas(number: u128) -> About {
        About::Canvas(CanvasId(Uuid::from_u128(number)))
    }

    #[test]
    fn the_largest_thing_of_the_canvas_with_the_most_goes_first() {
        let going = |asking, size| {
            let held = [(1, 3, "a"), (1, 4, "b"), (2, 5, "c"), (3, 1, "d")];
            let held = held.map(|(about, size, key)| Stored { about: canvas(about), size, key: Some(key) });
            first_to_go(Vec::from(held), asking, size)
        };
        assert_eq!(going(canvas(4), 1), Some("b"));
        assert_eq!(going(About::Platform, 6), Some("b"));
        assert_eq!(going(canvas(4), 7), None, "it would have as much");
        assert_eq!(going(canvas(2), 1), Some("b"), "it would have less, with what it has");
        assert_eq!(going(canvas(2), 2), None);
        assert_eq!(going(canvas(1), 1), None, "it has the most itself");
    }

    #[test]
    fn things_in_use_count_and_stay() {
        let going = |key| {
            let used = Stored { about: canvas(1), size: 9, key: None };
            let other = Stored { about: canvas(1), size: 1, key };
            first_to_go(vec![used, other], canvas(2), 1)
        };
        assert_eq!((going(Some("a")), going(None)), (Some("a"), None));
    }
}
