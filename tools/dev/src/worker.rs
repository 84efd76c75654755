//! The worker with the sample handlers, and another one in the demo. They stand back while a worker
//! of another program is connected, which then gets all notifications instead of a share.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use wakeq::notify::Notifier;
use wakeq::workers::{RunReport, WorkerError};
use wakeq::{Admin, Name, Queue, QueueConfig, QueueWorker, Store, WorkerConfig};
use wakeq_service::delivery::{Deliverer, Targets};
use wakeq_streams::Entities;

use crate::others::OtherWorkers;
use crate::story::sentence;
use crate::{Arguments, accounts, demo, samples, screen, service};

/// The worker, and what emits for it.
pub(super) struct SampleWorker<'a> {
    pub(super) store: Store,
    pub(super) notifier: Arc<dyn Notifier>,
    pub(super) arguments: &'a Arguments,
}

/// Why the worker stops.
enum Reason {
    /// The process ends.
    Stop,
    /// Another worker has joined.
    Joined,
}

impl SampleWorker<'_> {
    /// Runs until the process has to stop, or the worker fails.
    pub(super) async fn run(
        &self,
        others: &OtherWorkers<'_>,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let mut stop = pin!(stop);
        loop {
            let reason = async {
                tokio::select! {
                    () = &mut stop => Reason::Stop,
                    () = others.joined() => Reason::Joined,
                }
            };
            match self.run_until(reason).await? {
                Reason::Stop => return Ok(()),
                Reason::Joined => {
                    screen::line("another worker has joined: it gets all events until it leaves")
                }
            }
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = others.left() => screen::line("the other worker has left: the sample worker is back"),
            }
        }
    }

    async fn run_until(&self, reason: impl Future<Output = Reason>) -> anyhow::Result<Reason> {
        let Self { store, notifier, arguments } = self;
        let queue = Queue::new(store.clone(), Arc::clone(notifier), QueueConfig::default());
        let workers = match arguments.demo {
            false => vec![self.worker(&queue, None)?],
            true => {
                let named = demo::WORKERS.iter().map(|name| self.worker(&queue, Some(name)));
                named.collect::<Result<_, _>>()?
            }
        };

        // The emulator starts empty, so only the promises on the rows would wake the events that
        // were waiting when it last ended.
        let admin = Admin::new(store.clone(), Arc::clone(notifier));
        let woken = admin.wake(true).await?.woken;
        if woken > 0 {
            screen::line(&format!("{woken} events were waiting"));
        }
        let endpoint = samples::register(&admin).await?;
        screen::samples(&endpoint.url);
        if arguments.demo {
            demo::open(&admin, &queue, &endpoint).await?;
        }
        let example = match arguments.example {
            Some(_) => Some(accounts::start(store.clone(), queue.clone()).await?),
            None => None,
        };
        let trickle = (!arguments.no_trickle).then(|| {
            AbortOnDropHandle::new(match arguments.demo {
                false => tokio::spawn(samples::trickle(queue)),
                true => tokio::spawn(demo::come(queue)),
            })
        });
        let mut crew = Crew::start(workers);
        let reason = tokio::select! {
            ended = crew.ended() => {
                ended?;
                return Ok(Reason::Stop);
            }
            reason = reason => reason,
        };
        drop((trickle, example));
        match reason {
            Reason::Stop => {
                screen::line("stopping: nothing more is claimed or emitted; handlers may finish");
            }
            Reason::Joined => samples::stop_cron(&admin).await?,
        }
        crew.stop().await?;
        drop(endpoint);
        Ok(reason)
    }

    fn worker(&self, queue: &Queue, name: Option<&str>) -> anyhow::Result<QueueWorker> {
        let name = name.map(str::parse::<Name>).transpose()?;
        let config = WorkerConfig { name, shutdown_grace: Duration::from_secs(5), ..WorkerConfig::default() };
        let mut handlers = samples::handlers();
        if self.arguments.example.is_some() {
            handlers = accounts::handlers(handlers, Entities::new(queue.clone()));
        }
        if self.arguments.demo {
            handlers = demo::handlers(handlers, queue.clone());
        }
        let worker = QueueWorker::new(self.store.clone(), Arc::clone(&self.notifier), handlers, config)?;
        Ok(worker.remote_handlers(Targets::new(&self.store, Deliverer::new(service::delivery()?)?)))
    }
}

/// The workers while they run. They are cut off when this is dropped.
struct Crew {
    working: JoinSet<Result<(), WorkerError>>,
    stops: Vec<CancellationToken>,
    printing: JoinSet<()>,
    troubles: Vec<AbortOnDropHandle<()>>,
}

impl Crew {
    fn start(workers: Vec<QueueWorker>) -> Self {
        let stops = workers.iter().map(QueueWorker::stop_token).collect();
        let troubles = workers.iter().map(|worker| tokio::spawn(print_trouble(worker.trouble())));
        let troubles = troubles.map(AbortOnDropHandle::new).collect();
        let (mut working, mut printing) = (JoinSet::new(), JoinSet::new());
        for mut worker in workers {
            printing.spawn(print_reports(worker.reports()));
            working.spawn(worker.run());
        }
        Self { working, stops, printing, troubles }
    }

    /// Waits until one of them has ended, or until none is left.
    async fn ended(&mut self) -> anyhow::Result<()> {
        match self.working.join_next().await {
            Some(ended) => Ok(ended??),
            None => Ok(()),
        }
    }

    /// Stops them: handlers may finish.
    async fn stop(mut self) -> anyhow::Result<()> {
        // Nothing is received during a shutdown, which is no trouble.
        self.troubles.clear();
        self.stops.iter().for_each(CancellationToken::cancel);
        while !self.working.is_empty() {
            self.ended().await?;
        }
        while let Some(printed) = self.printing.join_next().await {
            printed?;
        }
        Ok(())
    }
}

/// Reports when notifications can no longer be received, and when they can again.
async fn print_trouble(mut trouble: watch::Receiver<Option<String>>) {
    let mut ready = trouble.wait_for(Option::is_none).await.is_ok();
    while ready {
        let Ok(words) =
            trouble.wait_for(Option::is_some).await.map(|words| words.clone().unwrap_or_default())
        else {
            return;
        };
        screen::line(&format!("notifications can't be received: {words}"));
        ready = trouble.wait_for(Option::is_none).await.is_ok();
        screen::line("notifications can be received again");
    }
}

async fn print_reports(mut reports: mpsc::Receiver<RunReport>) {
    while let Some(report) = reports.recv().await {
        if let Some(sentence) = sentence(&report) {
            let handler = report.address.map_or_else(String::new, |address| address.scope.name.to_string());
            screen::event(report.notification.id, &handler, &sentence);
        }
    }
}
