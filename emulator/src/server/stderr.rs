//! Lines on stderr: requests, if they are logged, and what a developer should know without having
//! asked.
//!
//! A request must never wait for the reader of stderr, which may be a pipe that nobody reads. A
//! thread of its own writes the lines of all emulators in the process. What it cannot keep up with
//! is counted, and said later.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;

/// The most lines that wait to be written.
const WAITING_MAX: usize = 1_024;

/// How long the last lines have to be written when an emulator stops, or does not start.
const FAREWELL: Duration = Duration::from_secs(1);

static STDERR: OnceLock<Writer> = OnceLock::new();

/// Writes a line, at once and not mixed with others. It does not wait.
pub(super) fn say(line: String) {
    STDERR.get_or_init(|| Writer::start(std::io::stderr())).say(line);
}

/// Waits until the lines so far are written, but not for long.
pub(crate) async fn written() {
    let Some(writer) = STDERR.get() else { return };
    let (done, written) = oneshot::channel();
    if writer.entries.try_send(Entry::Mark(done)).is_ok() {
        let _late = tokio::time::timeout(FAREWELL, written).await;
    }
}

enum Entry {
    Line(String),
    /// Tells that everything before it is written.
    Mark(oneshot::Sender<()>),
}

struct Writer {
    entries: SyncSender<Entry>,
    /// How many lines did not fit since that was last said.
    missing: Arc<AtomicUsize>,
}

impl Writer {
    fn start(output: impl Write + Send + 'static) -> Self {
        let (entries, waiting) = sync_channel(WAITING_MAX);
        let writer = Self { entries, missing: Arc::default() };
        let missing = Arc::clone(&writer.missing);
        let writing = move || write(output, &waiting, &missing);
        // Without a thread, there is nobody to write.
        let _unheard = std::thread::Builder::new().name("stderr".to_owned()).spawn(writing);
        writer
    }

    fn say(&self, line: String) {
        if self.entries.try_send(Entry::Line(line)).is_err() {
            self.missing.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes what comes. Without a reader, there is nowhere to write it.
fn write(mut output: impl Write, waiting: &Receiver<Entry>, missing: &AtomicUsize) {
    for entry in waiting {
        match entry {
            Entry::Line(line) => {
                let _unheard = output.write_all(line.as_bytes());
            }
            Entry::Mark(done) => {
                let _gone = done.send(());
            }
        }
        let missing = missing.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let words =
                format!("pubsub-emulator: {missing} lines are missing, as more came than could be written\n");
            let _unheard = output.write_all(words.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use super::*;

    /// An output that takes nothing as long as the other end of `closed` is there.
    struct Pipe {
        closed: Receiver<()>,
        written: Arc<Mutex<String>>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _opened = self.closed.recv();
            self.written.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_pipe_that_is_not_read_and_what_does_not_fit_is_counted() {
        let (open, closed) = sync_channel(0);
        let written = Arc::new(Mutex::new(String::new()));
        let writer = Writer::start(Pipe { closed, written: Arc::clone(&written) });
        for _ in 0..WAITING_MAX + 10 {
            writer.say("a line\n".to_owned());
        }
        let missing = writer.missing.load(Ordering::Relaxed);
        assert!((9..=10).contains(&missing), "{missing}: the thread may hold one");
        drop(open);
        for _ in 0..2 {
            let (done, mark) = oneshot::channel();
            writer.entries.send(Entry::Mark(done)).unwrap();
            mark.blocking_recv().unwrap();
        }
        let written = written.lock().unwrap();
        assert_eq!(written.matches("a line\n").count() + missing, WAITING_MAX + 10);
        assert!(written.contains(&format!("{missing} lines are missing")), "{written}");
    }
}
