//! The lines that are gathered until they are written: each canvas has a share of them, and each
//! caller a part of that. Lines that do not fit are counted for their canvas. No I/O, no clock.

use std::collections::HashMap;
use std::net::IpAddr;

use super::line::{Line, shown};
use wakeq::control::AuditOutcome;
use wakeq::internals::AuditLine;
use wakeq::{Actor, CanvasId};

/// Maximum number of different lines about identified callers on a canvas. With more canvases in a
/// batch than [`LINES_MAX`] has room for, each has fewer, and never fewer than the least.
const LINES_PER_CANVAS_MAX: usize = 40;
const LINES_PER_CANVAS_LEAST: usize = 4;
const LINES_MAX: usize = 10_000;
/// Maximum number of canvases with lines; lines left out on others are counted together.
const CANVASES_MAX: usize = 10_000;
/// Maximum number of different lines per caller, so that none crowds out the others of its canvas.
const LINES_PER_CALLER_MAX: usize = 10;
/// Maximum number of lines about unidentified callers, who can name any canvas: in all, per client
/// address, per canvas, and per address on one canvas.
const STRANGER_LINES_MAX: usize = 200;
const LINES_PER_ADDRESS_MAX: usize = 20;
const STRANGER_LINES_PER_CANVAS_MAX: usize = 10;
const LINES_PER_ADDRESS_AND_CANVAS_MAX: usize = 5;
/// The logged name of an unidentified caller.
pub(super) const STRANGER: &str = "unauthenticated";
/// The action, and the actor, of the line that says how much was left out.
pub(super) const NOT_RECORDED: &str = "not-recorded";
const RECORDER: &str = "wakeq";

/// Lines that are not written yet, by the canvas that they are about.
#[derive(Default)]
pub(super) struct Batch {
    canvases: HashMap<Option<CanvasId>, Share>,
    strangers: usize,
    addresses: HashMap<IpAddr, usize>,
}

/// The result of adding a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It is the first of its kind.
    New,
    /// It was counted with equal ones.
    Again,
    /// Its canvas has used up its share: it was only counted.
    LeftOut,
}

/// The lines of one canvas.
#[derive(Default)]
struct Share {
    rows: HashMap<Line, LineCount>,
    left_out: LeftOut,
}

struct LineCount {
    times: u32,
    /// The first of the requests.
    request: String,
}

/// Calls that have no line.
#[derive(Clone, Copy, Default)]
struct LeftOut {
    times: u32,
    refused: u32,
}

impl Batch {
    /// Adds a line, or counts it if its canvas or its caller has no room left.
    pub(super) fn add(&mut self, line: Line, request: &str) -> Added {
        if let Some(row) = self.canvases.get_mut(&line.canvas).and_then(|share| share.rows.get_mut(&line)) {
            row.times = row.times.saturating_add(1);
            return Added::Again;
        }
        if !self.has_room(&line) {
            self.leave_out(&line);
            return Added::LeftOut;
        }
        if line.actor.is_none() {
            self.strangers += 1;
            *self.addresses.entry(line.client.network()).or_default() += 1;
        }
        let share = self.canvases.entry(line.canvas).or_default();
        share.rows.insert(line, LineCount { times: 1, request: request.to_owned() });
        Added::New
    }

    fn has_room(&self, line: &Line) -> bool {
        let known = self.canvases.get(&line.canvas);
        if known.is_none() && self.canvases.len() >= CANVASES_MAX {
            return false;
        }
        let count = |same: &dyn Fn(&Line) -> bool| {
            known.map_or(0, |share| share.rows.keys().filter(|row| same(row)).count())
        };
        if line.actor.is_some() {
            let most = LINES_MAX / self.canvases.len().max(1);
            let most = most.clamp(LINES_PER_CANVAS_LEAST, LINES_PER_CANVAS_MAX);
            // Two keys of one holder are two callers.
            let caller = |row: &Line| row.actor == line.actor && row.credential == line.credential;
            return count(&|row| row.actor.is_some()) < most && count(&caller) < LINES_PER_CALLER_MAX;
        }
        let network = line.client.network();
        let here = |row: &Line| row.actor.is_none() && row.client.network() == network;
        self.strangers < STRANGER_LINES_MAX
            && self.addresses.get(&network).is_none_or(|lines| *lines < LINES_PER_ADDRESS_MAX)
            && count(&|row| row.actor.is_none()) < STRANGER_LINES_PER_CANVAS_MAX
            && count(&here) < LINES_PER_ADDRESS_AND_CANVAS_MAX
    }

