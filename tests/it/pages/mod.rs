//! The pages for browsers, as a browser without scripts sees them: each file is about the pages of
//! one kind of resource.

mod browser;
mod events;
mod handlers;
mod in_chromium;
mod scene;
mod signing_in;
mod switches;
mod targets;
mod visitor;
