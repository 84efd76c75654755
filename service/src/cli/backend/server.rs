//! Commands run by a server: each is a single request of the HTTP API. The key determines what a
//! command may do.

use serde::Serialize;
use uuid::Uuid;

use super::client::{Client, Request};
use super::{Canvases, WhichEvents};
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
use crate::cli::failure::Failure;
use wakeq::log::{Category, EventSource, StreamName};
use wakeq::order::ObjectKey;
use wakeq::{EventId, Name};
use wakeq_streams::{EntityId, EntityType};

/// A canvas of a server.
pub(in crate::cli) struct Server {
    pub(in crate::cli) client: Client,
}

impl Server {
    /// With an idempotency key of its own, so that it can be repeated if the answer is lost.
    pub(super) async fn emit(&self, new: NewEvent) -> anyhow::Result<Emitted> {
        let request = Request::post(&["events"]).body(&new)?.repeatable(&Uuid::new_v4().to_string())?;
        self.client.call(request).await
    }

    /// Repeatable like [`Self::emit`].
    pub(super) async fn change(&self, object: &ObjectKey, change: NewChange) -> anyhow::Result<EmittedBatch> {
        let request = Request::post(&["objects", object.as_str(), "events"]).body(&change)?;
        self.client.call(request.repeatable(&Uuid::new_v4().to_string())?).await
    }

    pub(super) async fn events(&self, which: &WhichEvents, page: Page) -> anyhow::Result<List<EventSummary>> {
        let handler = which.handler.as_ref();
        let request = Request::get(&["events"])
            .query("module", handler.map(|handler| &handler.module))
            .query("name", handler.map(|handler| &handler.name))
            .query("state", which.state.map(|state| state.as_str()))
            .query("worker", which.worker.as_ref())
            .page(page);
        self.client.call(request).await
    }

    pub(super) async fn event(&self, id: EventId, value: bool) -> anyhow::Result<EventDetail> {
        let view = value.then_some("full");
        self.client.call(Request::get(&["events", &id.to_string()]).query("view", view)).await
    }

    pub(super) async fn cancel(&self, id: EventId) -> anyhow::Result<()> {
        let done: TheEvent = self.client.call(Request::post(&["events", &id.to_string(), "cancel"])).await?;
        self.same(done, id)
    }

    pub(super) async fn run_now(&self, id: EventId) -> anyhow::Result<()> {
        let done: TheEvent = self.client.call(Request::post(&["events", &id.to_string(), "run-now"])).await?;
        self.same(done, id)
    }

    pub(super) async fn handlers(&self) -> anyhow::Result<List<Handler>> {
        self.client.call(Request::get(&["handlers"])).await
    }

    pub(super) async fn handler(&self, handler: &HandlerName) -> anyhow::Result<Handler> {
        let (module, name) = (handler.module.as_str(), handler.name.as_str());
        self.client.call(Request::get(&["handlers", module, name])).await
    }

    pub(super) async fn put_target(&self, target: &Target, new: PutTarget) -> anyhow::Result<PutAnswer> {
        self.client.call(at(Request::put, target).body(&new)?).await
    }

    pub(super) async fn delete_target(&self, target: &Target) -> anyhow::Result<()> {
        self.client.send(at(Request::delete, target)).await.map(drop)
    }

    pub(super) async fn stop(
        &self,
        kind: RuleKind,
        handler: &HandlerName,
        stop: StopRequest,
    ) -> anyhow::Result<Stopped> {
        self.client.call(rule(Request::put, kind, handler).body(&stop)?).await
    }

    pub(super) async fn lift(&self, kind: RuleKind, handler: &HandlerName) -> anyhow::Result<Lifted> {
        self.client.call(rule(Request::delete, kind, handler)).await
    }

    pub(super) async fn purge(&self, handler: &HandlerName, which: &PurgeRequest) -> anyhow::Result<Purged> {
        let (module, name) = (handler.module.as_str(), handler.name.as_str());
        let request = Request::post(&["handlers", module, name, "purge"]).body(which)?;
        self.client.call(request).await
    }

    pub(super) async fn depth(&self, handler: Option<&HandlerName>) -> anyhow::Result<Depth> {
        let request = Request::get(&["depth"])
            .query("module", handler.map(|handler| &handler.module))
            .query("name", handler.map(|handler| &handler.name));
        self.client.call(request).await
    }

