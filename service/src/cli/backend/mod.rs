//! Where a command runs: directly on the database, or on a server. Both return the types of the
//! HTTP API, so that the output is the same.
//!
//! Prints nothing, and knows no commands.

mod client;
mod database;
mod drafts;
mod hearing;
mod server;

use crate::api::{
    Append, AppendedAll, AuditEntry, BulkRequest, CompleteRequest, CreateKey, CreatedKey, Cron, DeadEvent,
    Deleted, DeletedQueue, Depth, Emitted, EmittedBatch, Entity, EntityProgress, EntitySummary, EventDetail,
    EventSummary, ExtendRequest, Extended, Facet, FacetSet, Group, GroupDead, GroupNodes, GroupSummary,
    HaltedLane, Handler, Key, Lease, LeaseRequest, Leased, Lifted, List, LogPage, NewChange, NewEntityEvent,
    NewEvent, Object, PauseCron, PurgeRequest, Purged, PutAnswer, PutCron, PutQueue, PutQueueAnswer,
    PutTarget, Queue, QueueDepth, Quota, RedriveGroup, Redriven, RedrivenGroup, ReleaseRequest, Released,
    RemoveGroup, ResetGroup, ResetRequest, RuleKind, SentToEntity, SetFacet, SetQuota, Skipped, StopRequest,
    Stopped, Tombstone, UnsetQuota, Waiting,
};
use crate::config::DeliveryArgs;

use super::arguments::{HandlerName, Page, Target};
use wakeq::log::{Category, EventSource, StreamName};
use wakeq::machine::CheckResult;
use wakeq::order::ObjectKey;
use wakeq::{EventId, Name};
use wakeq_streams::{EntityId, EntityType};

pub(super) use client::{Client, ServerArgs, ServerChoice};
pub(super) use database::Database;
pub(super) use hearing::EventFeed;
pub(super) use server::Server;

/// The database, or a server in front of it.
pub(super) enum Backend {
    Database(Box<Database>),
    Server(Box<Server>),
}

/// The events to list.
pub(super) struct WhichEvents {
    pub(super) handler: Option<HandlerName>,
    pub(super) state: Option<CheckResult>,
    pub(super) worker: Option<Name>,
}

/// The keys to list, or where a new key is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Canvases {
    One,
    Every,
}

/// Calls the method of the same name on either.
macro_rules! either {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self {
            Self::Database(database) => database.$method($($argument),*).await,
            Self::Server(server) => server.$method($($argument),*).await,
        }
    };
}

impl Backend {
    pub(super) async fn emit(&self, event: NewEvent) -> anyhow::Result<Emitted> {
        either!(self.emit(event))
    }

    /// Emits events on an object, and sets its state if one is given.
    pub(super) async fn change(&self, object: &ObjectKey, change: NewChange) -> anyhow::Result<EmittedBatch> {
        either!(self.change(object, change))
    }

    pub(super) async fn events(&self, which: &WhichEvents, page: Page) -> anyhow::Result<List<EventSummary>> {
        either!(self.events(which, page))
    }

    /// What is known of an event; its value only if requested.
    pub(super) async fn event(&self, id: EventId, value: bool) -> anyhow::Result<EventDetail> {
        either!(self.event(id, value))
    }

    pub(super) async fn cancel(&self, id: EventId) -> anyhow::Result<()> {
        either!(self.cancel(id))
    }

    pub(super) async fn run_now(&self, id: EventId) -> anyhow::Result<()> {
        either!(self.run_now(id))
    }

    /// All handlers that have events, rules or targets.
    pub(super) async fn handlers(&self) -> anyhow::Result<List<Handler>> {
        either!(self.handlers())
    }

    /// One handler, which may have nothing.
    pub(super) async fn handler(&self, handler: &HandlerName) -> anyhow::Result<Handler> {
        either!(self.handler(handler))
    }

    /// Registers a target. `delivery` says what is allowed, unless a server decides that.
    pub(super) async fn put_target(
        &self,
        target: &Target,
        new: PutTarget,
        delivery: &DeliveryArgs,
    ) -> anyhow::Result<PutAnswer> {
        match self {
            Self::Database(database) => database.put_target(target, new, delivery).await,
            Self::Server(server) => server.put_target(target, new).await,
        }
    }

    pub(super) async fn delete_target(&self, target: &Target) -> anyhow::Result<()> {
        either!(self.delete_target(target))
    }

    pub(super) async fn stop(
        &self,
        kind: RuleKind,
        handler: &HandlerName,
        stop: StopRequest,
    ) -> anyhow::Result<Stopped> {
        either!(self.stop(kind, handler, stop))
    }

    pub(super) async fn lift(&self, kind: RuleKind, handler: &HandlerName) -> anyhow::Result<Lifted> {
        either!(self.lift(kind, handler))
    }

