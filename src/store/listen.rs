//! LISTEN and NOTIFY: texts from process to process through the database. Nothing is kept: what is
//! sent while nobody listens is gone.

use std::io;
use std::sync::Arc;

use sqlx::postgres::PgListener;

use super::{Store, StoreError};

/// Most bytes of a payload: the server refuses 8,000.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 7_999;

impl Store {
    /// Sends payloads on a channel, in their order, in a transaction of their own. It waits for no
    /// flush of the log: there is nothing in it to keep.
    pub(crate) async fn notify(&self, channel: &str, payloads: &[String]) -> Result<(), StoreError> {
        let query = sqlx::query_scalar!(
            r#"select count(set_config('synchronous_commit', 'off', true)) + count(pg_notify($1, payload)) as "sent!"
               from unnest($2::text[]) as payload"#,
            channel,
            payloads
        );
        self.notice_session().await?.one("notify", query).await?;
        Ok(())
    }

    /// Fails if no connection of this store could listen.
    #[doc(hidden)]
    pub fn can_listen(&self) -> Result<(), StoreError> {
        match self.config.transaction_pooler {
            true => Err(StoreError::Config(
                "a pooler in transaction mode does not let a process LISTEN: connect directly, or use another notifier",
            )),
            false => Ok(()),
        }
    }

    /// Listens on a channel, with a connection of its own.
    pub(crate) async fn listen(&self, channel: &str) -> Result<Listening, StoreError> {
        self.can_listen()?;
        let failed = |error| StoreError::Unavailable(Arc::new(error));
        let mut listener = PgListener::connect_with(&self.pool_to_listen()).await.map_err(failed)?;
        listener.eager_reconnect(false);
        listener.listen(channel).await.map_err(failed)?;
        Ok(Listening { listener })
    }
}

/// A connection that listens.
pub(crate) struct Listening {
    listener: PgListener,
}

impl Listening {
    /// The next payload; after an error, nothing more will come. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<String, StoreError> {
        match self.listener.try_recv().await {
            Ok(Some(notification)) => Ok(notification.payload().to_owned()),
            Ok(None) => Err(StoreError::Unavailable(Arc::new(
                io::Error::from(io::ErrorKind::ConnectionAborted).into(),
            ))),
            Err(error) => Err(StoreError::Unavailable(Arc::new(error))),
        }
    }
}