    pub(super) async fn put_cron(&self, name: &Name, new: PutCron) -> anyhow::Result<Cron> {
        self.client.call(Request::put(&["cron", name.as_str()]).body(&new)?).await
    }

    pub(super) async fn crons(&self, page: Page) -> anyhow::Result<List<Cron>> {
        self.client.call(Request::get(&["cron"]).page(page)).await
    }

    pub(super) async fn cron(&self, name: &Name) -> anyhow::Result<Cron> {
        self.client.call(Request::get(&["cron", name.as_str()])).await
    }

    pub(super) async fn pause_cron(&self, name: &Name, request: PauseCron) -> anyhow::Result<Cron> {
        self.client.call(Request::put(&["cron", name.as_str(), "pause"]).body(&request)?).await
    }

    pub(super) async fn unpause_cron(&self, name: &Name) -> anyhow::Result<Cron> {
        self.client.call(Request::delete(&["cron", name.as_str(), "pause"])).await
    }

    pub(super) async fn delete_cron(&self, name: &Name) -> anyhow::Result<()> {
        self.client.send(Request::delete(&["cron", name.as_str()])).await.map(drop)
    }

    pub(super) async fn put_queue(&self, name: &Name, new: PutQueue) -> anyhow::Result<PutQueueAnswer> {
        self.client.call(Request::put(&["queues", name.as_str()]).everywhere().body(&new)?).await
    }

    pub(super) async fn queues(&self) -> anyhow::Result<List<Queue>> {
        self.client.call(Request::get(&["queues"]).everywhere()).await
    }

    pub(super) async fn queue(&self, name: &Name) -> anyhow::Result<Queue> {
        self.client.call(Request::get(&["queues", name.as_str()]).everywhere()).await
    }

    pub(super) async fn delete_queue(&self, name: &Name, waiting: Waiting) -> anyhow::Result<DeletedQueue> {
        let waiting = match waiting {
            Waiting::Drain => "drain",
            Waiting::Drop => "drop",
        };
        let request = Request::delete(&["queues", name.as_str()]).everywhere();
        self.client.call(request.query("waiting", Some(waiting))).await
    }

    pub(super) async fn group_nodes(&self) -> anyhow::Result<GroupNodes> {
        self.client.call(Request::get(&["nodes"]).everywhere()).await
    }

    pub(super) async fn groups(&self) -> anyhow::Result<List<GroupSummary>> {
        self.client.call(Request::get(&["groups"]).everywhere()).await
    }

    pub(super) async fn group(&self, name: &Name) -> anyhow::Result<Group> {
        self.client.call(Request::get(&["groups", name.as_str()]).everywhere()).await
    }

    pub(super) async fn reset_group(&self, name: &Name, request: ResetRequest) -> anyhow::Result<ResetGroup> {
        let reset = Request::post(&["groups", name.as_str(), "reset"]);
        self.client.call(reset.everywhere().body(&request)?).await
    }

    pub(super) async fn group_dead(&self, name: &Name, page: Page) -> anyhow::Result<List<GroupDead>> {
        self.client.call(Request::get(&["groups", name.as_str(), "dead"]).everywhere().page(page)).await
    }

    pub(super) async fn redrive_group(
        &self,
        name: &Name,
        request: RedriveGroup,
    ) -> anyhow::Result<RedrivenGroup> {
        let redrive = Request::post(&["groups", name.as_str(), "dead", "redrive"]);
        self.client.call(redrive.everywhere().body(&request)?).await
    }

    pub(super) async fn recover_group(&self, name: &Name) -> anyhow::Result<()> {
        self.client.send(Request::post(&["groups", name.as_str(), "recover"]).everywhere()).await.map(drop)
    }

    pub(super) async fn remove_group(
        &self,
        name: &Name,
        source: Option<&EventSource>,
    ) -> anyhow::Result<RemoveGroup> {
        let source = source.map(EventSource::to_string);
        let remove = Request::delete(&["groups", name.as_str()]).everywhere();
        self.client.call(remove.query("source", source)).await
    }

    pub(super) async fn queue_depth(&self, name: &Name) -> anyhow::Result<QueueDepth> {
        self.client.call(Request::get(&["queues", name.as_str(), "depth"]).everywhere()).await
    }

