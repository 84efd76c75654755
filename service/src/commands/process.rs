//! `wakeq serve`, `wakeq work` and `wakeq all`: the long-running processes. Each consists of parts
//! that start and end together.
//!
//! Only assembles the parts, and has no logic of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::descriptors;
use crate::cli::ending::Ending;
use crate::cli::parts::{MakeHandlers, Parts, ProcessPart, until_stopped};
use crate::cli::telemetry::{SharedObserver, TelemetryArgs};
use crate::cli::{Context, failure};
use crate::config::{
    DeliveryArgs, LotArgs, NotifierArgs, PushArgs, RateArgs, ServeArgs, WorkerArgs, on_cloud_run,
};
use crate::delivery::{Deliverer, Targets};
use crate::observe::Observer;
use crate::server::{HttpConfig, HttpServer};
use wakeq::database::Retention;
use wakeq::internals::{Waker, spread};
use wakeq::notify::Notifier;
use wakeq::workers::PushRunner;
use wakeq::{Admin, AdminError, Queue, QueueConfig, QueueWorker, Store, StoreError, WorkerConfig};

/// Pause before waking the waiting events is retried, after the database was unavailable.
const WAKE_PAUSE: Duration = Duration::from_secs(2);

/// How long the connections to the database may take to close.
const CLOSING: Duration = Duration::from_secs(1);

/// Extra time for answering pushes whose runs were cut off.
const PUSH_ANSWER_GRACE: Duration = Duration::from_millis(1_600);

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    http: ServeArgs,
    #[command(flatten)]
    push: PushArgs,
    /// Counts in push mode only, but for sleep.
    #[command(flatten)]
    worker: WorkerArgs,
    #[command(flatten)]
    rates: RateArgs,
    #[command(flatten)]
    delivery: DeliveryArgs,
    #[command(flatten)]
    pub(super) telemetry: TelemetryArgs,
}

#[derive(Args)]
pub(crate) struct Work {
    #[command(flatten)]
    worker: WorkerArgs,
    #[command(flatten)]
    lot: LotArgs,
    #[command(flatten)]
    rates: RateArgs,
    #[command(flatten)]
    delivery: DeliveryArgs,
    #[command(flatten)]
    pub(super) telemetry: TelemetryArgs,
}

#[derive(Args)]
pub(crate) struct All {
    /// With push only so that it can be refused: pushed events have no worker that pulls.
    #[command(flatten)]
    pub(super) serve: Serve,
    #[command(flatten)]
    lot: LotArgs,
}

impl Serve {
    pub(super) async fn run(self, context: &Context, handlers: impl MakeHandlers) -> anyhow::Result<()> {
        run(context, self.start(context, handlers)).await
    }

    /// Also makes the minute's pass, so that a deployment whose workers are scaled to zero needs no
    /// other process for it. Expires nothing: retention is configured on the workers.
    async fn start(self, context: &Context, handlers: impl MakeHandlers) -> anyhow::Result<Started> {
        if self.push.is_given() {
            return self.start_pushed(context, handlers).await;
        }
        let process = Process::start(context, Task::Accept, self.rates).await?;
        let http = HttpConfig { delivery: self.delivery.config()?, ..self.http.config()? };
        let grace = http.shutdown_grace;
        let serving = process.serve(http).await?;
        if !process.notifier.wakes() {
            tracing::info!(
                "this process wakes no workers: they find the events that it accepts by their \
                 promises"
            );
        }
        let waking = process.wake(None, self.worker.config().lets_database_sleep).await?;
        Ok(Started { process, parts: vec![serving, waking], grace })
    }

