//! Notifiers: what all of them must do, what each has of its own, and what a bad one may do.

mod every_notifier;
mod google;
mod hostile;
mod memory;
mod nats;
mod postgres;
mod strangers;
mod subscriptions;
