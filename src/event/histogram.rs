//! A histogram of durations with logarithmic bins, from which means and quantiles are read.

use std::time::Duration;

/// Number of bins.
const BINS: usize = 28;

/// How often something took how long. The first of 28 bins counts durations below 1 ms, bin `n`
/// those from 2^(n-1) up to 2^n ms, and the last one all from 2^26 ms (18.6 hours) on.
///
/// ```
/// use std::time::Duration;
/// use wakeq::control::DurationHistogram;
///
/// let mut taken = DurationHistogram::default();
/// [3, 3, 900].into_iter().for_each(|ms| taken.record(Duration::from_millis(ms)));
/// assert_eq!((taken.count(), taken.mean()), (3, Some(Duration::from_millis(302))));
/// assert_eq!(taken.quantile(0.5), Some(Duration::from_micros(3_500)), "it is from 2 up to 4 ms");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    bins: [u64; BINS],
    sum: Duration,
}

impl DurationHistogram {
    /// The histogram with these bins; those that are left out at the end are empty, and those
    /// beyond the last one count in it.
    pub(crate) fn of(bins: impl IntoIterator<Item = u64>, sum: Duration) -> Self {
        let mut whole = Self { sum, ..Self::default() };
        for (bin, count) in bins.into_iter().enumerate() {
            whole.bins[bin.min(BINS - 1)] += count;
        }
        whole
    }

    /// Counts a duration.
    pub fn record(&mut self, duration: Duration) {
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let bin = (u64::BITS - ms.leading_zeros()) as usize;
        self.bins[bin.min(BINS - 1)] += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// Adds what another one has counted.
    pub fn add(&mut self, other: &Self) {
        self.bins.iter_mut().zip(other.bins).for_each(|(bin, count)| *bin += count);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many durations were counted in each bin.
    pub fn bins(&self) -> &[u64] {
        &self.bins
    }

    /// The shortest duration of a bin, which is counted from 0.
    pub fn bin_start(bin: usize) -> Duration {
        match bin.min(BINS) {
            0 => Duration::ZERO,
            bin => Duration::from_millis(1 << (bin - 1)),
        }
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.bins.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Their mean; `None` without any.
    pub fn mean(&self) -> Option<Duration> {
        let nanos = self.sum.as_nanos().checked_div(u128::from(self.count()))?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// An estimate of the duration that this part of them, 0 to 1, did not exceed: as if the
    /// durations in a bin were spread evenly. In the last bin it is the shortest. `None` without
    /// any.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        // Exact enough for an estimate.
        let rank = part.clamp(0.0, 1.0) * self.count() as f64;
        let (mut below, mut estimate) = (0.0, None);
        for (bin, count) in self.bins.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (start, count) = (Self::bin_start(bin), *count as f64);
            let width = if bin == BINS - 1 { Duration::ZERO } else { Self::bin_start(bin + 1) - start };
            estimate = Some(start + width.mul_f64(((rank - below) / count).clamp(0.0, 1.0)));
            below += count;
            if below >= rank {
                break;
            }
        }
        estimate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(millis: &[u64]) -> DurationHistogram {
        let mut histogram = DurationHistogram::default();
        millis.iter().for_each(|ms| histogram.record(Duration::from_millis(*ms)));
        histogram
    }

    /// The bins in which something is counted.
    fn used(histogram: &DurationHistogram) -> Vec<(usize, u64)> {
        let bins = histogram.bins().iter().copied().enumerate();
        bins.filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn a_bin_is_twice_as_wide_as_the_one_before() {
        for (ms, bin) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11), ((1 << 26) - 1, 26)]
        {
            assert_eq!(used(&histogram(&[ms])), [(bin, 1)], "{ms} ms");
            let bounds = DurationHistogram::bin_start(bin)..DurationHistogram::bin_start(bin + 1);
            assert!(bounds.contains(&Duration::from_millis(ms)), "{ms} ms is not in {bounds:?}");
        }
        for ms in [1 << 26, 1 << 40, u64::MAX] {
            assert_eq!(used(&histogram(&[ms])), [(27, 1)], "{ms} ms");
        }
        assert_eq!(used(&DurationHistogram::of(vec![1; 40], Duration::ZERO))[27], (27, 13));
    }

    #[test]
    fn histograms_add_up() {
        let mut sum = histogram(&[1, 5, 5]);
        sum.add(&histogram(&[5, 70_000]));
        assert_eq!(sum, histogram(&[1, 5, 5, 5, 70_000]));
        assert_eq!((sum.count(), sum.sum().as_millis()), (5, 70_016));
        assert_eq!(sum.mean().unwrap().as_micros(), 14_003_200);
        let stored = DurationHistogram::of(sum.bins().iter().copied().take(18), sum.sum());
        assert_eq!(stored, sum, "what is left out is empty");
    }

    #[test]
    fn a_quantile_is_within_the_bin_of_the_exact_one() {
        let mut exact: Vec<u64> = (0..10_000).map(|n| n * n % 90_017).collect();
        let estimated = histogram(&exact);
        exact.sort_unstable();
        for part in [0.01, 0.5, 0.95, 0.99, 0.999] {
            let (at, estimate) = ((part * 10_000.0) as usize, estimated.quantile(part).unwrap());
            let exact = Duration::from_millis(exact[at]);
            assert!(exact / 2 <= estimate && estimate <= 2 * exact, "{part}: {estimate:?} for {exact:?}");
        }
    }

    #[test]
    fn quantiles_at_the_ends() {
        let none = DurationHistogram::default();
        assert_eq!((none.quantile(0.5), none.mean()), (None, None));
        let some = histogram(&[2, 100, 1 << 30]);
        assert_eq!(some.quantile(0.0), Some(Duration::from_millis(2)));
        assert_eq!(some.quantile(0.5), Some(Duration::from_millis(96)), "half of the bin from 64 to 128");
        for part in [1.0, 7.0] {
            assert_eq!(some.quantile(part), Some(Duration::from_millis(1 << 26)), "the last bin has no end");
        }
    }
}
