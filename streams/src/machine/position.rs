//! How far the one reader of a source is: where its stored position is, as far as the reader knows,
//! and by how much it divides what it asks for after failures.

/// The most by which a limit is divided.
const NARROWEST: usize = 1024;

/// The stored position of a source, as its one reader under an epoch knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FencedPosition {
    /// It has to be opened: it was not yet, or may have been moved from outside.
    Unknown {
        /// Where it was when it was last known; 0 before it was opened.
        last: i64,
    },
    /// It is here.
    At(i64),
    /// The answer to a write was lost. Opening the position shows whether it was carried out.
    Unconfirmed {
        /// Where it was before the write.
        from: i64,
    },
}

impl FencedPosition {
    /// A position that was not opened yet.
    pub(crate) const UNOPENED: Self = Self::Unknown { last: 0 };

    /// Where it is; `None` if it has to be opened.
    pub(crate) fn known(self) -> Option<i64> {
        match self {
            Self::At(at) => Some(at),
            Self::Unknown { .. } | Self::Unconfirmed { .. } => None,
        }
    }

    /// Where it was when it was last known; 0 before it was opened.
    pub(crate) fn last(self) -> i64 {
        match self {
            Self::Unknown { last } => last,
            Self::At(at) => at,
            Self::Unconfirmed { from } => from,
        }
    }

    /// The same after it was refused, or seen elsewhere: it was moved from outside.
    pub(crate) fn doubted(self) -> Self {
        match self {
            Self::At(last) => Self::Unknown { last },
            Self::Unknown { .. } | Self::Unconfirmed { .. } => self,
        }
    }

    /// The same after the answer to a write was lost.
    pub(crate) fn unanswered(self) -> Self {
        Self::Unconfirmed { from: self.last() }
    }

    /// Whether the write whose answer was lost was not carried out, now that the position was
    /// opened and is here.
    pub(crate) fn is_unwritten(self, at: i64) -> bool {
        match self {
            Self::Unconfirmed { from } => from == at,
            Self::Unknown { .. } | Self::At(_) => false,
        }
    }
}

/// By how much a reader divides its limits, because what it asked for took too long or failed: each
/// failure doubles it, and each success halves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Narrowing(usize);

impl Narrowing {
    /// Limits are used in full.
    pub(crate) const NONE: Self = Self(1);

    /// The part of a limit that is used, at least 1.
    pub(crate) fn part_of(self, limit: usize) -> usize {
        (limit / self.0).max(1)
    }

    /// What limits are divided by.
    pub(crate) fn divisor(self) -> usize {
        self.0
    }

    /// After a failure.
    pub(crate) fn narrowed(self) -> Self {
        Self((self.0 * 2).min(NARROWEST))
    }

    /// After a success.
    pub(crate) fn widened(self) -> Self {
        Self((self.0 / 2).max(1))
    }

    /// Whether there is no smaller part.
    pub(crate) fn is_narrowest(self) -> bool {
        self.0 >= NARROWEST
    }
}