    /// Counts a line for its canvas. An unidentified caller may have made up the canvas, which gets
    /// no share for that.
    fn leave_out(&mut self, line: &Line) {
        let has_share = self.canvases.contains_key(&line.canvas)
            || line.actor.is_some() && self.canvases.len() < CANVASES_MAX;
        let canvas = line.canvas.filter(|_| has_share);
        let left_out = &mut self.canvases.entry(canvas).or_default().left_out;
        left_out.times = left_out.times.saturating_add(1);
        left_out.refused = left_out.refused.saturating_add(u32::from(line.outcome == AuditOutcome::Refused));
    }

    /// The lines to write, by canvas: the last of each says how many calls are missing.
    pub(super) fn into_lines(self) -> impl Iterator<Item = (Option<CanvasId>, Vec<AuditLine>)> {
        self.canvases.into_iter().map(|(canvas, share)| {
            let missing = (share.left_out.times > 0).then(|| missing(canvas, share.left_out));
            let lines = share.rows.into_iter().map(|(line, row)| audit_line(line, &row));
            (canvas, lines.chain(missing).collect())
        })
    }
}

/// The line that stands for these.
pub(super) fn instead_of(canvas: Option<CanvasId>, lines: &[AuditLine]) -> AuditLine {
    let count = |counts: &dyn Fn(&AuditLine) -> bool| {
        let times = lines.iter().filter(|line| counts(line)).map(|line| line.times);
        times.fold(0_u32, u32::saturating_add)
    };
    let refused = count(&|line| line.outcome == AuditOutcome::Refused);
    missing(canvas, LeftOut { times: count(&|_| true), refused })
}

fn audit_line(line: Line, row: &LineCount) -> AuditLine {
    let actor = Actor::user(line.actor.as_deref().unwrap_or(STRANGER)).request(&row.request);
    AuditLine {
        outcome: line.outcome,
        canvas: line.canvas,
        actor: actor.credential(&shown(line.credential.as_deref(), line.client)),
        action: line.action.to_string(),
        scope: line.scope,
        event: None,
        detail: line.reason,
        times: row.times,
    }
}

