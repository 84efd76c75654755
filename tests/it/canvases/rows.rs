//! What the tables hold of a tenant, and of no canvas. A new table is found automatically.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{PgPool, Row};
use uuid::Uuid;
use wakeq::control::Quota;
use wakeq::{Admin, CanvasId};

use super::Findings;
use super::answers::LATE;
use super::seed::{Values, secret};

/// Tables without a canvas, and the reason. Nothing that a tenant emits or reads changes them.
const OF_NOBODY: [(&str, &str); 24] = [
    ("chores", "one row for each periodic task of the deployment"),
    ("consumer_groups", "groups read the log of every canvas"),
    ("consumer_positions", "groups read the log of every canvas"),
    ("deployment", "one row: what the deployment is"),
    ("least_kept", "how long the owner wants trails kept"),
    ("locks", "which process coordinates a group"),
    ("claim_gate", "what claims pass through when rules are set"),
    ("entity_owners", "which process works on a type, of every canvas"),
    ("single_groups", "which process works on a group, of every canvas"),
    ("idle_marks", "which number the chains of objects had reached, and when"),
    ("log_gate", "what appends pass through, for the horizon of the log"),
    ("log_partitioning", "which partitions of the log there are"),
    ("log_pins", "up to where the log may not be dropped"),
    ("nodes", "processes with a broker"),
    ("page_sessions", "a session may do what its key may, on whatever canvases"),
    ("queue_patterns", "queues are of the platform"),
    ("queue_registry", "the version of the patterns"),
    ("queues", "queues are of the platform"),
    ("queue_turns", "whose turn it is in a queue"),
    ("settings", "the durations of the deployment"),
    ("subscribers", "consumers of a group, on a node"),
    ("subscriptions", "what each of these is given"),
    ("workers", "which processes work, for every canvas"),
    ("_migrations", "which migrations were applied"),
];

/// Columns that record only when something was last used.
const OF_USE: &str = "last_used_at";

async fn tables(pool: &PgPool) -> Vec<(String, bool)> {
    let tables = "select c.relname::text, exists (
                      select from pg_attribute a where a.attrelid = c.oid and a.attname = 'canvas_id' and not a.attisdropped)
                    from pg_class c where c.relnamespace = 'wakeq'::regnamespace and c.relkind in ('r', 'p')
                     and not c.relispartition order by 1";
    let rows = sqlx::query(tables).fetch_all(pool).await.unwrap();
    rows.into_iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Every row of a canvas, byte for byte; in one statement, because it runs some hundred times.
pub(crate) async fn of(pool: &PgPool, canvas: CanvasId) -> BTreeMap<String, Vec<String>> {
    let tables = tables(pool).await.into_iter().filter(|(_, of_canvas)| *of_canvas);
    let mut rows: BTreeMap<String, Vec<String>> = tables.map(|(table, _)| (table, Vec::new())).collect();
    let of_table = |table: &String| {
        format!(
            "select '{table}', (to_jsonb(t) - '{OF_USE}')::text from wakeq.\"{table}\" t where canvas_id = $1"
        )
    };
    let statement = rows.keys().map(of_table).collect::<Vec<_>>().join(" union all ") + " order by 1, 2";
    let query = sqlx::query_as(sqlx::AssertSqlSafe(statement)).bind(canvas.0);
    let found: Vec<(String, String)> = query.fetch_all(pool).await.unwrap();
    for (table, row) in found.into_iter().filter(|(table, row)| !is_gathered(table, row)) {
        rows.entry(table).or_default().push(row);
    }
    rows
}

/// Whether it is a row that processes write late. Statistics are those of a minute. The record of a
/// canvas has strangers that were refused on it and sign-ins there, and that of no canvas has
/// callers that were refused what is about every canvas.
fn is_gathered(table: &str, row: &str) -> bool {
    table == "minute_statistics"
        || table == "audit_log" && LATE.iter().any(|word| row.contains(&format!("\"{word}\"")))
}

