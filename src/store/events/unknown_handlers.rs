//! Handlers that events name and that some worker did not know.

use crate::store::kernel::{Sql, StoreError};

impl Sql<'_> {
    /// The notes are locked in the order in which [`Sql::defer`] writes them.
    pub(in crate::store) async fn register(
        &self,
        handlers: &[String],
        canvas_handlers: &[String],
    ) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "with locked as (
                 select canvas_id, module, name, modifier from wakeq.unknown_handlers u
                  where u.module || '/' || u.name || '/' || u.modifier = any ($1)
                     or u.canvas_id || '/' || u.module || '/' || u.name || '/' || u.modifier = any ($2)
                  order by 1, 2, 3, 4 for update
             ), known as (
                 delete from wakeq.unknown_handlers u using locked l
                  where u.canvas_id = any (array[l.canvas_id]) and (u.module, u.name, u.modifier) = (l.module, l.name, l.modifier)
              returning u.canvas_id, u.module, u.name
             )
             insert into wakeq.resume_jobs (kind, canvas_id, module, name)
             select distinct 'registered', canvas_id, module, name from known",
            handlers,
            canvas_handlers
        );
        Ok(self.session().await?.execute("register handlers", query).await?.rows_affected())
    }
}
