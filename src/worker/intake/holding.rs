//! How many notifications a worker holds, and whether it receives more. A level has a limit of its
//! own if urgent notifications come over a stream of their own. Otherwise both levels share that of
//! the one stream: it hands out no more than so many of both together.

use super::*;

/// The levels that share a limit with this one, in the order in which they give way.
fn together(level: Level, is_divided: bool) -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(move |other| *other == level || !is_divided)
}

impl<R: NotificationRunner> Intake<R> {
    /// How many notifications run, or wait for their start after arriving, of this level and those
    /// that share its limit. Handed-over ones do not count: chains must not hold back at the broker
    /// what others emit.
    fn held(&self, level: Level) -> usize {
        let held = |level| {
            let waiting = self.waiting.at(level);
            self.waiting.places(level) + waiting.len() - waiting.links()
        };
        together(level, self.is_divided).map(held).sum()
    }

    /// The current limit of `held`.
    fn held_limit(&self, level: Level) -> usize {
        let is_apart = self.is_divided && level.is_urgent();
        self.held_max + if is_apart { 0 } else { self.ahead.extra() }
    }

    /// How many notifications of the other level may come to this one without exceeding its limit.
    pub(super) fn room_for_others(&self, level: Level) -> usize {
        if self.is_divided { self.held_limit(level).saturating_sub(self.held(level)) } else { usize::MAX }
    }

    /// Whether more notifications of a level are received. While some are set aside, only as fast
    /// as promises are put off.
    pub(super) fn holds_more(&self, level: Level) -> bool {
        let none_aside = || together(level, self.is_divided).all(|level| self.waiting.at(level).aside() == 0);
        none_aside() && self.held(level) < self.held_limit(level) || self.looks_through(level)
    }

    /// Whether notifications are received although as many are held as may be.
    fn looks_through(&self, level: Level) -> bool {
        let has_others = |level| self.waiting.at(level).owners() > 1;
        let are_others =
            together(level, self.is_divided).any(has_others) || self.surplus.others.are_known(Instant::now());
        are_others && self.surplus.has_time()
    }

    /// Gives up what exceeds the limits: of each level the last of the canvas with the most, and of
    /// what was set aside urgent ones last.
    pub(super) fn shed(&mut self) {
        for level in Level::ALL {
            if !self.waiting.at(level).is_empty() {
                self.shed_at(level);
            }
        }
        self.shed_aside();
    }

    /// A subscription hands out no more than the limit, so to look through it, one place of these
    /// is kept free.
    fn shed_at(&mut self, level: Level) {
        let looks_through = self.looks_through(level);
        let limit = self.held_limit(level) - usize::from(looks_through);
        while self.held(level) > limit
            && together(level, self.is_divided).any(|level| self.gives_way(level, looks_through))
        {}
        while self.waiting.at(level).links() > self.links_max()
            && let Some(pending) = self.waiting.at_mut(level).shed_link()
        {
            self.republish(pending);
        }
    }

    /// Sets a notification of a level aside, or leaves it to other workers; returns whether there
    /// was one.
    fn gives_way(&mut self, level: Level, is_set_aside: bool) -> bool {
        let waiting = self.waiting.at_mut(level);
        if is_set_aside {
            return waiting.set_aside(|pending| self.surplus.set_aside(pending));
        }
        let shed = waiting.shed();
        let is_one = shed.is_some();
        if let Some(pending) = shed {
            self.republish(pending);
        }
        is_one
    }

    /// Maximum number of handed-over notifications that may wait here now; those that would wait
    /// for long are left to other workers. Each has already waited for its turn, and at the broker
    /// it could end up behind everything that was emitted.
    fn links_max(&self) -> usize {
        self.held_max.max(self.lot_max.min(self.pace.done_in_time()))
    }
}
