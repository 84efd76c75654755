//! Commands on more rows than one request may change: repeats requests until nothing is left of the
//! rows that existed when the command began. Rows that others hold, or that came later, are left.

use std::io::Write;
use std::time::Duration;

use super::progress::Progress;
use super::show;
use wakeq::Timestamp;

/// How long to wait after a request that changed nothing, because others hold the remaining rows.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of such requests in a row after which the command gives up.
const IDLE_MAX: u32 = 5;

/// The result of one request, or of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) count: u64,
    pub(crate) more: bool,
    /// Only rows from before this time are affected.
    pub(crate) before: Option<Timestamp>,
}

/// Repeats a request, each time with the time of the first one, and reports progress at a terminal.
/// `words` are the name of a row and what is done to it.
pub(crate) async fn all(
    words: (&str, &str),
    request: impl AsyncFnMut(Option<Timestamp>) -> anyhow::Result<Step>,
) -> anyhow::Result<Step> {
    repeat(words, Progress::on_stderr(), request).await
}

async fn repeat(
    words: (&str, &str),
    mut progress: Progress<impl Write>,
    mut request: impl AsyncFnMut(Option<Timestamp>) -> anyhow::Result<Step>,
) -> anyhow::Result<Step> {
    let mut all = request(None).await?;
    let (mut last, mut idle) = (all.count, 0);
    while all.more {
        if last == 0 {
            idle += 1;
            if idle == IDLE_MAX {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        } else {
            idle = 0;
            progress.say(so_far(all, words));
        }
        let step = request(all.before).await?;
        last = step.count;
        all = Step { count: all.count + step.count, more: step.more, before: all.before };
    }
    Ok(all)
}

/// Includes the time, so that a person who interrupts the command can continue with the same rows.
fn so_far(all: Step, (thing, done): (&str, &str)) -> String {
    let before = all.before.map(|before| format!(" (--before {})", show::exact(before))).unwrap_or_default();
    format!("{} {done} so far{before}", show::count(all.count, thing))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs against a server that gives these answers; returns the times of the requests, and the
    /// total.
    async fn run(answers: &[(u64, bool)]) -> (Vec<Option<Timestamp>>, Step) {
        let (asked, step, _) = reporting(answers, true).await;
        (asked, step)
    }

    /// The same, with the progress reported, at a terminal or elsewhere.
    async fn reporting(answers: &[(u64, bool)], is_terminal: bool) -> (Vec<Option<Timestamp>>, Step, String) {
        let first = Timestamp::UNIX_EPOCH;
        let (mut answers, mut asked, mut to) = (answers.iter(), Vec::new(), Vec::new());
        let step = repeat(("event", "deleted"), Progress::new(is_terminal, &mut to), async |before| {
            asked.push(before);
            let (count, more) = *answers.next().expect("no further request");
            Ok(Step { count, more, before: Some(before.unwrap_or(first)) })
        });
        let step = step.await.unwrap();
        assert_eq!(answers.next(), None, "all were asked for");
        (asked, step, String::from_utf8(to).unwrap())
    }

    /// At a terminal, it reports progress and how to continue; elsewhere nothing. The final line is
    /// printed by the command.
    #[tokio::test(start_paused = true)]
    async fn shows_progress_only_at_a_terminal() {
        let answers = [(10_000, true), (0, true), (1, true), (7, false)];
        let before = "(--before 1970-01-01T00:00:00.000000Z)";
        let (_, _, said) = reporting(&answers, true).await;
        let lines: Vec<&str> = said.lines().collect();
        let expected = [10_000, 10_001].map(|count| format!("{count} events deleted so far {before}"));
        assert_eq!(lines, expected);
        assert_eq!(reporting(&answers, false).await.2, "");
    }

    #[tokio::test(start_paused = true)]
    async fn later_requests_keep_the_first_requests_moment() {
        let first = Some(Timestamp::UNIX_EPOCH);
        let (asked, all) = run(&[(10_000, true), (10_000, true), (7, false)]).await;
        assert_eq!(asked, [None, first, first]);
        assert_eq!(all, Step { count: 20_007, more: false, before: first });
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_locked_rows_and_then_skips_them() {
        let started = tokio::time::Instant::now();
        let (asked, all) =
            run(&[(5, true), (0, true), (3, true), (0, true), (0, true), (0, true), (0, true), (0, true)])
                .await;
        assert_eq!((asked.len(), all.count, all.more), (8, 8, true));
        assert_eq!(
            started.elapsed(),
            5 * PAUSE,
            "a pause after each request that moved nothing, but for the last"
        );
    }
}
