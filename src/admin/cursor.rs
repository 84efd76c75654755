//! The position of the next page of a list, as a text that callers return unchanged.
//!
//! It consists of letters, digits and `_ . - ~`, so that it fits into a URL unescaped. It contains
//! a key and nothing secret: a forged one only shows another page of the same list.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use super::AdminError;
use crate::event::{CanvasId, ErrorGroupId, EventId, HandlerScope, LimitName, Name, Timestamp, is_storable};
use crate::store::{
    AuditPosition, ErrorGroupPosition, HaltedPosition, HandlerPosition, LeasePosition, OperationsAfter,
    Position, ProgramPosition, RulePosition, TargetPosition, WorkerPosition,
};

/// Longest text of a cursor: three names and the rest of a key.
const LENGTH_MAX: usize = 400;

/// The position of the next page of a list. Its text is parsed with `parse`.
///
/// ```
/// assert!("garbage".parse::<wakeq::control::Cursor>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(CursorPosition);

#[derive(Clone, Debug, PartialEq, Eq)]
enum CursorPosition {
    Event(Position),
    Dead(DeadPosition),
    Ended(DeadPosition),
    Audit(AuditPosition),
    Lease(LeasePosition),
    Handler(HandlerPosition),
    Halted(HaltedPosition),
    Target(TargetPosition),
    Rule(RulePosition),
    Worker(WorkerPosition),
    Operation(OperationsAfter),
    Limit(LimitName),
    ErrorGroup(ErrorGroupPosition),
}

/// When an event died, or has ended, and its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeadPosition(pub(super) Timestamp, pub(super) EventId);

impl Cursor {
    pub(super) fn of_event(position: &Position) -> Self {
        Self(CursorPosition::Event(position.clone()))
    }

    pub(super) fn of_dead(position: &DeadPosition) -> Self {
        Self(CursorPosition::Dead(*position))
    }

    pub(super) fn of_ended(position: DeadPosition) -> Self {
        Self(CursorPosition::Ended(position))
    }

    pub(super) fn of_audit(position: AuditPosition) -> Self {
        Self(CursorPosition::Audit(position))
    }

    pub(super) fn of_lease(position: LeasePosition) -> Self {
        Self(CursorPosition::Lease(position))
    }

    pub(super) fn of_handler(position: HandlerPosition) -> Self {
        Self(CursorPosition::Handler(position))
    }

    pub(super) fn of_halted(position: HaltedPosition) -> Self {
        Self(CursorPosition::Halted(position))
    }

    pub(super) fn of_target(position: TargetPosition) -> Self {
        Self(CursorPosition::Target(position))
    }

    /// A handler and a name in it, like those of a target.
    pub(super) fn of_program(position: ProgramPosition) -> Self {
        Self(CursorPosition::Target(position))
    }

    pub(super) fn of_rule(position: RulePosition) -> Self {
        Self(CursorPosition::Rule(position))
    }

    pub(super) fn of_worker(position: WorkerPosition) -> Self {
        Self(CursorPosition::Worker(position))
    }

    pub(super) fn of_operation(position: OperationsAfter) -> Self {
        Self(CursorPosition::Operation(position))
    }

    pub(super) fn of_limit(name: LimitName) -> Self {
        Self(CursorPosition::Limit(name))
    }

    pub(super) fn of_error_group(position: ErrorGroupPosition) -> Self {
        Self(CursorPosition::ErrorGroup(position))
    }

    pub(super) fn error_group(&self) -> Result<ErrorGroupPosition, AdminError> {
        let CursorPosition::ErrorGroup(position) = self.0 else { return Err(AdminError::Cursor) };
        Ok(position)
    }

    pub(super) fn limit(&self) -> Result<LimitName, AdminError> {
        let CursorPosition::Limit(name) = &self.0 else { return Err(AdminError::Cursor) };
        Ok(name.clone())
    }

    pub(super) fn operation(&self) -> Result<OperationsAfter, AdminError> {
        let CursorPosition::Operation(position) = self.0 else { return Err(AdminError::Cursor) };
        Ok(position)
    }

    pub(super) fn lease(&self) -> Result<LeasePosition, AdminError> {
        let CursorPosition::Lease(position) = self.0 else { return Err(AdminError::Cursor) };
        Ok(position)
    }

    pub(super) fn event(&self) -> Result<Position, AdminError> {
        let CursorPosition::Event(position) = &self.0 else { return Err(AdminError::Cursor) };
        Ok(position.clone())
    }

    pub(super) fn dead(&self) -> Result<DeadPosition, AdminError> {
        let CursorPosition::Dead(position) = self.0 else { return Err(AdminError::Cursor) };
        Ok(position)
    }

    pub(super) fn ended(&self) -> Result<DeadPosition, AdminError> {
        let CursorPosition::Ended(position) = self.0 else { return Err(AdminError::Cursor) };
        Ok(position)
    }

