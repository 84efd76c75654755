//! The limits that routes ask for, which a worker sets when it starts.
//!
//! They are set like any other and can be changed like any other. A worker changes them again when
//! it starts, if its routes still say something else. So of two releases that say different things,
//! the one whose worker started last has the limit, until one of the other starts again.

use std::time::Duration;

use super::QueueWorker;
use crate::event::{Actor, CanvasId, NewLimit, Rate};
use crate::store::StoreError;
use crate::wake::Waker;

impl QueueWorker {
    /// Sets those limits of its routes that are not set as they say. What has room after that is
    /// woken in the background.
    pub(super) async fn set_limits(&self) -> Result<(), StoreError> {
        let actor = Actor::user(&format!("worker:{}", self.name));
        for ((canvas, name), limit) in self.registry.limits() {
            let set = self.store.limit(*canvas, name).await?;
            if set.is_some_and(|set| set.definition == stored(limit)) {
                continue;
            }
            if self.store.put_limit(*canvas, name, limit, &actor).await?.is_none() {
                if *canvas != CanvasId::OF_ALL {
                    // The canvas has used up what it may set, and must not stop work for others.
                    tracing::error!(
                        %canvas, limit = %name, allows = %limit,
                        "the limit of a route is not set: 1,000 limits of the canvas are, which is the most; \
                         remove one (`wakeq limits remove`) and restart the worker"
                    );
                    continue;
                }
                return Err(StoreError::Config(
                    "a route sets a limit, and 1,000 limits are set already, which is the most: remove one \
                     first (`wakeq limits remove`)",
                ));
            }
            tracing::info!(limit = %name, allows = %limit, "set the limit of a route");
            let waker = Waker::new(self.store.clone(), self.notifier.clone());
            let (canvas, name) = (*canvas, name.clone());
            tokio::spawn(async move {
                if let Err(error) = waker.room_in_limit(canvas, name).await {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "what has room in a limit is woken within a minute");
                }
            });
        }
        Ok(())
    }
}

/// A limit as it is read back: the database has microseconds.
fn stored(limit: &NewLimit) -> NewLimit {
    let micros = |period: Duration| u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
    let rate = limit.rate.map(|rate| Rate { period: Duration::from_micros(micros(rate.period)), ..rate });
    NewLimit { rate, ..*limit }
}
