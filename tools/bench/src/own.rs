//! The queue itself as a subject, with a notifier in memory, Postgres, or the emulator.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use sqlx::PgPool;
use uuid::Uuid;
use wakeq::control::Quota;
use wakeq::machine::Outcome;
use wakeq::notify::{LocalNotifier, Notifier, PostgresNotifier, PubSub, PubSubConfig, create_topics};
use wakeq::{
    Actor, Admin, CanvasId, Event, Execution, HandlerResult, HandlerScope, Handlers, Queue, QueueConfig,
    QueueWorker, Stop, Store, StoreConfig, WorkerConfig,
};

use crate::server::connect;
use crate::subject::{Job, LIVE, Load, PARKED, Payload, Received, Seen, Subject, Working};

/// Of a canvas: more than any trial needs.
const NO_LIMIT: u64 = 1_000_000_000_000;

/// Rows as they are once workers have parked them; their ids grow, as those of emitted events do.
const PARK: &str = r#"insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
    select overlay(replace(gen_random_uuid()::text, '-', '') placing
                   lpad(to_hex((extract(epoch from now()) * 1000)::int8 + number / 100), 12, '0') from 1)::uuid,
           '00000000-0000-0000-0000-000000000000', 'WORKER', $1, '_',
           format('{"number":"%s","padding":"%s"}', lpad(number::text, 20, '0'), repeat('x', 80)), null
      from generate_series(0, $2 - 1) as number"#;

/// The queue in one database.
pub(crate) struct Own {
    store: Store,
    queue: Queue,
    admin: Admin,
    /// What the worker receives from.
    notifier: Arc<dyn Notifier>,
    pool: PgPool,
}

impl Own {
    pub(crate) async fn in_memory(url: &str) -> Result<Self> {
        Self::connect(url, Arc::new(LocalNotifier::new())).await
    }

    /// The emitter and the worker have a notifier each, as two processes have.
    pub(crate) async fn over_postgres(url: &str) -> Result<Self> {
        let store = Self::store(url).await?;
        let worker = Arc::new(PostgresNotifier::new(&store));
        let emitter = Arc::new(PostgresNotifier::new(&store));
        Ok(Self { notifier: worker, ..Self::on(url, store, emitter).await? })
    }

    /// With a topic and a subscription named after the database.
    pub(crate) async fn over_emulator(url: &str, host: String, name: &str) -> Result<Self> {
        let (topic, subscription) = (name.to_owned(), name.to_owned());
        let config =
            PubSubConfig { topic, subscription, emulator_host: Some(host), ..PubSubConfig::new("bench") };
        create_topics(&config).await?;
        Self::connect(url, Arc::new(PubSub::connect(config).await?)).await
    }

    async fn connect(url: &str, notifier: Arc<dyn Notifier>) -> Result<Self> {
        Self::on(url, Self::store(url).await?, notifier).await
    }

    async fn store(url: &str) -> Result<Store> {
        Store::migrate(url, false).await?;
        Ok(Store::connect(url, StoreConfig::default()).await?)
    }

    /// Another process: a store of its own, on the same notifier.
    pub(crate) async fn beside(&self, url: &str) -> Result<Self> {
        Self::connect(url, Arc::clone(&self.notifier)).await
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn admin(&self) -> &Admin {
        &self.admin
    }

    /// Starts a worker.
    pub(crate) fn start(&self, handlers: Handlers, capacity: usize) -> Result<Working> {
        let config = WorkerConfig { capacity, ..WorkerConfig::default() };
        let worker = QueueWorker::new(self.store.clone(), Arc::clone(&self.notifier), handlers, config)?;
        let (stop, counters) = (worker.stop_token(), worker.counters());
        let task = tokio::spawn(async move { Ok(worker.run().await?) });
        Ok(Working { stop, task, ended: Box::new(move || counters.outcome(Outcome::Deleted)) })
    }

    async fn on(url: &str, store: Store, notifier: Arc<dyn Notifier>) -> Result<Self> {
        let queue = Queue::new(store.clone(), Arc::clone(&notifier), QueueConfig::default());
        let admin = Admin::new(store.clone(), Arc::clone(&notifier));
        for quota in [Quota::Events, Quota::EventBytes] {
            admin.set_quota(CanvasId::DEFAULT, quota, NO_LIMIT, &Actor::user("bench")).await?;
        }
        Ok(Self { store, queue, admin, notifier, pool: connect(url, 1).await? })
    }
}

fn event(job: Job) -> Result<Event> {
    let event = Event::new(LIVE, &Payload::new(job.number))?;
    Ok(event.canvas(CanvasId(Uuid::from_u128(job.canvas))))
}

fn parked() -> Result<HandlerScope> {
    Ok(HandlerScope::worker(CanvasId::DEFAULT, PARKED)?)
}

#[async_trait]
impl Subject for Own {
    async fn emit(&self, job: Job) -> Result<()> {
        self.queue.emit(event(job)?).await?;
        Ok(())
    }

    async fn emit_all(&self, jobs: Vec<Job>) -> Result<()> {
        let events = jobs.into_iter().map(event).collect::<Result<Vec<_>>>()?;
        self.queue.emit_all(events).await?;
        Ok(())
    }

    async fn park(&self, count: u64) -> Result<()> {
        self.admin.pause(&parked()?, &Actor::user("bench"), &Stop::default()).await?;
        sqlx::query(PARK).bind(PARKED).bind(count as i64).execute(&self.pool).await?;
        sqlx::raw_sql("vacuum analyze wakeq.events_v2").execute(&self.pool).await?;
        Ok(())
    }

    async fn unpark(&self) -> Result<()> {
        self.admin.unpause(&parked()?, &Actor::user("bench")).await?;
        Ok(())
    }

    async fn work(&self, load: Load, seen: Seen) -> Result<Working> {
        let handler = move |event: Execution| {
            let seen = Arc::clone(&seen);
            async move {
                let received: Received = event.value()?;
                seen(received.number()?);
                HandlerResult::Ok(())
            }
        };
        let handlers = Handlers::new().on(LIVE, handler.clone()).on(PARKED, handler);
        self.start(handlers, load.capacity)
    }
}
