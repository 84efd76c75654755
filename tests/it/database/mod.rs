//! The database: its schema and roles, what an idle queue asks it, and what happens when it or the
//! way to it fails.

mod durations;
pub(crate) mod idle;
mod late_answers;
mod lost_connections;
mod password_change;
mod pooler;
mod roles;
mod schema;
mod shared_pool;
mod text_checks;
