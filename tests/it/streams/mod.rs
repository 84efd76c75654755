//! Consumers of the log, the groups that share its sources, and entities.

mod consuming;
pub(crate) mod entities;
pub(crate) mod groups;
