//! HTTP targets: registered through the API, called by workers, answered by small servers.

mod cancelling;
mod checkpoints;
mod delivery;
mod ending;
mod guarded;
mod headers;
mod history;
mod life;
mod options;
mod raced;
mod refusing;
mod scene;
mod share;
mod slowed;
