//! The loops of a node: heartbeats, looks at what it is given, and coordinating while it leads.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::coordinator::{EventSubscriptionCoordinator, Round};
use super::elector::LeaderElector;
use super::local::{EventSubscriberStore, Local, Membership};
use super::observer::EventSubscriptionObserver;
use super::session::Session;
use super::single::{ClaimOutcome, Single};
use super::{BrokerConfig, BrokerError, EventSubscriberStateStore, NodeHeartbeat};
use crate::consumer::{Health, grown};
use crate::event::{NodeId, SubscriberId};
use crate::store::Store;
use wakeq::Name;
use wakeq::listeners::{Signal, Signals};

/// How long to wait for further changes, so that they are handled together.
const QUIET: Duration = Duration::from_millis(5);

/// The parts of a node.
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) config: BrokerConfig,
    pub(super) heartbeats: Arc<dyn NodeHeartbeat>,
    pub(super) states: Arc<dyn EventSubscriberStateStore>,
    pub(super) locals: Arc<EventSubscriberStore>,
    pub(super) session: Arc<Session>,
    pub(super) observer: EventSubscriptionObserver,
    pub(super) coordinator: EventSubscriptionCoordinator,
    pub(super) elector: Mutex<Box<dyn LeaderElector>>,
    /// Where operators ask groups to try again, and how often they had at the last look.
    pub(super) recoveries: (Option<Store>, Mutex<Option<BTreeMap<String, i64>>>),
    /// Set if this process works alone and its positions are in Postgres.
    pub(super) single: Option<Single>,
    pub(super) signals: Signals,
    /// Something changed here that the other nodes have to know.
    pub(super) changed: Arc<Notify>,
    /// The epoch up to which the confirmations of each subscriber were reported.
    pub(super) reported_epochs: Mutex<BTreeMap<SubscriberId, i64>>,
}

impl Node {
    /// Works until `stop`, then gives up the lead, and heartbeats until `over`.
    ///
    /// Errors: [`BrokerError::Unavailable`] if it could not give up the lead.
    pub(super) async fn run(
        &self,
        stop: &CancellationToken,
        over: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let coordinating = async {
            self.coordinate(stop).await;
            self.resign().await.inspect_err(|error| {
                tracing::warn!(node = %self.id, error = error as &dyn std::error::Error,
                    "the leadership could not be resigned; it ends with its lease");
            })
        };
        let both = async { tokio::join!(self.work(over), coordinating) };
        tokio::select! {
            ((), resigned) = both => resigned,
            never = self.watch_session() => match never {},
        }
    }

    /// Ends all work, by its own clock, before the other nodes may count this one as gone.
    async fn watch_session(&self) -> Infallible {
        loop {
            self.session.run_out().await;
            tracing::warn!(
                node = %self.id,
                "this node has not been able to heartbeat for too long; it stops its work until it can again"
            );
            self.locals.all().iter().for_each(|local| local.pause());
        }
    }

