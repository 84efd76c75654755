//! Judges the server: its version, role, settings, clock, migrations, the pooler in front of it,
//! and old snapshots.

use std::time::Duration;

use super::{Finding, list};
use crate::store::checkup::{HeldSnapshot, Server, Settings};
use wakeq::Timestamp;
use wakeq::internals::{DatabaseRoute, ForeignEngine, MigrationDifferences};

/// Postgres 15: the oldest version that migrations and statements support.
const VERSION_MIN: i32 = 150_000;

/// How many connections a process uses by default.
const CONNECTIONS_OF_A_PROCESS: i64 = 9;
/// Connections that notifying with Postgres adds: one that sends, and one for each channel.
const CONNECTIONS_OF_A_NOTIFIER: i64 = 4;

/// From this clock skew on, the logs of two machines can't be read side by side.
const SKEW_WARN_MS: i64 = 1_000;

/// From this clock skew on, valid tokens are refused, or invalid ones accepted.
const SKEW_FAIL_MS: i64 = 30_000;

/// A server that is not one Postgres.
pub(crate) fn foreign_engine(engine: &ForeignEngine) -> Finding {
    Finding::fail("database", engine.to_string(), ForeignEngine::ADVICE)
}

/// The server's version and role.
pub(crate) fn server(server: &Server) -> Vec<Finding> {
    let Server { version_name, database, role, .. } = server;
    let found = format!("Postgres {version_name}, database {database}, role {role}");
    let reached = if server.version < VERSION_MIN {
        Finding::fail("database", found, "upgrade the server to Postgres 15 or newer")
    } else {
        Finding::ok("database", found)
    };
    let primary = if server.in_recovery {
        let advice = "point DATABASE_URL to the primary, by a name that follows a failover (target_session_attrs=read-write)";
        Finding::fail("primary", "the server is a standby, which accepts no writes", advice)
    } else {
        Finding::ok("primary", "the server accepts writes")
    };
    vec![reached, primary]
}

/// Whether connections are free for a process, which may also notify with Postgres. Behind a pooler
/// in transaction mode, processes share those of the pooler.
pub(crate) fn connections(server: &Server, notifies: bool, has_transaction_pooler: bool) -> Finding {
    let what = "connections";
    let (free, max) = (server.free_connections, server.max_connections);
    if has_transaction_pooler {
        let found = format!("{free} of {max} are free for the pooler, whose own processes share");
        return match free {
            ..1 => Finding::warn(what, found, "raise max_connections, or let the pooler open fewer"),
            1.. => Finding::ok(what, found),
        };
    }
    let needed = CONNECTIONS_OF_A_PROCESS + if notifies { CONNECTIONS_OF_A_NOTIFIER } else { 0 };
    let found = format!("{free} of {max} are free for this role");
    if free < needed {
        let advice = format!(
            "a process uses up to {needed}: raise max_connections or the role's limit, or run fewer processes"
        );
        Finding::warn(what, found, advice)
    } else {
        Finding::ok(what, found)
    }
}

/// Whether anyone on the network could read or change what is sent.
pub(crate) fn route(route: &DatabaseRoute) -> Finding {
    let what = "TLS";
    match route {
        DatabaseRoute::Local => Finding::ok(what, "not needed: the connection stays on this host"),
        DatabaseRoute::Verified(host) => Finding::ok(what, format!("the certificate of {host} is checked")),
        DatabaseRoute::Unverified(host) => {
            let found = format!("the certificate of {host} is not checked, which is allowed here");
            let advice = "add sslmode=verify-full to DATABASE_URL (and sslrootcert=FILE for your own authority), and \
                          unset WAKEQ_ALLOW_UNVERIFIED_DATABASE";
            Finding::warn(what, found, advice)
        }
    }
}

