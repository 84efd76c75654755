//! The scaling of workers that `deploy/` ships: the autoscaler's formula in virtual time, with the
//! served API and workers that run, start and stop.

mod formula;

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use formula::{Scaler, Settings};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use wakeq::{CanvasId, Event, EventId, Execution, Handlers, WorkerConfig};
use wakeq_service::access::Scope;

use crate::support::crash_scene::{figure, is_full, size};
use crate::support::service::{Answer, Service};
use crate::support::{RunningWorker, Stage, TIMEOUT, wait_while};

const OTHER: CanvasId = CanvasId(uuid::Uuid::from_u128(7));

fn deployed(file: &str) -> String {
    fs::read_to_string(crate::support::repository::root().join("deploy/kubernetes").join(file)).unwrap()
}

fn settings() -> Settings {
    Settings::of(&deployed("components/depth-autoscaling/scaler.yaml"))
}

/// Counts the executions of all workers.
#[derive(Default)]
struct Executions {
    inside: watch::Sender<usize>,
    completed: Mutex<Vec<EventId>>,
    /// Executions that were cut off.
    cut_off: AtomicUsize,
}

/// A worker, and the door at which its executions wait.
struct Worker {
    running: RunningWorker,
    door: Arc<Semaphore>,
    inside: Arc<AtomicUsize>,
}

struct Visit {
    executions: Arc<Executions>,
    inside: Arc<AtomicUsize>,
    let_out: bool,
}

impl Visit {
    fn begin(executions: &Arc<Executions>, inside: &Arc<AtomicUsize>) -> Self {
        inside.fetch_add(1, Ordering::SeqCst);
        executions.inside.send_modify(|all| *all += 1);
        Self { executions: Arc::clone(executions), inside: Arc::clone(inside), let_out: false }
    }

    fn complete(&mut self, id: EventId) {
        self.let_out = true;
        self.executions.completed.lock().unwrap().push(id);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.executions.cut_off.fetch_add(usize::from(!self.let_out), Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.executions.inside.send_modify(|all| *all -= 1);
    }
}

impl Worker {
    fn start(stage: &Stage, executions: &Arc<Executions>, capacity: usize, shutdown_grace: Duration) -> Self {
        let (door, inside) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (executions, closed, counted) = (Arc::clone(executions), Arc::clone(&door), Arc::clone(&inside));
        let handlers = Handlers::new().on("greet", move |event: Execution| {
            let (mut visit, closed) = (Visit::begin(&executions, &counted), Arc::clone(&closed));
            async move {
                closed.acquire().await?.forget();
                visit.complete(event.id);
                Ok(())
            }
        });
        // No prefetch: the handlers of this test are quick, those that they stand for are not.
        let config = WorkerConfig { capacity, prefetch: Some(0), shutdown_grace, ..WorkerConfig::default() };
        Self { running: stage.worker_with(handlers, config), door, inside }
    }

    fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }

    /// Ends all executions that are inside now.
    fn let_out(&self) {
        self.door.add_permits(self.inside());
    }

    /// As SIGTERM does. Within the grace, executions inside end; without one they are cut off.
    async fn stop(self, within_grace: bool) {
        self.running.cancel();
        if within_grace {
            self.let_out();
        }
        self.running.stop().await;
    }
}

/// The scaled deployment, in virtual time: a handler takes as long as the scaler waits between two
/// looks.
struct Deployment {
    service: Service,
    key: String,
    scaler: Scaler,
    executions: Arc<Executions>,
    capacity: usize,
    workers: Vec<Worker>,
    started: usize,
    emitted: usize,
    now: Duration,
    /// The number of workers after each look.
    history: Vec<usize>,
}

impl Deployment {
    async fn start(settings: Settings, capacity: usize) -> Self {
        let service = Service::start().await;
        let key = service.key("keda", CanvasId::DEFAULT, &[Scope::Read]).await;
        let mut deployment = Self {
            service,
            key,
            scaler: Scaler::new(settings),
            executions: Arc::default(),
            capacity,
            workers: Vec::new(),
            started: 0,
            emitted: 0,
            now: Duration::ZERO,
            history: Vec::new(),
        };
        deployment.scale(deployment.scaler.settings().min).await;
        deployment
    }

    async fn emit(&mut self, count: usize) {
        for batch in (0..count).collect::<Vec<_>>().chunks(1_000) {
            self.service.stage.emit_many("greet", batch.len()).await;
        }
        self.emitted += count;
    }

    fn completed(&self) -> usize {
        self.executions.completed.lock().unwrap().len()
    }

    /// Events that are left, running or not.
    fn left(&self) -> usize {
        self.emitted - self.completed()
    }

    /// Returns once as many events run as there are, up to the workers' capacity; if there are
    /// enough, every worker is at capacity.
    async fn settled(&self) {
        let all = self.workers.len() * self.capacity;
        let expected = self.left().min(all);
        let mut inside = self.executions.inside.subscribe();
        let settled = tokio::time::timeout(TIMEOUT, inside.wait_for(|inside| *inside == expected)).await;
        settled.unwrap_or_else(|_| panic!("{} of {expected} run", *self.executions.inside.borrow())).unwrap();
        if expected == all {
            assert!(self.workers.iter().all(|worker| worker.inside() == self.capacity));
        }
    }

    /// The value that KEDA's trigger reads.
    async fn depth(&self) -> u64 {
        let Settings { url, value_location, .. } = self.scaler.settings();
        let path = &url[url.find("/v1/").unwrap()..];
        let request = self.service.request(Method::GET, path).bearer_auth(&self.key);
        Answer::of(request).await.json()[value_location].as_u64().expect("a number stands there")
    }

