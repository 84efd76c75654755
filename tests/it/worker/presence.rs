//! The rows of workers: each has one from its start to its end, which shows what it runs.

use std::time::Duration;

use wakeq::control::{Explanation, Worker, WorkerState, WorkerSummary};
use wakeq::workers::PushRunner;
use wakeq::{AdminError, CanvasId, Event, EventId, Handlers, Name, QueueWorker, Route, Timing, WorkerConfig};

use crate::support::handlers::Door;
use crate::support::{OTHER, RunningWorker, Stage, TIMEOUT, quick, until, wait_while};

fn named(name: &str) -> WorkerConfig {
    WorkerConfig { name: Some(name.parse().unwrap()), ..WorkerConfig::default() }
}

/// What is written once a minute is written five times a second.
fn often() -> Timing {
    Timing { probe_period: Duration::from_millis(200), ..quick() }
}

impl Stage {
    async fn workers(&self) -> Vec<WorkerSummary> {
        self.admin.workers(None, 100).await.unwrap().items
    }

    async fn worker_called(&self, name: &str) -> Option<Worker> {
        match self.admin.worker(&name.parse().unwrap(), None).await {
            Ok(worker) => Some(worker),
            Err(AdminError::NoWorker(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The worker once it is as described.
    async fn until_worker(&self, name: &str, is_so: impl Fn(&Worker) -> bool) -> Worker {
        until("its row does not show it", async || self.worker_called(name).await.filter(&is_so)).await
    }
}

fn ran(worker: &Worker) -> Vec<(EventId, CanvasId, &str)> {
    let mut ran: Vec<_> =
        worker.runs.iter().map(|run| (run.event, run.canvas, run.handler.as_str())).collect();
    ran.sort();
    ran
}

/// It is in the list from its start to its end, with its handlers, its release and, a moment later,
/// with the events of both tenants that it runs.
#[tokio::test]
async fn a_worker_is_shown_from_its_start_to_its_end() {
    let (stage, _) = Stage::memory_with(often()).await;
    let (handler, mut door) = Door::new();
    let handlers =
        Handlers::new().on(Route::new("greet").modifier("loud"), handler).on_queue("mail", async |_| Ok(()));
    let build: Name = "7c9e6679".parse().unwrap();
    let config = WorkerConfig { build: Some(build.clone()), capacity: 7, ..named("one") };
    let worker = stage.worker_with(handlers, config);
    let first = stage.until_worker("one", |_| true).await;
    assert_eq!(stage.workers().await.len(), 1);
    let WorkerSummary { state, capacity, running, handlers, .. } = first.summary;
    assert_eq!((state, capacity, running, handlers), (WorkerState::Working, 7, 0, 2));
    assert_eq!((first.summary.build.as_ref(), first.summary.release.as_str()), (Some(&build), "0.1.0"));
    assert_eq!(first.summary.pid.map(i32::unsigned_abs), Some(std::process::id()));
    assert_eq!(first.handlers, ["QUEUE/mail/_", "WORKER/greet/loud"]);
    assert!(!first.has_targets && first.runs.is_empty(), "{first:?}");

    let event = |canvas| Event::new("greet", &1).unwrap().modifier("loud").unwrap().canvas(canvas);
    let own = stage.queue.emit(event(CanvasId::DEFAULT)).await.unwrap().id;
    let others = stage.queue.emit(event(OTHER)).await.unwrap().id;
    let executions = door.arrived.take(2).await;
    let busy = stage.until_worker("one", |worker| worker.runs.len() == 2).await;
    let mut expected = [(own, CanvasId::DEFAULT, "WORKER/greet/loud"), (others, OTHER, "WORKER/greet/loud")];
    expected.sort();
    assert_eq!((busy.summary.running, ran(&busy)), (2, expected.to_vec()));
    assert!(busy.summary.seen_at > first.summary.seen_at && busy.summary.instance == first.summary.instance);
    let since = |run: &wakeq::control::WorkerRun| {
        executions.iter().any(|execution| execution.id == run.event && execution.claimed_at == run.since)
    };
    assert!(busy.runs.iter().all(since), "{busy:?}");

    worker.cancel();
    let stopping = stage.until_worker("one", |worker| worker.summary.state == WorkerState::Stopping).await;
    assert_eq!(stopping.summary.running, 2);
    door.open(2);
    worker.stop().await;
    assert_eq!(stage.workers().await, []);
}

/// A row that somebody deleted comes back: nothing depends on it.
#[tokio::test]
async fn a_row_that_was_deleted_comes_back() {
    let (stage, _) = Stage::memory_with(often()).await;
    let worker = stage.worker_with(Handlers::new().on("greet", async |_| Ok(())), named("one"));
    let first = stage.until_worker("one", |_| true).await;
    stage.execute("delete from wakeq.workers").await;
    let again = stage.until_worker("one", |_| true).await;
    assert_eq!((again.summary.instance, again.handlers), (first.summary.instance, first.handlers));
    worker.stop().await;
    assert_eq!(stage.workers().await, []);
}

/// A running event names its worker's host and release, and whether that was seen lately; to its
/// own tenant only. A worker that was killed is lost, and the next of its name is another one.
#[tokio::test]
async fn an_event_says_whether_its_worker_is_still_there() {
    let (stage, _) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    let handlers = Handlers::new().on("greet", handler);
    let killed = stage.worker_with(handlers.clone(), named("one"));
    let id = stage.queue.emit(Event::new("greet", &1).unwrap().canvas(OTHER)).await.unwrap().id;
    door.arrived.next().await;
    let process = async || stage.live(OTHER, id).await.worker_process;
    let seen = process().await.expect("its worker has a row");
    assert_eq!((seen.name.as_str(), seen.state), ("one", WorkerState::Working));
    assert_eq!(seen.release, "0.1.0");
    let elsewhere = stage.admin.explain(CanvasId::DEFAULT, id).await.unwrap();
    assert_eq!(elsewhere, Explanation::Unknown);

    drop(killed);
    stage.execute("update wakeq.workers set seen_at = now() - interval '4 minutes 50 seconds'").await;
    assert_eq!(process().await.unwrap().state, WorkerState::Working);
    stage.execute("update wakeq.workers set seen_at = now() - interval '5 minutes 1 second'").await;
    assert_eq!(process().await.unwrap().state, WorkerState::Lost);
    let heir = stage.worker_with(handlers, named("one"));
    wait_while!(stage.workers().await.len() < 2, "the next worker of its name has no row");
    let states: Vec<_> = stage.workers().await.iter().map(|worker| worker.state).collect();
    assert!(states.contains(&WorkerState::Lost) && states.contains(&WorkerState::Working), "{states:?}");
    assert_eq!(process().await.unwrap().state, WorkerState::Working, "the one that was seen last");
    heir.stop().await;
    assert_eq!(process().await.unwrap().state, WorkerState::Lost, "the killed one is left");
    stage.execute("delete from wakeq.workers").await;
    assert_eq!(process().await, None);
}

async fn push_runner(stage: &Stage, handlers: Handlers) -> PushRunner {
    let worker = QueueWorker::new(stage.store.clone(), stage.notifier.clone(), handlers, named("pushed"));
    worker.unwrap().into_push_runner().await.unwrap()
}

/// A process that is pushed to has a row as well. Its silence does not make it lost, since it may
/// have no processor time between two pushes.
#[tokio::test]
async fn a_push_runner_has_a_row_until_it_is_shut_down() {
    let timing = Timing { horizon: Duration::ZERO, ..often() };
    let (stage, _) = Stage::memory_with(timing).await;
    let (handler, mut door) = Door::new();
    let runner = push_runner(&stage, Handlers::new().on("greet", handler)).await;
    let id = stage.emit("greet").await;
    let body = wakeq::notify::Notification::new(id, CanvasId::DEFAULT).body();
    let (pushed, taking) = (runner.clone(), body);
    let push = tokio::spawn(async move { pushed.run(&taking).await });
    door.arrived.next().await;
    let busy = stage.until_worker("pushed", |worker| worker.summary.running == 1).await;
    assert_eq!(ran(&busy), [(id, CanvasId::DEFAULT, "WORKER/greet/_")]);
    door.open(1);
    tokio::time::timeout(TIMEOUT, push).await.expect("no answer").unwrap().unwrap();
    runner.shut_down().await;
    assert_eq!(stage.workers().await, []);

    let asleep = push_runner(&stage, Handlers::new().on("greet", async |_| Ok(()))).await;
    let silent = async || {
        stage.execute("update wakeq.workers set seen_at = now() - interval '1 hour'").await;
        let state = stage.workers().await.first().map(|worker| worker.state);
        (state == Some(WorkerState::Asleep)).then_some(())
    };
    until("it counts as lost", silent).await;
    asleep.shut_down().await;
}

/// Several processes of different names are listed page by page, each once.
#[tokio::test]
async fn workers_are_listed_page_by_page() {
    let (stage, _) = Stage::memory().await;
    let handlers = || Handlers::new().on("greet", async |_| Ok(()));
    let running: Vec<RunningWorker> =
        ["b", "a", "c", "a"].map(|name| stage.worker_with(handlers(), named(name))).into();
    wait_while!(stage.workers().await.len() < 4, "not all have a row");
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page = stage.admin.workers(cursor.as_ref(), 1).await.unwrap();
        names.extend(page.items.into_iter().map(|worker| worker.name.to_string()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(names, ["a", "a", "b", "c"]);
    let foreign = "a~1~1".parse().unwrap();
    assert!(matches!(stage.admin.workers(Some(&foreign), 1).await, Err(AdminError::Cursor)));
    crate::support::stop_all(running).await;
    assert_eq!(stage.workers().await, []);
}
