//! Judges which rights on the schema a role lacks.

use super::{Finding, list};
use crate::store::checkup::Right;

/// Rights that no statement needs, by table. What is not listed is needed.
const NEVER_NEEDED: &[(&str, &[&str])] = &[
    ("wakeq._migrations", &["insert", "update", "delete"]),
    ("wakeq.access_keys", &["delete"]),
    ("wakeq.chores", &["insert", "delete"]),
    ("wakeq.deployment", &["insert", "delete"]),
    ("wakeq.log", &["update", "delete"]),
    ("wakeq.log_pins", &["update", "delete"]),
    ("wakeq.log_streams", &["delete"]),
    ("wakeq.service_accounts", &["delete"]),
    ("wakeq.settings", &["delete"]),
];

/// What a worker can't do without; of some it only deletes what is old, in one statement with the rest. Other tables are the API's, or of a release that this one does not know.
const WORKERS_TABLES: &[&str] = &[
    "wakeq.audit_log",
    "wakeq.chores",
    "wakeq.cron_records",
    "wakeq.dead_events",
    "wakeq.deployment",
    "wakeq.emitted_ids",
    "wakeq.events_v2",
    "wakeq.http_targets",
    "wakeq.idempotency_keys",
    "wakeq.resume_jobs",
    "wakeq.scheduling_rules",
    "wakeq.settings",
    "wakeq.unknown_handlers",
];

/// What only drops old partitions of the log.
const DROPS_LOG: &str = "wakeq.drop_log_partition";

/// What the role lacks of what the statements need, and the statements that grant it.
pub(crate) fn rights(missing: &[Right], role: &str) -> Finding {
    let what = "rights";
    let needed: Vec<&Right> = missing.iter().filter(|right| is_needed(right)).collect();
    if needed.is_empty() {
        return Finding::ok(what, format!("{role} has what a worker needs"));
    }
    let words: Vec<String> =
        needed.iter().map(|right| format!("{} on {}", right.right, right.object)).collect();
    let found = format!("{role} lacks {}", list(&words));
    let mend = grants(&needed, role);
    let a_worker_can = |right: &&Right| {
        right.object == DROPS_LOG || right.kind == "table" && !WORKERS_TABLES.contains(&right.object.as_str())
    };
    if needed.iter().all(a_worker_can) {
        return Finding::warn(
            what,
            found,
            format!(
                "{mend} A worker does without; the API, `wakeq keys`, this check of the migrations and WAKEQ_KEEP_LOG do not"
            ),
        );
    }
    Finding::fail(what, found, format!("{mend} (who only emits needs less: docs/sql.md)"))
}

fn is_needed(right: &Right) -> bool {
    let never = NEVER_NEEDED.iter().find(|(table, _)| *table == right.object);
    !never.is_some_and(|(_, never)| never.contains(&right.right.as_str()))
}

/// One statement per kind of object: who lacks one right usually lacks its neighbours.
fn grants(needed: &[&Right], role: &str) -> String {
    let role = format!("\"{}\"", role.replace('"', "\"\""));
    let has = |kind: &str| needed.iter().any(|right| right.kind == kind);
    let mut grants = Vec::new();
    if has("schema") {
        grants.push(format!("grant usage on schema wakeq to {role};"));
    }
    if has("table") {
        grants.push(format!("grant select, insert, update, delete on all tables in schema wakeq to {role};"));
    }
    if has("sequence") {
        grants.push(format!("grant usage on all sequences in schema wakeq to {role};"));
    }
    if has("function") {
        grants.push(format!("grant execute on all functions in schema wakeq to {role};"));
    }
    for right in needed.iter().filter(|right| right.kind == "type") {
        grants.push(format!("grant usage on type {} to {role};", right.object));
    }
    grants.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    fn right(kind: &str, object: &str, right: &str) -> Right {
        Right { kind: kind.into(), object: object.into(), right: right.into() }
    }

    #[test]
    fn only_what_statements_need_is_asked_for() {
        let unneeded =
            [right("table", "wakeq.chores", "insert"), right("table", "wakeq._migrations", "delete")];
        assert_eq!(rights(&unneeded, "app").level, Level::Ok);
        let kept = [
            right("table", "wakeq.access_keys", "delete"),
            right("table", "wakeq.service_accounts", "delete"),
        ];
        assert_eq!(rights(&kept, "app").level, Level::Ok);
        for expired in ["wakeq.audit_log", "wakeq.idempotency_keys"] {
            assert_eq!(rights(&[right("table", expired, "delete")], "app").level, Level::Fail, "{expired}");
        }
        let doctor = [right("table", "wakeq._migrations", "select")];
        assert_eq!(rights(&doctor, "app").level, Level::Warn);
        let worker = [right("table", "wakeq.events_v2", "update"), right("schema", "wakeq", "usage")];
        let found = rights(&worker, "o\"d");
        assert_eq!(
            (found.level, found.found.as_str()),
            (Level::Fail, "o\"d lacks update on wakeq.events_v2, usage on wakeq")
        );
        let mend = found.mend.unwrap();
        assert!(
            mend.starts_with("grant usage on schema wakeq to \"o\"\"d\"; grant select, insert"),
            "{mend}"
        );
    }
}