    /// One look of the scaler, which starts or stops workers. If `busily`, those that stop are at
    /// capacity; every second one of them has no grace.
    async fn look(&mut self, busily: bool) {
        self.settled().await;
        let depth = self.depth().await;
        let expected = self.left() - *self.executions.inside.borrow();
        assert_eq!(depth, expected as u64, "what waits, and nothing that runs or is another canvas's");
        let wanted = self.scaler.step(self.now, &[Some(depth)], self.workers.len());
        if busily && wanted < self.workers.len() {
            let full = (self.workers.len() + 1) * self.capacity;
            self.emit(full.saturating_sub(self.left())).await;
            self.settled().await;
        }
        self.scale(wanted).await;
        self.history.push(wanted);
        self.settled().await;
        self.let_out().await;
        self.now += self.scaler.settings().polling;
    }

    /// Ends everything that runs now.
    async fn let_out(&self) {
        let completed = self.completed() + *self.executions.inside.borrow();
        self.workers.iter().for_each(Worker::let_out);
        let mut inside = self.executions.inside.subscribe();
        let ended = inside.wait_for(|_| self.completed() == completed);
        tokio::time::timeout(TIMEOUT, ended).await.expect("not all of them ended").unwrap();
    }

    async fn scale(&mut self, wanted: usize) {
        while self.workers.len() < wanted {
            // Every second one is stopped without a grace, like one whose handlers take longer than
            // that.
            let grace = Duration::from_secs(28) * u32::from(self.started.is_multiple_of(2));
            self.workers.push(Worker::start(&self.service.stage, &self.executions, self.capacity, grace));
            self.started += 1;
        }
        while self.workers.len() > wanted {
            self.workers.pop().unwrap().stop(self.workers.len().is_multiple_of(2)).await;
        }
    }
}

/// EV2-06: with the numbers that `deploy/` ships, a backlog raises the number of workers, all of
/// which are at capacity, and it falls again, once; those that stop lose no event and run none
/// twice, and another canvas's events do not count.
// Shows: EV2-19, CARD-08
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn workers_follow_the_depth_up_once_and_down_once() {
    let (backlog, capacity) = (size(300, 5_000), size(4, 64));
    let settings = settings();
    let of_the_worker = format!("- name: WAKEQ_CAPACITY\n              value: \"{}\"", settings.target);
    assert!(deployed("base/worker.yaml").contains(&of_the_worker), "a worker's worth of waiting events");
    let min = settings.min;
    // The small size has a small capacity, and as many events per slot.
    let settings = Settings { target: capacity as u64, ..settings };
    assert!(!is_full() || settings.target == self::settings().target);
    let mut deployment = Deployment::start(settings, capacity).await;

    let elsewhere = (0..50).map(|at| Event::new("elsewhere", &at).unwrap().canvas(OTHER)).collect();
    deployment.service.stage.queue.emit_all(elsewhere).await.unwrap();
    let others = deployment.service.key("keda", OTHER, &[Scope::Read]).await;
    let path_of_others = format!("/canvases/{OTHER}/depth");
    for (key, status, depth) in
        [(&others, StatusCode::OK, Some(50)), (&deployment.key, StatusCode::NOT_FOUND, None)]
    {
        let answer = deployment.service.ask(key, Method::GET, &path_of_others, Value::Null).await;
        let body: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!((answer.status, body["depth"].as_u64()), (status, depth));
    }
    let of_all = deployment.service.wide_key("keda", &[Scope::Read]).await;
    for (key, query, status, depth) in [
        (&of_all, "", StatusCode::OK, Some(50)),
        (&of_all, "?name=elsewhere", StatusCode::OK, Some(50)),
        (&of_all, "?name=greet", StatusCode::OK, Some(0)),
        (&others, "", StatusCode::FORBIDDEN, None),
    ] {
        let answer =
            deployment.service.ask(key, Method::GET, &format!("/admin/depth{query}"), Value::Null).await;
        let body: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!((answer.status, body["depth"].as_u64()), (status, depth), "{}", answer.text);
    }

    for _ in 0..2 {
        deployment.look(false).await;
    }
    deployment.emit(backlog).await;
    while deployment.left() > 0 || deployment.workers.len() > min {
        deployment.look(deployment.left() == 0).await;
        assert!(deployment.history.len() < 200, "{:?}", deployment.history);
    }
    let history = &deployment.history;
    assert_eq!(history[..8], [2, 2, 4, 4, 8, 8, 16, 16], "{history:?}");
    let top = history.iter().rposition(|workers| *workers == 16).unwrap();
    assert!(history[..=top].is_sorted(), "one rise: {history:?}");
    assert!(history[top..].is_sorted_by(|one, next| one >= next), "one fall: {history:?}");

    deployment.settled().await;
    let completed = deployment.executions.completed.lock().unwrap().clone();
    let once: BTreeSet<EventId> = completed.iter().copied().collect();
    assert_eq!((completed.len(), once.len()), (deployment.emitted, deployment.emitted), "each once");
    let cut_off = deployment.executions.cut_off.load(Ordering::SeqCst);
    assert_eq!(cut_off, 7 * capacity, "of 14 that went, every second one had no grace");
    // The notifications of events that were set aside are acknowledged: only rows tell.
    wait_while!(deployment.service.stage.rows().await > 50, "the rows are gone");
    assert_eq!(deployment.service.stage.rows().await, 50, "the other canvas's");
    figure("workers at each look", format!("{history:?}"));
    figure("events completed, of them after they were cut off", format!("{} {cut_off}", completed.len()));
    deployment.scale(0).await;
}
