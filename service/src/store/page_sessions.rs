//! Sessions of people in the pages. One that has ended has no row, or one that is as good as none:
//! it is too old, or was not used for too long.

use std::time::Duration;

use uuid::Uuid;

use super::{ServiceStore, StoreError, interval};
use wakeq::Timestamp;

/// A session that begins.
#[derive(Debug)]
pub(crate) struct NewSessionRow<'a> {
    pub(crate) id: Uuid,
    pub(crate) owner: &'a str,
    pub(crate) lasts: Duration,
    pub(crate) address: &'a str,
    pub(crate) browser: &'a str,
}

/// A session that has not ended, as a request needs it.
#[derive(Debug)]
pub(crate) struct SessionForUse {
    /// Whether no use was recorded within the last minute.
    pub(crate) use_to_note: bool,
}

/// A session that has not ended, as its owner sees it.
#[derive(Debug)]
pub(crate) struct SessionRow {
    pub(crate) id: Uuid,
    pub(crate) opened_at: Timestamp,
    pub(crate) seen_at: Timestamp,
    pub(crate) ends_at: Timestamp,
    pub(crate) address: String,
    pub(crate) browser: String,
}

impl ServiceStore {
    /// Adds a session, unless there is one of this id; returns whether it did. Its owner keeps
    /// `others` at most beside it, those that were used last. Some that nobody has used for `idle`
    /// are removed, whose ever they are.
    pub(crate) async fn add_page_session(
        &self,
        new: &NewSessionRow<'_>,
        others: i64,
        idle: Duration,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "with surplus as (
                 delete from wakeq.page_sessions where id = any (array(
                     select id from wakeq.page_sessions where owner = $2
                      order by seen_at desc, id offset $6 for update skip locked))
             ), unused as (
                 delete from wakeq.page_sessions where id = any (array(
                     select id from wakeq.page_sessions where seen_at < now() - $7::interval
                      order by seen_at limit 100 for update skip locked))
             )
             insert into wakeq.page_sessions (id, owner, ends_at, address, browser)
             values ($1, $2, now() + $3::interval, $4, $5)",
            new.id,
            new.owner,
            interval(new.lasts),
            new.address,
            new.browser,
            others,
            interval(idle)
        );
        match self.session().await?.execute("add a session of the pages", query).await {
            Ok(_) => Ok(true),
            Err(error) if is_there(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A session, unless it has ended. Read over a lookup connection.
    pub(crate) async fn page_session_for_use(
        &self,
        id: Uuid,
        idle: Duration,
    ) -> Result<Option<SessionForUse>, StoreError> {
        let query = sqlx::query_as!(
            SessionForUse,
            r#"select seen_at < now() - interval '1 minute' as "use_to_note!" from wakeq.page_sessions
                where id = $1 and ends_at > now() and seen_at > now() - $2::interval"#,
            id,
            interval(idle)
        );
        self.lookup_session().await?.optional("look for a session of the pages", query).await
    }

    /// Records that a session is in use, unless that was recorded within the last minute, or it has
    /// ended.
    pub(crate) async fn note_use_of_page_session(&self, id: Uuid, idle: Duration) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "update wakeq.page_sessions set seen_at = now()
              where id = $1 and ends_at > now() and seen_at < now() - interval '1 minute'
                and seen_at > now() - $2::interval",
            id,
            interval(idle)
        );
        self.session().await?.execute("record the use of a session", query).await.map(drop)
    }

    /// The sessions of an owner that have not ended, those that were used last first. At most
    /// `limit`.
    pub(crate) async fn page_sessions(
        &self,
        owner: &str,
        idle: Duration,
        limit: i64,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let query = sqlx::query_as!(
            SessionRow,
            "select id, opened_at, seen_at, ends_at, address, browser from wakeq.page_sessions
              where owner = $1 and ends_at > now() and seen_at > now() - $2::interval
              order by seen_at desc, id limit $3",
            owner,
            interval(idle),
            limit
        );
        self.session().await?.all("list sessions of the pages", query).await
    }

    /// Ends a session of an owner; returns whether there was one.
    pub(crate) async fn end_page_session(&self, owner: &str, id: Uuid) -> Result<bool, StoreError> {
        let query = sqlx::query!("delete from wakeq.page_sessions where id = $1 and owner = $2", id, owner);
        let ended = self.session().await?.execute("end a session of the pages", query).await?;
        Ok(ended.rows_affected() > 0)
    }

    /// Ends all sessions of an owner but one; returns those that were ended.
    pub(crate) async fn end_other_page_sessions(
        &self,
        owner: &str,
        kept: Uuid,
    ) -> Result<Vec<Uuid>, StoreError> {
        let query = sqlx::query_scalar!(
            "delete from wakeq.page_sessions where owner = $1 and id <> $2 returning id",
            owner,
            kept
        );
        self.session().await?.all("end sessions of the pages", query).await
    }
}

/// Whether the statement was refused because there is a session of this id.
fn is_there(error: &StoreError) -> bool {
    let StoreError::Refused { source, .. } = error else { return false };
    source.as_database_error().is_some_and(|error| error.constraint() == Some("page_sessions_pkey"))
}