    /// Push mode: also runs pushed events and expires what is old. The minute's pass is made on
    /// request, and by the process itself if it has CPU between requests. On Cloud Run it may not:
    /// the process could be frozen with a transaction open.
    async fn start_pushed(self, context: &Context, handlers: impl MakeHandlers) -> anyhow::Result<Started> {
        anyhow::ensure!(
            !context.notifier.is_without_topics(),
            "--push-audience and --push-account (WAKEQ_PUSH_AUDIENCE, WAKEQ_PUSH_ACCOUNTS) need Pub/Sub, which pushes: \
             leave out --notifier {} (WAKEQ_NOTIFIER)",
            context.notifier.name()
        );
        let config = self.worker.config();
        let mut http = HttpConfig {
            delivery: self.delivery.config()?,
            retention: Some(config.retention),
            // Pushes whose runs are cut off are still answered.
            shutdown_grace: config.shutdown_grace + PUSH_ANSWER_GRACE,
            ..self.http.config()?
        };
        http.access.push = self.push.callers();
        let connecting = context.database.connect_to_be_pushed(&context.timing);
        let process = Process::on(connecting, context, Task::Accept, self.rates).await?;
        let server = process.bind(http).await?;
        let pushes = process.push(handlers, &self.worker, &self.delivery).await?;
        let (taking, stop, store) = (pushes.clone(), process.stop.clone(), process.store.clone());
        let server = server.on_push(move |message: Vec<u8>| {
            let pushes = taking.clone();
            async move { pushes.run(&message).await }
        })?;
        let mut parts = vec![process.serving(server)];
        let running = async move {
            let ended = tokio::select! {
                () = stop.cancelled() => Ok(()),
                error = store.other_timing() => Err(anyhow!(error)),
            };
            stop.cancel();
            pushes.shut_down().await;
            ended
        };
        parts.push(ProcessPart { name: "the push runner", running: Box::pin(running) });
        if !on_cloud_run() {
            parts.push(process.wake(Some(config.retention), config.lets_database_sleep).await?);
        }
        Ok(Started { process, parts, grace: config.shutdown_grace })
    }
}

impl Work {
    pub(super) async fn run(self, context: &Context, handlers: impl MakeHandlers) -> anyhow::Result<()> {
        run(context, self.start(context, handlers)).await
    }

    async fn start(self, context: &Context, handlers: impl MakeHandlers) -> anyhow::Result<Started> {
        let process = Process::start(context, Task::Work, self.rates).await?;
        let grace = self.worker.config().shutdown_grace;
        let working = process.work(handlers, self.worker, self.lot, &self.delivery).await?;
        Ok(Started { process, parts: vec![working], grace })
    }
}

impl All {
    pub(super) async fn run(self, context: &Context, handlers: impl MakeHandlers) -> anyhow::Result<()> {
        run(context, self.start(context, handlers)).await
    }

    async fn start(self, context: &Context, handlers: impl MakeHandlers) -> anyhow::Result<Started> {
        let Self { serve: Serve { http, push, worker, rates, delivery, telemetry: _ }, lot } = self;
        anyhow::ensure!(
            !push.is_given(),
            "`all` pulls its notifications, but with WAKEQ_PUSH_AUDIENCE and WAKEQ_PUSH_ACCOUNTS \
             they are pushed: start `serve`, which then runs handlers too"
        );
        let process = Process::start(context, Task::Work, rates).await?;
        let mut http = HttpConfig { delivery: delivery.config()?, ..http.config()? };
        let grace = worker.config().shutdown_grace;
        http.shutdown_grace = http.shutdown_grace.min(grace);
        let serving = process.serve(http).await?;
        let working = process.work(handlers, worker, lot, &delivery).await?;
        Ok(Started { process, parts: vec![serving, working], grace })
    }
}

/// Starts a process and runs it until it is told to stop. A signal ends a start, which has nothing
/// to end then and waits for no database. If the program itself stops the process, it is started
/// first, so that its error counts.
async fn run(
    context: &Context,
    starting: impl Future<Output = anyhow::Result<Started>>,
) -> anyhow::Result<()> {
    // From the start, so that an early signal is not missed.
    let _listening = context.ending.listen()?;
    let ended = match context.ending.told().run_until_cancelled(starting).await {
        Some(Ok(Started { process, parts, grace })) => process.together(parts, grace).await,
        Some(Err(error)) => Err(error),
        None => Ok(()),
    };
    context.observed.set(None);
    ended
}

/// A process whose parts are ready to run.
struct Started {
    process: Process,
    parts: Vec<ProcessPart>,
    grace: Duration,
}

/// The kind of a process.
#[derive(Clone, Copy)]
enum Task {
    /// It takes no notifications itself.
    Accept,
    /// It runs handlers.
    Work,
}

/// The state that the parts share.
struct Process {
    store: Store,
    notifier: Arc<dyn Notifier>,
    /// Whether no other process wakes its workers.
    is_local: bool,
    rates: RateArgs,
    /// Closes its broadcasts.
    notifiers: NotifierArgs,
    /// The observer of the queue's gauges.
    observed: SharedObserver,
    /// The parts that the program adds.
    own: Parts,
    stop: CancellationToken,
    ending: Ending,
}

impl Process {
    async fn start(context: &Context, task: Task, rates: RateArgs) -> anyhow::Result<Self> {
        Self::on(context.database.connect_to_work(&context.timing), context, task, rates).await
    }

