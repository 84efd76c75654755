//! The places of a worker, and what waits for one. The worker's own levels decide what starts; this
//! keeps a journal beside them.

use std::collections::BTreeMap;

use wakeq::internals::{Level, Levels};
use wakeq::machine::State;
use wakeq::{CanvasId, EventId};

use super::broker::HeldNotification;
use super::worker::{Progress, Run, Worker};
use super::{Defect, World};

/// How many urgent events may start one after the other while others could.
const IN_A_ROW_MAX: usize = 3;

/// A notification that waits for a place.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) event: EventId,
    /// Its message; `None` if it was in the parking lot.
    pub(crate) taken: Option<HeldNotification>,
    pub(crate) level: Level,
}

/// How many runs have a place, by level.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    normal: usize,
    urgent: usize,
}

#[derive(Debug)]
pub(crate) struct Slots {
    capacity: usize,
    /// How many places are kept for urgent events.
    reserved: usize,
    defect: Option<Defect>,
    levels: Levels<CanvasId, u64, u64>,
    waiting: BTreeMap<u64, Arrival>,
    arrived: u64,
    /// The process ends, and starts nothing more.
    is_closed: bool,
    running: Running,
    /// How many urgent events started one after the other while another could have.
    in_a_row: usize,
}

impl Slots {
    pub(crate) fn new(capacity: usize, reserved: usize, defect: Option<Defect>) -> Self {
        let kept = if defect == Some(Defect::KeptPlacesAreTaken) { 0 } else { reserved };
        Self {
            capacity,
            reserved,
            defect,
            levels: Levels::new(capacity, kept),
            waiting: BTreeMap::new(),
            arrived: 0,
            is_closed: false,
            running: Running::default(),
            in_a_row: 0,
        }
    }

    /// Those of another process with the same configuration.
    pub(crate) fn anew(&self) -> Self {
        Self::new(self.capacity, self.reserved, self.defect)
    }

    fn push(&mut self, arrival: Arrival) {
        self.arrived += 1;
        self.levels.push(arrival.level, CanvasId::DEFAULT, self.arrived);
        self.waiting.insert(self.arrived, arrival);
    }

    /// What starts next, if a place is free for it.
    fn start(&mut self) -> Option<Arrival> {
        let next = self.levels.next().filter(|_| !self.is_closed)?;
        let is_alone = self.defect == Some(Defect::UrgentAlone) && self.waits(Level::Urgent);
        let level = if is_alone { Level::Urgent } else { next };
        let others_could = self.waits(Level::Normal) && self.has_room(Level::Normal, self.running);
        let number = self.levels.pop(level, |_, number| number)?;
        self.in_a_row = if level.is_urgent() && others_could { self.in_a_row + 1 } else { 0 };
        *self.running_mut(level) += 1;
        self.waiting.remove(&number)
    }

    /// A run has left its place.
    fn free(&mut self, level: Level) {
        if !self.is_closed {
            self.levels.free_place(level, CanvasId::DEFAULT);
            *self.running_mut(level) -= 1;
        }
    }

    /// Starts nothing more; returns what waits.
    fn close(&mut self) -> Vec<Arrival> {
        self.is_closed = true;
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    fn running_mut(&mut self, level: Level) -> &mut usize {
        match level {
            Level::Normal => &mut self.running.normal,
            Level::Urgent => &mut self.running.urgent,
        }
    }

    fn waits(&self, level: Level) -> bool {
        self.waiting.values().any(|arrival| arrival.level == level)
    }

    /// Whether a place is free for a level while so many run.
    fn has_room(&self, level: Level, Running { normal, urgent }: Running) -> bool {
        let is_kept = !level.is_urgent() && normal + self.reserved >= self.capacity;
        !is_kept && normal + urgent < self.capacity
    }

    /// What is wrong, by the runs that have a place.
    fn fault(&self, running: Running) -> Option<String> {
        let Self { capacity, reserved, in_a_row, .. } = self;
        let Running { normal, urgent } = running;
        if normal + urgent > *capacity {
            return Some(format!("{} run in {capacity} places", normal + urgent));
        }
        if normal + reserved > *capacity {
            return Some(format!("{normal} run in places of which {reserved} of {capacity} are kept"));
        }
        if *in_a_row > IN_A_ROW_MAX {
            return Some(format!("{in_a_row} urgent events started before one that could have"));
        }
        let could_start = |level| self.waits(level) && self.has_room(level, running);
        let is_idle = could_start(Level::Normal) || could_start(Level::Urgent);
        is_idle.then(|| "a place is free, and something waits for it".to_owned())
    }
}

impl Worker {
    /// A notification waits for its place from now on, if it needs one.
    pub(super) fn arrive(&mut self, world: &World, arrival: Arrival) {
        match &mut self.slots {
            Some(slots) => slots.push(arrival),
            None => self.begin(world, arrival),
        }
        self.begin_next(world);
    }

