//! What commands ask for: each call is a single request of the HTTP API, with its JSON as arguments
//! and answer.

use super::request::Request;
use super::{Client, WhichEvents};
use crate::api::{
    Append, AppendedAll, AuditEntry, BulkRequest, CompleteRequest, CreateKey, CreatedKey, Cron, DeadEvent,
    Deleted, DeletedQueue, Depth, Emitted, EmittedBatch, Entity, EntityProgress, EntitySummary, EventDetail,
    EventSummary, ExtendRequest, Extended, Facet, FacetSet, Group, GroupDead, GroupNodes, GroupSummary,
    HaltedLane, Handler, Key, Lease, LeaseRequest, Leased, Lifted, List, LogPage, NewChange, NewEntityEvent,
    NewEvent, Object, PauseCron, PurgeRequest, Purged, PutAnswer, PutCron, PutQueue, PutQueueAnswer,
    PutTarget, Queue, QueueDepth, Quota, RedriveGroup, Redriven, RedrivenGroup, ReleaseRequest, Released,
    RemoveGroup, ResetGroup, ResetRequest, RuleKind, SentToEntity, SetFacet, SetQuota, SkipRequest, Skipped,
    StopRequest, Stopped, TheEvent, Tombstone, UnsetQuota, Waiting,
};
use crate::cli::arguments::{HandlerName, Page, Target};
use wakeq::{Category, EventId, EventSource, Name, ObjectKey, StreamName};
use wakeq_streams::{EntityId, EntityType};

impl Client {
    /// Can be repeated if the answer is lost.
    pub(in crate::cli) async fn emit(&self, new: NewEvent) -> anyhow::Result<Emitted> {
        self.call(Request::post(&["events"]).body(&new)?.repeatable()).await
    }

    /// Emits events on an object, and sets its state if one is given. Can be repeated like
    /// [`Self::emit`].
    pub(in crate::cli) async fn change(
        &self,
        object: &ObjectKey,
        change: NewChange,
    ) -> anyhow::Result<EmittedBatch> {
        let request = Request::post(&["objects", object.as_str(), "events"]).body(&change)?;
        self.call(request.repeatable()).await
    }

    pub(in crate::cli) async fn events(
        &self,
        which: &WhichEvents,
        page: Page,
    ) -> anyhow::Result<List<EventSummary>> {
        let handler = which.handler.as_ref();
        let request = Request::get(&["events"])
            .query("module", handler.map(|handler| &handler.module))
            .query("name", handler.map(|handler| &handler.name))
            .query("state", which.state.map(|state| state.as_str()))
            .query("worker", which.worker.as_ref())
            .page(page);
        self.call(request).await
    }

    /// What is known of an event; its value only if requested.
    pub(in crate::cli) async fn event(&self, id: EventId, value: bool) -> anyhow::Result<EventDetail> {
        let view = value.then_some("full");
        self.call(Request::get(&["events", &id.to_string()]).query("view", view)).await
    }

    pub(in crate::cli) async fn cancel(&self, id: EventId) -> anyhow::Result<()> {
        let done: TheEvent =
            self.call(Request::post(&["events", &id.to_string(), "cancel"]).silent()).await?;
        self.same(done, id)
    }

    pub(in crate::cli) async fn run_now(&self, id: EventId) -> anyhow::Result<()> {
        let done: TheEvent = self.call(Request::post(&["events", &id.to_string(), "run-now"])).await?;
        self.same(done, id)
    }

    /// All handlers that have events, rules or targets.
    pub(in crate::cli) async fn handlers(&self) -> anyhow::Result<List<Handler>> {
        self.call(Request::get(&["handlers"])).await
    }

    /// One handler, which may have nothing.
    pub(in crate::cli) async fn handler(&self, handler: &HandlerName) -> anyhow::Result<Handler> {
        let (module, name) = (handler.module.as_str(), handler.name.as_str());
        self.call(Request::get(&["handlers", module, name])).await
    }

    /// Registers a target; of a client to targets only.
    pub(in crate::cli) async fn put_target(
        &self,
        target: &Target,
        new: PutTarget,
    ) -> anyhow::Result<PutAnswer> {
        self.call(at(Request::put, target).for_a_while().body(&new)?).await
    }

