//! Tells a person at a terminal how far a long command has come. Never on standard output, and
//! nowhere but at a terminal.

use std::fmt::Display;
use std::io::{IsTerminal, Stderr, Write};
use std::pin::pin;
use std::time::Duration;

/// A command that takes longer reports progress; this is also the time between two reports.
const PERIOD: Duration = Duration::from_secs(2);

pub(crate) struct Progress<W> {
    is_terminal: bool,
    to: W,
}

impl Progress<Stderr> {
    /// On standard error.
    pub(crate) fn on_stderr() -> Self {
        let to = std::io::stderr();
        Self { is_terminal: to.is_terminal(), to }
    }
}

impl<W: Write> Progress<W> {
    #[cfg(test)]
    pub(super) fn new(is_terminal: bool, to: W) -> Self {
        Self { is_terminal, to }
    }

    pub(crate) fn say(&mut self, words: impl Display) {
        if self.is_terminal {
            // If no one can read it, that is fine.
            writeln!(self.to, "{words}").ok();
        }
    }

    /// Waits for the work, and every two seconds says how far it has come, unless that has not
    /// changed.
    pub(crate) async fn watch<T>(&mut self, work: impl Future<Output = T>, so_far: impl Fn() -> String) -> T {
        let mut work = pin!(work);
        let mut said = String::new();
        loop {
            if let Ok(done) = tokio::time::timeout(PERIOD, work.as_mut()).await {
                return done;
            }
            let words = so_far();
            if words != said {
                self.say(&words);
                said = words;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The reports on work that comes a step further each second.
    async fn said(is_terminal: bool, steps: u64, step: u64) -> String {
        let (done, mut to) = (Cell::new(0), Vec::new());
        let work = async {
            for _ in 0..steps {
                tokio::time::sleep(Duration::from_secs(1)).await;
                done.set(done.get() + step);
            }
            "over"
        };
        let mut progress = Progress::new(is_terminal, &mut to);
        assert_eq!(progress.watch(work, || format!("{} so far", done.get())).await, "over");
        String::from_utf8(to).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn long_work_is_followed_at_a_terminal_only() {
        assert_eq!(said(true, 5, 10).await, "20 so far\n40 so far\n");
        assert_eq!(said(true, 1, 10).await, "", "it was quick");
        assert_eq!(said(true, 5, 0).await, "0 so far\n", "it stands still");
        assert_eq!(said(false, 5, 10).await, "");
    }
}
