//! Commands directly on the database. Anyone who can connect to it acts as an admin, and is named
//! in the audit log.

mod entities;
mod pulls;

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::drafts::event;
use super::{Canvases, WhichEvents};
use crate::access::{Access, AccessConfig, CredentialFilter, KeyId, NewKey, Reach, read_scopes};
use crate::api::{
    Append, AppendedAll, AuditEntry, BulkRequest, CreateKey, CreatedKey, Cron, DeadEvent, Deleted,
    DeletedQueue, Depth, Emitted, EmittedBatch, EventDetail, EventSummary, Facet, FacetSet, Group, GroupDead,
    GroupNodes, GroupSummary, HaltedLane, Handler, Key, Lifted, List, LogPage, NewChange, NewEvent, Object,
    PauseCron, PurgeRequest, Purged, PutAnswer, PutCron, PutQueue, PutQueueAnswer, PutTarget,
    Queue as QueueAnswer, QueueDepth, Quota, RedriveGroup, Redriven, RedrivenGroup, RemoveGroup, ResetGroup,
    ResetRequest, RuleKind, SetFacet, SetQuota, Skipped, StopRequest, Stopped, Tombstone, UnsetQuota,
    Waiting,
};
use crate::cli::arguments::{HandlerName, Page, Target};
use crate::cli::failure::Failure;
use crate::config::{DeliveryArgs, NotifierArgs};
use crate::delivery::Deliverer;
use wakeq::control::{Cursor, DeadFilter, EventFilter};
use wakeq::log::{Category, EventSource, Log, StreamId, StreamName};
use wakeq::notify::NoNotifier;
use wakeq::order::{Lane, ObjectKey};
use wakeq::targets::NewTarget;
use wakeq::{Actor, Admin, AdminError, CanvasId, EventId, HandlerScope, Name, Queue, QueueConfig, Store};
use wakeq_streams::Groups;
use wakeq_streams::control::GroupDeadCursor;

/// How long a command wakes the events of a lifted rule; afterwards, another process's minute's
/// pass continues.
const WAKING: Duration = Duration::from_secs(10);

/// A canvas of a database, and the actor.
pub(in crate::cli) struct Database {
    pub(in crate::cli) store: Store,
    pub(in crate::cli) canvas: CanvasId,
    pub(in crate::cli) actor: Actor,
    /// Only connected by commands that publish, so that the others work without.
    pub(in crate::cli) notifier: NotifierArgs,
}

impl Database {
    /// For commands that publish nothing.
    fn silent(&self) -> Admin {
        Admin::new(self.store.clone(), Arc::new(NoNotifier))
    }

    fn of_groups(&self) -> Groups {
        Groups::new(self.store.clone())
    }

    /// For commands that wake events.
    async fn waking(&self) -> anyhow::Result<Admin> {
        Ok(Admin::new(self.store.clone(), self.notifier.connect().await?))
    }

    /// For commands that may wake very many events: the rest is left to long-running processes.
    async fn waking_for_a_while(&self) -> anyhow::Result<Admin> {
        Ok(self.waking().await?.patience(WAKING))
    }

    fn access(&self) -> anyhow::Result<Access> {
        Ok(Access::new(self.store.clone(), AccessConfig::default())?)
    }

    pub(super) async fn emit(&self, new: NewEvent) -> anyhow::Result<Emitted> {
        let event = event(new)?.canvas(self.canvas);
        let queue = Queue::new(self.store.clone(), self.notifier.connect().await?, QueueConfig::default());
        Ok(queue.emit(event).await?.into())
    }

    pub(super) async fn change(&self, object: &ObjectKey, change: NewChange) -> anyhow::Result<EmittedBatch> {
        let NewChange { main, subevents, state } = change;
        let on_canvas = |new| Ok(event(new)?.canvas(self.canvas));
        let subevents = subevents.into_iter().map(on_canvas).collect::<anyhow::Result<Vec<_>>>()?;
        let (main, state) = (on_canvas(main)?, state.as_deref().map(RawValue::get));
        let queue = Queue::new(self.store.clone(), self.notifier.connect().await?, QueueConfig::default());
        let emitted = queue.emit_on(object.as_str(), main, subevents, state).await?;
        Ok(EmittedBatch { events: emitted.into_iter().map(Emitted::from).collect() })
    }

