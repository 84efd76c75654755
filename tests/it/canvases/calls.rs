//! The same through the library. Every public call of the queue's handles is one of four: behind an
//! operation of the API, whose requests `program` makes; made here with the victim's values; of the
//! platform; or covered by another test.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

use sqlx::{Connection, PgConnection};
use wakeq::control::{DeadFilter, Quota};
use wakeq::log::{AppendCondition, Log, NewLogEvent, StreamAppend, StreamId};
use wakeq::{Actor, Event, EventId, HandlerScope, Queue, QueueConfig, Timing};
use wakeq_service::access::{CredentialFilter, Reach};
use wakeq_streams::{Entities, EntityEvent, EntityId};

use super::answers::{ComparableAnswer, Transcript};
use super::seed::{ATTACKER, VICTIM, Values};
use super::world::World;
use super::{Findings, pass, rows};
use crate::support::connect;

/// How a call is tested.
enum Coverage {
    /// By the operation of the API that it implements.
    By(&'static str),
    Here,
    /// It concerns no canvas; the reason.
    OfThePlatform(&'static str),
    /// Another test uses a second canvas.
    There(&'static str),
}
use Coverage::{By, Here, OfThePlatform, There};

const QUEUES: Coverage = OfThePlatform("queues belong to the platform");
const GROUPS: Coverage = OfThePlatform("groups read the log of every canvas");

/// Type, call, and how it is tested.
const CALLS: [(&str, &str, Coverage); 174] = [
    ("Admin", "checkpoint", By("show_checkpoint")),
    ("Admin", "store_checkpoint", By("store_checkpoint")),
    ("Admin", "handler_of", There("access::key_scopes")),
    ("Admin", "put_cron", By("put_cron")),
    ("Admin", "cron", By("show_cron")),
    ("Admin", "crons", By("list_crons")),
    ("Admin", "run_cron", By("run_cron_now")),
    ("Admin", "run_cron_once", There("http::cron_runs")),
    ("Admin", "pause_cron", By("pause_cron")),
    ("Admin", "unpause_cron", By("unpause_cron")),
    ("Admin", "delete_cron", By("delete_cron")),
    ("Admin", "redrive", Here),
    ("Admin", "redrive_until_now", By("redrive_dead_events")),
    ("Admin", "redrive_one", By("redrive_dead_event")),
    ("Admin", "delete_dead", Here),
    ("Admin", "delete_dead_until_now", By("delete_dead_events")),
    ("Admin", "error_groups", By("list_error_groups")),
    ("Admin", "error_group", By("show_error_group")),
    ("Admin", "know_error", By("know_error")),
    ("Admin", "forget_error", By("forget_error")),
    ("Admin", "preview_operation", By("preview_operation")),
    ("Admin", "begin_operation", There("admin::by_filter")),
    ("Admin", "begin_operation_once", There("http::operations")),
    ("Admin", "operation", By("show_operation")),
    ("Admin", "operations", By("list_operations")),
    ("Admin", "cancel_operation", By("cancel_operation")),
    ("Admin", "explain", By("show_event")),
    ("Admin", "value", Here),
    ("Admin", "attempts", By("show_event")),
    ("Admin", "last_attempts", By("last_attempts")),
    ("Admin", "result", By("show_event")),
    ("Admin", "ended", By("list_ended_events")),
    ("Admin", "count_ended", By("count_ended_events")),
    ("Admin", "cancel", By("cancel_event")),
    ("Admin", "cancel_running", By("cancel_event")),
    ("Admin", "run_now", By("run_event_now")),
    ("Admin", "set_due", By("set_event_due")),
    ("Admin", "set_tags", By("set_event_tags")),
    ("Admin", "purge", By("purge_handler")),
    ("Admin", "purge_before", By("purge_handler")),
    ("Groups", "group_nodes", GROUPS),
    ("Groups", "groups", GROUPS),
    ("Groups", "group", GROUPS),
    ("Groups", "reset_group", GROUPS),
    ("Groups", "recover_group", GROUPS),
    ("Groups", "group_dead", GROUPS),
    ("Groups", "redrive_group", GROUPS),
    ("Groups", "remove_group", GROUPS),
    ("Admin", "events", By("list_events")),
    ("Admin", "dead", Here),
    ("Admin", "search_dead", By("list_dead_events")),
    ("Admin", "count_events", By("count_events")),
    ("Admin", "audit", By("list_audit")),
    ("Admin", "search_audit", By("list_audit")),
    ("Admin", "clock", OfThePlatform("the time")),
    ("Admin", "is_migrated", OfThePlatform("the state of the schema")),
    ("Admin", "check_notifier", OfThePlatform("Pub/Sub")),
    ("Admin", "wake", OfThePlatform("what is overdue, of any canvas")),
    ("Admin", "wake_within", OfThePlatform("the same, in limited time")),
    ("Admin", "refused", OfThePlatform("the record of refusals, each with its canvas")),
    ("Admin", "admit_lines", There("limits::quotas::kept")),
    ("Admin", "note", OfThePlatform("records of requests, each with its canvas")),
    ("Admin", "object", By("show_object")),
    ("Admin", "handlers", By("list_handlers")),
    ("Admin", "handlers_among", There("access::key_scopes")),
    ("Admin", "halted", By("list_halted_objects")),
    ("Admin", "halted_on", Here),
    ("Admin", "running", Here),
    ("Admin", "tombstones", By("list_tombstones")),
    ("Admin", "skip", By("skip_object")),
    ("Admin", "put_queue", QUEUES),
    ("Admin", "queues", QUEUES),
    ("Admin", "queue", QUEUES),
    ("Admin", "delete_queue", QUEUES),
    ("Admin", "facets", QUEUES),
    ("Admin", "facet", QUEUES),
    ("Admin", "facet_settings", QUEUES),
    ("Admin", "queue_depth", QUEUES),
    ("Admin", "set_facet", QUEUES),
    ("Admin", "lease_copies", QUEUES),
    ("Admin", "lease_now", QUEUES),
    ("Admin", "await_copies", QUEUES),
    ("Admin", "extend_copy", QUEUES),
    ("Admin", "complete_copy", QUEUES),
    ("Admin", "release_copy", QUEUES),
    ("Admin", "leases", QUEUES),
    ("Admin", "end_lease", QUEUES),
    ("Admin", "put_pulled", By("put_pull")),
    ("Admin", "pulled_handler", By("show_pull")),
    ("Admin", "pulled_handlers", By("list_pulled_handlers")),
    ("Admin", "programs", By("list_programs")),
    ("Admin", "delete_pulled", By("delete_pull")),
    ("Admin", "lease_events", By("lease_events")),
    ("Admin", "lease_events_as", By("lease_events")),
    ("Admin", "lease_events_now", By("lease_events")),
    ("Admin", "await_events", There("pulled::waiting")),
    ("Admin", "extend_event", By("extend_event")),
    ("Admin", "complete_event", By("complete_event")),
    ("Admin", "complete_event_with", There("pulled::options")),
    ("Admin", "release_event", By("release_event")),
    ("Admin", "put_limit", By("put_limit")),
    ("Admin", "remove_limit", By("delete_limit")),
    ("Admin", "limit", By("show_limit")),
    ("Admin", "limits", By("list_limits")),
    ("Admin", "limit_uses", By("list_limit_uses")),
    ("Admin", "pause", By("pause_handler")),
    ("Admin", "unpause", By("unpause_handler")),
    ("Admin", "block", By("block_handler")),
    ("Admin", "unblock", By("unblock_handler")),
    ("Admin", "pause_canvas", By("pause_canvas")),
    ("Admin", "unpause_canvas", By("unpause_canvas")),
    ("Admin", "block_canvas", By("block_canvas")),
    ("Admin", "unblock_canvas", By("unblock_canvas")),
    ("Admin", "block_all", OfThePlatform("stops every canvas")),
    ("Admin", "unblock_all", OfThePlatform("stops every canvas")),
    ("Admin", "switches", By("list_switches")),
    ("Admin", "rules", OfThePlatform("the rules of all canvases, each with its own")),
    ("Admin", "rules_of", Here),
    ("Admin", "statistics", By("handler_statistics")),
    ("Admin", "stats", Here),
    ("Admin", "canvas_stats", By("canvas_counts")),
    ("Admin", "depth", By("depth")),
    ("Admin", "depths", OfThePlatform("counts of all canvases")),
    ("Admin", "put_target", By("put_target")),
    ("Admin", "target", By("show_target")),
    ("Admin", "targets", Here),
    ("Admin", "delete_target", By("delete_target")),
    ("Admin", "put_hook", By("put_hook")),
    ("Admin", "hook", By("show_hook")),
    ("Admin", "hooks", By("list_hooks")),
    ("Admin", "delete_hook", By("delete_hook")),
    ("Admin", "hook_to_receive", There("hooks::callers")),
    ("Admin", "batch", By("show_batch")),
    ("Admin", "batches", By("list_batches")),
    ("Admin", "cancel_batch", By("cancel_batch")),
    ("Admin", "quotas", By("list_quotas")),
    ("Admin", "quota", By("show_quota")),
    ("Admin", "set_quota", Here),
    ("Admin", "unset_quota", Here),
    ("Admin", "workers", OfThePlatform("the workers of all canvases")),
    ("Admin", "worker", OfThePlatform("what one runs, of every canvas")),
    ("Entities", "verify", There("a_forged_question_is_not_answered")),
    ("Queue", "emit", By("emit")),
    ("Queue", "emit_all", By("emit_batch")),
    ("Queue", "emit_in", Here),
    ("Log", "append", By("append_to_log")),
    ("Log", "append_all", By("append_to_log")),
    ("Log", "append_in", Here),
    ("Log", "read", By("read_log")),
    ("Log", "read_within", By("read_log")),
    ("Log", "categories", By("list_log_categories")),
    ("Log", "streams", By("list_log_streams")),
    ("Log", "end", Here),
    ("Log", "horizon", OfThePlatform("how far the whole log can be read")),
    ("Log", "appenders", OfThePlatform("which sessions hold the horizon up")),
    ("Entities", "send", By("send_to_entity")),
    ("Entities", "send_all", Here),
    ("Entities", "send_in", Here),
    ("Entities", "answer", There("the_canvas_of_an_answer_is_that_of_the_execution")),
    ("Entities", "types", By("list_entity_types")),
    ("Entities", "list", By("list_entities")),
    ("Entities", "erase", By("erase_entity")),
    ("Entities", "show", By("show_entity")),
    ("Entities", "status", By("entity_status")),
    ("Entities", "status_after", By("entity_status")),
    ("Access", "create_key", By("create_key")),
    ("Access", "create_narrow_key", By("create_key")),
    ("Access", "allow_narrow_account", There("it is `allow_account` with handlers")),
    ("Access", "key", By("show_key")),
    ("Access", "keys", Here),
    ("Access", "revoke_key", Here),
    ("Access", "allow_account", Here),
    ("Access", "remove_account", Here),
    ("Access", "accounts", Here),
];

/// Where the calls of these types are.
const SOURCES: [(&str, &str); 8] = [
    ("Admin", "src/admin"),
    ("Groups", "streams/src/groups.rs"),
    ("Queue", "src/emit.rs"),
    ("Log", "src/log/mod.rs"),
    ("Entities", "streams/src/entity/erase.rs"),
    ("Entities", "streams/src/entity/handle.rs"),
    ("Entities", "streams/src/entity/list.rs"),
    ("Access", "service/src/access/keyring.rs"),
];

/// Calls of other types in these files.
const OF_OTHERS: [&str; 1] = ["notify"];

struct Calls<'a> {
    world: &'a World,
    victim: &'a Values,
    said: Transcript,
}

/// Makes each call that is tested here, on the attacker's canvas with the victim's values.
pub(super) async fn said(world: &World, victim: &Values) -> Transcript {
    let mut calls = Calls { world, victim, said: Transcript::new() };
    calls.of_admin().await;
    calls.of_events().await;
    calls.of_access().await;
    calls.of_quotas().await;
    calls.of_sql().await;
    calls.of_limits().await;
    calls.said
}

/// Findings of the calls in a world with both tenants, compared with the answers in a world with
/// only the attacker.
pub(super) async fn findings(world: &World, victim: &Values, alone: &Transcript) -> Findings {
    let pool = &world.service.stage.pool;
    let before = rows::of(pool, VICTIM.canvas).await;
    let said = said(world, victim).await;
    let mut findings: Findings =
        said.iter().flat_map(|(label, answered)| answered.difference(label, alone.get(label))).collect();
    findings.extend(rows::differences("the calls", &before, &rows::of(pool, VICTIM.canvas).await));
    findings
}

impl Calls<'_> {
    fn note(&mut self, call: &str, about: &str, said: impl Debug) {
        let label = format!("{call} {}: {about}", self.said.len());
        self.said.insert(label, ComparableAnswer::printed(0, &numberless(&format!("{said:#?}"))));
    }

    fn ids(&self) -> Vec<(&'static str, EventId)> {
        self.victim.ids.iter().map(|(kind, id)| (*kind, id.parse().unwrap())).collect()
    }

    fn scopes(&self) -> Vec<HandlerScope> {
        let scope = |[module, name, _]: &[String; 3]| HandlerScope {
            canvas: ATTACKER.canvas,
            module: module.parse().unwrap(),
            name: name.parse().unwrap(),
        };
        self.victim.handlers.iter().map(scope).collect()
    }

    async fn of_admin(&mut self) {
        let (admin, by, canvas) = (&self.world.service.stage.admin, Actor::user("tests"), ATTACKER.canvas);
        for (kind, id) in self.ids() {
            let dead = DeadFilter { id: Some(id), canvas, ..DeadFilter::default() };
            let value = admin.value(canvas, id).await;
            let listed = admin.dead(&dead, None, 10).await;
            let redriven = admin.redrive(&dead, &by, false).await;
            let deleted = admin.delete_dead(&dead, &by, false).await;
            self.note("value", kind, value);
            self.note("dead", kind, listed);
            self.note("redrive", kind, redriven);
            self.note("delete_dead", kind, deleted);
        }
        for scope in self.scopes() {
            let about = scope.to_string();
            let (rules, stats) = (admin.rules_of(&scope).await, admin.stats(&scope).await);
            let targets = admin.targets(canvas, Some(&scope), None, 100).await;
            self.note("rules_of", &about, rules);
            self.note("stats", &about, stats);
            self.note("targets", &about, targets);
        }
        // Under the victim's names, as long as the attacker has opened none of them.
        for batch in self.victim.batches.clone() {
            let closed = self.world.service.stage.queue.batch(&batch).unwrap().canvas(canvas).close().await;
            let cancelled = admin.cancel_batch(canvas, &batch.parse().unwrap(), &by).await;
            self.note("close", &batch, closed.map_err(|error| error.to_string()));
            self.note("cancel_batch", &batch, cancelled);
        }
        for object in self.victim.objects.clone() {
            let halted = admin.halted_on(canvas, &object.parse().unwrap(), None, 1000).await;
            let running = admin.running(canvas, &object.parse().unwrap(), 1000).await;
            self.note("halted_on", &object, halted);
            self.note("running", &object, running);
        }
    }

    async fn of_quotas(&mut self) {
        let (admin, by) = (&self.world.service.stage.admin, Actor::user("tests"));
        for quota in [Quota::Keys, Quota::Events] {
            let set = admin.set_quota(ATTACKER.canvas, quota, 100, &by).await;
            let unset = admin.unset_quota(ATTACKER.canvas, quota, &by).await;
            self.note("set_quota", quota.as_str(), set);
            self.note("unset_quota", quota.as_str(), unset);
        }
    }

    /// When a quota leaves no room for anything new, the victim's names are new to the attacker.
    async fn of_limits(&mut self) {
        let (stage, by, canvas) = (&self.world.service.stage, Actor::user("tests"), ATTACKER.canvas);
        for quota in [Quota::Objects, Quota::LogStreams, Quota::Entities] {
            stage.admin.set_quota(canvas, quota, 1, &by).await.unwrap();
        }
        // In a process that has measured nothing yet.
        let store = connect(self.world.url(), Timing::default()).await;
        let queue = Queue::new(store.clone(), stage.notifier.clone(), QueueConfig::default());
        let (log, entities) = (Log::new(store, &*stage.notifier), Entities::new(queue.clone()));
        for object in self.victim.objects.clone() {
            let event = Event::new("step", &1).unwrap().canvas(canvas).on(&object).unwrap();
            let emitted = queue.emit(event).await.map(drop).map_err(|error| error.to_string());
            self.note("emit", &object, emitted);
        }
        for [category, stream] in self.victim.streams.clone() {
            let stream = StreamId::new(canvas, &category, &stream).unwrap();
            let event = NewLogEvent::new("opened", &1).unwrap();
            let appended = log.append(&stream, vec![event], AppendCondition::None).await;
            self.note("append", &category, appended.map(drop).map_err(|error| error.to_string()));
        }
        for [entity_type, entity] in self.victim.entities.clone() {
            let to = EntityId::new(canvas, &entity_type, &entity).unwrap();
            let sent = entities.send(&to, EntityEvent::new("deposit", &1).unwrap()).await;
            self.note("send", &entity, sent.map(drop).map_err(|error| error.to_string()));
        }
    }

    /// The emit function for plain SQL, with ids that the victim chose.
    async fn of_sql(&mut self) {
        let mut connection = PgConnection::connect(self.world.url()).await.unwrap();
        for (kind, id) in self.ids() {
            let emit = "select event_id::text, is_new from wakeq.emit('greet', '1', canvas => $1, id => $2, object => 'work:1')";
            let emitted = sqlx::query_as(emit).bind(ATTACKER.canvas.0).bind(id.0);
            let emitted: Result<(String, bool), sqlx::Error> = emitted.fetch_one(&mut connection).await;
            self.note("wakeq.emit", kind, emitted.map_err(|error| error.to_string()));
        }
    }

    async fn of_events(&mut self) {
        let stage = &self.world.service.stage;
        let (entities, log) =
            (Entities::new(stage.queue.clone()), Log::new(stage.store.clone(), &*stage.notifier));
        for (kind, id) in self.ids() {
            let mut transaction = stage.pool.begin().await.unwrap();
            let event = Event::new("greet", &1).unwrap().canvas(ATTACKER.canvas).id(id);
            let emitted = stage.queue.emit_in(&mut transaction, event).await;
            let emitted = emitted.map(|receipt| receipt.link()).map_err(|error| error.to_string());
            transaction.commit().await.unwrap();
            self.note("emit_in", kind, emitted);
            for [entity_type, entity] in self.victim.entities.clone() {
                let entity = EntityId::new(ATTACKER.canvas, &entity_type, &entity).unwrap();
                let event = EntityEvent::new("deposit", &1).unwrap().id(id).correlation_id(id.0);
                let mut transaction = stage.pool.begin().await.unwrap();
                let sent = entities.send_in(&mut transaction, vec![(entity.clone(), event.clone())]).await;
                let sent = sent.map(drop).map_err(|error| error.to_string());
                transaction.commit().await.unwrap();
                self.note("send_in", kind, sent);
                let sent = entities.send_all(vec![(entity, event)]).await;
                self.note("send_all", kind, sent.map_err(|error| error.to_string()));
            }
        }
        for [category, stream] in self.victim.streams.clone() {
            let stream = StreamId::new(ATTACKER.canvas, &category, &stream).unwrap();
            let end = log.end(&stream).await;
            let mut transaction = stage.pool.begin().await.unwrap();
            let event = NewLogEvent::new("opened", &1).unwrap();
            let appended = log.append_in(&mut transaction, &[StreamAppend::new(stream, vec![event])]).await;
            let appended = appended.map(|receipt| receipt.appended().to_vec());
            transaction.commit().await.unwrap();
            self.note("end", &category, end);
            self.note("append_in", &category, appended);
        }
    }

    async fn of_access(&mut self) {
        let (access, by) = (&self.world.service.access, Actor::user("tests"));
        let (filter, reach) = (CredentialFilter::from(ATTACKER.canvas), Reach::Canvas(ATTACKER.canvas));
        let email = format!("{}@project.iam.gserviceaccount.com", VICTIM.word);
        for key in &self.victim.keys.clone() {
            let id = key.parse().unwrap();
            let (listed, revoked) =
                (access.keys(filter, Some(id), 10).await, access.revoke_key(filter, id, &by).await);
            self.note("keys", "after the victim's", listed.unwrap().len());
            self.note("revoke_key", "the victim's", revoked);
        }
        let accounts = access.accounts(filter, None, 100).await.unwrap();
        let removed = access.remove_account(&email, reach, &by).await;
        let scopes = [wakeq_service::access::Scope::Read].into_iter().collect();
        let allowed = access.allow_account(&email, reach, scopes, &by).await;
        self.note("accounts", "all", accounts.into_iter().map(|account| account.email).collect::<Vec<_>>());
        self.note("remove_account", "the victim's", removed);
        self.note("allow_account", "the victim's", allowed);
    }
}

/// Without numbers from sequences that all canvases share.
fn numberless(text: &str) -> String {
    let number = regex::Regex::new(r"\b(seq|prev|last_seq|id|event_link): -?\d+").unwrap();
    number.replace_all(text, "$1: <number>").into_owned()
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn nothing_crosses_canvases_through_the_library() {
    let (alone, world, victim) = World::both().await;
    let usual = said(&alone, &victim).await;
    let findings = findings(&world, &victim, &usual).await;
    let made: BTreeSet<_> = usual.keys().filter_map(|label| label.split(' ').next()).collect();
    let operations: BTreeSet<_> = world.operations.iter().map(|operation| operation.id.as_str()).collect();
    for (of, call, tried) in CALLS {
        let is_there = match tried {
            By(operation) => operations.contains(operation),
            Here => made.contains(call),
            OfThePlatform(reason) | There(reason) => !reason.is_empty(),
        };
        assert!(is_there, "{of}::{call} is not tried as this file says");
    }
    world.service.stop().await;
    alone.service.stop().await;
    pass(&findings);
}

/// A file, or those in a folder and in the folders there.
fn files(place: &Path) -> Vec<PathBuf> {
    if !place.is_dir() {
        return vec![place.to_owned()];
    }
    fs::read_dir(place).unwrap().flat_map(|entry| files(&entry.unwrap().path())).collect()
}

#[test]
fn every_library_call_is_tried_across_canvases() {
    let root = crate::support::repository::root();
    let mut found = BTreeSet::new();
    for (of, place) in SOURCES {
        let place = root.join(place);
        for file in files(&place) {
            let text = fs::read_to_string(file).unwrap();
            let calls = text.lines().filter_map(|line| line.strip_prefix("    pub async fn "));
            let names = calls.map(|call| call.split(['(', '<']).next().unwrap().to_owned());
            found.extend(names.filter(|name| !OF_OTHERS.contains(&name.as_str())).map(|name| (of, name)));
        }
    }
    let known: BTreeSet<_> = CALLS.iter().map(|(of, call, _)| (*of, (*call).to_owned())).collect();
    let forgotten: Vec<_> = found.difference(&known).collect();
    assert!(forgotten.is_empty(), "say here how they are tried with a second canvas: {forgotten:?}");
}