    async fn on(
        connecting: impl Future<Output = anyhow::Result<Store>>,
        context: &Context,
        task: Task,
        rates: RateArgs,
    ) -> anyhow::Result<Self> {
        let store = connecting.await?;
        let notifier = match task {
            Task::Accept => context.notifier.connect(&store).await?,
            Task::Work => context.notifier.connect_to_work(&store).await?,
        };
        let is_local = context.notifier.is_local();
        let observed = context.observed.clone();
        observed.set(Some(Observer::watch(&store)));
        let ending = context.ending.clone();
        let stop = ending.stop().clone();
        let queue = Queue::new(store.clone(), Arc::clone(&notifier), QueueConfig::default());
        let own = Parts::new(store.clone(), queue, stop.clone());
        let notifiers = context.notifier.clone();
        Ok(Self { store, notifier, is_local, rates, notifiers, observed, own, stop, ending })
    }

    /// The part that serves HTTP.
    async fn serve(&self, config: HttpConfig) -> anyhow::Result<ProcessPart> {
        Ok(self.serving(self.bind(config).await?))
    }

    async fn bind(&self, config: HttpConfig) -> anyhow::Result<HttpServer> {
        descriptors::raise(config.max_connections);
        let config = HttpConfig { canvas_event_rate: self.rates.canvas_event_rate, ..config };
        Ok(HttpServer::bind(self.store.clone(), Arc::clone(&self.notifier), config).await?)
    }

    fn serving(&self, server: HttpServer) -> ProcessPart {
        tracing::info!(address = %server.local_address(), "serving the API");
        let (stop, halt) = (self.stop.clone(), server.stop_token());
        let running = async move {
            until_stopped(server.run(), stop, halt).await;
            Ok(())
        };
        ProcessPart { name: "the HTTP server", running: Box::pin(running) }
    }

    /// A worker with this program's handlers, and with HTTP targets if it is to call them; `None`
    /// if it has neither.
    async fn worker(
        &self,
        handlers: impl MakeHandlers,
        arguments: &WorkerArgs,
        config: WorkerConfig,
        delivery: &DeliveryArgs,
    ) -> anyhow::Result<Option<QueueWorker>> {
        let handlers =
            handlers(self.own.clone()).await.map_err(|error| anyhow!(error)).context("make the handlers")?;
        if handlers.is_empty() && arguments.no_targets {
            return Ok(None);
        }
        let worker = QueueWorker::new(self.store.clone(), Arc::clone(&self.notifier), handlers, config)?;
        if arguments.no_targets {
            return Ok(Some(worker));
        }
        let targets = Targets::new(&self.store, Deliverer::new(delivery.config()?)?);
        Ok(Some(worker.remote_handlers(targets)))
    }

    /// Runs pushed events with this program's handlers, and on HTTP targets.
    async fn push(
        &self,
        handlers: impl MakeHandlers,
        arguments: &WorkerArgs,
        delivery: &DeliveryArgs,
    ) -> anyhow::Result<PushRunner> {
        let worker = self.worker(handlers, arguments, arguments.config(), delivery).await?;
        let worker = worker.context(
            "this program has no handlers, so with --no-targets (WAKEQ_NO_TARGETS) it could run nothing that is pushed",
        )?;
        Ok(worker.into_push_runner().await?)
    }

    /// The part that runs events. A process without handlers and targets takes no notifications,
    /// since this would delay other workers' events by minutes; but it still makes the minute's
    /// pass.
    async fn work(
        &self,
        handlers: impl MakeHandlers,
        arguments: WorkerArgs,
        lot: LotArgs,
        delivery: &DeliveryArgs,
    ) -> anyhow::Result<ProcessPart> {
        let canvas_event_rate = self.rates.canvas_event_rate;
        let config = WorkerConfig { canvas_event_rate, ..lot.with(arguments.config()) };
        let (retention, lets_sleep) = (config.retention, config.lets_database_sleep);
        let Some(worker) = self.worker(handlers, &arguments, config, delivery).await? else {
            anyhow::ensure!(
                !self.is_local,
                "this program has no handlers, and with --notifier local (WAKEQ_NOTIFIER) a process \
                 wakes only itself: start a program with handlers and run only `serve` from this one, \
                 or omit --no-targets"
            );
            tracing::info!(
                "this program has no handlers, so it receives no notifications; it wakes overdue \
                 events, continues resume jobs and deletes expired rows"
            );
            return self.wake(Some(retention), lets_sleep).await;
        };
        let waking = self.wake_what_waited();
        let (stop, halt) = (self.stop.clone(), worker.stop_token());
        let running = async move {
            let _waking = waking;
            Ok(until_stopped(worker.run(), stop, halt).await?)
        };
        Ok(ProcessPart { name: "the worker", running: Box::pin(running) })
    }