    pub(super) async fn events(&self, which: &WhichEvents, page: Page) -> anyhow::Result<List<EventSummary>> {
        let handler = which.handler.as_ref();
        let filter = EventFilter {
            module: handler.map(|handler| handler.module.clone()),
            name: handler.map(|handler| handler.name.clone()),
            state: which.state,
            worker: which.worker.clone(),
        };
        let cursor = cursor(&page)?;
        Ok(self.silent().events(self.canvas, &filter, cursor.as_ref(), page.limit).await?.into())
    }

    pub(super) async fn event(&self, id: EventId, value: bool) -> anyhow::Result<EventDetail> {
        let admin = self.silent();
        let known = EventDetail::of(admin.explain(self.canvas, id).await?);
        let mut detail = known.ok_or_else(|| {
            Failure::NotFound(format!(
                "there is no event {id} on canvas {}: it completed, was cancelled or purged, or never existed",
                self.canvas
            ))
        })?;
        if value {
            let value = admin.value(self.canvas, id).await?;
            detail.value = value.map(RawValue::from_string).transpose()?;
        }
        Ok(detail)
    }

    pub(super) async fn cancel(&self, id: EventId) -> anyhow::Result<()> {
        Ok(self.silent().cancel(self.canvas, id, &self.actor).await.map(drop)?)
    }

    pub(super) async fn run_now(&self, id: EventId) -> anyhow::Result<()> {
        Ok(self.waking().await?.run_now(self.canvas, id, &self.actor).await.map(drop)?)
    }

    pub(super) async fn handlers(&self) -> anyhow::Result<List<Handler>> {
        let stats = self.silent().stats(self.canvas, None).await?;
        Ok(List::whole(stats.into_iter().map(Handler::from).collect()))
    }

    pub(super) async fn handler(&self, handler: &HandlerName) -> anyhow::Result<Handler> {
        let scope = handler.scope(self.canvas);
        let mut stats = self.silent().stats(self.canvas, Some(&scope)).await?;
        Ok(stats.pop().map_or_else(|| Handler::empty(&scope), Handler::from))
    }

    /// Checks the target against this command's configuration; workers check it against theirs
    /// again.
    pub(super) async fn put_target(
        &self,
        target: &Target,
        new: PutTarget,
        delivery: &DeliveryArgs,
    ) -> anyhow::Result<PutAnswer> {
        let new = new.read()?;
        check(self.canvas, &new, delivery)?;
        let address = target.address(self.canvas);
        Ok(self.waking_for_a_while().await?.put_target(&address, &new, &self.actor).await?.into())
    }

    pub(super) async fn delete_target(&self, target: &Target) -> anyhow::Result<()> {
        Ok(self.silent().delete_target(&target.address(self.canvas), &self.actor).await?)
    }

    pub(super) async fn stop(
        &self,
        kind: RuleKind,
        handler: &HandlerName,
        stop: StopRequest,
    ) -> anyhow::Result<Stopped> {
        let (admin, scope) = (self.silent(), handler.scope(self.canvas));
        let stop = stop.at(admin.clock().await?).map_err(AdminError::Invalid)?;
        let stopped = match kind {
            RuleKind::Pause => admin.pause(&scope, &self.actor, &stop).await,
            RuleKind::Block => admin.block(&scope, &self.actor, &stop).await,
        };
        Ok(stopped?.into())
    }

    pub(super) async fn lift(&self, kind: RuleKind, handler: &HandlerName) -> anyhow::Result<Lifted> {
        let (admin, scope) = (self.waking_for_a_while().await?, handler.scope(self.canvas));
        let lifted = match kind {
            RuleKind::Pause => admin.unpause(&scope, &self.actor).await,
            RuleKind::Block => admin.unblock(&scope, &self.actor).await,
        };
        Ok(lifted?.into())
    }

    pub(super) async fn purge(&self, handler: &HandlerName, which: &PurgeRequest) -> anyhow::Result<Purged> {
        let scope = handler.scope(self.canvas);
        Ok(self.silent().purge_before(&scope, which.before, &self.actor, which.only_counted()).await?.into())
    }

    pub(super) async fn depth(&self, handler: Option<&HandlerName>) -> anyhow::Result<Depth> {
        let scope = handler.map(|handler| handler.scope(self.canvas));
        Ok(self.silent().depth(self.canvas, scope.as_ref()).await?.into())
    }