fn missing(canvas: Option<CanvasId>, LeftOut { times, refused }: LeftOut) -> AuditLine {
    AuditLine {
        outcome: if refused > 0 { AuditOutcome::Refused } else { AuditOutcome::Done },
        canvas,
        actor: Actor::user(RECORDER),
        action: NOT_RECORDED.to_owned(),
        scope: None,
        event: None,
        detail: Some(format!("{times} more were not recorded, {refused} of them refused")),
        times,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::http::client::Client;

    fn client(last: u8) -> Client {
        Client(IpAddr::from([203, 0, 113, last]))
    }

    fn refused(actor: Option<&str>, canvas: u128, from: u8, action: &str) -> Line {
        let actor = actor.map(str::to_owned);
        let credential = actor.is_some().then(|| "with wakeq_0123456789ab".to_owned());
        Line {
            outcome: AuditOutcome::Refused,
            canvas: Some(CanvasId(Uuid::from_u128(canvas))),
            actor,
            credential,
            client: client(from),
            action: action.into(),
            scope: None,
            reason: Some("because".into()),
        }
    }

    fn notes(batch: Batch) -> Vec<AuditLine> {
        batch.into_lines().flat_map(|(_, lines)| lines).collect()
    }

    fn on(notes: &[AuditLine], canvas: u128) -> Vec<&AuditLine> {
        notes.iter().filter(|note| note.canvas == Some(CanvasId(Uuid::from_u128(canvas)))).collect()
    }

    #[test]
    fn equal_refusals_are_counted_and_the_rest_is_bounded() {
        let mut batch = Batch::default();
        for actor in 0..100 {
            let name = format!("key:{actor:02}");
            for index in 0..20 {
                batch.add(refused(Some(&name), 1, 1, &format!("known-{index}")), "r");
            }
        }
        for request in ["first", "second", "third"] {
            assert_eq!(batch.add(refused(Some("key:00"), 1, 1, "known-7"), request), Added::Again);
        }
        let notes = notes(batch);
        assert_eq!(notes.len(), LINES_PER_CANVAS_MAX + 1);
        let of = |name| notes.iter().filter(move |note| note.actor.name() == name);
        assert_eq!(
            (of("key:00").count(), of("key:03").count(), of("key:04").count()),
            (LINES_PER_CALLER_MAX, LINES_PER_CALLER_MAX, 0)
        );
        let seven = of("key:00").find(|note| note.action == "known-7").unwrap();
        assert_eq!((seven.times, seven.actor.request_id()), (4, Some("r")));
        assert_eq!(seven.actor.credential_id(), Some("with wakeq_0123456789ab from 203.0.113.1"));
        let missing = of(RECORDER).next().unwrap();
        assert_eq!((missing.action.as_str(), missing.times), (NOT_RECORDED, 2000 - 40));
        assert_eq!(missing.detail.as_deref(), Some("1960 more were not recorded, 1960 of them refused"));
    }

    /// Whatever one canvas does, all lines of another stand, even of a key with the same name.
    #[test]
    fn a_canvas_uses_up_no_lines_of_another() {
        let mut batch = Batch::default();
        for index in 0..10_000 {
            let name = if index % 2 == 0 { "key:billing".to_owned() } else { format!("key:{index}") };
            let read =
                Line { outcome: AuditOutcome::Done, ..refused(Some(&name), 1, 1, &format!("a{index}")) };
            batch.add(read, "r");
        }
        for action in 0..LINES_PER_CALLER_MAX {
            let line = refused(Some("key:billing"), 2, 1, &format!("b{action}"));
            assert_eq!(batch.add(line, "r"), Added::New);
        }
        let notes = notes(batch);
        assert_eq!(on(&notes, 2).len(), LINES_PER_CALLER_MAX, "and nothing is said to be missing");
        let missing: Vec<_> = notes.iter().filter(|note| note.action == NOT_RECORDED).collect();
        assert_eq!((missing.len(), missing[0].canvas), (1, Some(CanvasId(Uuid::from_u128(1)))));
        assert_eq!((missing[0].times, missing[0].outcome), (10_000 - 40, AuditOutcome::Done));
    }

    /// Two keys of one holder are told apart.
    #[test]
    fn a_second_key_of_a_holder_has_lines_of_its_own() {
        let mut batch = Batch::default();
        for action in 0..20 {
            batch.add(refused(Some("key:billing"), 1, 1, &format!("a{action}")), "r");
        }
        let second = Line {
            credential: Some("with wakeq_ba9876543210".into()),
            ..refused(Some("key:billing"), 1, 1, "other")
        };
        assert_eq!(batch.add(second, "r"), Added::New);
    }

    #[test]
    fn with_very_many_canvases_each_has_a_few_lines() {
        let mut batch = Batch::default();
        for canvas in 1..=CANVASES_MAX as u128 {
            assert_eq!(batch.add(refused(Some("key:a"), canvas, 1, "first"), "r"), Added::New);
        }
        for (action, expected) in
            [("2", Added::New), ("4", Added::New), ("5", Added::New), ("6", Added::LeftOut)]
        {
            assert_eq!(batch.add(refused(Some("key:a"), 7, 1, action), "r"), expected, "{action}");
        }
        assert_eq!(batch.add(refused(Some("key:a"), 1 << 64, 1, "first"), "r"), Added::LeftOut);
        let notes = notes(batch);
        let together = notes.iter().find(|note| note.canvas.is_none()).unwrap();
        assert_eq!((together.action.as_str(), together.times), (NOT_RECORDED, 1));
    }

    /// One address tries a thousand keys on a canvas; other addresses and other canvases are still
    /// recorded.
    #[test]
    fn refusals_of_one_address_do_not_hide_others() {
        let mut batch = Batch::default();
        for index in 0..1000 {
            batch.add(refused(None, 1, 1, &format!("noise-{index}")), "r");
        }
        assert_eq!(batch.strangers, LINES_PER_ADDRESS_AND_CANVAS_MAX);
        assert_eq!(batch.add(refused(None, 1, 2, "probe"), "r"), Added::New, "from elsewhere");
        assert_eq!(batch.add(refused(None, 2, 1, "probe"), "r"), Added::New, "of another canvas");
        for address in 3..100 {
            batch.add(refused(None, 1, address, &format!("noise-{address}")), "r");
        }
        assert_eq!(batch.strangers, STRANGER_LINES_PER_CANVAS_MAX + 1);
        for canvas in 3..100 {
            batch.add(refused(None, canvas, 1, "noise"), "r");
        }
        assert_eq!(batch.addresses[&client(1).network()], LINES_PER_ADDRESS_MAX);
        assert_eq!(batch.add(refused(None, 2, 2, "probe"), "r"), Added::New, "of another canvas");
        for canvas in 100..1000 {
            batch.add(refused(None, canvas, canvas as u8, "noise"), "r");
        }
        assert_eq!(batch.strangers, STRANGER_LINES_MAX);
        assert_eq!(batch.add(refused(Some("key:a"), 1, 1, "known"), "r"), Added::New, "of a known caller");
        let canvases = batch.canvases.len();
        assert!(canvases <= STRANGER_LINES_MAX + 1, "made-up canvases have no shares: {canvases}");
        let notes = notes(batch);
        let missing = on(&notes, 1).into_iter().find(|note| note.action == NOT_RECORDED).unwrap();
        assert_eq!(missing.times, 995 + 93);
    }
}
