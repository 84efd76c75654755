//! Plain, aligned lines on standard output.

use std::io::Write;

use wakeq::EventId;

use crate::Services;

/// Writes a line. Nobody may be reading any more; that is no reason to stop.
pub(super) fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Something that happened to an event.
pub(super) fn event(id: EventId, handler: &str, what: &str) {
    line(&format!("{id}  {handler:8}  {what}"));
}

/// What runs, and what to type in a second terminal.
pub(super) fn introduction(services: &Services, migrations: usize, url: &str, host: &str) {
    let Services { postgres, emulator } = services;
    line(&format!("{postgres}"));
    line(&format!("{emulator}"));
    line(&format!("Schema: `wakeq`, {migrations} migrations"));
    line("");
    line("In a second terminal:");
    line(&format!("  export DATABASE_URL={url}"));
    line(&format!("  export PUBSUB_EMULATOR_HOST={host}"));
    line("  cargo wakeq stats");
    line("  cargo wakeq pause greet");
    line("  cargo wakeq unpause greet");
    line("  cargo wakeq emit greet '\"you\"'");
    line("  cargo wakeq explain EVENT");
    line("");
    line(&format!("{:36}  {:8}  WHAT HAPPENS", "EVENT", "HANDLER"));
}