    pub(super) async fn put_cron(&self, name: &Name, new: PutCron) -> anyhow::Result<Cron> {
        let new = new.named(name.as_str())?;
        Ok(self.waking().await?.put_cron(self.canvas, &new, &self.actor).await?.cron.into())
    }

    pub(super) async fn crons(&self, page: Page) -> anyhow::Result<List<Cron>> {
        let after: Option<Name> = page.cursor.as_deref().map(str::parse).transpose()?;
        let crons = self.silent().crons(self.canvas, after.as_ref(), page.limit).await?;
        let more = crons.len() == page.limit as usize;
        let next_cursor = crons.last().filter(|_| more).map(|cron| cron.name.to_string());
        Ok(List { items: crons.into_iter().map(Cron::from).collect(), next_cursor })
    }

    pub(super) async fn cron(&self, name: &Name) -> anyhow::Result<Cron> {
        Ok(self.silent().cron(self.canvas, name).await?.into())
    }

    pub(super) async fn pause_cron(&self, name: &Name, request: PauseCron) -> anyhow::Result<Cron> {
        let reason = request.reason.as_deref();
        let cron = self.silent().pause_cron(self.canvas, name, reason, &self.actor).await?;
        Ok(Cron::from(cron).without_value())
    }

    pub(super) async fn unpause_cron(&self, name: &Name) -> anyhow::Result<Cron> {
        let cron = self.waking().await?.unpause_cron(self.canvas, name, &self.actor).await?;
        Ok(Cron::from(cron).without_value())
    }

    pub(super) async fn delete_cron(&self, name: &Name) -> anyhow::Result<()> {
        Ok(self.silent().delete_cron(self.canvas, name, &self.actor).await?)
    }

    /// Checks the target against this command's configuration, too.
    pub(super) async fn put_queue(
        &self,
        name: &Name,
        new: PutQueue,
        delivery: &DeliveryArgs,
    ) -> anyhow::Result<PutQueueAnswer> {
        let new = new.read()?;
        if let Some(target) = &new.target {
            check(CanvasId::OF_QUEUES, target, delivery)?;
        }
        Ok(self.waking().await?.put_queue(name, &new, &self.actor).await?.into())
    }

    pub(super) async fn queues(&self) -> anyhow::Result<List<QueueAnswer>> {
        let queues = self.silent().queues().await?;
        Ok(List::whole(queues.into_iter().map(QueueAnswer::from).collect()))
    }

    pub(super) async fn queue(&self, name: &Name) -> anyhow::Result<QueueAnswer> {
        let (queue, settings) = self.silent().queue(name).await?;
        Ok(QueueAnswer::with(queue, settings))
    }

    pub(super) async fn delete_queue(&self, name: &Name, waiting: Waiting) -> anyhow::Result<DeletedQueue> {
        Ok(self.silent().delete_queue(name, waiting.into(), &self.actor).await?.into())
    }

    pub(super) async fn group_nodes(&self) -> anyhow::Result<GroupNodes> {
        Ok(self.of_groups().group_nodes().await?.into())
    }

    pub(super) async fn groups(&self) -> anyhow::Result<List<GroupSummary>> {
        let groups = self.of_groups().groups().await?;
        Ok(List::whole(groups.into_iter().map(GroupSummary::from).collect()))
    }

    pub(super) async fn group(&self, name: &Name) -> anyhow::Result<Group> {
        Ok(self.of_groups().group(name).await?.into())
    }

    pub(super) async fn reset_group(&self, name: &Name, request: ResetRequest) -> anyhow::Result<ResetGroup> {
        let (source, to) = request.read().map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(self.of_groups().reset_group(name, source.as_ref(), to, &self.actor).await?.into())
    }

    pub(super) async fn group_dead(&self, name: &Name, page: Page) -> anyhow::Result<List<GroupDead>> {
        let after = page.cursor.as_deref().map(str::parse::<GroupDeadCursor>).transpose();
        let after = after.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(self.of_groups().group_dead(name, after.as_ref(), page.limit).await?.into())
    }

    pub(super) async fn redrive_group(
        &self,
        name: &Name,
        request: RedriveGroup,
    ) -> anyhow::Result<RedrivenGroup> {
        Ok(self.of_groups().redrive_group(name, request.seq, request.before, &self.actor).await?.into())
    }

    pub(super) async fn recover_group(&self, name: &Name) -> anyhow::Result<()> {
        Ok(self.of_groups().recover_group(name, &self.actor).await?)
    }