    pub(super) async fn lease(&self, queue: &Name, request: LeaseRequest) -> anyhow::Result<Leased> {
        let lease = Request::post(&["queues", queue.as_str(), "copies", "lease"]).everywhere();
        self.client.call(lease.body(&request)?).await
    }

    pub(super) async fn extend(
        &self,
        queue: &Name,
        id: EventId,
        request: ExtendRequest,
    ) -> anyhow::Result<Extended> {
        self.client.call(of_copy(queue, id, "extend").body(&request)?).await
    }

    pub(super) async fn complete(
        &self,
        queue: &Name,
        id: EventId,
        request: CompleteRequest,
    ) -> anyhow::Result<()> {
        self.client.send(of_copy(queue, id, "complete").body(&request)?).await.map(drop)
    }

    pub(super) async fn release(
        &self,
        queue: &Name,
        id: EventId,
        request: ReleaseRequest,
    ) -> anyhow::Result<Released> {
        self.client.call(of_copy(queue, id, "release").body(&request)?).await
    }

    pub(super) async fn leases(&self, queue: &Name, page: Page) -> anyhow::Result<List<Lease>> {
        self.client.call(Request::get(&["queues", queue.as_str(), "leases"]).everywhere().page(page)).await
    }

    pub(super) async fn end_lease(&self, queue: &Name, id: EventId) -> anyhow::Result<()> {
        let end = Request::delete(&["queues", queue.as_str(), "leases", &id.to_string()]);
        self.client.send(end.everywhere()).await.map(drop)
    }

    pub(super) async fn facets(&self, queue: &Name, page: Page) -> anyhow::Result<List<Facet>> {
        self.client.call(Request::get(&["queues", queue.as_str(), "facets"]).everywhere().page(page)).await
    }

    pub(super) async fn quotas(&self) -> anyhow::Result<List<Quota>> {
        self.client.call(Request::get(&["quotas"])).await
    }

    pub(super) async fn set_quota(&self, quota: wakeq::control::Quota, new: SetQuota) -> anyhow::Result<()> {
        let canvas = self.client.canvas().to_string();
        let request = Request::put(&["quotas", &canvas, quota.as_str()]).everywhere();
        self.client.send(request.body(&new)?).await.map(drop)
    }

    pub(super) async fn unset_quota(&self, quota: wakeq::control::Quota) -> anyhow::Result<UnsetQuota> {
        let canvas = self.client.canvas().to_string();
        self.client.call(Request::delete(&["quotas", &canvas, quota.as_str()]).everywhere()).await
    }

    pub(super) async fn set_facet(&self, queue: &Name, settings: SetFacet) -> anyhow::Result<FacetSet> {
        let canvas = self.client.canvas().to_string();
        let request = Request::put(&["queues", queue.as_str(), "facets", &canvas]).everywhere();
        self.client.call(request.body(&settings)?).await
    }

    pub(super) async fn halted(&self) -> anyhow::Result<List<HaltedLane>> {
        self.client.call(Request::get(&["halted-objects"])).await
    }

    pub(super) async fn object(&self, key: &ObjectKey) -> anyhow::Result<Object> {
        self.client.call(Request::get(&["objects", key.as_str()])).await
    }

    pub(super) async fn tombstones(
        &self,
        key: &ObjectKey,
        queue: Option<&Name>,
        after: i64,
    ) -> anyhow::Result<List<Tombstone>> {
        let request = Request::get(&["objects", key.as_str(), "tombstones"]);
        self.client.call(request.query("after", Some(after)).query("queue", queue)).await
    }

    pub(super) async fn skip(&self, key: &ObjectKey, handler: &HandlerName) -> anyhow::Result<Skipped> {
        let request =
            SkipRequest { module: Some(handler.module.to_string()), name: handler.name.to_string() };
        self.client.call(Request::post(&["objects", key.as_str(), "skip"]).body(&request)?).await
    }

    pub(super) async fn list_entities(
        &self,
        entity_type: &EntityType,
        page: Page,
    ) -> anyhow::Result<List<EntitySummary>> {
        self.client.call(Request::get(&["entities", entity_type.as_str()]).page(page)).await
    }

    pub(super) async fn entity(&self, entity: &EntityId) -> anyhow::Result<Entity> {
        let (entity_type, id) = (entity.entity_type.as_str(), entity.id.as_str());
        self.client.call(Request::get(&["entities", entity_type, id])).await
    }

