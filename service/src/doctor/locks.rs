//! Judges which sessions hold locks that claims and appends wait for.

use std::time::Duration;

use super::{Finding, list};
use crate::store::checkup::HeldLock;

/// How long a lock may be held before it is reported. Statements of the queue hold theirs for
/// milliseconds, a migration for as long as it takes.
const HELD_MAX: Duration = Duration::from_secs(10);

/// Locks that claims, turns and appends wait for.
pub(crate) fn held_locks(held: &[HeldLock]) -> Finding {
    let what = "locks";
    let is_long = |lock: &&HeldLock| lock.open_for.is_none_or(|open| open >= HELD_MAX);
    let long: Vec<String> = held.iter().filter(is_long).map(words).collect();
    if long.is_empty() {
        return Finding::ok(what, "no session holds up claims or appends");
    }
    let pid = held.iter().filter(is_long).find_map(|lock| lock.pid);
    let end = pid.map_or("commit it or roll it back (`rollback prepared`)".to_owned(), |pid| {
        format!("end that session (`select pg_terminate_backend({pid})`)")
    });
    let advice = format!(
        "{end}, see what its role runs, and grant `connect` on the database only to the roles that need it"
    );
    Finding::warn(what, list(&long), advice)
}

fn words(lock: &HeldLock) -> String {
    let HeldLock { pid, session, what, open_for } = lock;
    let process = pid.map(|pid| format!("process {pid}, ")).unwrap_or_default();
    let open = open_for.map_or("an unknown time".to_owned(), |open| format!("{} s", open.as_secs()));
    format!("{process}{session}, has held for {open}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn names_sessions_that_hold_a_gate_with_advice() {
        let lock = |seconds: Option<u64>| HeldLock {
            pid: Some(42),
            session: "psql of shop (idle in transaction)".into(),
            what: "ShareLock on wakeq.claim_gate".into(),
            open_for: seconds.map(Duration::from_secs),
        };
        assert_eq!(held_locks(&[]).level, Level::Ok);
        assert_eq!(held_locks(&[lock(Some(9))]).level, Level::Ok);
        assert_eq!(held_locks(&[lock(None)]).level, Level::Warn);
        let found = held_locks(&[lock(Some(3)), lock(Some(60))]);
        let words = "process 42, psql of shop (idle in transaction), has held for 60 s: \
                     ShareLock on wakeq.claim_gate";
        assert_eq!((found.level, found.found.as_str()), (Level::Warn, words));
        assert!(found.advice.unwrap().contains("pg_terminate_backend(42)"));
        let prepared = HeldLock { pid: None, ..lock(Some(60)) };
        assert!(held_locks(&[prepared]).advice.unwrap().contains("rollback prepared"));
    }
}
