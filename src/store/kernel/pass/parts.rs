//! How far a pass in parts has come: which slice of the promises it reads next, and what becomes of
//! one that took too long. No SQL, and no clock.

use std::time::Duration;

use super::slices::{Portion, Walk};
use crate::event::Timestamp;

/// In how many passes the parts are taken one by one before all of it is tried again at once.
const PASSES: u32 = 10;
/// Maximum number of slices of one pass from before the low-water mark; the next pass continues.
const LOOKS_MAX: u32 = 10;
/// After how many slices that took too long a pass gives up; the next continues with smaller ones.
const TOO_LONG_MAX: u32 = 4;

/// The rest of a pass in parts.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Parts {
    /// How many more passes are taken in parts.
    passes: u32,
    /// From the low-water mark on.
    pub(in crate::store) recent: Reading,
    /// Before the mark.
    pub(in crate::store) behind: Reading,
    looks: u32,
    too_long: u32,
}

/// A range, and how much of it one statement reads.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Reading {
    walk: Option<Walk>,
    pub(in crate::store) portion: Portion,
}

/// The next step after a slice that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum TooLong {
    /// Less of it is read at a time.
    Less,
    /// It is read with what is before the mark, and so is all before it: passes go on there where
    /// the last one ended, and do not come to it again each time.
    LeftBehind,
    /// It can't be made smaller, so it is stepped over: what is before it is read next.
    SteppedOver,
}

impl Parts {
    /// After a pass at once has taken too long.
    pub(super) const AFTER_ALL_AT_ONCE: Self =
        Self { passes: PASSES, recent: Reading::NONE, behind: Reading::NONE, looks: 0, too_long: 0 };

    /// At the beginning of a pass: from the low-water mark until now, and what is still to be read
    /// before it.
    pub(super) fn of_pass(
        self,
        (from, now): (Option<Timestamp>, Timestamp),
        behind: Option<Timestamp>,
    ) -> Self {
        Self {
            passes: self.passes.saturating_sub(1),
            recent: Reading { walk: Some(Walk::back(from, now)), ..self.recent },
            behind: Reading { walk: behind.map(|at| Walk::back(None, at)), ..self.behind },
            looks: 0,
            too_long: 0,
        }
    }

    /// Whether a pass has begun.
    pub(in crate::store) fn has_begun(&self) -> bool {
        self.recent.walk.is_some()
    }

    /// Whether the next pass may try all at once again.
    pub(super) fn is_over(&self) -> bool {
        self.passes == 0
    }

    /// The slice to read now, and whether it is before the low-water mark.
    pub(in crate::store) fn slice(&self) -> Option<(Slice, bool)> {
        let recent = self.recent.slice().map(|slice| (slice, false));
        recent.or_else(|| Some((self.behind.slice().filter(|_| self.looks < LOOKS_MAX)?, true)))
    }

    pub(in crate::store) fn reading(&mut self, is_behind: bool) -> &mut Reading {
        if is_behind { &mut self.behind } else { &mut self.recent }
    }

    /// After a slice was read in this time, where a statement may take `limit`.
    pub(in crate::store) fn after_read(
        mut self,
        (slice, is_behind): (Slice, bool),
        reached: Option<Timestamp>,
        (took, limit): (Duration, Duration),
    ) -> Self {
        let reading = self.reading(is_behind);
        reading.step(slice, reached);
        reading.portion = reading.portion.after(took, limit);
        self.looks += u32::from(self.recent.at().is_none());
        self.too_long = 0;
        self
    }

    /// After a slice took too long.
    pub(in crate::store) fn after_too_long(mut self, (slice, is_behind): (Slice, bool)) -> (Self, TooLong) {
        self.too_long += 1;
        self.looks += u32::from(is_behind);
        let gives_up = self.gives_up();
        let reading = self.reading(is_behind);
        let smaller = reading.portion.smaller();
        reading.portion = smaller.unwrap_or(reading.portion);
        let becomes = match smaller {
            Some(_) if is_behind || !gives_up => TooLong::Less,
            None if is_behind => TooLong::SteppedOver,
            Some(_) | None => TooLong::LeftBehind,
        };
        match becomes {
            TooLong::Less => {}
            TooLong::SteppedOver => reading.step(slice, None),
            TooLong::LeftBehind => {
                reading.walk = reading.walk.map(|walk| Walk { at: None, ..walk });
                self.behind.walk = Some(Walk::back(None, slice.1));
            }
        }
        (self, becomes)
    }

    /// Whether so many slices took too long that the rest is left to the next pass.
    pub(in crate::store) fn gives_up(&self) -> bool {
        self.too_long >= TOO_LONG_MAX
    }
}

impl Reading {
    const NONE: Self = Self { walk: None, portion: Portion::FIRST };

    fn slice(&self) -> Option<Slice> {
        self.walk?.slice(self.portion)
    }

    fn step(&mut self, slice: Slice, reached: Option<Timestamp>) {
        self.walk = self.walk.map(|walk| walk.after(slice, reached));
    }

    /// Everything after this was read; `None` once everything was.
    pub(in crate::store) fn at(&self) -> Option<Timestamp> {
        self.walk?.at
    }
}

/// Where a slice begins, if that is not at the first promise of all, and where it ends.
pub(in crate::store) type Slice = (Option<Timestamp>, Timestamp);
