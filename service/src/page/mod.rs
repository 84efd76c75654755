//! What the pages in a browser are built on: signing in, the frame around each page, the parts that
//! pages are made of, and requests to the API in the name of the person who is signed in.
//!
//! A page is a client of the API that happens to run in the same process: whatever it shows or does
//! is a request to a route, with that route's scopes, limits and records. Must know no resource,
//! and nothing that is behind the API.

mod admission;
mod alone;
pub(crate) mod ask;
mod browsers;
pub(crate) mod chart;
mod cookies;
mod document;
mod earlier;
mod files;
pub(crate) mod form;
mod frame;
mod gate;
pub(crate) mod given;
mod layout;
mod memo;
mod oidc;
mod pace;
mod partial;
pub(crate) mod parts;
mod pulse;
mod question;
mod renewals;
mod room;
mod sections;
mod sent;
mod serve;
mod sessions;
mod sign_in;
mod state;
pub(crate) mod time;
mod trace;
pub(crate) mod view;
pub(crate) mod visit;
mod watch;

pub(crate) use sections::{Group, Held, Link};
pub(crate) use state::Page;
pub use trace::{InvalidTraceUrl, TraceUrl};
