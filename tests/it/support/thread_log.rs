//! What is logged on the thread of a test, where all of its tasks run.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};

/// The warnings and errors of this thread, until it is dropped.
pub(crate) struct ThreadLog {
    lines: Lines,
    _logging: DefaultGuard,
    _second: Dispatch,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ThreadLog {
    pub(crate) fn begin() -> Self {
        // While there is only one dispatcher, a thread of another test that is the first to reach a
        // line would turn it off for all.
        let second = Dispatch::new(tracing_subscriber::registry());
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_max_level(Level::INFO).with_ansi(false);
        let logging = tracing::subscriber::set_default(log.with_writer(move || writer.clone()).finish());
        Self { lines, _logging: logging, _second: second }
    }

    pub(crate) fn said(&self) -> String {
        String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines with this text.
    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        self.said().lines().filter(|line| line.contains(text)).map(ToOwned::to_owned).collect()
    }
}