/// Every row of no canvas, because of its table or its column.
pub(super) async fn platform(pool: &PgPool, findings: &mut Findings) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    let tables = tables(pool).await;
    for (listed, _) in OF_NOBODY {
        if !tables.iter().any(|(table, of_canvas)| table == listed && !of_canvas) {
            findings.push(format!("there is no table `{listed}` without a canvas: take it out of rows.rs"));
        }
    }
    for (table, of_canvas) in tables {
        if !of_canvas && !OF_NOBODY.iter().any(|(known, _)| *known == table) {
            findings.push(format!("the table `{table}` has no canvas: say in rows.rs why"));
        }
        let filter = if of_canvas { "where canvas_id is null" } else { "" };
        let statement = format!("select to_jsonb(t)::text from wakeq.\"{table}\" t {filter} order by 1");
        let found: Vec<String> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).fetch_all(pool).await.unwrap();
        let kept = found.into_iter().filter(|row| !is_gathered(&table, row)).collect();
        rows.insert(table, kept);
    }
    rows
}

pub(super) fn differences(
    place: &str,
    before: &BTreeMap<String, Vec<String>>,
    after: &BTreeMap<String, Vec<String>>,
) -> Findings {
    let mut findings = Findings::new();
    for (table, rows) in after {
        let (old, new): (BTreeSet<_>, BTreeSet<_>) = (before[table].iter().collect(), rows.iter().collect());
        let short = |row: Option<&&String>| row.map(|row| row.chars().take(300).collect::<String>());
        let (gone, come) = (old.difference(&new).next(), new.difference(&old).next());
        if old != new {
            let (gone, come) = (short(gone), short(come));
            findings.push(format!(
                "{place}: rows of `{table}` that are not its own changed: {gone:?} became {come:?}"
            ));
        }
    }
    findings
}

/// Whether more lines count towards the quota of a canvas than its own known callers have caused.
/// Answers can't be compared with another world's, since some lines are late.
pub(super) async fn lines_of_others(admin: &Admin, pool: &PgPool, canvas: CanvasId) -> Option<String> {
    let quotas = admin.quotas(canvas).await.unwrap();
    let used = quotas.iter().find(|of| of.quota == Quota::AuditLines).unwrap().used;
    let own = "select count(*) from wakeq.audit_log where canvas_id = $1 and actor <> 'unauthenticated'";
    let own: i64 = sqlx::query_scalar(own).bind(canvas.0).fetch_one(pool).await.unwrap();
    (used > own.unsigned_abs()).then(|| format!("quotas: it uses {used} lines, and has {own}"))
}

/// Chains that cross to another object: an event is behind a number of another object.
pub(super) async fn crossed(pool: &PgPool) -> Findings {
    let crossed = "select one.object || ' is behind ' || other.object from wakeq.events_v2 one
                     join (select canvas_id, object, last_seq as seq from wakeq.objects
                            union select canvas_id, object, seq from wakeq.events_v2 where object is not null) other
                       on other.seq = one.prev and (other.canvas_id, other.object) <> (one.canvas_id, one.object)
                    where one.prev > 0";
    let crossed: Vec<String> = sqlx::query_scalar(crossed).fetch_all(pool).await.unwrap();
    crossed.into_iter().map(|crossed| format!("chains: {crossed}")).collect()
}

/// What may be revealed only to a caller that sent it: every id of these rows, and the victim's
/// mark and keys.
pub(super) fn secrets(rows: &BTreeMap<String, Vec<String>>, values: &Values) -> BTreeSet<String> {
    let mut secrets: BTreeSet<String> = [secret(super::VICTIM.word)].into();
    secrets.extend(values.keys.iter().cloned());
    for row in rows.values().flatten() {
        let words = row.split(|character: char| !character.is_ascii_hexdigit() && character != '-');
        secrets.extend(
            words.filter(|word| word.len() == 36 && Uuid::parse_str(word).is_ok()).map(str::to_owned),
        );
    }
    // The nil id reveals nothing.
    secrets.remove(&Uuid::nil().to_string());
    secrets
}
