//! The permitted arrows: a table for each package, leaves first.
//!
//! The packages are walls: Cargo refuses an import of the streams or the service in the queue, and
//! of the service in the streams. So a table lists the modules of the packages below apart from its
//! own, and two packages may have a module of the same name.

/// A module, the modules of its package that it may import, and those of the packages below.
pub(super) type Row = (&'static str, &'static [&'static str], &'static [&'static str]);

/// A package with its table.
pub(in crate::tidy) struct Package {
    /// Where its sources are.
    pub(in crate::tidy) folder: &'static str,
    /// The name of its crate.
    pub(super) name: &'static str,
    pub(super) rows: &'static [Row],
}

/// The packages, lowest first.
pub(in crate::tidy) static PACKAGES: [Package; 3] = [
    Package { folder: "src/", name: "wakeq", rows: QUEUE },
    Package { folder: "streams/src/", name: "wakeq_streams", rows: STREAMS },
    Package { folder: "service/src/", name: "wakeq_service", rows: SERVICE },
];

const QUEUE: &[Row] = &[
    ("event", &[], &[]),
    ("fault", &[], &[]),
    ("telemetry", &["event"], &[]),
    ("machine", &["event"], &[]),
    ("cron", &["event"], &[]),
    ("store::kernel", &["event"], &[]),
    ("store::log", &["event", "store::kernel"], &[]),
    ("store::quotas", &["event", "store::kernel"], &[]),
    ("store::statistics", &["event", "store::kernel"], &[]),
    ("store::minute", &["event", "store::kernel", "store::statistics"], &[]),
    ("store::events", &["event", "store::kernel", "store::log", "store::minute", "store::quotas"], &[]),
    ("store::targets", &["event", "store::kernel", "store::quotas"], &[]),
    ("store::hooks", &["event", "store::kernel", "store::quotas"], &[]),
    ("store::batches", &["event", "store::kernel", "store::quotas", "store::events"], &[]),
    ("store::crons", &["event", "store::kernel", "store::quotas", "store::events"], &[]),
    ("store::limits", &["event", "store::kernel", "store::quotas", "store::events"], &[]),
    ("store::order", &["event", "store::kernel", "store::events"], &[]),
    ("store::queues", &["event", "store::kernel", "store::events", "store::targets"], &[]),
    (
        "store::memory",
        &[
            "event",
            "store::kernel",
            "store::minute",
            "store::quotas",
            "store::events",
            "store::targets",
            "store::batches",
            "store::limits",
            "store::order",
            "store::queues",
        ],
        &[],
    ),
    (
        "store::seam",
        &[
            "event",
            "store::kernel",
            "store::minute",
            "store::quotas",
            "store::events",
            "store::targets",
            "store::batches",
            "store::limits",
            "store::order",
            "store::queues",
            "store::memory",
        ],
        &[],
    ),
    (
        "store",
        &[
            "event",
            "store::kernel",
            "store::log",
            "store::minute",
            "store::quotas",
            "store::events",
            "store::targets",
            "store::hooks",
            "store::batches",
            "store::crons",
            "store::limits",
            "store::order",
            "store::queues",
            "store::memory",
            "store::seam",
            "store::statistics",
        ],
        &[],
    ),
    ("broadcast", &["event", "telemetry"], &[]),
    ("notify", &["event", "broadcast", "store"], &[]),
    ("wake", &["event", "fault", "telemetry", "cron", "store", "broadcast", "notify"], &[]),
    ("explain", &["event", "machine", "store"], &[]),
    ("emit", &["event", "fault", "telemetry", "store", "broadcast", "notify"], &[]),
    (
        "admin",
        &[
            "event",
            "fault",
            "telemetry",
            "cron",
            "machine",
            "store",
            "broadcast",
            "notify",
            "wake",
            "explain",
        ],
        &[],
    ),
    ("worker", &["event", "fault", "telemetry", "machine", "store", "broadcast", "notify", "wake"], &[]),
    ("log", &["event", "store", "broadcast", "notify"], &[]),
    (
        "testing",
        &["event", "machine", "store", "broadcast", "notify", "explain", "emit", "admin", "worker"],
        &[],
    ),
];

const STREAMS: &[Row] = &[
    ("event", &[], &["event"]),
    ("telemetry", &[], &["event", "telemetry"]),
    ("machine", &["event"], &["event", "machine"]),
    ("store", &["event"], &["event", "store"]),
    (
        "consumer",
        &["event", "telemetry", "machine", "store"],
        &["event", "fault", "telemetry", "store", "log"],
    ),
    (
        "entity",
        &["event", "telemetry", "machine", "store", "consumer"],
        &["event", "fault", "telemetry", "store", "broadcast", "emit", "worker"],
    ),
    (
        "broker",
        &["event", "telemetry", "machine", "store", "consumer"],
        &["event", "fault", "store", "broadcast"],
    ),
    ("groups", &["event", "store"], &["event", "store", "admin"]),
];

const SERVICE: &[Row] = &[
    ("telemetry", &[], &["event", "telemetry"]),
    ("store", &[], &["event", "store"]),
    ("access", &["store"], &["event", "store"]),
    ("delivery", &[], &["event", "machine", "store", "worker"]),
    ("observe", &["store"], &["event", "telemetry", "store"]),
    ("doctor", &["store"], &["event", "store", "notify"]),
    ("checkup", &["store", "doctor"], &["event", "store"]),
    ("resources", &[], &[]),
    (
        "resources::wire",
        &["access", "doctor"],
        &["event", "machine", "cron", "store", "explain", "emit", "admin", "entity", "groups"],
    ),
    (
        "http",
        &["telemetry", "access", "delivery", "checkup"],
        &["event", "telemetry", "store", "broadcast", "emit", "admin", "log", "entity", "groups"],
    ),
    ("page", &["access", "http"], &["event"]),
    ("resources::page", &["access", "resources::wire", "http", "page"], &["cron"]),
    ("pages", &["access", "page", "resources::page"], &[]),
    ("resources::routes", &["access", "resources::wire", "http"], &["event", "store", "emit", "admin"]),
    ("routes", &["telemetry", "access", "http", "resources::routes"], &["event"]),
    (
        "server",
        &["access", "delivery", "checkup", "http", "page", "pages", "routes"],
        &["event", "store", "broadcast", "notify", "emit", "admin", "log", "entity", "groups"],
    ),
    ("config", &["access", "delivery", "server"], &["event", "store", "broadcast", "notify", "worker"]),
    (
        "cli",
        &["access", "delivery", "observe", "resources::wire", "http", "server", "config"],
        &[
            "event",
            "telemetry",
            "store",
            "broadcast",
            "notify",
            "emit",
            "admin",
            "worker",
            "log",
            "entity",
            "broker",
            "groups",
        ],
    ),
    ("resources::command", &["access", "resources::wire", "config", "cli"], &["event", "machine", "cron"]),
    (
        "commands",
        &[
            "store",
            "delivery",
            "observe",
            "doctor",
            "checkup",
            "resources::wire",
            "server",
            "config",
            "cli",
            "resources::command",
        ],
        &["event", "store", "broadcast", "notify", "wake", "emit", "admin", "worker"],
    ),
    ("main", &["commands"], &["worker"]),
];

impl Package {
    pub(super) fn row(&self, module: &str) -> Option<&'static Row> {
        self.rows.iter().find(|(name, ..)| *name == module)
    }

    pub(super) fn has(&self, module: &str) -> bool {
        self.row(module).is_some()
    }

    /// Whether a module has a row for each of its parts.
    pub(super) fn has_parts(&self, module: &str) -> bool {
        self.rows.iter().any(|(name, ..)| name.split_once("::").is_some_and(|(whole, _)| whole == module))
    }

    /// The module of a path, and how many of the path's names lead to it: the first one and, of a
    /// module with parts, those up to the part. Tests belong to the whole.
    pub(super) fn module(&self, names: &[&str]) -> (String, usize) {
        let whole = names.first().copied().unwrap_or_default();
        let inside = names.iter().skip(1).take(2).take_while(|name| **name != "tests");
        let part = inside.enumerate().find_map(|(at, name)| {
            let part = format!("{whole}::{name}");
            self.has(&part).then_some((part, at + 2))
        });
        part.unwrap_or_else(|| (whole.to_owned(), 1))
    }
}
