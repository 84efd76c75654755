//! The pages for browsers, as a browser without scripts sees them: each file is about the pages of
//! one kind of resource.

mod events;
mod signing_in;
mod visitor;
