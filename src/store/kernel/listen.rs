//! LISTEN and NOTIFY: texts from process to process through the database. Nothing is kept: a text
//! that is sent while nobody listens is gone.
//!
//! Every role that may connect can do both, on any channel: callers choose names and texts such
//! that this reveals and allows nothing.

use std::io;
use std::sync::Arc;

use sqlx::postgres::{PgListener, PgPool};

use super::config::answer_limit;
use super::{Store, StoreError};

/// Maximum bytes of a payload. The server refuses 8,000.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 7_999;

impl Store {
    /// Sends payloads on a channel, in their order, in a transaction of their own. It does not wait
    /// until the log is flushed, because it writes nothing that has to survive a crash.
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

    /// The secret from which names and keys of channels follow. It is never disclosed.
    pub(crate) async fn notice_secret(&self) -> Result<Vec<u8>, StoreError> {
        let query = sqlx::query_scalar!("select notice_secret from wakeq.deployment");
        self.notice_session().await?.one("read the secret of notices", query).await
    }

    /// Listens on a channel, with a connection of its own.
    pub(crate) async fn listen(&self, channel: &str) -> Result<Listening, StoreError> {
        self.can_listen()?;
        let after = answer_limit(self.config.statement_timeout);
        let listening = async {
            let mut listener = PgListener::connect_with(&self.pool_to_listen()).await?;
            listener.eager_reconnect(false);
            listener.listen(channel).await?;
            Ok::<_, sqlx::Error>(Listening { listener, notices: self.pool_of_notices().clone() })
        };
        match tokio::time::timeout(after, listening).await {
            Ok(listening) => listening.map_err(|error| StoreError::Unavailable(Arc::new(error))),
            Err(_) => Err(StoreError::TimedOut { statement: "listen", after, ended: false }),
        }
    }
}

/// A connection that listens.
pub(crate) struct Listening {
    listener: PgListener,
    /// Listening ends when it is closed.
    notices: PgPool,
}

impl Listening {
    /// The next payload; after an error, nothing more will come. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<String, StoreError> {
        let received = tokio::select! {
            received = self.listener.try_recv() => received,
            () = self.notices.close_event() => Err(sqlx::Error::PoolClosed),
        };
        match received {
            Ok(Some(notification)) => Ok(notification.payload().to_owned()),
            Ok(None) => Err(StoreError::Unavailable(Arc::new(
                io::Error::from(io::ErrorKind::ConnectionAborted).into(),
            ))),
            Err(error) => Err(StoreError::Unavailable(Arc::new(error))),
        }
    }
}