    pub(super) async fn remove_group(
        &self,
        name: &Name,
        source: Option<&EventSource>,
    ) -> anyhow::Result<RemoveGroup> {
        Ok(self.of_groups().remove_group(name, source, &self.actor).await?.into())
    }

    pub(super) async fn queue_depth(&self, name: &Name) -> anyhow::Result<QueueDepth> {
        Ok(self.silent().queue_depth(name).await?.into())
    }

    pub(super) async fn facets(&self, queue: &Name, page: Page) -> anyhow::Result<List<Facet>> {
        let after: Option<CanvasId> = page.cursor.as_deref().map(str::parse).transpose()?;
        let mut facets = self.silent().facets(queue, after, page.limit + 1).await?;
        let more = facets.len() > page.limit as usize;
        facets.truncate(page.limit as usize);
        let next_cursor = facets.last().filter(|_| more).map(|facet| facet.canvas.to_string());
        Ok(List { items: facets.into_iter().map(Facet::from).collect(), next_cursor })
    }

    pub(super) async fn quotas(&self) -> anyhow::Result<List<Quota>> {
        let quotas = self.silent().quotas(self.canvas).await?;
        Ok(List::whole(quotas.into_iter().map(Quota::from).collect()))
    }

    pub(super) async fn set_quota(&self, quota: wakeq::control::Quota, new: SetQuota) -> anyhow::Result<()> {
        Ok(self.silent().set_quota(self.canvas, quota, new.limit, &self.actor).await?)
    }

    pub(super) async fn unset_quota(&self, quota: wakeq::control::Quota) -> anyhow::Result<UnsetQuota> {
        let unset = self.silent().unset_quota(self.canvas, quota, &self.actor).await?;
        Ok(UnsetQuota { unset })
    }

    pub(super) async fn set_facet(&self, queue: &Name, settings: SetFacet) -> anyhow::Result<FacetSet> {
        let set = self.waking().await?.set_facet(queue, self.canvas, settings.into(), &self.actor).await?;
        Ok(FacetSet::of(self.canvas, set))
    }

    pub(super) async fn halted(&self) -> anyhow::Result<List<HaltedLane>> {
        let halted = self.silent().halted(self.canvas, None).await?;
        Ok(List::whole(halted.into_iter().map(HaltedLane::from).collect()))
    }

    pub(super) async fn object(&self, key: &ObjectKey) -> anyhow::Result<Object> {
        let admin = self.silent();
        let object = admin.object(self.canvas, key).await?.ok_or_else(|| {
            Failure::NotFound(format!("no event was ever emitted on {key} on canvas {}", self.canvas))
        })?;
        let running = admin.running(self.canvas, key).await?;
        Ok(Object::of(object, running, admin.halted(self.canvas, Some(key)).await?))
    }

    pub(super) async fn tombstones(
        &self,
        key: &ObjectKey,
        queue: Option<&Name>,
        after: i64,
    ) -> anyhow::Result<List<Tombstone>> {
        let gone = self.silent().tombstones(self.canvas, key, queue, after).await?;
        Ok(List::whole(gone.into_iter().map(Tombstone::from).collect()))
    }

    pub(super) async fn skip(&self, key: &ObjectKey, handler: &HandlerName) -> anyhow::Result<Skipped> {
        let lane = Lane { scope: handler.scope(self.canvas), object: key.clone(), queue: None };
        let skipped = self.waking().await?.skip(&lane, &self.actor).await?;
        Ok(Skipped { skipped })
    }

    pub(super) async fn append(&self, append: Append) -> anyhow::Result<AppendedAll> {
        let appends = append.read(self.canvas)?;
        let log = Log::new(self.store.clone(), self.notifier.connect().await?.as_ref());
        Ok(AppendedAll::of(&log.append_all(&appends).await?))
    }

    pub(super) async fn read_log(
        &self,
        category: Option<&Category>,
        stream: Option<&StreamName>,
        after: i64,
        limit: u32,
    ) -> anyhow::Result<LogPage> {
        let (canvas, category, name) = (self.canvas, category.cloned(), stream.cloned());
        let source = match (category, name) {
            (None, _) => EventSource::Log { canvas: Some(canvas) },
            (Some(category), None) => {
                EventSource::Category { canvas: Some(canvas), category, partition: None }
            }
            (Some(category), Some(name)) => EventSource::Stream(StreamId { canvas, category, name }),
        };
        let log = Log::new(self.store.clone(), &NoNotifier);
        Ok(log.read(&source, after, limit as usize).await?.into())
    }

