//! Commands about more rows than one request changes: request after request, until nothing is left of what was there when
//! the command began. Never longer than that: what others hold, or what came later, is left.

use std::io::IsTerminal;
use std::time::Duration;

use super::show;
use crate::event::Timestamp;

/// How long a command waits when a request changed nothing: others hold what is left.
const PAUSE: Duration = Duration::from_secs(1);
/// After so many such requests in a row a command ends.
const IDLE_MAX: u32 = 5;

/// What a request did, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) count: u64,
    pub(super) more: bool,
    /// Nothing later was meant.
    pub(super) before: Option<Timestamp>,
}

/// Repeats a request, each time with the moment of the first one, and tells people at a terminal how far it came: `done`
/// says what has become of the `thing`s.
pub(super) async fn all(
    (thing, done): (&str, &str),
    mut request: impl AsyncFnMut(Option<Timestamp>) -> anyhow::Result<Step>,
) -> anyhow::Result<Step> {
    let mut all = request(None).await?;
    let (mut last, mut idle) = (all.count, 0);
    while all.more {
        if last == 0 {
            idle += 1;
            if idle == IDLE_MAX {
                show::note("what is left is held by others: repeat the command later");
                break;
            }
            tokio::time::sleep(PAUSE).await;
        } else {
            idle = 0;
            tell(all, (thing, done));
        }
        let step = request(all.before).await?;
        last = step.count;
        all = Step { count: all.count + step.count, more: step.more, before: all.before };
    }
    Ok(all)
}

/// A person who interrupts the command may go on with it: it is about the same rows then.
fn tell(all: Step, (thing, done): (&str, &str)) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let before =
        all.before.map(|before| format!(", of those before {}", before.to_rfc3339())).unwrap_or_default();
    show::note(format_args!("{} {done} so far{before}", show::count(all.count, thing)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that has these answers, and none after them; how the requests were, and what came of them all.
    async fn run(answers: &[(u64, bool)]) -> (Vec<Option<Timestamp>>, Step) {
        let first = Timestamp::UNIX_EPOCH;
        let (mut answers, mut asked) = (answers.iter(), Vec::new());
        let step = all(("event", "deleted"), async |before| {
            asked.push(before);
            let (count, more) = *answers.next().expect("no further request");
            Ok(Step { count, more, before: Some(before.unwrap_or(first)) })
        });
        let step = step.await.unwrap();
        assert_eq!(answers.next(), None, "all were asked for");
        (asked, step)
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_is_about_the_moment_of_the_first() {
        let first = Some(Timestamp::UNIX_EPOCH);
        let (asked, all) = run(&[(10_000, true), (10_000, true), (7, false)]).await;
        assert_eq!(asked, [None, first, first]);
        assert_eq!(all, Step { count: 20_007, more: false, before: first });
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_hold_is_waited_for_and_then_left() {
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
