//! The values of claimed events that the answer to the claim leaves out.
//!
//! A claim holds locks until its answer has been sent: on the gate of claims, on its rows, on the
//! queue of its turns. A process that stops reading would keep them for as long as the answer does
//! not fit into the connection's buffers. So the answer carries only values of up to 4,096 bytes, 1
//! MiB in the largest batch; longer ones are read afterwards, by a statement that takes no locks.

use std::collections::{HashMap, HashSet};

use super::claims::fences;
use super::load::ClaimedEvent;
use crate::event::{Claim, EventId};
use crate::store::kernel::{Sql, Store, StoreError};

impl Store {
    /// Fills in the values that the claim's answer left out, and removes events that have lost
    /// their claim since. If the values can't be read, these events are released and removed, and
    /// the error is returned; the other claims stand.
    pub(in crate::store) async fn add_long_values(
        &self,
        events: &mut Vec<ClaimedEvent>,
        left: &[Claim],
    ) -> Result<(), StoreError> {
        if left.is_empty() {
            return Ok(());
        }
        let (mut values, result) = match self.long_values(left).await {
            Ok(values) => (values, Ok(())),
            Err(error) => (HashMap::new(), Sql(self).release(left).await.and(Err(error))),
        };
        let left: HashSet<&Claim> = left.iter().collect();
        events.retain_mut(|event| {
            if !left.contains(&event.claim) {
                return true;
            }
            let value = values.remove(&event.claim.id);
            value.map(|value| event.value = value).is_some()
        });
        result
    }

    async fn long_values(&self, claims: &[Claim]) -> Result<HashMap<EventId, String>, StoreError> {
        let (ids, fences) = fences(claims);
        let query = sqlx::query!(
            r#"select id, value::text as "value!" from wakeq.events_v2
                where id = any ($1) and claims::bigint << 32 | nonce = ($2::bigint[])[width_bucket(id, $1::uuid[])] and locked_at is not null"#,
            &ids,
            &fences
        );
        let rows = self.session().await?.all("read the values of claimed events", query).await?;
        Ok(rows.into_iter().map(|row| (EventId(row.id), row.value)).collect())
    }
}