    /// Notifications that the processes keep are lost when the last one ends: wakes the events that
    /// were waiting then. Those that do not fit into this process are due, and left to the minute's
    /// passes.
    fn wake_what_waited(&self) -> AbortOnDropHandle<()> {
        let admin = Admin::new(self.store.clone(), Arc::clone(&self.notifier))
            .canvas_event_rate(self.rates.canvas_event_rate);
        let notifier = Arc::clone(&self.notifier);
        AbortOnDropHandle::new(tokio::spawn(async move {
            while notifier.starts_empty().await {
                match admin.wake(true).await {
                    Ok(pass) => tracing::info!(woken = pass.woken, "woke the waiting events"),
                    Err(AdminError::Store(error)) => {
                        let words = failure::words(&error.into());
                        tracing::warn!("the waiting events were not woken yet; retrying: {words}");
                        tokio::time::sleep(spread(WAKE_PAUSE)).await;
                        continue;
                    }
                    Err(error) => {
                        let words = failure::words(&error.into());
                        tracing::warn!("the minute's pass wakes the rest: {words}");
                    }
                }
                return;
            }
        }))
    }

    /// The part that only makes the minute's pass. Fails at once if the schema is missing, which
    /// waiting would not change.
    async fn wake(&self, retention: Option<Retention>, lets_sleep: bool) -> anyhow::Result<ProcessPart> {
        let waker = Waker::new(self.store.clone(), Arc::clone(&self.notifier))
            .paced(self.rates.canvas_event_rate)
            .letting_sleep(lets_sleep);
        let period = self.store.timing().probe_period;
        match Admin::new(self.store.clone(), Arc::clone(&self.notifier)).is_migrated().await {
            Ok(true) => {}
            Ok(false) => anyhow::bail!("the schema `wakeq` is not up to date: run `wakeq migrate`"),
            Err(AdminError::Store(error @ StoreError::NotMigrated(_))) => return Err(error.into()),
            Err(error) => tracing::warn!("the first pass may fail: {}", failure::words(&error.into())),
        }
        let (stop, store) = (self.stop.clone(), self.store.clone());
        let running = async move {
            tokio::select! {
                () = stop.cancelled() => Ok(()),
                () = waker.run(period, retention) => Ok(()),
                error = store.other_timing() => Err(anyhow!(error)),
            }
        };
        Ok(ProcessPart { name: "the minute's pass", running: Box::pin(running) })
    }

    /// Runs all parts until a signal arrives or one of them ends: none can do without the others.
    /// After the grace it ends in any case, even if a database that is dead without a sign holds up
    /// a part.
    async fn together(self, parts: Vec<ProcessPart>, grace: Duration) -> anyhow::Result<()> {
        let mut running = JoinSet::new();
        for ProcessPart { name, running: part } in parts.into_iter().chain(self.own.take()) {
            running.spawn(async move { (name, part.await) });
        }
        let mut outcome = Ok(());
        let ended = async {
            self.all_end(&mut running, &mut outcome).await;
            self.observed.set(None);
            self.notifiers.close_broadcasts().await;
            self.store.close_within(CLOSING).await;
        };
        self.ending.grant(grace);
        tokio::select! {
            () = ended => {}
            () = self.ending.over() => tracing::warn!(
                "the process ends before all of its parts have: events that it was running are released by their leases"
            ),
        }
        outcome
    }

    async fn all_end(
        &self,
        running: &mut JoinSet<(&'static str, anyhow::Result<()>)>,
        outcome: &mut anyhow::Result<()>,
    ) {
        while let Some(ended) = running.join_next().await {
            let ended = match ended {
                Ok((name, Ok(()))) if !self.stop.is_cancelled() => Err(anyhow!("{name} ended unexpectedly")),
                Ok((_, ended)) => ended,
                Err(panic) => Err(anyhow!(panic).context("a part of the process panicked")),
            };
            self.stop.cancel();
            match ended {
                Err(later) if outcome.is_err() => {
                    tracing::error!("another part failed: {}", failure::words(&later));
                }
                Err(first) => *outcome = Err(first),
                Ok(()) => {}
            }
        }
    }
}