/// Whether commits are durable, and dead rows are removed.
pub(crate) fn settings(settings: &Settings, unsafe_allowed: bool) -> Vec<Finding> {
    let Settings { fsync, synchronous_commit, full_page_writes, .. } = settings;
    let on_off = |on: bool| if on { "on" } else { "off" };
    let found = format!("fsync {}, synchronous_commit {synchronous_commit}", on_off(*fsync));
    let durability = if *fsync && synchronous_commit != "off" {
        Finding::ok("durability", found)
    } else if unsafe_allowed {
        let advice =
            "WAKEQ_ALLOW_UNSAFE_DURABILITY allows it; a crash may lose events that were acknowledged";
        Finding::warn("durability", found, advice)
    } else {
        let advice = "turn both on (alter system set fsync = on; alter system set synchronous_commit = on; select \
                      pg_reload_conf()): no process starts otherwise";
        Finding::fail("durability", found, advice)
    };
    let found = format!("full_page_writes {}", on_off(*full_page_writes));
    let pages = if *full_page_writes {
        Finding::ok("torn pages", found)
    } else {
        let advice = "turn it on, unless the file system never tears a page; else a crash may corrupt tables";
        Finding::warn("torn pages", found, advice)
    };
    let found =
        format!("autovacuum {}, track_counts {}", on_off(settings.autovacuum), on_off(settings.track_counts));
    let vacuum = if settings.autovacuum && settings.track_counts {
        Finding::ok("vacuum", found)
    } else {
        let advice = "turn both on: without them the table of events only grows, and claims become slow";
        Finding::fail("vacuum", found, advice)
    };
    vec![durability, pages, vacuum]
}

/// The server's clock, read between two readings of ours.
pub(crate) fn clock(server: Timestamp, before: Timestamp, after: Timestamp) -> Finding {
    let apart = if server < before {
        before - server
    } else if server > after {
        server - after
    } else {
        return Finding::ok("clock", "the same here and on the server");
    };
    let apart_ms = apart.num_milliseconds();
    let found = format!("{apart_ms} ms between here and the server");
    let advice = "synchronize both with NTP; the queue uses the server's clock alone, but the expiry \
                  of tokens is checked here";
    match apart_ms {
        SKEW_FAIL_MS.. => Finding::fail("clock", found, advice),
        SKEW_WARN_MS.. => Finding::warn("clock", found, advice),
        _ => Finding::ok("clock", found),
    }
}

/// The pooler that was announced, and the statements for what its session lacks.
pub(crate) fn announced_pooler(backends: (i32, i32), lacking: &[String]) -> Finding {
    let what = "pooler";
    if lacking.is_empty() {
        let how =
            if backends.0 == backends.1 { "share a server process" } else { "have a server process each" };
        return Finding::ok(what, format!("announced in transaction mode: two connections {how}"));
    }
    let found = format!("a session behind it lacks {} settings: no process starts", lacking.len());
    let advice = format!(
        "run these statements, as this role or an administrator, and let it open new connections (pgbouncer: \
         RECONNECT): {}",
        lacking.join(" ")
    );
    Finding::fail(what, found, advice)
}

/// Whether each connection has a server process of its own, with that connection's settings.
pub(crate) fn pooler(backends: (i32, i32), settings_kept: bool) -> Finding {
    let what = "pooler";
    let advice = "connect directly, set the pooler to session mode (pgbouncer: pool_mode = session), \
                  or say what it is with WAKEQ_TRANSACTION_POOLER=1";
    if backends.0 == backends.1 {
        let found = "two connections share a server process: a pooler in transaction or statement mode";
        return Finding::fail(what, found, advice);
    }
    if !settings_kept {
        return Finding::fail(what, "the settings made when connecting are no longer in force", advice);
    }
    Finding::ok(what, "each connection has a server process of its own")
}

/// Whether the schema is the one that this program needs.
pub(crate) fn migrations(found: &MigrationDifferences) -> Finding {
    let MigrationDifferences { missing, unknown, changed, unfinished } = found;
    let what = "migrations";
    if !unfinished.is_empty() {
        let advice = "see the server's log for the reason, fix it, and run `wakeq migrate`";
        return Finding::fail(what, format!("started but not finished: {}", list(unfinished)), advice);
    }
    if !changed.is_empty() {
        let advice =
            "a released migration is never edited: use the release that made this schema, or a new database";
        return Finding::fail(what, format!("not those of this program: {}", list(changed)), advice);
    }
    if !missing.is_empty() {
        return Finding::fail(what, format!("missing: {}", list(missing)), "run `wakeq migrate`");
    }
    if !unknown.is_empty() {
        let advice = "a newer release has migrated this database: fine while that release is being \
                      rolled out, then use it here";
        return Finding::warn(what, format!("newer than this program: {}", list(unknown)), advice);
    }
    Finding::ok(what, "up to date")
}

