//! The same rules, simple and slow: every message in one list, every question answered by a full
//! scan.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::{Holder, LeasedMessage, Settings};
use crate::broker::Time;

#[derive(Clone, Debug, PartialEq)]
enum Stage {
    Pending {
        not_before: Time,
    },
    Leased {
        holder: Holder,
        until: Time,
        lease: usize,
    },
    /// Acknowledged, but an earlier one of its key is not.
    Done,
    Acked,
    Dead,
}

#[derive(Debug)]
struct KnownMessage {
    key: String,
    size: usize,
    stage: Stage,
    failures: u32,
    /// The ids with which it was handed out, the latest last, and whether each was acknowledged.
    ids: Vec<(String, bool)>,
}

/// The expected outcome for an ack id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Acked,
    Lapsed,
    Unordered,
}

#[derive(Debug)]
pub(super) struct Model {
    settings: Settings,
    now: Time,
    messages: BTreeMap<u64, KnownMessage>,
    leases: usize,
    /// Streams that have ended.
    closed: Vec<Holder>,
    pub(super) dead: Vec<(u64, u32)>,
}

impl Model {
    pub(super) fn new(settings: Settings, now: Time) -> Self {
        Self { settings, now, messages: BTreeMap::new(), leases: 0, closed: Vec::new(), dead: Vec::new() }
    }

    pub(super) fn publish(&mut self, id: u64, key: &str, size: usize, not_before: Time) {
        let key = if self.settings.ordering { key.to_owned() } else { String::new() };
        let stage = Stage::Pending { not_before };
        self.messages.insert(id, KnownMessage { key, size, stage, failures: 0, ids: Vec::new() });
    }

    /// Leases expire one after the other.
    pub(super) fn pass(&mut self, now: Time) {
        loop {
            let ended = self.messages.iter().filter_map(|(id, known)| match known.stage {
                Stage::Leased { until, lease, .. } if until <= now => Some((until, lease, *id)),
                Stage::Pending { .. } | Stage::Leased { .. } | Stage::Done | Stage::Acked | Stage::Dead => {
                    None
                }
            });
            let Some((until, _, id)) = ended.min() else { break };
            self.now = until;
            self.fail(id);
        }
        self.now = now;
    }

    /// Ends a stream: what it held stays leased.
    pub(super) fn close(&mut self, stream: Holder) {
        self.closed.push(stream);
    }

    /// Checks what was handed out, in its order, and records it. `complete`: there was room for
    /// more.
    pub(super) fn took(
        &mut self,
        holder: Holder,
        deadline: Duration,
        taken: &[LeasedMessage],
        complete: bool,
    ) {
        let mut session = Vec::new();
        for delivered in taken {
            let id = delivered.message.id;
            assert!(
                self.may_take(id, holder, &session),
                "{id} must not be handed out: {:?}",
                self.messages[&id]
            );
            self.leases += 1;
            let (until, lease) = (self.now + deadline, self.leases);
            let known = self.messages.get_mut(&id).unwrap();
            assert_eq!(delivered.attempt, self.settings.dead_letter_after.map(|_| known.failures + 1));
            known.stage = Stage::Leased { holder, until, lease };
            known.ids.push((delivered.ack_id.clone(), false));
            session.push(id);
        }
        if complete {
            let missed = self.messages.keys().find(|id| self.may_take(**id, holder, &session));
            assert_eq!(missed, None, "could be handed out and was not");
        }
    }

    fn may_take(&self, id: u64, holder: Holder, session: &[u64]) -> bool {
        let known = &self.messages[&id];
        let Stage::Pending { not_before } = known.stage else { return false };
        if known.key.is_empty() {
            return not_before <= self.now;
        }
        let of_key = || self.messages.iter().filter(|(_, other)| other.key == known.key);
        let is_first =
            of_key().find(|(_, other)| matches!(other.stage, Stage::Pending { .. })).map(|(id, _)| *id);
        // Later ones are only leased with exactly-once delivery.
        let others_agree = of_key().all(|(other_id, other)| match other.stage {
            Stage::Leased { holder: Holder::Pull, .. } => {
                *other_id > id || holder == Holder::Pull && session.contains(other_id)
            }
            Stage::Leased { holder: Holder::Push, .. } => *other_id > id,
            Stage::Leased { holder: other, .. } if self.closed.contains(&other) => *other_id > id,
            Stage::Leased { holder: other, .. } => other == holder,
            Stage::Pending { .. } | Stage::Done | Stage::Acked | Stage::Dead => true,
        });
        is_first == Some(id) && not_before <= self.now && others_agree
    }

    pub(super) fn acknowledge(&mut self, ack_ids: &[String]) -> Vec<Verdict> {
        let mut verdicts = vec![None; ack_ids.len()];
        // Those out of order wait for the rest of the request.
        for last_chance in [false, true] {
            let mut order: Vec<usize> = (0..ack_ids.len()).filter(|at| verdicts[*at].is_none()).collect();
            if last_chance {
                order.sort_by_key(|at| self.whose(&ack_ids[*at]));
            }
            for at in order {
                let verdict = self.acknowledge_one(&ack_ids[at]);
                verdicts[at] = Some(verdict).filter(|verdict| last_chance || *verdict != Verdict::Unordered);
            }
        }
        verdicts.into_iter().map(Option::unwrap).collect()
    }