    pub(in crate::cli) async fn delete_target(&self, target: &Target) -> anyhow::Result<()> {
        self.send(at(Request::delete, target).silent()).await.map(drop)
    }

    pub(in crate::cli) async fn stop(
        &self,
        kind: RuleKind,
        handler: &HandlerName,
        stop: StopRequest,
    ) -> anyhow::Result<Stopped> {
        self.call(rule(Request::put, kind, handler).silent().body(&stop)?).await
    }

    pub(in crate::cli) async fn lift(&self, kind: RuleKind, handler: &HandlerName) -> anyhow::Result<Lifted> {
        self.call(rule(Request::delete, kind, handler).for_a_while()).await
    }

    pub(in crate::cli) async fn purge(
        &self,
        handler: &HandlerName,
        which: &PurgeRequest,
    ) -> anyhow::Result<Purged> {
        let (module, name) = (handler.module.as_str(), handler.name.as_str());
        let request = Request::post(&["handlers", module, name, "purge"]).silent().body(which)?;
        self.call(request).await
    }

    pub(in crate::cli) async fn depth(&self, handler: Option<&HandlerName>) -> anyhow::Result<Depth> {
        let request = Request::get(&["depth"])
            .query("module", handler.map(|handler| &handler.module))
            .query("name", handler.map(|handler| &handler.name));
        self.call(request).await
    }

    pub(in crate::cli) async fn put_cron(&self, name: &Name, new: PutCron) -> anyhow::Result<Cron> {
        self.call(Request::put(&["cron", name.as_str()]).body(&new)?).await
    }

    /// A page of crons, without their values.
    pub(in crate::cli) async fn crons(&self, page: Page) -> anyhow::Result<List<Cron>> {
        self.call(Request::get(&["cron"]).page(page)).await
    }

    pub(in crate::cli) async fn cron(&self, name: &Name) -> anyhow::Result<Cron> {
        self.call(Request::get(&["cron", name.as_str()])).await
    }

    pub(in crate::cli) async fn pause_cron(&self, name: &Name, request: PauseCron) -> anyhow::Result<Cron> {
        self.call(Request::put(&["cron", name.as_str(), "pause"]).silent().body(&request)?).await
    }

    pub(in crate::cli) async fn unpause_cron(&self, name: &Name) -> anyhow::Result<Cron> {
        self.call(Request::delete(&["cron", name.as_str(), "pause"])).await
    }

    pub(in crate::cli) async fn delete_cron(&self, name: &Name) -> anyhow::Result<()> {
        self.send(Request::delete(&["cron", name.as_str()]).silent()).await.map(drop)
    }

    /// Registers a queue; with a target, of a client to targets only.
    pub(in crate::cli) async fn put_queue(
        &self,
        name: &Name,
        new: PutQueue,
    ) -> anyhow::Result<PutQueueAnswer> {
        self.call(Request::put(&["queues", name.as_str()]).everywhere().body(&new)?).await
    }

    pub(in crate::cli) async fn queues(&self) -> anyhow::Result<List<Queue>> {
        self.call(Request::get(&["queues"]).everywhere()).await
    }

    pub(in crate::cli) async fn queue(&self, name: &Name) -> anyhow::Result<Queue> {
        self.call(Request::get(&["queues", name.as_str()]).everywhere()).await
    }

    pub(in crate::cli) async fn delete_queue(
        &self,
        name: &Name,
        waiting: Waiting,
    ) -> anyhow::Result<DeletedQueue> {
        let waiting = match waiting {
            Waiting::Drain => "drain",
            Waiting::Drop => "drop",
        };
        let request = Request::delete(&["queues", name.as_str()]).everywhere().silent();
        self.call(request.query("waiting", Some(waiting))).await
    }

    pub(in crate::cli) async fn group_nodes(&self) -> anyhow::Result<GroupNodes> {
        self.call(Request::get(&["nodes"]).everywhere()).await
    }

