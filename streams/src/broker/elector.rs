//! Leader election: one candidate leads at a time, under a term that grows.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use uuid::Uuid;

use super::{BrokerError, LockManager};
use crate::event::Term;
use wakeq::Name;

/// The leadership that a candidate has, and until when it may act on it, by its own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The lead, which every write restates.
    pub lead: Term,
    /// No other candidate can have taken it before this.
    pub until: Instant,
}

/// Elects the leader.
#[async_trait]
pub trait LeaderElector: Send + Sync + 'static {
    /// Takes the lead if it is free, or renews it. `None` if another candidate leads.
    async fn campaign(&mut self) -> Result<Option<Leadership>, BrokerError>;

    /// Gives up the lead, if this candidate has it, so that another one can take it at once.
    async fn resign(&mut self) -> Result<(), BrokerError>;
}

/// Elects by a lock: its holder leads.
pub struct LockElector {
    locks: Arc<dyn LockManager>,
    name: Name,
    owner: Uuid,
    lease: Duration,
    held: Option<Term>,
}

impl LockElector {
    /// A candidate for the lock of this name.
    pub fn new(locks: Arc<dyn LockManager>, name: Name, owner: Uuid, lease: Duration) -> Self {
        Self { locks, name, owner, lease, held: None }
    }
}

#[async_trait]
impl LeaderElector for LockElector {
    async fn campaign(&mut self) -> Result<Option<Leadership>, BrokerError> {
        let sent = Instant::now();
        if let Some(held) = &self.held {
            if self.locks.renew(held, self.lease).await? {
                return Ok(Some(Leadership { lead: held.clone(), until: sent + self.lease }));
            }
            self.held = None;
        }
        let sent = Instant::now();
        self.held = self.locks.try_lock(&self.name, self.owner, self.lease).await?;
        Ok(self.held.clone().map(|lead| Leadership { lead, until: sent + self.lease }))
    }

    async fn resign(&mut self) -> Result<(), BrokerError> {
        match self.held.take() {
            Some(held) => self.locks.release(&held).await.map(drop),
            None => Ok(()),
        }
    }
}