    pub(super) async fn send_to_entity(
        &self,
        entity: &EntityId,
        event: NewEntityEvent,
    ) -> anyhow::Result<SentToEntity> {
        let (entity_type, id) = (entity.entity_type.as_str(), entity.id.as_str());
        self.client.call(Request::post(&["entities", entity_type, id, "events"]).body(&event)?).await
    }

    pub(super) async fn erase_entity(
        &self,
        entity: &EntityId,
        id: Option<EventId>,
    ) -> anyhow::Result<SentToEntity> {
        let (entity_type, name) = (entity.entity_type.as_str(), entity.id.as_str());
        self.client.call(Request::delete(&["entities", entity_type, name]).query("id", id)).await
    }

    pub(super) async fn entity_status(&self, id: EventId) -> anyhow::Result<EntityProgress> {
        self.client.call(Request::get(&["entities", "status", &id.to_string()])).await
    }

    /// Not repeated if its answer is lost, since it may have been executed.
    pub(super) async fn append(&self, append: Append) -> anyhow::Result<AppendedAll> {
        self.client.call(Request::post(&["log"]).body(&append)?).await
    }

    pub(super) async fn read_log(
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
        self.client.call(request).await
    }

    pub(super) async fn dead(&self, which: &BulkRequest, page: Page) -> anyhow::Result<List<DeadEvent>> {
        let request = Request::get(&["dead-events"])
            .query("module", which.module.as_ref())
            .query("name", which.name.as_ref())
            .query("since", which.since.map(|moment| moment.to_rfc3339()))
            .query("before", which.before.map(|moment| moment.to_rfc3339()))
            .page(page);
        self.client.call(request).await
    }

    /// Checks that the answer is about the requested event, given by its id or by its chosen id.
    fn same(&self, answered: TheEvent, asked: EventId) -> anyhow::Result<()> {
        let is_meant = [asked, EventId::chosen(self.client.canvas(), asked)].contains(&EventId(answered.id));
        anyhow::ensure!(is_meant, "the server answered about another event, {}", answered.id);
        Ok(())
    }

    pub(super) async fn redrive_one(&self, id: EventId) -> anyhow::Result<()> {
        let request = Request::post(&["dead-events", &id.to_string(), "redrive"]);
        let done = self.client.call(request).await?;
        self.same(done, id)
    }

    pub(super) async fn redrive(&self, which: &BulkRequest) -> anyhow::Result<Redriven> {
        self.bulk("redrive", which).await
    }

    pub(super) async fn delete_dead(&self, which: &BulkRequest) -> anyhow::Result<Deleted> {
        self.bulk("delete", which).await
    }

    async fn bulk<T: serde::de::DeserializeOwned>(
        &self,
        verb: &str,
        which: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.client.call(Request::post(&["dead-events", verb]).body(which)?).await
    }

    pub(super) async fn audit(&self, page: Page) -> anyhow::Result<List<AuditEntry>> {
        self.client.call(Request::get(&["audit"]).admin().page(page)).await
    }

    pub(super) async fn keys(&self, canvases: Canvases, page: Page) -> anyhow::Result<List<Key>> {
        one_canvas(canvases)?;
        self.client.call(Request::get(&["keys"]).admin().page(page)).await
    }

    pub(super) async fn create_key(&self, canvases: Canvases, new: CreateKey) -> anyhow::Result<CreatedKey> {
        one_canvas(canvases)?;
        self.client.call(Request::post(&["keys"]).admin().body(&new)?).await
    }

    pub(super) async fn revoke_key(&self, id: &str) -> anyhow::Result<()> {
        self.client.send(Request::delete(&["keys", id]).admin()).await.map(drop)
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

fn one_canvas(canvases: Canvases) -> anyhow::Result<()> {
    match canvases {
        Canvases::One => Ok(()),
        Canvases::Every => {
            let words = "a server manages the keys of one canvas: `--all-canvases` works only on \
                         the database";
            Err(Failure::Usage(words.to_owned()).into())
        }
    }
}

/// A request about a leased copy.
fn of_copy(queue: &Name, id: EventId, verb: &str) -> Request {
    Request::post(&["queues", queue.as_str(), "copies", &id.to_string(), verb]).everywhere()
}