    pub(super) async fn dead(&self, which: &BulkRequest, page: Page) -> anyhow::Result<List<DeadEvent>> {
        let (filter, cursor) = (self.filter(which)?, cursor(&page)?);
        Ok(self.silent().dead(&filter, cursor.as_ref(), page.limit).await?.into())
    }

    pub(super) async fn redrive_one(&self, id: EventId) -> anyhow::Result<()> {
        Ok(self.waking().await?.redrive_one(self.canvas, id, &self.actor).await.map(drop)?)
    }

    pub(super) async fn redrive(&self, which: &BulkRequest) -> anyhow::Result<Redriven> {
        let admin = if which.dry_run { self.silent() } else { self.waking().await? };
        Ok(admin.redrive_until_now(&self.filter(which)?, &self.actor, which.only_counted()).await?.into())
    }

    pub(super) async fn delete_dead(&self, which: &BulkRequest) -> anyhow::Result<Deleted> {
        Ok(self
            .silent()
            .delete_dead_until_now(&self.filter(which)?, &self.actor, which.only_counted())
            .await?
            .into())
    }

    fn filter(&self, which: &BulkRequest) -> anyhow::Result<DeadFilter> {
        let module = which.module.as_deref().map_or(Ok(Name::worker()), str::parse)?;
        let name = which.name.as_deref().map(str::parse).transpose()?;
        let scope = name.map(|name| HandlerScope { canvas: self.canvas, module, name });
        let BulkRequest { since, before, .. } = *which;
        Ok(DeadFilter { canvas: self.canvas, scope, id: None, since, before })
    }

    pub(super) async fn audit(&self, page: Page) -> anyhow::Result<List<AuditEntry>> {
        let cursor = cursor(&page)?;
        Ok(self.silent().audit(self.canvas, cursor.as_ref(), page.limit).await?.into())
    }

    pub(super) async fn keys(&self, canvases: Canvases, page: Page) -> anyhow::Result<List<Key>> {
        let filter = match canvases {
            Canvases::One => self.canvas.into(),
            Canvases::Every => CredentialFilter::Everything,
        };
        let after: Option<KeyId> = page.cursor.as_deref().map(str::parse).transpose()?;
        let mut keys = self.access()?.keys(filter, after, page.limit + 1).await?;
        let more = keys.len() > page.limit as usize;
        keys.truncate(page.limit as usize);
        let next_cursor = keys.last().filter(|_| more).map(|key| key.id.to_string());
        Ok(List { items: keys.into_iter().map(Key::from).collect(), next_cursor })
    }

    pub(super) async fn create_key(&self, canvases: Canvases, new: CreateKey) -> anyhow::Result<CreatedKey> {
        let (scopes, narrow) = read_scopes(&new.scopes)?;
        let reach = match canvases {
            Canvases::One => Reach::Canvas(self.canvas),
            Canvases::Every => Reach::EveryCanvas,
        };
        let lifetime = new.lifetime_s.map(Duration::from_secs);
        let new = NewKey { holder: new.holder, reach, scopes, lifetime };
        Ok(self.access()?.create_narrow_key(&new, &narrow, &self.actor).await?.into())
    }

    pub(super) async fn revoke_key(&self, id: &str) -> anyhow::Result<()> {
        let key: KeyId = id.parse()?;
        if self.access()?.revoke_key(CredentialFilter::Everything, key, &self.actor).await? {
            return Ok(());
        }
        let words =
            format!("no key {key:?}, or it was revoked before; `wakeq keys list --all-canvases` shows them");
        Err(Failure::NotFound(words).into())
    }
}

/// Checks whether this command's configuration allows a target.
fn check(canvas: CanvasId, new: &NewTarget, delivery: &DeliveryArgs) -> anyhow::Result<()> {
    let deliverer = Deliverer::new(delivery.config()?)?;
    deliverer.check(canvas, &new.url)?;
    if let Some(audience) = &new.audience {
        deliverer.check_audience(canvas, &new.url, audience)?;
    }
    Ok(())
}

fn cursor(page: &Page) -> anyhow::Result<Option<Cursor>> {
    Ok(page.cursor.as_deref().map(str::parse).transpose()?)
}
