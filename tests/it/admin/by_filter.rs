//! Operations on all events that match a filter, as programs begin them: carried on by the process
//! that began one, and by the minute's pass. Another canvas has the same events and loses none.

use wakeq::control::{
    EventFilter, EventState, NewOperation, Operation, OperationId, OperationKind, OperationState,
};
use wakeq::{Actor, AdminError, CanvasId, Event};

use crate::support::{OTHER, Stage, Statements, scope, wait_while};

fn ada() -> Actor {
    Actor::user("ada")
}

/// What this does to the events of `greet`.
fn of_greet(kind: OperationKind) -> NewOperation {
    let filter = EventFilter { name: Some("greet".parse().unwrap()), ..EventFilter::default() };
    NewOperation::new(kind, filter)
}

impl Stage {
    /// Emits this many events of `greet` on both canvases.
    async fn greet_both(&self, count: usize) {
        for canvas in [CanvasId::DEFAULT, OTHER] {
            let event = |at: usize| Event::new("greet", &at).unwrap().canvas(canvas);
            self.queue.emit_all((0..count).map(event).collect()).await.unwrap();
        }
    }

    async fn operation(&self, id: OperationId) -> Operation {
        self.admin.operation(CanvasId::DEFAULT, id).await.unwrap()
    }

    async fn ended(&self, id: OperationId) -> Operation {
        wait_while!(self.operation(id).await.state == OperationState::Open, "it does not end");
        self.operation(id).await
    }

    async fn of_other(&self) -> i64 {
        self.pool
            .value("select count(*) from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000007'")
            .await
    }
}

/// What a preview counted is what the operation changes, and nobody else's events.
#[tokio::test]
async fn an_operation_is_previewed_begun_and_followed() {
    let (stage, _) = Stage::memory().await;
    stage.greet_both(1_500).await;
    let canvas = CanvasId::DEFAULT;
    stage.emit_many("other", 3).await;
    let delete = of_greet(OperationKind::Delete);
    let preview = stage.admin.preview_operation(canvas, &delete, 100_000).await.unwrap();
    assert_eq!((preview.count, preview.more, preview.looked_at), (1_500, false, 1_500));
    let first = stage.admin.preview_operation(canvas, &delete, 100).await.unwrap();
    assert_eq!((first.count, first.more, first.looked_at), (100, true, 100));
    let begun = stage.admin.begin_operation(canvas, &delete, &ada()).await.unwrap();
    assert_eq!((begun.preview_count, begun.preview_more, &*begun.author), (1_500, false, "ada"));
    let ended = stage.ended(begun.id).await;
    assert_eq!((ended.state, ended.changed, ended.skipped), (OperationState::Done, 1_500, 0));
    assert_eq!(stage.of_other().await, 1_500);
    let listed = stage.admin.operations(canvas, None, 10).await.unwrap();
    assert_eq!(listed.items, [ended]);
    assert_eq!(stage.admin.operations(OTHER, None, 10).await.unwrap().items, []);
    for refused in [
        stage.admin.operation(OTHER, begun.id).await,
        stage.admin.cancel_operation(OTHER, begun.id, &ada()).await,
    ] {
        assert!(matches!(refused, Err(AdminError::NoOperation(id)) if id == begun.id), "{refused:?}");
    }
}

/// Nobody carries on the operation of a process that has died: the next pass does, of all canvases.
#[tokio::test]
async fn a_pass_carries_on_what_nobody_does() {
    let (stage, _) = Stage::memory().await;
    stage.greet_both(1_200).await;
    stage.pool
        .run(
            "with jobs as (
                 insert into wakeq.resume_jobs (kind, canvas_id, module, name)
                 select 'operation', canvas_id, 'OPERATION', gen_random_uuid()::text
                   from (select distinct canvas_id from wakeq.events_v2) as canvases
                 returning id, canvas_id, name)
             insert into wakeq.operations (canvas_id, id, kind, filter, cut_off, author, job)
             select canvas_id, name::text::uuid, 'delete', '{\"module\": \"WORKER\", \"name\": \"greet\"}',
                    case when canvas_id = '00000000-0000-0000-0000-000000000007' then '2000-01-01Z' else now() end, 'ada', id
               from jobs",
        )
        .await;
    let pass = stage.admin.wake(false).await.unwrap();
    assert_eq!(pass.jobs, 2);
    let done: Vec<(String, i64, i64)> =
        stage.pool.table("select state, changed, looked_at from wakeq.operations order by canvas_id").await;
    assert_eq!(
        done,
        [("done".to_owned(), 1_200, 1_200), ("done".to_owned(), 0, 1_200)],
        "with its own cut-off"
    );
    assert_eq!(stage.of_other().await, 1_200);
}

/// The filter's states are those of lists. What has no such event is refused at once.
#[tokio::test]
async fn a_filter_names_states_of_its_kind() {
    let (stage, _) = Stage::memory().await;
    stage.greet_both(5).await;
    stage.emit_many("other", 5).await;
    stage.admin.pause(&scope("greet"), &ada(), &wakeq::Stop::default()).await.unwrap();
    let filter = EventFilter { states: vec![EventState::Paused], ..EventFilter::default() };
    let cancel = NewOperation::new(OperationKind::Cancel, filter.clone());
    let begun = stage.admin.begin_operation(CanvasId::DEFAULT, &cancel, &ada()).await.unwrap();
    assert_eq!(stage.ended(begun.id).await.changed, 5);
    assert_eq!(stage.pool.value::<i64>("select count(*) from wakeq.events_v2 where name = 'other'").await, 5);
    assert_eq!(stage.of_other().await, 5);
    let none = OperationKind::Retag { add: Vec::new(), remove: Vec::new() };
    for refused in [NewOperation::new(OperationKind::Redrive, filter), of_greet(none)] {
        let refused = stage.admin.begin_operation(CanvasId::DEFAULT, &refused, &ada()).await;
        assert!(matches!(refused, Err(AdminError::Invalid(_))), "{refused:?}");
    }
}

/// Events that are made due are published, those of an object in their order.
#[tokio::test]
async fn hurried_events_run() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, mut seen) = stage.recording("greet");
    let later = |number: i32| {
        let event = Event::new("greet", &number).unwrap().on("work:1").unwrap();
        event.after(std::time::Duration::from_secs(3_600)).unwrap()
    };
    let mut ids = Vec::new();
    for number in 0..3 {
        ids.push(stage.queue.emit(later(number)).await.unwrap().id);
    }
    let hurry = of_greet(OperationKind::RunNow);
    let begun = stage.admin.begin_operation(CanvasId::DEFAULT, &hurry, &ada()).await.unwrap();
    worker.until_count(3, wakeq::machine::Outcome::HandedOver).await;
    let ran: Vec<_> = seen.take(3).await.into_iter().map(|event| event.id).collect();
    assert_eq!(ran, ids);
    assert_eq!(stage.ended(begun.id).await.changed, 3);
    worker.stop().await;
}
