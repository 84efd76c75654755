//! Which handlers are registered, as far as queries have read them. Of many canvases each query
//! reads only some, and the next one those after them, so a canvas counts until its next turn.

use std::collections::VecDeque;

use wakeq::{CanvasId, HandlerScope};

/// How many of the handlers that were read last stay, however long the queries take to come round.
const KEPT: usize = 20_000;

/// What the queries have read since they last came round, and in the round before that.
pub(super) struct RegisteredHandlers {
    /// From which canvas on the next query reads.
    from: CanvasId,
    /// How many times the queries have come round.
    round: u64,
    answers: VecDeque<Answer>,
}

struct Answer {
    round: u64,
    handlers: Vec<HandlerScope>,
}

impl Default for RegisteredHandlers {
    fn default() -> Self {
        Self { from: CanvasId::DEFAULT, round: 0, answers: VecDeque::new() }
    }
}

impl RegisteredHandlers {
    /// The canvas from which on the next query is to read.
    pub(super) fn next_canvas(&self) -> CanvasId {
        self.from
    }

    pub(super) fn handlers(&self) -> impl Iterator<Item = &HandlerScope> {
        self.answers.iter().flat_map(|answer| &answer.handlers)
    }

    /// Adds what a query has read from that canvas on, and from which one on the next is to read.
    pub(super) fn add(&mut self, handlers: Vec<HandlerScope>, next: CanvasId) {
        let round = self.round;
        self.answers.push_back(Answer { round, handlers });
        // Only a query that has reached the last canvas has gone on at the first one.
        if next <= self.from {
            // Since then, all that earlier rounds had read was read again.
            self.answers.retain(|answer| answer.round == round);
            self.round += 1;
        }
        self.from = next;
        let mut newer = self.handlers().count();
        while let Some(oldest) = self.answers.front() {
            newer -= oldest.handlers.len();
            if newer < KEPT {
                break;
            }
            self.answers.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn canvas(number: u128) -> CanvasId {
        CanvasId(uuid::Uuid::from_u128(number))
    }

    /// Adds a handler of each of these canvases, and returns the canvases of all that are known.
    fn read(registered: &mut RegisteredHandlers, canvases: &[u128], next: u128) -> Vec<u128> {
        let handlers = canvases.iter().map(|number| HandlerScope::worker(canvas(*number), "h").unwrap());
        registered.add(handlers.collect(), canvas(next));
        assert_eq!(registered.next_canvas(), canvas(next));
        let known = registered.handlers().map(|handler| handler.canvas.0.as_u128());
        Vec::from_iter(BTreeSet::from_iter(known))
    }

    #[test]
    fn a_canvas_that_a_query_does_not_reach_counts_until_its_next_turn() {
        let mut registered = RegisteredHandlers::default();
        assert_eq!(read(&mut registered, &[1, 2], 2), [1, 2]);
        assert_eq!(read(&mut registered, &[2, 3, 4], 4), [1, 2, 3, 4]);
        assert_eq!(read(&mut registered, &[4, 5, 1, 2], 2), [1, 2, 3, 4, 5], "it has come round");
        // From now on canvas 4 has none.
        assert_eq!(read(&mut registered, &[2, 3], 3), [1, 2, 3, 4, 5]);
        assert_eq!(read(&mut registered, &[3, 5, 1, 2], 2), [1, 2, 3, 5], "and again");
    }

    #[test]
    fn of_canvases_that_one_query_reads_the_last_answer_counts() {
        let mut registered = RegisteredHandlers::default();
        assert_eq!(read(&mut registered, &[1, 2], 0), [1, 2]);
        assert_eq!(read(&mut registered, &[2, 3], 0), [2, 3]);
        assert_eq!(read(&mut registered, &[], 0), [0_u128; 0]);
    }

    #[test]
    fn however_long_a_round_is_a_limited_number_is_kept() {
        const AT_ONCE: u128 = 1_000;
        let mut registered = RegisteredHandlers::default();
        for query in 0..25 {
            let canvases = Vec::from_iter(query * AT_ONCE..(query + 1) * AT_ONCE);
            let known = read(&mut registered, &canvases, (query + 1) * AT_ONCE);
            let first = (query + 1).saturating_sub(20) * AT_ONCE;
            assert_eq!(known, Vec::from_iter(first..(query + 1) * AT_ONCE), "{query}");
        }
        // The end of a round that is longer takes nothing of what was read last.
        assert_eq!(read(&mut registered, &[0, 1], 1).len(), KEPT + 2);
    }
}
