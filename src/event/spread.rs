//! The jitter of pauses before something is tried again.

use std::time::Duration;

/// A pause and up to a fifth more, never less: processes that lost something together do not come
/// back together.
pub fn spread(pause: Duration) -> Duration {
    let share = uuid::Uuid::new_v4().as_u128() % 200;
    pause.saturating_add(pause.mul_f64(0.001 * share as f64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pauses_differ_and_are_never_shorter() {
        let second = Duration::from_secs(1);
        let pauses: BTreeSet<Duration> = (0..1_000).map(|_| spread(second)).collect();
        assert!(pauses.iter().all(|pause| (second..second + second / 5).contains(pause)), "{pauses:?}");
        assert!(pauses.len() > 100, "{pauses:?}");
        assert_eq!(spread(Duration::ZERO), Duration::ZERO);
    }
}
