//! How fast targets without capacity get events, as the rows of workers say.

use std::collections::HashMap;

use crate::event::{CanvasId, HandlerAddress, Timestamp};
use crate::store::kernel::{Store, StoreError, address, interval};

/// Maximum number of workers whose rates are added up.
const WORKERS_MAX: i64 = 500;

/// How fast a target that had no capacity gets events, until it accepts them again.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SlowedTarget {
    /// How many events per second it gets at most from the workers that it refused, together.
    pub per_second: f64,
    /// Until when one of them sends it none; `None` if each sends it some.
    pub until: Option<Timestamp>,
}

/// No rate is NaN.
impl Eq for SlowedTarget {}

impl Store {
    /// Those of these targets of a canvas that workers slow down. What workers say is up to a
    /// minute old, and that of one which was not seen lately does not count. Nor does what a target
    /// did before it was registered again.
    pub(super) async fn slowed_targets(
        &self,
        canvas: CanvasId,
        addresses: &[&HandlerAddress],
    ) -> Result<HashMap<HandlerAddress, SlowedTarget>, StoreError> {
        if addresses.is_empty() {
            return Ok(HashMap::new());
        }
        let texts = |part: fn(&HandlerAddress) -> &str| -> Vec<String> {
            addresses.iter().map(|address| part(address).to_owned()).collect()
        };
        let query = sqlx::query!(
            r#"select s.module as "module!", s.name as "name!", s.modifier as "modifier!",
                      round(sum(s.per_second)::numeric, 2)::double precision as "per_second!",
                      max(live.seen_at + s.held_s * interval '1 second')
                          filter (where live.seen_at + s.held_s * interval '1 second' > now()) as until
                 from (select seen_at, slowed from wakeq.workers
                        where slowed is not null and seen_at >= now() - $2::interval
                        order by name, instance limit $3) as live
                cross join lateral jsonb_to_recordset(live.slowed)
                           as s (canvas uuid, module text, name text, modifier text, revision uuid,
                                 per_second double precision, held_s double precision)
                 join unnest($4::text[], $5::text[], $6::text[]) as wanted (module, name, modifier)
                   on (wanted.module, wanted.name, wanted.modifier) = (s.module, s.name, s.modifier)
                cross join lateral (
                      select from wakeq.http_targets t
                       where t.canvas_id = $1 and t.module = s.module and t.name = s.name and t.modifier = s.modifier
                         and t.revision = s.revision offset 0) as registered
                where s.canvas = $1
                group by s.module, s.name, s.modifier"#,
            canvas.0,
            interval(self.lost_after()),
            WORKERS_MAX,
            &texts(|address| address.scope.module.as_str()),
            &texts(|address| address.scope.name.as_str()),
            &texts(|address| address.modifier.as_str())
        );
        let rows = self.session().await?.all("look for slowed targets", query).await?;
        let slowed = rows.into_iter().filter_map(|row| {
            let address = address(canvas.0, &row.module, &row.name, &row.modifier).ok()?;
            Some((address, SlowedTarget { per_second: row.per_second, until: row.until }))
        });
        Ok(slowed.collect())
    }
}
