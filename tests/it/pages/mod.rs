//! The pages for browsers, as a browser without scripts sees them: each file is about the pages of
//! one kind of resource.

mod batches;
mod browser;
mod crons;
mod dead_events;
mod ended_events;
mod entities;
mod events;
mod groups;
mod handlers;
mod hooks;
mod in_chromium;
mod keys;
mod limits;
mod log;
mod mounted;
mod new_event;
mod objects;
mod oidc;
mod operations;
mod overview;
mod proxy;
mod pulled;
mod queues;
mod quotas;
mod record;
mod safety;
mod scene;
mod sessions;
mod signing_in;
mod switches;
mod targets;
mod values;
mod visitor;
mod workers;
