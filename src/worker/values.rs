//! Limits the bytes of large values of running events: a large value waits for permits before its
//! event is claimed. Small ones need none.
//!
//! It counts bytes and does not read values.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Largest small value in bytes, whatever the capacity: the library's usual limit.
const SMALL_MAX: usize = 256 * 1024;
/// How many bytes of a value a permit is for.
const BYTES_PER_PERMIT: usize = 1024;

/// Limits how many bytes of large values are here at once.
pub(super) struct Values {
    pub(super) semaphore: Arc<Semaphore>,
    permits: u32,
    small_max: i32,
}

impl Values {
    /// A value is small if `capacity` values of its size fit into `bytes_max` together, and it does
    /// not exceed `SMALL_MAX`.
    pub(super) fn new(bytes_max: usize, capacity: usize) -> Self {
        let permits = (bytes_max / BYTES_PER_PERMIT).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let small_max = SMALL_MAX.min(bytes_max / capacity.max(1));
        Self {
            semaphore: Arc::new(Semaphore::new(permits)),
            permits: u32::try_from(permits).unwrap_or(u32::MAX),
            small_max: i32::try_from(small_max).unwrap_or(i32::MAX),
        }
    }

    /// Size in bytes of the largest value that is claimed without looking at it first.
    pub(super) fn small_max(&self) -> i32 {
        self.small_max
    }

    /// How many permits a value needs, if it is large; all of them, if it exceeds the limit.
    pub(super) fn permits_for(&self, bytes: i32) -> Option<u32> {
        let permits =
            || u32::try_from(bytes).unwrap_or(0).div_ceil(BYTES_PER_PERMIT as u32).min(self.permits);
        (bytes > self.small_max).then(permits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i32 = 1024 * 1024;

    #[test]
    fn small_values_need_no_permit_and_large_ones_are_counted() {
        let values = Values::new(64 * MIB as usize, 64);
        assert_eq!((values.small_max(), values.permits_for(256 * 1024)), (256 * 1024, None));
        assert_eq!(values.permits_for(256 * 1024 + 1), Some(257));
        assert_eq!(values.permits_for(16 * MIB), Some(16 * 1024));
        let many = Values::new(64 * MIB as usize, 50_000);
        assert!(i64::from(many.small_max()) * 50_000 <= i64::from(64 * MIB));
    }

    #[test]
    fn a_value_larger_than_the_budget_takes_all_of_it() {
        let values = Values::new(MIB as usize, 1);
        assert_eq!(values.permits_for(16 * MIB), Some(1024));
        assert_eq!(values.semaphore.available_permits(), 1024);
    }
}
