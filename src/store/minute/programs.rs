//! The programs that lease events of pulled handlers, by the names that they give themselves. They
//! are for people: nothing decides by them.

use std::time::Duration;

use crate::event::{CanvasId, HandlerScope, Name, Timestamp};
use crate::store::kernel::{Store, StoreError, interval};

/// How long a program that gave no sign is shown. After that, its row makes room for another.
const SHOWN: Duration = Duration::from_secs(5 * 60);
/// How long its row is kept at most.
const KEPT: Duration = Duration::from_secs(3600);
/// Maximum number of programs of a canvas that are noted.
const PROGRAMS_MAX: i64 = 1000;

/// A program that leases events of a pulled handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Program {
    /// The name that it gives itself, shown with the events that it has leased.
    pub worker: Name,
    /// The handler whose events it leases.
    pub scope: HandlerScope,
    /// Since when it has been seen, without a pause of more than five minutes.
    pub since: Timestamp,
    /// When it was last seen, to the minute.
    pub seen_at: Timestamp,
}

/// Where a list of programs continues: after this module, name and program.
pub(crate) type ProgramPosition = (Name, Name, Name);

impl Store {
    /// Notes that a program of this name leases events of a handler. Does nothing if the canvas has
    /// as many of them as are noted.
    pub(crate) async fn see_program(&self, scope: &HandlerScope, worker: &Name) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "with seen as (
                 update wakeq.programs
                    set seen_at = now(), since = case when seen_at < now() - $5::interval then now() else since end
                  where canvas_id = $1 and module = $2::text and name = $3::text and worker = $4::text
              returning 1
             ), silent as (
                 delete from wakeq.programs p using (
                     select canvas_id, module, name, worker from wakeq.programs
                      where canvas_id = $1 and seen_at < now() - $5::interval and not exists (select from seen)
                      order by module, name, worker limit $6 for update skip locked) as old
                  where p.canvas_id = any (array[old.canvas_id])
                    and (p.module, p.name, p.worker) = (old.module, old.name, old.worker)
             )
             insert into wakeq.programs (canvas_id, module, name, worker)
             select $1::uuid, $2::text, $3::text, $4::text
              where not exists (select from seen)
                and (select count(*) from (
                         select from wakeq.programs
                          where canvas_id = $1 and seen_at >= now() - $5::interval limit $6) as counted) < $6
                 on conflict on constraint programs_pkey do update set seen_at = now()",
            scope.canvas.0,
            scope.module.as_str(),
            scope.name.as_str(),
            worker.as_str(),
            interval(SHOWN),
            PROGRAMS_MAX
        );
        self.session().await?.execute("note a program", query).await.map(drop)
    }

    /// The programs of a canvas that were seen lately, by module, name and their own names.
    pub(crate) async fn programs(
        &self,
        canvas: CanvasId,
        after: Option<&ProgramPosition>,
        limit: i64,
    ) -> Result<Vec<Program>, StoreError> {
        let query = sqlx::query!(
            r#"select module::text as "module!", name::text as "name!", worker::text as "worker!", since, seen_at
                 from wakeq.programs
                where canvas_id = $1 and (module, name, worker) > ($2::text, $3::text, $4::text)
                  and seen_at >= now() - $5::interval
                order by module, name, worker limit $6"#,
            canvas.0,
            after.map_or("", |(module, ..)| module.as_str()),
            after.map_or("", |(_, name, _)| name.as_str()),
            after.map_or("", |(.., worker)| worker.as_str()),
            interval(SHOWN),
            limit
        );
        let rows = self.session().await?.all("list programs", query).await?;
        let programs = rows.into_iter().filter_map(|row| {
            Some(Program {
                worker: row.worker.parse().ok()?,
                scope: HandlerScope {
                    canvas,
                    module: row.module.parse().ok()?,
                    name: row.name.parse().ok()?,
                },
                since: row.since,
                seen_at: row.seen_at,
            })
        });
        Ok(programs.collect())
    }

    /// Deletes a page of rows of programs that have been silent for an hour; returns how many.
    pub(super) async fn expire_programs(&self) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.programs p using (
                 select canvas_id, module, name, worker from wakeq.programs where seen_at < now() - $1::interval
                  order by 1, 2, 3, 4 limit 1000 for update skip locked) as old
              where p.canvas_id = any (array[old.canvas_id])
                and (p.module, p.name, p.worker) = (old.module, old.name, old.worker)",
            interval(KEPT)
        );
        Ok(self.session().await?.execute("delete rows of silent programs", query).await?.rows_affected())
    }
}
