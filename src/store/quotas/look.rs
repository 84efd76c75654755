//! Looks at what a canvas keeps and remembers what it saw: it counts, or samples while a count
//! would take too long. No SQL.

use std::sync::Arc;

use tokio::time::Instant;

use super::headroom::{Measurement, Pair};
use super::method::{Method, SLOW};
use super::{KnownUsage, QuotaPair, Store, StoreError};
use crate::event::CanvasId;

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
        loop {
            let (at, by) = (Instant::now(), *method);
            let spent = known.with(|headroom| headroom.spent());
            let answer = match by {
                Method::Count => self.count_usage(canvas, measured).await,
                Method::Sample { pages, .. } => self.sample_usage(canvas, measured, pages).await,
            };
            let took = at.elapsed();
            let is_too_long = answer.as_ref().is_err_and(StoreError::is_too_long);
            if answer.is_ok() || is_too_long {
                *method = by.after(took, is_too_long, Instant::now());
            }
            if by == Method::Count && *method != by {
                tracing::info!(%canvas, "counting what a canvas keeps takes too long, as under an old snapshot: \
                                         it is estimated from samples");
            }
            match answer {
                Ok((used, limits)) => {
                    // The next measurement won't take longer than this.
                    let took = took.min(SLOW);
                    known.with(|headroom| headroom.record(Measurement { at, took, used, limits }, spent));
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
            let at = Instant::now();
            let counted = store.count_usage(canvas, measured).await;
            let method = Method::Count.after(at.elapsed(), counted.is_err(), Instant::now());
            *known.method.lock().await = method;
            drop(turn);
        });
    }

    /// How much a canvas keeps, counted in indexes, and its limits.
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
                [events.saturating_add(dead), bytes.saturating_add(dead_bytes)]
            }
            QuotaPair::Objects => self.sample_objects(canvas, pages).await?,
            QuotaPair::Remembered => {
                [self.sample_ids(canvas, pages).await?, self.sample_keys(canvas, pages).await?]
            }
            QuotaPair::Record => [self.sample_lines(canvas, pages).await?, 0],
            QuotaPair::Log => [self.sample_streams(canvas, pages).await?, self.log_bytes(canvas).await?],
            QuotaPair::Entities => {
                [self.sample_entities(canvas, pages).await?, self.sample_inboxes(canvas, pages).await?]
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