    pub(super) async fn purge(&self, handler: &HandlerName, which: &PurgeRequest) -> anyhow::Result<Purged> {
        either!(self.purge(handler, which))
    }

    pub(super) async fn depth(&self, handler: Option<&HandlerName>) -> anyhow::Result<Depth> {
        either!(self.depth(handler))
    }

    pub(super) async fn put_cron(&self, name: &Name, new: PutCron) -> anyhow::Result<Cron> {
        either!(self.put_cron(name, new))
    }

    /// A page of crons, without their values.
    pub(super) async fn crons(&self, page: Page) -> anyhow::Result<List<Cron>> {
        either!(self.crons(page))
    }

    pub(super) async fn cron(&self, name: &Name) -> anyhow::Result<Cron> {
        either!(self.cron(name))
    }

    pub(super) async fn pause_cron(&self, name: &Name, request: PauseCron) -> anyhow::Result<Cron> {
        either!(self.pause_cron(name, request))
    }

    pub(super) async fn unpause_cron(&self, name: &Name) -> anyhow::Result<Cron> {
        either!(self.unpause_cron(name))
    }

    pub(super) async fn delete_cron(&self, name: &Name) -> anyhow::Result<()> {
        either!(self.delete_cron(name))
    }

    /// Registers a queue. `delivery` says what is allowed as its target, unless a server decides
    /// that.
    pub(super) async fn put_queue(
        &self,
        name: &Name,
        new: PutQueue,
        delivery: &DeliveryArgs,
    ) -> anyhow::Result<PutQueueAnswer> {
        match self {
            Self::Database(database) => database.put_queue(name, new, delivery).await,
            Self::Server(server) => server.put_queue(name, new).await,
        }
    }

    pub(super) async fn queues(&self) -> anyhow::Result<List<Queue>> {
        either!(self.queues())
    }

    pub(super) async fn queue(&self, name: &Name) -> anyhow::Result<Queue> {
        either!(self.queue(name))
    }

    pub(super) async fn delete_queue(&self, name: &Name, waiting: Waiting) -> anyhow::Result<DeletedQueue> {
        either!(self.delete_queue(name, waiting))
    }

    pub(super) async fn queue_depth(&self, name: &Name) -> anyhow::Result<QueueDepth> {
        either!(self.queue_depth(name))
    }

    pub(super) async fn lease(&self, queue: &Name, request: LeaseRequest) -> anyhow::Result<Leased> {
        either!(self.lease(queue, request))
    }

    pub(super) async fn extend(
        &self,
        queue: &Name,
        id: EventId,
        request: ExtendRequest,
    ) -> anyhow::Result<Extended> {
        either!(self.extend(queue, id, request))
    }

    pub(super) async fn complete(
        &self,
        queue: &Name,
        id: EventId,
        request: CompleteRequest,
    ) -> anyhow::Result<()> {
        either!(self.complete(queue, id, request))
    }

    pub(super) async fn release(
        &self,
        queue: &Name,
        id: EventId,
        request: ReleaseRequest,
    ) -> anyhow::Result<Released> {
        either!(self.release(queue, id, request))
    }

    pub(super) async fn leases(&self, queue: &Name, page: Page) -> anyhow::Result<List<Lease>> {
        either!(self.leases(queue, page))
    }

    pub(super) async fn end_lease(&self, queue: &Name, id: EventId) -> anyhow::Result<()> {
        either!(self.end_lease(queue, id))
    }

    pub(super) async fn facets(&self, queue: &Name, page: Page) -> anyhow::Result<List<Facet>> {
        either!(self.facets(queue, page))
    }

    /// The limits and usage of the command's canvas.
    pub(super) async fn quotas(&self) -> anyhow::Result<List<Quota>> {
        either!(self.quotas())
    }

    pub(super) async fn set_quota(&self, quota: wakeq::control::Quota, new: SetQuota) -> anyhow::Result<()> {
        either!(self.set_quota(quota, new))
    }

    pub(super) async fn unset_quota(&self, quota: wakeq::control::Quota) -> anyhow::Result<UnsetQuota> {
        either!(self.unset_quota(quota))
    }

    pub(super) async fn group_nodes(&self) -> anyhow::Result<GroupNodes> {
        either!(self.group_nodes())
    }

    pub(super) async fn groups(&self) -> anyhow::Result<List<GroupSummary>> {
        either!(self.groups())
    }

    pub(super) async fn group(&self, name: &Name) -> anyhow::Result<Group> {
        either!(self.group(name))
    }

    pub(super) async fn reset_group(&self, name: &Name, request: ResetRequest) -> anyhow::Result<ResetGroup> {
        either!(self.reset_group(name, request))
    }