    pub(in crate::cli) async fn groups(&self) -> anyhow::Result<List<GroupSummary>> {
        self.call(Request::get(&["groups"]).everywhere()).await
    }

    pub(in crate::cli) async fn group(&self, name: &Name) -> anyhow::Result<Group> {
        self.call(Request::get(&["groups", name.as_str()]).everywhere()).await
    }

    pub(in crate::cli) async fn reset_group(
        &self,
        name: &Name,
        request: ResetRequest,
    ) -> anyhow::Result<ResetGroup> {
        let reset = Request::post(&["groups", name.as_str(), "reset"]);
        self.call(reset.everywhere().silent().body(&request)?).await
    }

    pub(in crate::cli) async fn group_dead(
        &self,
        name: &Name,
        page: Page,
    ) -> anyhow::Result<List<GroupDead>> {
        self.call(Request::get(&["groups", name.as_str(), "dead"]).everywhere().page(page)).await
    }

    pub(in crate::cli) async fn redrive_group(
        &self,
        name: &Name,
        request: RedriveGroup,
    ) -> anyhow::Result<RedrivenGroup> {
        let redrive = Request::post(&["groups", name.as_str(), "dead", "redrive"]);
        self.call(redrive.everywhere().silent().body(&request)?).await
    }

    pub(in crate::cli) async fn recover_group(&self, name: &Name) -> anyhow::Result<()> {
        self.send(Request::post(&["groups", name.as_str(), "recover"]).everywhere().silent()).await.map(drop)
    }

    pub(in crate::cli) async fn remove_group(
        &self,
        name: &Name,
        source: Option<&EventSource>,
    ) -> anyhow::Result<RemoveGroup> {
        let source = source.map(EventSource::to_string);
        let remove = Request::delete(&["groups", name.as_str()]).everywhere().silent();
        self.call(remove.query("source", source)).await
    }

    pub(in crate::cli) async fn queue_depth(&self, name: &Name) -> anyhow::Result<QueueDepth> {
        self.call(Request::get(&["queues", name.as_str(), "depth"]).everywhere()).await
    }

    pub(in crate::cli) async fn lease(&self, queue: &Name, request: LeaseRequest) -> anyhow::Result<Leased> {
        let lease = Request::post(&["queues", queue.as_str(), "copies", "lease"]).everywhere().silent();
        self.call(lease.body(&request)?).await
    }

    pub(in crate::cli) async fn extend(
        &self,
        queue: &Name,
        id: EventId,
        request: ExtendRequest,
    ) -> anyhow::Result<Extended> {
        self.call(of_copy(queue, id, "extend").body(&request)?).await
    }

    pub(in crate::cli) async fn complete(
        &self,
        queue: &Name,
        id: EventId,
        request: CompleteRequest,
    ) -> anyhow::Result<()> {
        self.send(of_copy(queue, id, "complete").body(&request)?).await.map(drop)
    }

    pub(in crate::cli) async fn release(
        &self,
        queue: &Name,
        id: EventId,
        request: ReleaseRequest,
    ) -> anyhow::Result<Released> {
        self.call(of_copy(queue, id, "release").body(&request)?).await
    }

    pub(in crate::cli) async fn leases(&self, queue: &Name, page: Page) -> anyhow::Result<List<Lease>> {
        self.call(Request::get(&["queues", queue.as_str(), "leases"]).everywhere().page(page)).await
    }

    pub(in crate::cli) async fn end_lease(&self, queue: &Name, id: EventId) -> anyhow::Result<()> {
        let end = Request::delete(&["queues", queue.as_str(), "leases", &id.to_string()]);
        self.send(end.everywhere().silent()).await.map(drop)
    }

    pub(in crate::cli) async fn facets(&self, queue: &Name, page: Page) -> anyhow::Result<List<Facet>> {
        self.call(Request::get(&["queues", queue.as_str(), "facets"]).everywhere().page(page)).await
    }

    /// The limits and usage of the command's canvas.
    pub(in crate::cli) async fn quotas(&self) -> anyhow::Result<List<Quota>> {
        self.call(Request::get(&["quotas"])).await
    }

