//! Measures what a canvas keeps and remembers the result. It counts, or samples while a count would
//! take too long. No SQL.

use std::sync::Arc;

use tokio::time::Instant;

use crate::event::CanvasId;
use crate::store::kernel::usage::{KnownUsage, Measurement, Method, Pair, QuotaPair};
use crate::store::kernel::{Store, StoreError, timed};

impl Store {
    /// Measures and records it; returns what is used. `method` is what the canvas's lock holds, so
    /// that one caller at a time gets here. If a count takes too long, a sample is taken at once.
    pub(super) async fn look(
        &self,
        canvas: CanvasId,
        measured: QuotaPair,
        known: &Arc<KnownUsage>,
        method: &mut Method,
    ) -> Result<Pair, StoreError> {
        if method.is_count_due(Instant::now()) {
            self.try_to_count(canvas, measured, known);
        }
        let bounds = self.quotas.bounds;
        loop {
            let (at, by) = (Instant::now(), *method);
            let (spent, before) = known.with(|headroom| (headroom.spent(), headroom.used()));
            let work = async {
                match by {
                    Method::Count => self.count_usage(canvas, measured).await,
                    Method::Sample { pages, .. } => self.sample_usage(canvas, measured, pages).await,
                }
            };
            // Others, and the canvas itself, can make it wait for a connection.
            let (answer, mut took) = timed(work).await;
            let is_too_long = answer.as_ref().is_err_and(StoreError::is_too_long);
            if answer.is_ok() || is_too_long {
                *method = by.after(took, is_too_long, Instant::now(), bounds);
            }
            if by == Method::Count && *method != by {
                tracing::info!(
                    %canvas,
                    "counting what a canvas keeps takes too long, as under an old snapshot: it is estimated from \
                     samples"
                );
            }
            match answer {
                Ok((mut used, limits)) => {
                    if measured == QuotaPair::Log {
                        let (bytes, looked) = timed(self.log_bytes(canvas)).await;
                        used[1] = or_known(bytes, before)?;
                        took += looked;
                    }
                    // The next measurement won't take longer than this.
                    let took = took.min(bounds.slow);
                    known.with(|headroom| headroom.record(Measurement { at, took, used, limits }, spent));
                    if measured == QuotaPair::Attempts {
                        tell_if_full(canvas, before, used, limits);
                    }
                    return Ok(used);
                }
                // The sample follows.
                Err(_) if is_too_long && by == Method::Count => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Counts in the background, to see whether that is quick again; not while another canvas is
    /// counted so. Nothing is recorded, since samples go on meanwhile.
    fn try_to_count(&self, canvas: CanvasId, measured: QuotaPair, known: &Arc<KnownUsage>) {
        let Ok(turn) = Arc::clone(&self.quotas.trial).try_lock_owned() else { return };
        let (store, known) = (self.clone(), Arc::clone(known));
        tokio::spawn(async move {
            let (counted, took) = timed(store.count_usage(canvas, measured)).await;
            let ended = Instant::now();
            let mut method = known.method.lock().await;
            *method = method.after_trial(took, counted.is_err(), ended, store.quotas.bounds);
            drop(method);
            drop(turn);
        });
    }

    /// How much a canvas keeps, counted in indexes, and its limits; without the bytes in the log,
    /// which are looked up apart.
    pub(in crate::store) async fn count_usage(
        &self,
        canvas: CanvasId,
        measured: QuotaPair,
    ) -> Result<(Pair, Pair), StoreError> {
        match measured {
            QuotaPair::Waiting => self.measure_waiting(canvas).await,
            QuotaPair::Objects => self.measure_objects(canvas).await,
            QuotaPair::Remembered => self.measure_remembered(canvas).await,
            QuotaPair::Record => self.measure_record(canvas).await,
            QuotaPair::Log => self.measure_log(canvas).await,
            QuotaPair::Entities => self.measure_entities(canvas).await,
            QuotaPair::Attempts => self.measure_attempts(canvas).await,
        }
    }

    /// The same, estimated from about this many pages of each table.
    pub(in crate::store) async fn sample_usage(
        &self,
        canvas: CanvasId,
        measured: QuotaPair,
        pages: i64,
    ) -> Result<(Pair, Pair), StoreError> {
        let used = match measured {
            QuotaPair::Waiting => {
                let [events, bytes] = self.sample_events(canvas, pages).await?;
                let [dead, dead_bytes] = self.sample_dead_events(canvas, pages).await?;
                let [ended, ended_bytes] = self.sample_ended_events(canvas, pages).await?;
                let [_, checkpoints] = self.sample_checkpoints(canvas, pages).await?;
                let all =
                    |amounts: &[u64]| amounts.iter().fold(0, |sum: u64, amount| sum.saturating_add(*amount));
                [all(&[events, dead, ended]), all(&[bytes, dead_bytes, ended_bytes, checkpoints])]
            }
            QuotaPair::Objects => self.sample_objects(canvas, pages).await?,
            QuotaPair::Remembered => {
                let [ids, _] = self.sample_ids(canvas, pages).await?;
                let [keys, _] = self.sample_keys(canvas, pages).await?;
                let [unique, _] = self.sample_unique_keys(canvas, pages).await?;
                let [batches, _] = self.sample_batches(canvas, pages).await?;
                let [limits, _] = self.sample_limit_states(canvas, pages).await?;
                let named = batches.saturating_add(limits);
                [ids, keys.saturating_add(unique).saturating_add(named)]
            }
            QuotaPair::Record => self.sample_lines(canvas, pages).await?,
            QuotaPair::Attempts => return self.sample_attempts(canvas, pages).await,
            QuotaPair::Log => self.sample_streams(canvas, pages).await?,
            QuotaPair::Entities => {
                let [entities, _] = self.sample_entities(canvas, pages).await?;
                let [inboxes, _] = self.sample_inboxes(canvas, pages).await?;
                [entities, inboxes]
            }
        };
        let mut limits = [u64::MAX; 2];
        for (limit, quota) in limits.iter_mut().zip(measured.quotas()) {
            if let Some(quota) = quota {
                *limit = self.quota(canvas, quota).await?;
            }
        }
        Ok((used, limits))
    }
}

/// Says once that further attempts are not recorded, since no request is refused for it.
fn tell_if_full(canvas: CanvasId, before: Option<Pair>, [rows, _]: Pair, [most, _]: Pair) {
    if rows >= most && before.is_none_or(|[rows, _]| rows < most) {
        tracing::warn!(
            %canvas, most,
            "a canvas has as many failed attempts in its history as it may: until some of them expire, further \
             ones are not recorded"
        );
    }
}

/// The bytes in the log: as slow for a count as for a sample, so they say nothing about either. If
/// the server stops the look-up for its time, what was known and added before stays counted.
fn or_known(bytes: Result<u64, StoreError>, before: Option<Pair>) -> Result<u64, StoreError> {
    match bytes {
        Err(error) if error.is_too_long() => Ok(before.map_or(0, |[_, bytes]| bytes)),
        bytes => bytes,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bytes_that_cannot_be_looked_up_in_time_stay_known() {
        let failed = |ended| {
            let after = Duration::from_secs(5);
            Err(StoreError::TimedOut { statement: "measure the log of a canvas", after, ended })
        };
        assert_eq!(or_known(Ok(7), Some([1, 30])).unwrap(), 7);
        assert_eq!(or_known(failed(true), Some([1, 30])).unwrap(), 30);
        assert_eq!(or_known(failed(true), None).unwrap(), 0);
        assert!(or_known(failed(false), Some([1, 30])).is_err());
    }
}