    fn whose(&self, ack_id: &str) -> u64 {
        let holds = |known: &KnownMessage| known.ids.iter().any(|(id, _)| id == ack_id);
        *self.messages.iter().find(|(_, known)| holds(known)).unwrap().0
    }

    fn acknowledge_one(&mut self, ack_id: &str) -> Verdict {
        let id = self.whose(ack_id);
        let is_first = self.is_first(id);
        let exactly_once = self.settings.exactly_once;
        let known = self.messages.get_mut(&id).unwrap();
        let is_latest = known.ids.last().is_some_and(|(latest, _)| latest == ack_id);
        let counted = known.ids.iter().any(|(id, acked)| id == ack_id && *acked);
        match known.stage {
            Stage::Leased { .. } if is_latest => {
                if exactly_once && !is_first {
                    return Verdict::Unordered;
                }
                known.ids.last_mut().unwrap().1 = true;
                known.stage = Stage::Done;
                self.trim();
                Verdict::Acked
            }
            Stage::Pending { .. } if is_latest && !exactly_once && is_first => {
                known.stage = Stage::Done;
                self.trim();
                Verdict::Acked
            }
            _ if exactly_once && !counted => Verdict::Lapsed,
            Stage::Pending { .. } | Stage::Leased { .. } | Stage::Done | Stage::Acked | Stage::Dead => {
                Verdict::Acked
            }
        }
    }

    pub(super) fn modify(&mut self, ack_id: &str, deadline: Duration) -> Verdict {
        let id = self.whose(ack_id);
        let (now, exactly_once) = (self.now, self.settings.exactly_once);
        self.leases += 1;
        let granted = self.leases;
        let known = self.messages.get_mut(&id).unwrap();
        let is_latest = known.ids.last().is_some_and(|(latest, _)| latest == ack_id);
        match &mut known.stage {
            Stage::Leased { until, lease, .. } if is_latest && !deadline.is_zero() => {
                (*until, *lease) = (now + deadline, granted);
            }
            Stage::Leased { .. } if is_latest => self.fail(id),
            _ if exactly_once => return Verdict::Lapsed,
            Stage::Pending { .. } | Stage::Leased { .. } | Stage::Done | Stage::Acked | Stage::Dead => {}
        }
        Verdict::Acked
    }

    fn fail(&mut self, id: u64) {
        let now = self.now;
        let wait = self.settings.retry.map_or(Duration::ZERO, |retry| {
            let doublings = self.messages[&id].failures.min(20);
            (retry.minimum * 2_u32.pow(doublings)).min(retry.maximum)
        });
        let known = self.messages.get_mut(&id).unwrap();
        known.failures += 1;
        if self.settings.dead_letter_after.is_some_and(|most| known.failures >= most) {
            known.stage = Stage::Dead;
            self.dead.push((id, known.failures));
            self.trim();
            return;
        }
        known.stage = Stage::Pending { not_before: now + wait };
        let key = known.key.clone();
        if !key.is_empty() && !self.settings.exactly_once {
            for (_, later) in self.messages.range_mut(id + 1..).filter(|(_, later)| later.key == key) {
                if matches!(later.stage, Stage::Leased { .. } | Stage::Done) {
                    later.stage = Stage::Pending { not_before: now };
                }
            }
        }
    }

    /// Whether all before it in its key are settled for good.
    fn is_first(&self, id: u64) -> bool {
        let key = &self.messages[&id].key;
        let settled = |known: &KnownMessage| matches!(known.stage, Stage::Acked | Stage::Dead);
        key.is_empty()
            || self.messages.range(..id).all(|(_, earlier)| earlier.key != *key || settled(earlier))
    }

    fn trim(&mut self) {
        let ids: Vec<u64> = self.messages.keys().copied().collect();
        for id in ids {
            if self.messages[&id].stage == Stage::Done && self.is_first(id) {
                self.messages.get_mut(&id).unwrap().stage = Stage::Acked;
            }
        }
    }

    /// How many messages are not acknowledged, and how many of those are leased.
    pub(super) fn figures(&self) -> (usize, usize) {
        let count = |is: fn(&Stage) -> bool| self.messages.values().filter(|known| is(&known.stage)).count();
        let leased = count(|stage| matches!(stage, Stage::Leased { .. }));
        (leased + count(|stage| matches!(stage, Stage::Pending { .. })), leased)
    }

    pub(super) fn held_by(&self, holder: Holder) -> (usize, usize) {
        let holds = |known: &&KnownMessage| matches!(known.stage, Stage::Leased { holder: other, .. } if other == holder);
        self.messages
            .values()
            .filter(holds)
            .fold((0, 0), |(count, bytes), known| (count + 1, bytes + known.size))
    }
}