    pub(in crate::cli) async fn set_quota(&self, quota: wakeq::Quota, new: SetQuota) -> anyhow::Result<()> {
        let canvas = self.canvas.to_string();
        let request = Request::put(&["quotas", &canvas, quota.as_str()]).everywhere().silent();
        self.send(request.body(&new)?).await.map(drop)
    }

    pub(in crate::cli) async fn unset_quota(&self, quota: wakeq::Quota) -> anyhow::Result<UnsetQuota> {
        let canvas = self.canvas.to_string();
        self.call(Request::delete(&["quotas", &canvas, quota.as_str()]).everywhere().silent()).await
    }

    /// Sets the facet of the command's canvas in a queue.
    pub(in crate::cli) async fn set_facet(
        &self,
        queue: &Name,
        settings: SetFacet,
    ) -> anyhow::Result<FacetSet> {
        let canvas = self.canvas.to_string();
        let request = Request::put(&["queues", queue.as_str(), "facets", &canvas]).everywhere();
        self.call(request.body(&settings)?).await
    }

    /// The halted lanes of objects.
    pub(in crate::cli) async fn halted(&self) -> anyhow::Result<List<HaltedLane>> {
        self.call(Request::get(&["halted-objects"])).await
    }

    pub(in crate::cli) async fn object(&self, key: &ObjectKey) -> anyhow::Result<Object> {
        self.call(Request::get(&["objects", key.as_str()])).await
    }

    /// The missing links of an object after this one.
    pub(in crate::cli) async fn tombstones(
        &self,
        key: &ObjectKey,
        queue: Option<&Name>,
        after: i64,
    ) -> anyhow::Result<List<Tombstone>> {
        let request = Request::get(&["objects", key.as_str(), "tombstones"]);
        self.call(request.query("after", Some(after)).query("queue", queue)).await
    }

    pub(in crate::cli) async fn skip(
        &self,
        key: &ObjectKey,
        handler: &HandlerName,
    ) -> anyhow::Result<Skipped> {
        let request =
            SkipRequest { module: Some(handler.module.to_string()), name: handler.name.to_string() };
        self.call(Request::post(&["objects", key.as_str(), "skip"]).body(&request)?).await
    }

    /// The entities of a type on the command's canvas.
    pub(in crate::cli) async fn list_entities(
        &self,
        entity_type: &EntityType,
        page: Page,
    ) -> anyhow::Result<List<EntitySummary>> {
        self.call(Request::get(&["entities", entity_type.as_str()]).page(page)).await
    }

    /// An entity on the command's canvas, whatever canvas it names.
    pub(in crate::cli) async fn entity(&self, entity: &EntityId) -> anyhow::Result<Entity> {
        let (entity_type, id) = (entity.entity_type.as_str(), entity.id.as_str());
        self.call(Request::get(&["entities", entity_type, id])).await
    }

    /// Sends an event to such an entity.
    pub(in crate::cli) async fn send_to_entity(
        &self,
        entity: &EntityId,
        event: NewEntityEvent,
    ) -> anyhow::Result<SentToEntity> {
        let (entity_type, id) = (entity.entity_type.as_str(), entity.id.as_str());
        self.call(Request::post(&["entities", entity_type, id, "events"]).body(&event)?).await
    }

    /// Requests the erasure of such an entity.
    pub(in crate::cli) async fn erase_entity(
        &self,
        entity: &EntityId,
        id: Option<EventId>,
    ) -> anyhow::Result<SentToEntity> {
        let (entity_type, name) = (entity.entity_type.as_str(), entity.id.as_str());
        self.call(Request::delete(&["entities", entity_type, name]).query("id", id)).await
    }

    /// The progress of an entity's event, or of all events with a correlation id.
    pub(in crate::cli) async fn entity_status(&self, id: EventId) -> anyhow::Result<EntityProgress> {
        self.call(Request::get(&["entities", "status", &id.to_string()])).await
    }

    /// Appends to streams of the canvas's log. Not repeated if its answer is lost, since it may have
    /// been executed.
    pub(in crate::cli) async fn append(&self, append: Append) -> anyhow::Result<AppendedAll> {
        self.call(Request::post(&["log"]).body(&append)?).await
    }