    /// Heartbeats, and looks at what it is given.
    async fn work(&self, over: &CancellationToken) {
        let mut signals = self.signals.watch(Signal::Allocations);
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                next = Instant::now() + self.config.heartbeat;
                if let Err(error) = self.beat().await {
                    self.failed(&error);
                    next = Instant::now() + self.config.heartbeat / 4;
                }
            }
            signals.mark_unchanged();
            if let Err(error) = self.observer.observe().await {
                self.failed(&error);
            }
            tokio::select! {
                () = over.cancelled() => return,
                () = tokio::time::sleep_until(next) => {}
                () = self.changed.notified() => {
                    tokio::time::sleep(QUIET).await;
                    next = Instant::now();
                }
                () = grown(&mut signals) => tokio::time::sleep(QUIET).await,
            }
        }
    }

    /// Registers subscribers that are not registered, reports those that are unhealthy, and
    /// heartbeats for the others; in this order, so that the session that it begins is valid for
    /// all of them.
    async fn beat(&self) -> Result<(), BrokerError> {
        let sent = Instant::now();
        let (mut news, mut failed) = (false, None);
        self.heartbeats.beat(self.id, self.config.lease).await?;
        for local in self.locals.all() {
            news |= self.claim(&local).await?;
            // One that can't be registered now must not keep the others from heartbeating.
            match self.settle(&local).await {
                Ok(changed) => news |= changed,
                Err(error) => failed = Some(error),
            }
        }
        let locals = self.locals.all();
        let registered: Vec<&Arc<Local>> =
            locals.iter().filter(|local| local.membership() == Membership::Registered).collect();
        let beats: Vec<(SubscriberId, i64)> =
            registered.iter().map(|local| (local.id(), local.confirmed())).collect();
        if !beats.is_empty() {
            let live = self.states.record_heartbeats(&beats, self.config.lease).await?;
            for local in registered.iter().filter(|local| !live.contains(&local.id())) {
                tracing::warn!(group = %local.subscriber.name(), subscriber = %local.id(),
                    "the other nodes have removed this subscriber; it stops its work, and registers again");
                local.suspend(Membership::Unregistered);
                match self.settle(local).await {
                    Ok(changed) => news |= changed,
                    Err(error) => failed = Some(error),
                }
            }
        }
        self.session.renew(sent);
        self.recover(&locals).await?;
        let mut reported = self.reported_epochs.lock().await;
        for (id, epoch) in beats {
            news |= reported.insert(id, epoch).is_none_or(|before| before < epoch);
        }
        if news {
            self.signals.send(Signal::Allocations);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Makes subscribers retry what failed, if an operator has asked for that since the last look.
    async fn recover(&self, locals: &[Arc<Local>]) -> Result<(), BrokerError> {
        let Some(store) = &self.recoveries.0 else { return Ok(()) };
        let groups: Vec<Name> = locals.iter().map(|local| local.subscriber.name().clone()).collect();
        let asked = store.recoveries(&groups).await;
        let asked = asked.map_err(BrokerError::unavailable("the requests of operators can't be read"))?;
        let mut seen = self.recoveries.1.lock().await;
        let is_first = seen.is_none();
        let seen = seen.get_or_insert_default();
        for (group, number) in asked {
            if seen.insert(group.clone(), number) != Some(number) && !is_first {
                tracing::info!(group, node = %self.id, "an operator requested that this group retry what failed");
                let of_group = locals.iter().filter(|local| local.subscriber.name().as_str() == group);
                of_group.for_each(|local| local.subscriber.recover());
            }
        }
        Ok(())
    }

    /// Claims the group of a subscriber, if this process works alone. Returns whether anything
    /// changed.
    async fn claim(&self, local: &Local) -> Result<bool, BrokerError> {
        let Some(single) = &self.single else { return Ok(false) };
        let group = local.subscriber.name();
        match single.claim(local, self.config.lease).await? {
            ClaimOutcome::Stays => return Ok(false),
            ClaimOutcome::Waits => {
                tracing::warn!(
                    %group,
                    node = %self.id,
                    "another process owns this group; this one waits until none does"
                );
                local.suspend(Membership::Waiting);
            }
            ClaimOutcome::Begins => {
                tracing::info!(
                    %group,
                    node = %self.id,
                    "no other process owns this group any longer; this one starts again"
                );
                local.suspend(Membership::Unregistered);
            }
        }
        self.states.unregister(&[local.id()]).await?;
        Ok(true)
    }

    /// Whether all subscribers of this node can work; if not, the reason of the first that can't.
    pub(super) fn health(&self) -> Health {
        let locals = self.locals.all();
        let why = locals.iter().find_map(|local| {
            match (local.membership(), local.health()) {
                (Membership::Lost { why, .. }, _) => Some(why.to_owned()),
                (_, Health::Unhealthy(why)) | (Membership::Refused(why), Health::Healthy) => Some(why),
                (Membership::Waiting, Health::Healthy) => Some(
                    "another process owns this group, which this process is configured to run alone"
                        .to_owned(),
                ),
                (
                    Membership::Unregistered | Membership::Registered | Membership::Unhealthy,
                    Health::Healthy,
                ) => None,
            }
            .map(|why| format!("{}: {why}", local.subscriber.name()))
        });
        why.map_or(Health::Healthy, Health::Unhealthy)
    }

    /// Reports a subscriber's health to the other nodes, if it has changed. Returns whether
    /// anything changed.
    async fn settle(&self, local: &Local) -> Result<bool, BrokerError> {
        match (local.membership(), local.health()) {
            (Membership::Unregistered | Membership::Unhealthy | Membership::Refused(_), Health::Healthy) => {
                self.register(local).await
            }
            (Membership::Registered, Health::Unhealthy(why)) => {
                tracing::warn!(group = %local.subscriber.name(), subscriber = %local.id(), why,
                    "a subscriber is unhealthy; its sources are assigned to others");
                local.suspend(Membership::Unhealthy);
                self.states.unhealthy(local.id(), &why).await?;
                Ok(true)
            }
            (Membership::Unhealthy, Health::Unhealthy(_)) => {
                let confirmed = local.confirmed();
                let mut reported = self.reported_epochs.lock().await;
                if reported.get(&local.id()).is_some_and(|before| *before >= confirmed) {
                    return Ok(false);
                }
                self.states.confirm(local.id(), confirmed).await?;
                reported.insert(local.id(), confirmed);
                Ok(true)
            }
            (Membership::Lost { why, reported: false }, _) => {
                self.states.unhealthy(local.id(), why).await?;
                local.set_reported();
                Ok(true)
            }
            (Membership::Waiting, _)
            | (Membership::Registered, Health::Healthy)
            | (Membership::Unregistered | Membership::Refused(_), Health::Unhealthy(_))
            | (Membership::Lost { reported: true, .. }, _) => Ok(false),
        }
    }

    /// Registers a subscriber; returns whether it is a member now. One that asks for other sources
    /// than a member is refused until that one has gone: it is tried again with each heartbeat,
    /// without holding up the others of this node.
    async fn register(&self, local: &Local) -> Result<bool, BrokerError> {
        let (group, requests) = (local.subscriber.name(), local.subscriber.requests());
        match self.states.register(group, local.id(), self.id, &requests, self.config.lease).await {
            Ok(()) => {
                if matches!(local.membership(), Membership::Refused(_)) {
                    tracing::info!(
                        %group,
                        subscriber = %local.id(),
                        "no member requests other sources any longer; this subscriber is a member now"
                    );
                }
                local.set_registered();
                Ok(true)
            }
            Err(refused @ BrokerError::Sources { .. }) => {
                let why = refused.to_string();
                if !matches!(local.membership(), Membership::Refused(_)) {
                    tracing::error!(
                        %group,
                        subscriber = %local.id(),
                        why,
                        "a subscriber was refused; it retries with each heartbeat"
                    );
                    // If it was a member before, its row shows this.
                    self.states.unhealthy(local.id(), &why).await?;
                }
                local.suspend(Membership::Refused(why));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Coordinates while this node leads, and campaigns while it does not.
    async fn coordinate(&self, stop: &CancellationToken) {
        let mut signals = self.signals.watch(Signal::Allocations);
        loop {
            signals.mark_unchanged();
            if let Err(error) = self.lead().await {
                self.failed(&error);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.config.heartbeat) => {}
                () = grown(&mut signals) => tokio::time::sleep(QUIET).await,
            }
        }
    }

    async fn lead(&self) -> Result<(), BrokerError> {
        let Some(leadership) = self.elector.lock().await.campaign().await? else { return Ok(()) };
        match self.coordinator.round(&leadership).await? {
            Round::Quiet | Round::Deposed => {}
            Round::Changed => self.signals.send(Signal::Allocations),
        }
        Ok(())
    }

    /// Gives up the lead.
    async fn resign(&self) -> Result<(), BrokerError> {
        self.elector.lock().await.resign().await?;
        self.signals.send(Signal::Allocations);
        Ok(())
    }

    /// Removes this node and its subscribers, once they have ended; except lost ones, which may not
    /// have ended.
    pub(super) async fn leave(&self) -> Result<(), BrokerError> {
        let locals = self.locals.all();
        let ended = locals.iter().filter(|local| !matches!(local.membership(), Membership::Lost { .. }));
        let ids: Vec<SubscriberId> = ended.map(|local| local.id()).collect();
        self.states.unregister(&ids).await?;
        self.heartbeats.leave(self.id).await?;
        if let Some(single) = self.single.as_ref().filter(|_| ids.len() == locals.len()) {
            single.leave().await?;
        }
        self.signals.send(Signal::Allocations);
        Ok(())
    }

    fn failed(&self, error: &BrokerError) {
        tracing::warn!(node = %self.id, error = error as &dyn std::error::Error,
            "the broker can't continue; retrying");
    }
}
