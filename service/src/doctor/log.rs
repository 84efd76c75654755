//! Judges what holds back the readers of the log and its retention.

use std::time::Duration;

use super::{Finding, list};
use wakeq::log::{LogAppender, LogHolder};

/// How long an append may be open before it is reported as holding back readers.
const HELD_MAX: Duration = Duration::from_secs(30);

/// Open transactions that have appended to the log: no reader gets past the first of them.
pub(crate) fn log_readers(appenders: &[LogAppender]) -> Finding {
    let what = "readers of the log";
    let is_long = |appender: &&LogAppender| appender.open_for.is_none_or(|open| open >= HELD_MAX);
    let long: Vec<String> = appenders.iter().filter(is_long).map(words).collect();
    if long.is_empty() {
        return Finding::ok(what, "no append holds them back");
    }
    let advice = match appenders.iter().find(is_long).and_then(|appender| appender.pid) {
        Some(pid) => format!(
            "end that transaction (`select pg_terminate_backend({pid})`), and let its program \
             commit soon after it has appended; `idle_in_transaction_session_timeout` for its role \
             ends such transactions automatically"
        ),
        None => "commit it or roll it back (`rollback prepared`), or find its owner with a role \
                 that has pg_read_all_stats"
            .to_owned(),
    };
    Finding::warn(what, list(&long), advice)
}

/// The groups and pins that keep the first partition of the log from being dropped. A group that is
/// only behind catches up; one without members holds the partition forever.
pub(crate) fn log_holders(holders: &[LogHolder]) -> Finding {
    let what = "retention of the log";
    let named = |worked_on: bool| -> Vec<String> {
        let of = holders.iter().filter(|holder| holder.is_worked_on == worked_on);
        of.map(|holder| format!("{} at {}", holder.name, holder.position)).collect()
    };
    let (left, worked_on) = (named(false), named(true));
    let kept = if worked_on.is_empty() { String::new() } else { format!("; {}, too", list(&worked_on)) };
    if !left.is_empty() {
        let found = format!("no process works on what keeps the log from there on: {}{kept}", list(&left));
        let advice = "`wakeq groups remove` removes a group, and the pin of `entities/TYPE` with the group `entities.TYPE`; or start \
                      its members again";
        let by_hand = holders.iter().filter(|holder| !holder.is_worked_on).filter_map(LogHolder::unpinning);
        let by_hand = by_hand.map(|statement| format!("; a pin made by hand is removed with `{statement}`"));
        return Finding::warn(what, found, format!("{advice}{}", by_hand.collect::<String>()));
    }
    if worked_on.is_empty() {
        return Finding::ok(what, "nothing keeps partitions that are old enough to be dropped");
    }
    Finding::ok(what, format!("kept from there on: {}", list(&worked_on)))
}

fn words(appender: &LogAppender) -> String {
    let LogAppender { pid, session, open_for, floor } = appender;
    let process = pid.map(|pid| format!("process {pid}, ")).unwrap_or_default();
    let open = open_for.map_or("an unknown time".to_owned(), |open| format!("{} s", open.as_secs()));
    format!("{process}{session}, has appended and been open for {open}: nothing after number {floor} is read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn names_unused_holders_of_the_log_with_advice() {
        let holder = |name: &str, position, is_worked_on| LogHolder {
            name: name.to_owned(),
            position,
            behind: 0,
            is_worked_on,
        };
        assert_eq!(log_holders(&[]).level, Level::Ok);
        let works = holder("pin entities/account", 0, true);
        let found = log_holders(std::slice::from_ref(&works));
        assert_eq!(
            (found.level, found.found.as_str()),
            (Level::Ok, "kept from there on: pin entities/account at 0")
        );
        let found = log_holders(&[works, holder("group former", 17, false)]);
        assert_eq!(found.level, Level::Warn);
        assert_eq!(
            found.found,
            "no process works on what keeps the log from there on: group former at 17; \
             pin entities/account at 0, too"
        );
        let advice = found.advice.unwrap();
        assert!(advice.contains("groups remove") && !advice.contains("delete from"), "{advice}");
        let pins = ["pin kept by hand", "pin ada's"].map(|name| holder(name, 3, false));
        let advice = log_holders(&pins).advice.unwrap();
        assert!(
            advice.contains("where name = 'kept by hand'`") && advice.contains("where name = 'ada''s'`"),
            "{advice}"
        );
    }

    #[test]
    fn names_long_open_appenders_with_advice() {
        let appender = |seconds: u64| LogAppender {
            pid: Some(42),
            session: "billing of app (idle in transaction)".into(),
            open_for: Some(Duration::from_secs(seconds)),
            floor: 17,
        };
        assert_eq!(log_readers(&[]).level, Level::Ok);
        assert_eq!(log_readers(&[appender(29)]).level, Level::Ok);
        let found = log_readers(&[appender(3), appender(700)]);
        assert_eq!(
            (found.level, found.found.as_str()),
            (
                Level::Warn,
                "process 42, billing of app (idle in transaction), has appended and been open for 700 s: nothing after \
                 number 17 is read"
            )
        );
        assert!(found.advice.unwrap().contains("pg_terminate_backend(42)"));
        let prepared =
            LogAppender { pid: None, session: "a prepared transaction".into(), open_for: None, floor: 1 };
        assert!(log_readers(&[prepared]).advice.unwrap().contains("rollback prepared"));
    }
}
