//! The session of a node: until when it may work, by its own monotonic clock.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Begins, and is extended, with each heartbeat that was written, counted from before it was sent.
#[derive(Debug)]
pub(super) struct Session {
    working: Duration,
    until: watch::Sender<Option<Instant>>,
}

impl Session {
    /// A session that has not begun, and ends this long after its last heartbeat.
    pub(super) fn new(working: Duration) -> Self {
        Self { working, until: watch::Sender::new(None) }
    }

    /// A heartbeat that was sent at this time has been written. Changes nothing if that was too
    /// long ago.
    pub(super) fn renew(&self, sent: Instant) {
        let until = sent + self.working;
        if until > Instant::now() {
            self.until.send_replace(Some(until));
        }
    }

    /// Whether the node may work now.
    pub(super) fn is_valid(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Returns when a session that had begun has run out, and has not begun again.
    pub(super) async fn run_out(&self) {
        let mut changes = self.until.subscribe();
        loop {
            let until = *changes.borrow_and_update();
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = changes.changed() => {
                    // Can't happen: the sender belongs to this session.
                    if changed.is_err() {
                        return;
                    }
                }
                () = over => {
                    let ended = self.until.send_if_modified(|standing| {
                        let is_over = standing.is_some_and(|until| until <= Instant::now());
                        if is_over {
                            *standing = None;
                        }
                        is_over
                    });
                    if ended {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKING: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn a_session_lasts_from_before_its_heartbeat_was_sent() {
        let session = Session::new(WORKING);
        assert!(!session.is_valid(), "nobody has heard of it yet");
        let sent = Instant::now();
        tokio::time::advance(Duration::from_secs(5)).await;
        session.renew(sent);
        assert!(session.is_valid());
        let begun = Instant::now();
        session.run_out().await;
        assert_eq!(begun.elapsed().as_secs(), 15);
        assert!(!session.is_valid());
        tokio::time::advance(Duration::from_secs(1)).await;
        session.renew(sent);
        assert!(!session.is_valid(), "an answer that came too late renews nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_puts_the_end_off() {
        let session = Session::new(WORKING);
        session.renew(Instant::now());
        let begun = Instant::now();
        let beats = async {
            for _ in 0..3 {
                tokio::time::advance(Duration::from_secs(10)).await;
                session.renew(Instant::now());
                tokio::task::yield_now().await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = session.run_out() => assert_eq!(begun.elapsed().as_secs(), 50),
            () = beats => {}
        }
    }
}
