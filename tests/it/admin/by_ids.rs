//! Operations on events that are named by their ids: those that are there, each once, of one
//! canvas.

use wakeq::control::{NewOperation, Operation, OperationKind, OperationState};
use wakeq::{Actor, AdminError, CanvasId, Event, EventId};

use crate::support::{OTHER, Stage, Statements, wait_while};

const CANVAS: CanvasId = CanvasId::DEFAULT;

async fn emit(stage: &Stage, canvas: CanvasId) -> EventId {
    stage.queue.emit(Event::new("greet", &1).unwrap().canvas(canvas)).await.unwrap().id
}

/// Begins it, and returns it as it is at its end.
async fn done(stage: &Stage, new: &NewOperation) -> Operation {
    let id = stage.admin.begin_operation(CANVAS, new, &Actor::user("ada")).await.unwrap().id;
    let now = async || stage.admin.operation(CANVAS, id).await.unwrap();
    wait_while!(now().await.state == OperationState::Open, "it does not end");
    now().await
}

/// Also by an id that its caller chose. What another canvas has, and what is nowhere, is left out.
#[tokio::test]
async fn named_events_are_changed_and_no_others() {
    let (stage, _) = Stage::memory().await;
    let (mine, _kept, theirs) =
        (emit(&stage, CANVAS).await, emit(&stage, CANVAS).await, emit(&stage, OTHER).await);
    let (chosen, never) = (EventId::new(), EventId::new());
    stage.queue.emit(Event::new("greet", &2).unwrap().id(chosen)).await.unwrap();
    let delete = NewOperation::of_ids(OperationKind::Delete, [mine, chosen, theirs, never, mine]);
    let preview = stage.admin.preview_operation(CANVAS, &delete, 100).await.unwrap();
    assert_eq!((preview.count, preview.more, preview.looked_at), (2, false, 4));
    let first = stage.admin.preview_operation(CANVAS, &delete, 1).await.unwrap();
    assert_eq!((first.more, first.looked_at), (true, 1));
    let ended = done(&stage, &delete).await;
    assert_eq!((ended.named, ended.looked_at, ended.matched), (Some(4), 4, 2));
    assert_eq!((ended.state, ended.changed, ended.skipped), (OperationState::Done, 2, 0));
    let left =
        "select count(*) from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000'";
    assert_eq!((stage.rows().await, stage.pool.value::<i64>(left).await), (2, 1));
    let lines = "select count(*) from wakeq.audit_log where detail like '%: delete 4 named events'
                    and action = 'begin-operation'";
    assert_eq!(stage.pool.value::<i64>(lines).await, 1);
    let theirs = stage.admin.operation(OTHER, ended.id).await;
    assert!(matches!(theirs, Err(AdminError::NoOperation(_))), "{theirs:?}");
}

#[tokio::test]
async fn up_to_a_thousand_events_are_named() {
    let (stage, _) = Stage::memory().await;
    let ids = stage.emit_many("greet", 1001).await;
    let begin = async |ids: &[EventId]| {
        let new = NewOperation::of_ids(OperationKind::Delete, ids.iter().copied());
        stage.admin.preview_operation(CANVAS, &new, 100_000).await
    };
    for refused in [&ids[..], &[]] {
        assert!(matches!(begin(refused).await, Err(AdminError::Invalid(_))), "{}", refused.len());
    }
    let all = NewOperation::of_ids(OperationKind::Delete, ids[..1000].iter().copied());
    let ended = done(&stage, &all).await;
    assert_eq!((ended.preview_count, ended.looked_at, ended.changed), (1000, 1000, 1000));
    assert_eq!(stage.rows().await, 1);
}

/// What a kind is not about is left out: those that run, or that are not dead.
#[tokio::test]
async fn events_that_an_operation_is_not_about_are_left_out() {
    let (stage, _) = Stage::memory().await;
    let (dead, runs, waits) =
        (emit(&stage, CANVAS).await, emit(&stage, CANVAS).await, emit(&stage, CANVAS).await);
    let die = "with gone as (delete from wakeq.events_v2 where id = (select min(id::text)::uuid from wakeq.events_v2)
                             returning *)
         insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                        losses, last_error, cause)
         select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 1, 'no', 'retries' from gone";
    stage.pool.run(die).await;
    stage
        .pool
        .run(
            "update wakeq.events_v2 set locked_at = now(), claims = 1
               where id = (select min(id::text)::uuid from wakeq.events_v2)",
        )
        .await;
    let of = |kind| NewOperation::of_ids(kind, [dead, runs, waits]);
    let hurried = done(&stage, &of(OperationKind::RunNow)).await;
    assert_eq!((hurried.looked_at, hurried.matched, hurried.changed), (3, 1, 1));
    let back = done(&stage, &of(OperationKind::Redrive)).await;
    assert_eq!((back.looked_at, back.matched, back.changed), (3, 1, 1));
    let cancelled = done(&stage, &of(OperationKind::Cancel)).await;
    assert_eq!((cancelled.matched, cancelled.changed), (3, 3), "the one that runs is told to stop");
    assert_eq!(stage.rows().await, 1);
}
