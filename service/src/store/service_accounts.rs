//! The Google service accounts that have access: one row per account and canvas.

use uuid::Uuid;

use super::access_keys::RowsOf;
use super::{ServiceStore, StoreError};
use wakeq::{Actor, CanvasId, Timestamp};

/// The scopes that an account is granted on one canvas, or on every one.
#[derive(Clone, Debug)]
pub(crate) struct AccountRow {
    pub(crate) email: String,
    /// `None`: every canvas.
    pub(crate) canvas_id: Option<Uuid>,
    pub(crate) scopes: Vec<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) created_by: String,
}

impl ServiceStore {
    /// Gives an account access, or replaces its scopes; returns whether it had no access to this
    /// canvas before.
    pub(crate) async fn allow_account(
        &self,
        email: &str,
        canvas: Option<CanvasId>,
        scopes: &[String],
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with before as (
                   select revoked_at is null as live from wakeq.service_accounts
                    where email = $1 and canvas_id is not distinct from $2
               ), let_in as (
                   insert into wakeq.service_accounts (email, canvas_id, scopes, created_by) values ($1, $2, $3, $4)
                       on conflict on constraint service_accounts_one_per_canvas
                       do update set scopes = excluded.scopes, created_by = excluded.created_by, created_at = now(),
                                     revoked_at = null, revoked_by = null
                returning email, canvas_id, scopes, not coalesce((select live from before), false) as new
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select canvas_id, $4, 'allow-account', 'done', $5,
                          concat_ws('; ', $6::text, case when not new then 'it was let in already' end,
                                    email || ': ' || array_to_string(scopes, ' '))
                     from let_in
               )
               select new as "new!" from let_in"#,
            email,
            canvas.map(|canvas| canvas.0),
            scopes,
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        self.session().await?.one("allow a service account", query).await
    }

    /// Revokes an account's access; returns whether it had any.
    pub(crate) async fn remove_account(
        &self,
        email: &str,
        canvas: Option<CanvasId>,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with removed as (
                   update wakeq.service_accounts set revoked_at = now(), revoked_by = $3
                    where email = $1 and canvas_id is not distinct from $2 and revoked_at is null
                returning email, canvas_id
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select canvas_id, $3, 'remove-account', 'done', $4, concat_ws('; ', $5::text, email) from removed
               )
               select exists (select from removed) as "removed!""#,
            email,
            canvas.map(|canvas| canvas.0),
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        self.session().await?.one("remove a service account", query).await
    }

    /// All grants of one account, on at most `limit` canvases. Read over a lookup connection.
    pub(crate) async fn grants_of_account(
        &self,
        email: &str,
        limit: i64,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let query = sqlx::query_as!(
            AccountRow,
            "select email, canvas_id, scopes, created_at, created_by from wakeq.service_accounts
              where email = $1 and revoked_at is null order by canvas_id nulls first limit $2",
            email,
            limit
        );
        self.lookup_session().await?.all("look for a service account", query).await
    }

    /// The accounts that have access, by email and canvas, after an email with its canvas. At most
    /// `limit`.
    pub(crate) async fn accounts(
        &self,
        of: RowsOf,
        after: Option<(&str, Option<CanvasId>)>,
        limit: i64,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let (all, canvas) = of.canvas();
        let query = sqlx::query_as!(
            AccountRow,
            "select email, canvas_id, scopes, created_at, created_by from wakeq.service_accounts
              where ($1 or canvas_id is not distinct from $2) and revoked_at is null
                and ($4::text is null or email > $4
                     or email = $4 and canvas_id is not null and ($5::uuid is null or canvas_id > $5))
              order by email, canvas_id nulls first limit $3",
            all,
            canvas,
            limit,
            after.map(|(email, _)| email),
            after.and_then(|(_, canvas)| canvas).map(|canvas| canvas.0)
        );
        self.session().await?.all("list service accounts", query).await
    }
}