/// How many transactions may have begun since a snapshot of unknown age: each of them leaves at
/// least one dead row.
const HELD_TRANSACTIONS_MAX: i64 = 100_000;

/// Old snapshots, which keep dead rows from being removed. A role that can't see others'
/// transactions can't tell.
pub(crate) fn held_snapshots(held: &[HeldSnapshot], allowed: Duration, sees_others: bool) -> Finding {
    let what = "old transactions";
    let is_old = |held: &&HeldSnapshot| {
        let long = held.held_for.map(|held_for| held_for >= allowed);
        held.abandoned || long.unwrap_or(held.transactions > HELD_TRANSACTIONS_MAX)
    };
    let words = |held: &HeldSnapshot| match held.held_for {
        Some(held_for) => format!("{}, for {} s", held.holder, held_for.as_secs()),
        None => format!("{}, for {} transactions", held.holder, held.transactions),
    };
    let old: Vec<String> = held.iter().filter(is_old).map(words).collect();
    if !old.is_empty() {
        let advice = "end them (select pg_terminate_backend(PID); rollback prepared; drop the slot): vacuum removes nothing \
                      that they could still see, and claims become slow";
        return Finding::warn(what, list(&old), advice);
    }
    if !sees_others {
        let advice = "grant pg_read_all_stats to the role, to see those of others";
        return Finding::ok(what, format!("none of this role's; {advice}"));
    }
    Finding::ok(what, format!("none for longer than {} s", allowed.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    fn healthy() -> Server {
        Server {
            version: 150_018,
            version_name: "15.18".into(),
            database: "app".into(),
            role: "app".into(),
            in_recovery: false,
            clock: at(0),
            free_connections: 80,
            max_connections: 100,
            settings_kept: true,
            sees_others: true,
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_timestamp_millis(1_800_000_000_000 + ms).unwrap()
    }

    fn levels(findings: &[Finding]) -> Vec<Level> {
        findings.iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn rejects_servers_that_are_not_one_postgres() {
        for engine in [ForeignEngine::Cockroach, ForeignEngine::Yugabyte, ForeignEngine::Citus { tables: 21 }]
        {
            let finding = foreign_engine(&engine);
            assert_eq!(finding.level, Level::Fail);
            assert!(finding.advice.is_some_and(|advice| advice.contains("docs/scaling.md")));
        }
    }

    #[test]
    fn rejects_old_servers_and_standbys() {
        use Level::{Fail, Ok};
        assert_eq!(levels(&server(&healthy())), [Ok, Ok]);
        assert_eq!(levels(&server(&Server { version: 140_012, ..healthy() })), [Fail, Ok]);
        assert_eq!(levels(&server(&Server { in_recovery: true, ..healthy() })), [Ok, Fail]);
    }

    #[test]
    fn connections_are_counted_where_a_process_opens_them_itself() {
        use Level::{Ok, Warn};
        let level = |free_connections, notifies, has_transaction_pooler| {
            let server = Server { free_connections, ..healthy() };
            connections(&server, notifies, has_transaction_pooler).level
        };
        assert_eq!([8, 9].map(|free| level(free, false, false)), [Warn, Ok]);
        assert_eq!([12, 13].map(|free| level(free, true, false)), [Warn, Ok]);
        assert_eq!([0, 1].map(|free| level(free, false, true)), [Warn, Ok]);
    }

    #[test]
    fn warns_about_unverified_certificates() {
        assert_eq!(route(&DatabaseRoute::Local).level, Level::Ok);
        assert_eq!(route(&DatabaseRoute::Verified("db".into())).level, Level::Ok);
        let found = route(&DatabaseRoute::Unverified("db.example.com".into()));
        assert!(found.level == Level::Warn && found.found.contains("db.example.com"), "{found}");
    }

    #[test]
    fn unsafe_durability_fails_unless_allowed() {
        use Level::{Fail, Ok, Warn};
        let safe = Settings {
            fsync: true,
            synchronous_commit: "remote_apply".into(),
            full_page_writes: true,
            autovacuum: true,
            track_counts: true,
        };
        assert_eq!(levels(&settings(&safe, false)), [Ok, Ok, Ok]);
        let fast = Settings { fsync: false, ..safe.clone() };
        assert_eq!(levels(&settings(&fast, false)), [Fail, Ok, Ok]);
        assert_eq!(levels(&settings(&fast, true)), [Warn, Ok, Ok]);
        let lazy = Settings { synchronous_commit: "off".into(), full_page_writes: false, ..safe.clone() };
        assert_eq!(levels(&settings(&lazy, false)), [Fail, Warn, Ok]);
        assert_eq!(levels(&settings(&Settings { autovacuum: false, ..safe }, false)), [Ok, Ok, Fail]);
    }

    #[test]
    fn clocks_may_differ_by_the_time_that_asking_takes() {
        let level = |server: i64| clock(at(server), at(0), at(400)).level;
        assert_eq!([0, 200, 400, 1_399, -999].map(level), [Level::Ok; 5]);
        assert_eq!([1_400, -1_000, 30_399].map(level), [Level::Warn; 3]);
        assert_eq!([30_400, -30_000].map(level), [Level::Fail; 2]);
    }

    #[test]
    fn a_pooler_that_shares_is_found() {
        assert_eq!(pooler((7, 8), true).level, Level::Ok);
        assert_eq!(pooler((7, 7), true).level, Level::Fail);
        assert_eq!(pooler((7, 8), false).level, Level::Fail);
        assert_eq!(announced_pooler((7, 7), &[]).level, Level::Ok);
        let lacking = announced_pooler((7, 8), &["alter role a;".into(), "alter role b;".into()]);
        assert_eq!(lacking.level, Level::Fail);
        assert!(lacking.to_string().ends_with("RECONNECT): alter role a; alter role b;"), "{lacking}");
    }

    #[test]
    fn a_newer_schema_is_a_warning_and_an_older_one_a_failure() {
        let none = MigrationDifferences::default();
        assert_eq!(migrations(&none).level, Level::Ok);
        let newer = MigrationDifferences { unknown: vec![9], ..none.clone() };
        assert_eq!(migrations(&newer).level, Level::Warn);
        let older = MigrationDifferences { missing: vec![4, 5], unknown: vec![9], ..none.clone() };
        assert_eq!(migrations(&older).to_string(), "FAIL  migrations: missing: 4, 5 -> run `wakeq migrate`");
        for bad in [
            MigrationDifferences { changed: vec![1], ..none.clone() },
            MigrationDifferences { unfinished: vec![1], ..none },
        ] {
            assert_eq!(migrations(&bad).level, Level::Fail);
        }
    }

    #[test]
    fn warns_only_about_old_snapshots() {
        let allowed = Duration::from_secs(600);
        let held = |seconds: u64| HeldSnapshot {
            holder: format!("process {seconds}"),
            held_for: Some(Duration::from_secs(seconds)),
            transactions: 7,
            abandoned: false,
        };
        assert_eq!(held_snapshots(&[held(599)], allowed, true).level, Level::Ok);
        let found = held_snapshots(&[held(700), held(599)], allowed, true);
        assert_eq!((found.level, found.found.as_str()), (Level::Warn, "process 700, for 700 s"));
        let slot = |transactions, abandoned| HeldSnapshot {
            holder: "slot".into(),
            held_for: None,
            transactions,
            abandoned,
        };
        let level = |slot| held_snapshots(&[slot], allowed, true).level;
        assert_eq!(level(slot(3, true)), Level::Warn, "nobody reads it");
        assert_eq!(level(slot(100_000, false)), Level::Ok, "a standby that follows");
        assert_eq!(level(slot(100_001, false)), Level::Warn);
        assert!(held_snapshots(&[], allowed, false).found.contains("pg_read_all_stats"));
    }
}