    pub(super) async fn group_dead(&self, name: &Name, page: Page) -> anyhow::Result<List<GroupDead>> {
        either!(self.group_dead(name, page))
    }

    pub(super) async fn redrive_group(
        &self,
        name: &Name,
        request: RedriveGroup,
    ) -> anyhow::Result<RedrivenGroup> {
        either!(self.redrive_group(name, request))
    }

    pub(super) async fn recover_group(&self, name: &Name) -> anyhow::Result<()> {
        either!(self.recover_group(name))
    }

    pub(super) async fn remove_group(
        &self,
        name: &Name,
        source: Option<&EventSource>,
    ) -> anyhow::Result<RemoveGroup> {
        either!(self.remove_group(name, source))
    }

    /// Sets the facet of the command's canvas in a queue.
    pub(super) async fn set_facet(&self, queue: &Name, settings: SetFacet) -> anyhow::Result<FacetSet> {
        either!(self.set_facet(queue, settings))
    }

    /// The halted lanes of objects.
    pub(super) async fn halted(&self) -> anyhow::Result<List<HaltedLane>> {
        either!(self.halted())
    }

    pub(super) async fn object(&self, key: &ObjectKey) -> anyhow::Result<Object> {
        either!(self.object(key))
    }

    /// The missing links of an object after this one.
    pub(super) async fn tombstones(
        &self,
        key: &ObjectKey,
        queue: Option<&Name>,
        after: i64,
    ) -> anyhow::Result<List<Tombstone>> {
        either!(self.tombstones(key, queue, after))
    }

    pub(super) async fn skip(&self, key: &ObjectKey, handler: &HandlerName) -> anyhow::Result<Skipped> {
        either!(self.skip(key, handler))
    }

    /// The entities of a type on the command's canvas.
    pub(super) async fn list_entities(
        &self,
        entity_type: &EntityType,
        page: Page,
    ) -> anyhow::Result<List<EntitySummary>> {
        either!(self.list_entities(entity_type, page))
    }

    /// An entity on the command's canvas, whatever canvas it names.
    pub(super) async fn entity(&self, entity: &EntityId) -> anyhow::Result<Entity> {
        either!(self.entity(entity))
    }

    /// Sends an event to such an entity.
    pub(super) async fn send_to_entity(
        &self,
        entity: &EntityId,
        event: NewEntityEvent,
    ) -> anyhow::Result<SentToEntity> {
        either!(self.send_to_entity(entity, event))
    }

    /// Requests the erasure of such an entity.
    pub(super) async fn erase_entity(
        &self,
        entity: &EntityId,
        id: Option<EventId>,
    ) -> anyhow::Result<SentToEntity> {
        either!(self.erase_entity(entity, id))
    }

    /// The progress of an entity's event, or of all events with a correlation id.
    pub(super) async fn entity_status(&self, id: EventId) -> anyhow::Result<EntityProgress> {
        either!(self.entity_status(id))
    }

    /// Appends to streams of the canvas's log.
    pub(super) async fn append(&self, append: Append) -> anyhow::Result<AppendedAll> {
        either!(self.append(append))
    }

    /// A page of the canvas's log, of a category, or of a stream.
    pub(super) async fn read_log(
        &self,
        category: Option<&Category>,
        stream: Option<&StreamName>,
        after: i64,
        limit: u32,
    ) -> anyhow::Result<LogPage> {
        either!(self.read_log(category, stream, after, limit))
    }

    pub(super) async fn dead(&self, which: &BulkRequest, page: Page) -> anyhow::Result<List<DeadEvent>> {
        either!(self.dead(which, page))
    }

    pub(super) async fn redrive_one(&self, id: EventId) -> anyhow::Result<()> {
        either!(self.redrive_one(id))
    }

    pub(super) async fn redrive(&self, which: &BulkRequest) -> anyhow::Result<Redriven> {
        either!(self.redrive(which))
    }

    pub(super) async fn delete_dead(&self, which: &BulkRequest) -> anyhow::Result<Deleted> {
        either!(self.delete_dead(which))
    }

    pub(super) async fn audit(&self, page: Page) -> anyhow::Result<List<AuditEntry>> {
        either!(self.audit(page))
    }

    pub(super) async fn keys(&self, canvases: Canvases, page: Page) -> anyhow::Result<List<Key>> {
        either!(self.keys(canvases, page))
    }

    pub(super) async fn create_key(&self, canvases: Canvases, new: CreateKey) -> anyhow::Result<CreatedKey> {
        either!(self.create_key(canvases, new))
    }

    /// Revokes a key by the digits of its public part.
    pub(super) async fn revoke_key(&self, id: &str) -> anyhow::Result<()> {
        either!(self.revoke_key(id))
    }
}
