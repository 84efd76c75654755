//! The HTTP API as its callers see it, a file per kind of resource.

mod admin;
mod batches;
mod checkpoints;
mod cloudevents_sdk;
mod crons;
mod dead_events;
mod dead_groups;
mod doctor;
mod emit;
mod events;
mod every_route;
mod handlers;
mod history;
mod idempotency;
mod limits;
mod long_lists;
mod mounted;
mod objects;
mod operations;
mod options;
mod queues;
mod search;
mod statistics;
mod switches;
mod unique;
mod workers;
