//! The counts of quotas: in indexes alone, and up to which number one by one.

use super::Table;
use super::cost::{buffers, plan};
use crate::event::{CanvasId, Quota};

/// Lines of the audit log are counted in an index alone, without those of strangers.
#[tokio::test]
async fn audit_lines_are_counted_in_an_index_alone() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.audit_log (canvas_id, actor, action, outcome)
             select case n % 10 when 0 then '00000000-0000-0000-0000-0000000000f0'::uuid
                                else '00000000-0000-0000-0000-000000000000' end,
                    case n % 10 when 1 then 'unauthenticated' else 'ada' end, 'pause', 'done'
               from generate_series(1, 20000) n",
        )
        .await;
    table.run("vacuum analyze wakeq.audit_log").await;
    let quotas = table.store.quotas(CanvasId::DEFAULT).await.unwrap();
    let lines = quotas.iter().find(|quota| quota.quota == Quota::AuditLines).unwrap();
    assert_eq!(lines.used, 16_000);
    let plan = plan(&table.store, "'audit-lines'", &format!("'{}', 10000000", CanvasId::DEFAULT)).await;
    assert!(plan.contains("Index Only Scan using audit_log_canvas"), "{plan}");
    assert!(buffers(&plan, "") < 500, "{plan}");
}

/// Of ids that are too many to count, a sample stands for all; what was counted until then is the
/// least.
#[tokio::test]
async fn very_many_ids_are_estimated() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.emitted_ids (canvas_id, id)
             select case n % 6 when 0 then '00000000-0000-0000-0000-0000000000f0'::uuid
                               else '00000000-0000-0000-0000-000000000000' end, gen_random_uuid()
               from generate_series(1, 144000) n",
        )
        .await;
    let ids = async |counted| {
        let ([ids, _], _) = table.store.count_remembered(CanvasId::DEFAULT, counted).await.unwrap();
        ids
    };
    assert_eq!(ids(120_000).await, 120_000);
    // About 29 of them are in a 4096th: six standard deviations.
    let estimated = ids(50_000).await;
    assert!((50_000..260_000).contains(&estimated), "{estimated} of 120,000");
    assert!(ids(119_999).await >= 119_999);
}
