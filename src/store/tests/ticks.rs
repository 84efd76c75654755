//! Ticks of crons: canvases take turns, whatever one of them has due.

use std::collections::BTreeMap;

use chrono::TimeDelta;

use super::Table;
use crate::event::CanvasId;
use crate::store::{CronDue, CronStep};

const GREEDY: CanvasId = CanvasId(uuid::Uuid::from_u128(1));
const VICTIM: CanvasId = CanvasId(uuid::Uuid::from_u128(2));

/// A canvas with a thousand due crons, each with more ticks than there is room for, holds up no
/// tick of another canvas, although that is due after all of its own.
#[tokio::test]
async fn a_canvas_with_many_ticks_delays_no_other() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, created_by, created_at,
                                             changed_at, next_at)
             select case when n > 3 then '00000000-0000-0000-0000-000000000001'::uuid
                         else '00000000-0000-0000-0000-000000000002' end,
                    'c' || n, '* * * * * *', 'UTC', '_', '1', 'all', 'test', now(), now(),
                    now() - case when n > 3 then interval '1 hour' else interval '0' end
               from generate_series(1, 1003) n",
        )
        .await;
    let mut emitted = BTreeMap::new();
    for _ in 0..3 {
        // As many as there is room for; then the schedule continues.
        let step = |due: &CronDue, _, room: usize| {
            let tick = |seconds: usize| due.next_at + TimeDelta::seconds(seconds as i64);
            CronStep::Emit((0..room).map(tick).collect(), Some(tick(room)))
        };
        let ticked = table.store.tick(None, &[], step).await.unwrap();
        assert!(ticked.more);
        for event in &ticked.events {
            *emitted.entry(event.address.scope.canvas).or_insert(0) += 1;
        }
    }
    assert_eq!(emitted, BTreeMap::from([(GREEDY, 750), (VICTIM, 750)]), "a quarter of each transaction");
}
