//! Locks: a row with an owner, a term that is raised each time it is taken, and the end of its
//! lease.

use std::time::Duration;

use uuid::Uuid;

use crate::event::Term;
use crate::store::Store;
use wakeq::internals::interval;
use wakeq::{Name, StoreError};

impl Store {
    /// Takes a lock that no other owner holds, or whose lease has run out; returns its new term.
    /// Its own owner takes it again, in case the first answer was lost. A candidate that sees
    /// another holder does not touch the row, because there are many candidates.
    pub(crate) async fn take_lock(
        &self,
        name: &Name,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Option<i64>, StoreError> {
        let query = sqlx::query_scalar!(
            "insert into wakeq.locks as l (name, owner, term, expires_at)
             select $1::text, $2::uuid, 1, clock_timestamp() + $3::interval
              where not exists (select from wakeq.locks h where h.name = $1::text and h.expires_at >= clock_timestamp()
                                                              and h.owner <> $2::uuid)
                 on conflict (name) do update
                set owner = excluded.owner, term = l.term + 1, expires_at = clock_timestamp() + $3::interval
              where l.expires_at < clock_timestamp() or l.owner = excluded.owner
             returning term",
            name.as_str(),
            owner,
            interval(lease)
        );
        self.renewal_session().await?.optional("take a lock", query).await
    }

    /// Extends the lease of a lock under this term; returns whether it is still the owner's. A lock
    /// whose lease has run out is, until another owner has taken it.
    pub(crate) async fn renew_lock(&self, lead: &Term, lease: Duration) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "update wakeq.locks set expires_at = clock_timestamp() + $4::interval
              where name = $1 and owner = $2 and term = $3",
            lead.name.as_str() as _,
            lead.owner,
            lead.term,
            interval(lease)
        );
        Ok(self.renewal_session().await?.execute("renew a lock", query).await?.rows_affected() > 0)
    }

    /// Releases a lock; returns whether it was the owner's. Its term stays.
    pub(crate) async fn release_lock(&self, lead: &Term) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "update wakeq.locks set expires_at = '-infinity' where name = $1 and owner = $2 and term = $3",
            lead.name.as_str() as _,
            lead.owner,
            lead.term
        );
        Ok(self.renewal_session().await?.execute("release a lock", query).await?.rows_affected() > 0)
    }

    /// The owner and the term of a lock, if it is held now.
    #[doc(hidden)]
    pub async fn lock_holder(&self, name: &Name) -> Result<Option<(Uuid, i64)>, StoreError> {
        let query = sqlx::query!(
            "select owner, term from wakeq.locks where name = $1 and expires_at >= clock_timestamp()",
            name.as_str() as _
        );
        Ok(self.session().await?.optional("look at a lock", query).await?.map(|row| (row.owner, row.term)))
    }
}