    pub(super) fn audit(&self) -> Result<AuditPosition, AdminError> {
        let CursorPosition::Audit(position) = self.0 else { return Err(AdminError::Cursor) };
        Ok(position)
    }

    pub(super) fn handler(&self) -> Result<HandlerPosition, AdminError> {
        let CursorPosition::Handler(position) = &self.0 else { return Err(AdminError::Cursor) };
        Ok(position.clone())
    }

    pub(super) fn halted(&self) -> Result<HaltedPosition, AdminError> {
        let CursorPosition::Halted(position) = self.0 else { return Err(AdminError::Cursor) };
        Ok(position)
    }

    pub(super) fn target(&self) -> Result<TargetPosition, AdminError> {
        let CursorPosition::Target(position) = &self.0 else { return Err(AdminError::Cursor) };
        Ok(position.clone())
    }

    pub(super) fn program(&self) -> Result<ProgramPosition, AdminError> {
        self.target()
    }

    pub(super) fn rule(&self) -> Result<RulePosition, AdminError> {
        let CursorPosition::Rule(position) = &self.0 else { return Err(AdminError::Cursor) };
        Ok(position.clone())
    }

    pub(super) fn worker(&self) -> Result<WorkerPosition, AdminError> {
        let CursorPosition::Worker(position) = &self.0 else { return Err(AdminError::Cursor) };
        Ok(position.clone())
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            CursorPosition::Event(Position { module, name, delay_until, id, prev }) => {
                write!(formatter, "e~{module}~{name}~{}~{}", delay_until.timestamp_micros(), id.0.simple())?;
                prev.map_or(Ok(()), |prev| write!(formatter, "~{prev}"))
            }
            CursorPosition::Dead(DeadPosition(died_at, id)) => {
                write!(formatter, "d~{}~{}", died_at.timestamp_micros(), id.0.simple())
            }
            CursorPosition::Ended(DeadPosition(ended_at, id)) => {
                write!(formatter, "f~{}~{}", ended_at.timestamp_micros(), id.0.simple())
            }
            CursorPosition::Audit((at, id)) => write!(formatter, "a~{}~{id}", at.timestamp_micros()),
            CursorPosition::Lease((canvas, id)) => {
                write!(formatter, "l~{}~{}", canvas.0.simple(), id.0.simple())
            }
            CursorPosition::Handler((module, name)) => write!(formatter, "h~{module}~{name}"),
            CursorPosition::Halted((halted_at, id)) => {
                write!(formatter, "o~{}~{}", halted_at.timestamp_micros(), id.0.simple())
            }
            CursorPosition::Target((module, name, modifier)) => {
                write!(formatter, "g~{module}~{name}~{modifier}")
            }
            CursorPosition::Rule((HandlerScope { canvas, module, name }, kind)) => {
                write!(formatter, "r~{}~{module}~{name}~{kind}", canvas.0.simple())
            }
            CursorPosition::Worker((name, instance)) => write!(formatter, "w~{name}~{}", instance.simple()),
            CursorPosition::Operation((started_at, id)) => {
                write!(formatter, "p~{}~{}", started_at.timestamp_micros(), id.0.simple())
            }
            CursorPosition::ErrorGroup((rank, id)) => write!(formatter, "c~{rank}~{}", id.0.simple()),
            // Its characters are not those of a cursor.
            CursorPosition::Limit(name) => {
                write!(formatter, "m~{}", URL_SAFE_NO_PAD.encode(name.as_str()))
            }
        }
    }
}

impl FromStr for Cursor {
    type Err = AdminError;

    fn from_str(text: &str) -> Result<Self, AdminError> {
        if text.len() > LENGTH_MAX {
            return Err(AdminError::Cursor);
        }
        let parts: Vec<&str> = text.split('~').collect();
        let key = match parts.as_slice() {
            ["e", module, name, due, id] => CursorPosition::Event(Position {
                module: part::<Name>(module)?.to_string(),
                name: part::<Name>(name)?.to_string(),
                delay_until: moment(due)?,
                id: part(id)?,
                prev: None,
            }),
            ["e", module, name, due, id, prev] => CursorPosition::Event(Position {
                module: part::<Name>(module)?.to_string(),
                name: part::<Name>(name)?.to_string(),
                delay_until: moment(due)?,
                id: part(id)?,
                prev: Some(part(prev)?),
            }),
            ["d", died_at, id] => CursorPosition::Dead(DeadPosition(moment(died_at)?, part(id)?)),
            ["f", ended_at, id] => CursorPosition::Ended(DeadPosition(moment(ended_at)?, part(id)?)),
            ["a", at, id] => CursorPosition::Audit((moment(at)?, part(id)?)),
            ["l", canvas, id] => CursorPosition::Lease((part::<CanvasId>(canvas)?, part(id)?)),
            ["p", started_at, id] => CursorPosition::Operation((moment(started_at)?, part(id)?)),
            ["c", rank, id] => CursorPosition::ErrorGroup((part(rank)?, part::<ErrorGroupId>(id)?)),
            ["h", module, name] => CursorPosition::Handler((part(module)?, part(name)?)),
            ["o", halted_at, id] => CursorPosition::Halted((moment(halted_at)?, part(id)?)),
            ["g", module, name, modifier] => {
                CursorPosition::Target((part(module)?, part(name)?, part(modifier)?))
            }
            ["r", canvas, module, name, kind] => {
                let scope = HandlerScope { canvas: part(canvas)?, module: part(module)?, name: part(name)? };
                CursorPosition::Rule((scope, part(kind)?))
            }
            ["m", name] => CursorPosition::Limit(limit_name(name)?),
            ["w", name, instance] => CursorPosition::Worker((part(name)?, part::<Uuid>(instance)?)),
            _ => return Err(AdminError::Cursor),
        };
        Ok(Self(key))
    }
}

