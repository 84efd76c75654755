//! The JSON of the API, which the server and the command line both read and write.
//!
//! Plain data and conversions; no I/O, no decisions.

mod admin;
mod crons;
mod dead_events;
mod emit;
mod entities;
mod events;
mod groups;
mod handlers;
mod list;
mod log;
mod objects;
mod pulls;
mod queues;
mod quotas;
mod rules;
mod targets;

pub(crate) use admin::{Account, AuditEntry, CreateKey, CreatedKey, Key};
pub(crate) use crons::{Cron, CronTick, InvalidCron, PauseCron, PutCron};
pub(crate) use dead_events::{BulkRequest, DeadEvent, Deleted, Redriven};
pub(crate) use emit::{CloudEvent, EmitAnswer, Emitted, EmittedBatch, NewChange, NewEvent, NewEvents};
pub(crate) use entities::{
    Entity, EntityEvent, EntityProgress, EntitySummary, NewEntityEvent, ReplyTo, SentToEntity,
};
pub(crate) use events::{EventDetail, EventState, EventSummary, TheEvent, WaitingState};
pub(crate) use groups::{
    FailingEvent, Group, GroupDead, GroupNode, GroupNodes, GroupSource, GroupSubscriber, GroupSummary,
    RedriveGroup, RedrivenGroup, RemoveGroup, ResetGroup, ResetRequest,
};
pub(crate) use handlers::{Depth, Handler, PurgeRequest, Purged};
pub(crate) use list::List;
pub(crate) use log::{
    Append, AppendTo, AppendedAll, Expect, InvalidAppend, LogEvent, LogPage, Logged, NewLogEvent, StreamName,
};
pub(crate) use objects::{HaltedLane, InHand, Link, Object, Place, SkipRequest, Skipped, Tombstone};
pub(crate) use pulls::{
    CompleteRequest, ExtendRequest, Extended, InvalidPull, Lease, LeaseRequest, Leased, LeasedCopy, Pull,
    ReleaseRequest, Released,
};
pub(crate) use queues::{
    Copied, DeletedQueue, Facet, FacetSet, InvalidQueue, PutQueue, PutQueueAnswer, Queue, QueueDepth,
    SetFacet, Waiting,
};
pub(crate) use quotas::{Quota, SetQuota, UnsetQuota};
pub(crate) use rules::{Lifted, Rule, RuleKind, StopRequest, Stopped};
pub(crate) use targets::{InvalidTarget, OnDeath, Policy, PutAnswer, PutTarget, SecretText, Target};
