//! A database as the transport: the API runs in this process, with the operator as its caller.
//! Anyone who can connect to the database acts as an admin, and is named in the audit log.

use std::sync::Arc;
use std::time::Duration;

use super::request::{Request, Wakes};
use crate::cli::failure::Failure;
use crate::config::NotifierArgs;
use crate::delivery::{Deliverer, DeliveryConfig};
use crate::server::{CallError, LocalApi};
use wakeq::notify::{NoNotifier, Notifier};
use wakeq::{Actor, CanvasId, Store};

/// How long a command wakes the events of a lifted rule; afterwards, another process's minute's
/// pass continues.
const WAKING: Duration = Duration::from_secs(10);

/// A database, and who acts on it.
pub(crate) struct Local {
    pub(crate) store: Store,
    pub(crate) actor: Actor,
    /// Only connected by requests that publish, so that the others work without.
    pub(crate) notifier: NotifierArgs,
    /// Which targets are allowed, for commands that register some. Workers check them against their
    /// own configuration again.
    pub(crate) delivery: Option<DeliveryConfig>,
}

impl Local {
    /// Runs a request about a canvas, and returns the body of its answer.
    pub(crate) async fn send(&self, request: &Request, canvas: CanvasId) -> anyhow::Result<Vec<u8>> {
        let (notifier, patience): (Arc<dyn Notifier>, _) = match request.wakes {
            Wakes::None => (Arc::new(NoNotifier), None),
            Wakes::All => (self.notifier.connect(&self.store).await?, None),
            Wakes::ForAWhile => (self.notifier.connect(&self.store).await?, Some(WAKING)),
        };
        let deliverer = self.delivery.clone().map(Deliverer::new).transpose()?;
        let api = LocalApi::new(self.store.clone(), notifier, patience, deliverer, &self.actor)?;
        let path = request.about(canvas).path_and_query(canvas.0)?;
        let answered = api.call(request.method.clone(), &path, request.body.clone()).await;
        // A command ends long before a minute has passed.
        self.store.write_statistics().await;
        answered.map_err(|error| match error {
            CallError::Error(error) => error.into(),
            CallError::Refused(status, words) => Failure::of_status(status, words).into(),
        })
    }
}