fn part<T: FromStr>(text: &str) -> Result<T, AdminError> {
    text.parse().map_err(|_| AdminError::Cursor)
}

fn limit_name(encoded: &str) -> Result<LimitName, AdminError> {
    let text = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| AdminError::Cursor)?;
    part(std::str::from_utf8(&text).map_err(|_| AdminError::Cursor)?)
}

/// Parses microseconds, the precision of Postgres; refuses moments that Postgres can't store.
fn moment(text: &str) -> Result<Timestamp, AdminError> {
    let moment = Timestamp::from_timestamp_micros(part(text)?).ok_or(AdminError::Cursor)?;
    if is_storable(moment) { Ok(moment) } else { Err(AdminError::Cursor) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{OperationId, RuleKind};

    #[test]
    fn cursors_round_trip_exactly() {
        let id = EventId(uuid::Uuid::from_u128(77));
        let delay_until = Timestamp::from_timestamp_micros(-62_135_596_799_999_999).unwrap();
        let position =
            Position { module: "a-b_c.d".into(), name: "x".repeat(128), delay_until, id, prev: None };
        let on_object = Position { module: "y".repeat(128), prev: Some(i64::MAX), ..position.clone() };
        let name: Name = "x".repeat(128).parse().unwrap();
        for cursor in [
            Cursor::of_event(&position),
            Cursor::of_event(&on_object),
            Cursor::of_dead(&DeadPosition(delay_until, id)),
            Cursor::of_ended(DeadPosition(delay_until, id)),
            Cursor::of_audit((delay_until, i64::MAX)),
            Cursor::of_lease((CanvasId(uuid::Uuid::max()), id)),
            Cursor::of_handler((name.clone(), name.clone())),
            Cursor::of_halted((delay_until, id)),
            Cursor::of_target((name.clone(), name.clone(), name.clone())),
            Cursor::of_rule((
                HandlerScope {
                    canvas: CanvasId(uuid::Uuid::max()),
                    module: name.clone(),
                    name: name.clone(),
                },
                RuleKind::Block,
            )),
            Cursor::of_worker((name.clone(), Uuid::max())),
            Cursor::of_operation((delay_until, OperationId(Uuid::max()))),
            Cursor::of_error_group((i64::MIN, ErrorGroupId(Uuid::max()))),
            Cursor::of_limit("a:b=c@d~e+f".parse().unwrap()),
            Cursor::of_limit(format!("handler:{name}/{name}").parse().unwrap()),
        ] {
            let text = cursor.to_string();
            assert!(
                text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte)),
                "{text}"
            );
            assert_eq!(text.parse::<Cursor>().unwrap(), cursor);
        }
    }

    #[test]
    fn rejects_invalid_cursors() {
        let id = "0".repeat(32);
        let long = format!("a~1~{}1", "0".repeat(400));
        for text in [
            "",
            "~",
            "a",
            "a~",
            "a~1",
            "a~x~1",
            "a~1~x",
            "d~1",
            "f~1",
            "l~1",
            "l~x~y",
            "h~m",
            "h~m~n~x",
            "h~m~",
            "o~1",
            "g~m~n",
            "p~1",
            "p~1~x",
            "c~1",
            "c~1~x",
            "c~x~00000000000000000000000000000000",
            "m~",
            "m~!",
            "m~YSBi",
            "m~_w",
            "m~YQ~YQ",
            "g~m~n~m n",
            "r~m~n~pause",
            "w~n",
            "w~n~1",
            "w~n n~00000000000000000000000000000000",
            &format!("r~{id}~m~n~stop"),
            "e~m~n~1",
            "b~1",
            &format!("d~{}~{id}", i64::MAX),
            &format!("d~{}~{id}", i64::MIN),
            &format!("e~m n~x~1~{id}"),
            &long,
            "a~1~9223372036854775808",
            &format!("a~{}~1", i64::MAX),
        ] {
            assert!(matches!(text.parse::<Cursor>(), Err(AdminError::Cursor)), "{text}");
        }
        assert!(matches!("a~1~1".parse::<Cursor>().unwrap().event(), Err(AdminError::Cursor)));
    }
}
