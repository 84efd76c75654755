//! The edge of the API: what hostile and careless callers do, and whether the OpenAPI document is
//! true.

pub(crate) mod bodies;
mod contents;
mod declared;
mod document;
mod full;
mod garbage;
mod leaks;
mod leased;
mod load;
mod matrix;
mod page;
mod process;
mod raw;
mod refusals;
pub(crate) mod requests;
mod room;
mod worst;