    fn begin_next(&mut self, world: &World) {
        while let Some(next) = self.slots.as_mut().and_then(Slots::start) {
            self.begin(world, next);
        }
    }

    fn begin(&mut self, world: &World, Arrival { event, taken, level }: Arrival) {
        self.runs.push(Run {
            event,
            taken,
            level,
            state: State::EventLoad,
            last: None,
            taken_on: 0,
            wakes_at: None,
            lease_until: world.now,
            is_told: false,
            held: Vec::new(),
        });
    }

    /// A run of this level has left its place, and others may start.
    pub(super) fn leave_slot(&mut self, world: &World, level: Level) {
        if let Some(slots) = &mut self.slots {
            slots.free(level);
        }
        self.begin_next(world);
    }

    /// What is in the parking lot has no place.
    pub(super) fn ended(&mut self, world: &World, run: &Run) -> Progress {
        if run.wakes_at.is_none() {
            self.leave_slot(world, run.level);
        }
        Progress::Ended
    }

    /// Starts nothing more; returns the notifications that wait for their start.
    pub(super) fn close(&mut self) -> Vec<HeldNotification> {
        let waiting = self.slots.as_mut().map(Slots::close).unwrap_or_default();
        waiting.into_iter().filter_map(|arrival| arrival.taken).collect()
    }

    /// What was in the parking lot until now starts again, where there are places only once it has
    /// one.
    pub(super) fn end_waits(&mut self, world: &World) {
        let is_due = |run: &Run| run.wakes_at.is_some_and(|wakes_at| wakes_at <= world.now);
        if self.slots.is_some() {
            let due: Vec<Run> = self.runs.extract_if(.., |run| is_due(run)).collect();
            for Run { event, taken, level, .. } in due {
                self.arrive(world, Arrival { event, taken, level });
            }
            return;
        }
        for run in self.runs.iter_mut().filter(|run| is_due(run)) {
            (run.wakes_at, run.state) = (None, State::EventLoad);
        }
    }

    /// How many notifications of a level it holds, without those in the parking lot.
    pub(crate) fn held(&self, level: Level) -> usize {
        let waiting = self.slots.iter().flat_map(|slots| slots.waiting.values());
        waiting.filter(|arrival| arrival.level == level).count() + self.running(level)
    }

    fn running(&self, level: Level) -> usize {
        self.runs.iter().filter(|run| run.wakes_at.is_none() && run.level == level).count()
    }

    /// The events of which it holds a notification.
    pub(crate) fn in_hand(&self) -> impl Iterator<Item = EventId> {
        let waiting = self.slots.iter().flat_map(|slots| slots.waiting.values());
        waiting.map(|arrival| arrival.event).chain(self.runs.iter().map(|run| run.event))
    }

    /// Invariant: no more run than there are places, none in those that are kept for others, and
    /// none waits that could run.
    pub(crate) fn fault(&self) -> Option<String> {
        let running = Running { normal: self.running(Level::Normal), urgent: self.running(Level::Urgent) };
        self.slots.as_ref()?.fault(running).map(|what| format!("of {}, {what}", self.name))
    }
}
