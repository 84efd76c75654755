//! Evens out how many groups the nodes serve, by moving those that a node serves by one source.

use super::members::Served;
use super::sketch::Sketch;

/// Releases at most one source of each group that has no pending moves. Sources that are moving
/// already are counted at their destination.
pub(super) fn across(sketches: &mut [Sketch]) {
    let mut served = settled(sketches);
    let mut is_settled: Vec<bool> = sketches.iter().map(|sketch| !sketch.is_moving()).collect();
    loop {
        let mut moved = false;
        for (sketch, is_settled) in sketches.iter_mut().zip(&mut is_settled) {
            if *is_settled && release_one(sketch, &mut served) {
                *is_settled = false;
                moved = true;
            }
        }
        if !moved {
            return;
        }
    }
}

/// How many groups each node will serve once all pending moves have ended.
fn settled(sketches: &[Sketch]) -> Served {
    let mut served = Served::new();
    for sketch in sketches {
        sketch.count_served(&mut served, 1);
    }
    for sketch in sketches.iter().filter(|sketch| sketch.is_moving()) {
        let mut arrived = sketch.clone();
        for slot in &mut arrived.slots {
            slot.leaving.clear();
        }
        arrived.give_free(&mut served);
    }
    served
}

/// Releases the source of a node that serves the group with only this one, if another node could
/// take it and serves at least two groups less.
fn release_one(sketch: &mut Sketch, served: &mut Served) -> bool {
    let groups = |at: usize| served.get(&sketch.slots[at].member.node).copied().unwrap_or_default();
    let serving = sketch.serving();
    let mut best: Option<(usize, usize)> = None;
    for (from, slot) in sketch.slots.iter().enumerate() {
        let Some(source) = slot.kept.first().filter(|source| slot.kept.len() == 1 && slot.had(source)) else {
            continue;
        };
        let alone = sketch
            .slots
            .iter()
            .filter(|other| other.member.node == slot.member.node && !other.kept.is_empty());
        if alone.count() > 1 || !slot.accepts(source) {
            continue;
        }
        for (to, other) in sketch.slots.iter().enumerate() {
            let fits = other.accepts(source) && !serving.contains(&other.member.node);
            let gain = |from, to| groups(from).saturating_sub(groups(to));
            if fits && gain(from, to) > best.map_or(1, |(from, to)| gain(from, to)) {
                best = Some((from, to));
            }
        }
    }
    let Some((from, to)) = best else { return false };
    let (giver, taker) = (sketch.slots[from].member.node, sketch.slots[to].member.node);
    if let Some(source) = sketch.slots[from].kept.first().copied() {
        sketch.slots[from].release(source);
    }
    if let Some(count) = served.get_mut(&giver) {
        *count = count.saturating_sub(1);
    }
    *served.entry(taker).or_default() += 1;
    true
}
