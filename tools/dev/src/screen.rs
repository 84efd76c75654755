//! Plain, aligned lines on standard output.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use wakeq::{CanvasId, EventId};

use crate::Services;
use crate::kept::DevFolder;

/// Writes a line. Ignores errors, as a reader that has gone is no reason to stop.
pub(super) fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Prints what happened to an event.
pub(super) fn event(id: EventId, handler: &str, what: &str) {
    line(&format!("{id}  {handler:9}  {what}"));
}

/// Prints what `--fresh` removed.
pub(super) fn cleared(removed: &[PathBuf]) {
    if removed.is_empty() {
        line("Fresh: there was nothing to remove");
    }
    for path in removed {
        line(&format!("Fresh: removed {}", path.display()));
    }
}

/// How to reach the running services.
pub(super) struct Access {
    /// The URL of the database.
    pub(super) url: String,
    /// The address of the Pub/Sub emulator.
    pub(super) host: String,
    /// The address of the API.
    pub(super) address: SocketAddr,
    /// The path of the page, signed in.
    pub(super) page: String,
    /// The address of the metrics.
    pub(super) metrics: SocketAddr,
}

/// Prints what is running, and what to type in a second terminal.
pub(super) fn introduction(services: &Services, dev_folder: &DevFolder, migrations: usize, access: &Access) {
    let Services { postgres, emulator } = services;
    let Access { url, host, address, page, metrics } = access;
    line(&format!("Open http://{address}{page}"));
    line("  (signs in once, within ten minutes; afterwards with the key in KEY below)");
    line(&format!("{postgres}"));
    line(&format!("{emulator}"));
    if let Some(other) = dev_folder.other().filter(|other| other.database_url == *url) {
        let pid = &other.pid;
        line(&format!("This uses the Postgres of another cargo dev (process {pid}): both share its events"));
    }
    line(&format!("Schema: `wakeq`, {migrations} migrations"));
    line(&format!("API: http://{address}, described on http://{address}/docs"));
    line(&format!("Metrics: http://{metrics}/metrics"));
    line("");
    line("In a second terminal, over HTTP:");
    line(&format!("  export KEY=\"$(cat {})\"", dev_folder.key().display()));
    line(&format!("  export API=http://{address}/v1/canvases/{}", CanvasId::DEFAULT));
    line(&format!("  export ADMIN=http://{address}/v1/admin/canvases/{}", CanvasId::DEFAULT));
    line("  curl -sS $API/events -H \"authorization: Bearer $KEY\" -H 'content-type: application/json' \\");
    line("    -d '{\"name\": \"greet\", \"value\": \"you\"}'");
    line("");
    line("or on the command line:");
    line(&format!("  export DATABASE_URL={url}"));
    line(&format!("  export PUBSUB_EMULATOR_HOST={host}"));
    line(&format!("  export WAKEQ_SECRET_KEY_FILE={}", dev_folder.secret_key().display()));
    line("  export WAKEQ_BROADCAST=1    # emitted events are also broadcast to listeners");
    line("  cargo wakeq stats");
    line("  cargo wakeq pause greet");
    line("  cargo wakeq unpause greet");
    line("  cargo wakeq emit greet '\"you\"'");
    line("  cargo wakeq explain EVENT");
    line("  cargo wakeq tail '*:WORKER:*'");
    line("");
}

/// Prints what the worker runs besides functions, and the header of the lines that follow.
pub(super) fn samples(endpoint: &str) {
    line(&format!("HTTP targets may be on this machine; the handler `webhook` is a sample, at {endpoint}"));
    line("A cron ticks twice a minute: `cargo wakeq cron list`");
    line("");
    line(&format!("{:36}  {:9}  WHAT HAPPENS", "EVENT", "HANDLER"));
}
