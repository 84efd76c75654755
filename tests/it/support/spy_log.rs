//! A log whose reads a test sees, refuses or breaks.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::watch;
use wakeq::log::{EventSource, LogEvent, LogPage, PageLimit};
use wakeq_streams::{ConsumerError, EventProvider};

type Check = Box<dyn Fn(PageLimit) -> Result<(), ConsumerError> + Send + Sync>;

/// Notes each read of a provider, unless `check` fails or panics.
pub(crate) struct SpyLog {
    log: Arc<dyn EventProvider>,
    check: Check,
    /// The number of events that each read asked for, also if it failed.
    limits: Mutex<Vec<usize>>,
    /// The number of events and of bytes of each page.
    pages: Mutex<Vec<(usize, usize)>>,
}

impl SpyLog {
    pub(crate) fn new(
        log: Arc<dyn EventProvider>,
        check: impl Fn(PageLimit) -> Result<(), ConsumerError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let check = Box::new(check);
        Arc::new(Self { log, check, limits: Mutex::default(), pages: Mutex::default() })
    }

    pub(crate) fn limits(&self) -> Vec<usize> {
        self.limits.lock().unwrap().clone()
    }

    pub(crate) fn pages(&self) -> Vec<(usize, usize)> {
        self.pages.lock().unwrap().clone()
    }
}

#[async_trait]
impl EventProvider for SpyLog {
    async fn read(
        &self,
        source: &EventSource,
        after: i64,
        limit: PageLimit,
    ) -> Result<LogPage, ConsumerError> {
        self.limits.lock().unwrap().push(limit.events);
        (self.check)(limit)?;
        let page = self.log.read(source, after, limit).await?;
        let bytes = page.events.iter().map(LogEvent::size_bytes).sum();
        self.pages.lock().unwrap().push((page.events.len(), bytes));
        Ok(page)
    }

    fn watch(&self, source: &EventSource) -> watch::Receiver<u64> {
        self.log.watch(source)
    }
}
