//! A pause between two looks at what a test waits for.

use std::time::Duration;

/// How many looks follow one another at once.
const AT_ONCE: u32 = 10;
const PAUSE: Duration = Duration::from_millis(2);

/// Counts how often a test has looked for what it waits for. At first only other tasks run between
/// two looks. Then 2 ms pass, so that a test which waits for long leaves the processors to what it
/// waits for, and to other tests.
///
/// A paused clock does not advance meanwhile.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let came = tokio::spawn(async { 1 });
/// let mut looks = wakeq_testbed::Looks::default();
/// while !came.is_finished() {
///     looks.pause().await;
/// }
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Looks(u32);

impl Looks {
    /// Lets others run until the next look.
    pub async fn pause(&mut self) {
        self.0 += 1;
        if self.0 <= AT_ONCE {
            tokio::task::yield_now().await;
        } else {
            // A paused clock advances by itself during a sleep of tokio's, but not during this one.
            tokio::task::spawn_blocking(sleep).await.expect("a thread that sleeps");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "tests ask for states that signal nothing")]
fn sleep() {
    std::thread::sleep(PAUSE);
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_does_not_advance() {
        let (began, really) = (Instant::now(), std::time::Instant::now());
        let later = tokio::spawn(tokio::time::sleep(Duration::from_secs(60)));
        let mut looks = Looks::default();
        for _ in 0..AT_ONCE + 5 {
            looks.pause().await;
        }
        assert!(!later.is_finished());
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(really.elapsed() >= 5 * PAUSE);
    }
}