    /// A page of the canvas's log, of a category, or of a stream.
    pub(in crate::cli) async fn read_log(
        &self,
        category: Option<&Category>,
        stream: Option<&StreamName>,
        after: i64,
        limit: u32,
    ) -> anyhow::Result<LogPage> {
        let request = Request::get(&["log"])
            .query("category", category)
            .query("stream", stream)
            .query("after", Some(after))
            .query("limit", Some(limit));
        self.call(request).await
    }

    pub(in crate::cli) async fn dead(
        &self,
        which: &BulkRequest,
        page: Page,
    ) -> anyhow::Result<List<DeadEvent>> {
        let request = Request::get(&["dead-events"])
            .query("module", which.module.as_ref())
            .query("name", which.name.as_ref())
            .query("since", which.since.map(|moment| moment.to_rfc3339()))
            .query("before", which.before.map(|moment| moment.to_rfc3339()))
            .page(page);
        self.call(request).await
    }

    /// Checks that the answer is about the requested event, given by its id or by its chosen id.
    fn same(&self, answered: TheEvent, asked: EventId) -> anyhow::Result<()> {
        let is_meant = [asked, EventId::chosen(self.canvas, asked)].contains(&EventId(answered.id));
        anyhow::ensure!(is_meant, "the server answered about another event, {}", answered.id);
        Ok(())
    }

    pub(in crate::cli) async fn redrive_one(&self, id: EventId) -> anyhow::Result<()> {
        let request = Request::post(&["dead-events", &id.to_string(), "redrive"]);
        let done = self.call(request).await?;
        self.same(done, id)
    }

    pub(in crate::cli) async fn redrive(&self, which: &BulkRequest) -> anyhow::Result<Redriven> {
        let redrive = Request::post(&["dead-events", "redrive"]).body(which)?;
        self.call(if which.dry_run { redrive.silent() } else { redrive }).await
    }

    pub(in crate::cli) async fn delete_dead(&self, which: &BulkRequest) -> anyhow::Result<Deleted> {
        self.call(Request::post(&["dead-events", "delete"]).silent().body(which)?).await
    }

    pub(in crate::cli) async fn audit(&self, page: Page) -> anyhow::Result<List<AuditEntry>> {
        self.call(Request::get(&["audit"]).admin().page(page)).await
    }

    pub(in crate::cli) async fn keys(&self, page: Page) -> anyhow::Result<List<Key>> {
        self.call(Request::get(&["keys"]).admin().page(page)).await
    }

    pub(in crate::cli) async fn create_key(&self, new: CreateKey) -> anyhow::Result<CreatedKey> {
        self.call(Request::post(&["keys"]).admin().silent().body(&new)?).await
    }

    /// Revokes a key by the digits of its public part.
    pub(in crate::cli) async fn revoke_key(&self, id: &str) -> anyhow::Result<()> {
        self.send(Request::delete(&["keys", id]).admin().silent()).await.map(drop)
    }
}

/// The request about a handler's target.
fn at(verb: fn(&[&str]) -> Request, target: &Target) -> Request {
    let (module, name) = (target.handler.module.as_str(), target.handler.name.as_str());
    match &target.modifier {
        Some(modifier) => verb(&["handlers", module, name, modifier.as_str()]),
        None => verb(&["handlers", module, name]),
    }
}

/// The request about a handler's rule. Blocks are below the routes for admins.
fn rule(verb: fn(&[&str]) -> Request, kind: RuleKind, handler: &HandlerName) -> Request {
    let (module, name) = (handler.module.as_str(), handler.name.as_str());
    match kind {
        RuleKind::Pause => verb(&["handlers", module, name, "pause"]),
        RuleKind::Block => verb(&["handlers", module, name, "block"]).admin(),
    }
}

/// A request about a leased copy.
fn of_copy(queue: &Name, id: EventId, verb: &str) -> Request {
    Request::post(&["queues", queue.as_str(), "copies", &id.to_string(), verb]).everywhere().silent()
}
