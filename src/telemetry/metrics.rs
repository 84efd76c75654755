//! Every metric: its name, unit and attributes, following OpenTelemetry's conventions for messaging
//! and HTTP where they define one.
//!
//! Instruments come from the program's global meter provider, at the time when what they measure is
//! made. Without a provider they cost a call of an empty function.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use opentelemetry::metrics::{
    AsyncInstrument, Counter, Gauge, Histogram, Meter, ObservableGauge, UpDownCounter,
};
use opentelemetry::{KeyValue, global};

use super::AttemptResult;
use super::labels::Labels;
use crate::event::{Cause, HandlerScope, Name};

/// Upper bounds of the buckets of a handler's duration, in seconds: those that the conventions
/// advise for requests, and longer ones.
const PROCESS_BUCKETS: [f64; 18] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0, 300.0,
    1800.0,
];

fn system() -> KeyValue {
    KeyValue::new("messaging.system", "wakeq")
}

fn meter() -> Meter {
    global::meter("wakeq")
}

/// A counter from the program's meter provider.
pub fn counter(name: &'static str, unit: &'static str, description: &'static str) -> Counter<u64> {
    meter().u64_counter(name).with_unit(unit).with_description(description).build()
}

/// A gauge whose numbers this function tells whenever metrics are collected.
pub fn observed(
    name: &'static str,
    unit: &'static str,
    description: &'static str,
    observe: impl Fn(&dyn AsyncInstrument<u64>) + Send + Sync + 'static,
) -> ObservableGauge<u64> {
    let meter = meter();
    let gauge = meter.u64_observable_gauge(name).with_unit(unit).with_description(description);
    gauge.with_callback(observe).build()
}

/// Events that are emitted.
#[derive(Clone)]
pub(crate) struct SendMetrics {
    sent: Counter<u64>,
    labels: Arc<Labels>,
}

impl SendMetrics {
    pub(crate) fn new() -> Self {
        let sent = counter(
            "messaging.client.sent.messages",
            "{message}",
            "Events that were emitted, or could not be",
        );
        Self { sent, labels: Arc::default() }
    }

    /// Events of a handler that were committed or, with a fault, that were not.
    pub(crate) fn sent(&self, scope: &HandlerScope, count: u64, fault: Option<&'static str>) {
        let destination = KeyValue::new("messaging.destination.name", self.labels.of(scope));
        let name = KeyValue::new("messaging.operation.name", "send");
        match fault {
            None => self.sent.add(count, &[system(), name, destination]),
            Some(fault) => {
                self.sent.add(count, &[system(), name, destination, KeyValue::new("error.type", fault)]);
            }
        }
    }
}

/// What happens to events on a worker, or as they are leased.
pub(crate) struct RunMetrics {
    duration: Histogram<f64>,
    outcomes: Counter<u64>,
    retries: Counter<u64>,
    dead: Counter<u64>,
    labels: Labels,
    queues: Labels,
}

impl Default for RunMetrics {
    fn default() -> Self {
        Self {
            duration: meter()
                .f64_histogram("messaging.process.duration")
                .with_unit("s")
                .with_description("How long handlers run")
                .with_boundaries(PROCESS_BUCKETS.to_vec())
                .build(),
            outcomes: counter("wakeq.run.outcomes", "{outcome}", "Edges of the state machine that runs took"),
            retries: counter("wakeq.handler.retries", "{event}", "Attempts that failed and will be retried"),
            dead: counter("wakeq.events.dead", "{event}", "Events that were given up"),
            labels: Labels::default(),
            queues: Labels::default(),
        }
    }
}

impl RunMetrics {
    /// A handler ended, or was cut off.
    pub(crate) fn processed(&self, processed: AttemptResult<'_>) {
        let AttemptResult { scope, queue, took, fault } = processed;
        let destination = KeyValue::new("messaging.destination.name", self.labels.of(scope));
        let name = KeyValue::new("messaging.operation.name", "process");
        let mut attributes = vec![system(), name, destination];
        if let Some(queue) = queue {
            attributes
                .push(KeyValue::new("messaging.destination.subscription.name", self.queues.of_queue(queue)));
        }
        attributes.extend(fault.map(|fault| KeyValue::new("error.type", fault)));
        self.duration.record(took.as_secs_f64(), &attributes);
    }

    /// A run took an edge of the state machine.
    pub(crate) fn outcome(&self, outcome: &'static str) {
        self.outcomes.add(1, &[KeyValue::new("outcome", outcome)]);
    }

    /// An attempt failed and will be retried.
    pub(crate) fn retried(&self, scope: &HandlerScope) {
        self.retries.add(1, &[KeyValue::new("handler", self.labels.of(scope))]);
    }

    /// An event became a dead event.
    pub(crate) fn died(&self, scope: &HandlerScope, cause: Cause) {
        let handler = KeyValue::new("handler", self.labels.of(scope));
        self.dead.add(1, &[handler, KeyValue::new("cause", cause.as_str())]);
    }
}

impl fmt::Debug for RunMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RunMetrics").finish_non_exhaustive()
    }
}

/// Requests to targets that refuse for load.
pub(crate) struct TargetMetrics {
    held: Counter<u64>,
    labels: Labels,
}

impl Default for TargetMetrics {
    fn default() -> Self {
        let held = counter(
            "wakeq.target.held",
            "{request}",
            "Requests that were held back because their target refuses for load",
        );
        Self { held, labels: Labels::default() }
    }
}

impl TargetMetrics {
    /// A request has to wait; one that has to wait again counts again.
    pub(crate) fn held(&self, scope: &HandlerScope) {
        self.held.add(1, &[KeyValue::new("handler", self.labels.of(scope))]);
    }
}

impl fmt::Debug for TargetMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TargetMetrics").finish_non_exhaustive()
    }
}

/// What a worker holds now, as long as it runs.
pub(crate) struct WorkerGauges {
    running: UpDownCounter<i64>,
    lot: UpDownCounter<i64>,
    up: Gauge<u64>,
    shown_running: AtomicI64,
    shown_lot: AtomicI64,
}

impl WorkerGauges {
    pub(crate) fn new() -> Self {
        let meter = meter();
        let gauges = Self {
            running: meter
                .i64_up_down_counter("wakeq.worker.running")
                .with_unit("{event}")
                .with_description("Notifications that are being checked or run")
                .build(),
            lot: meter
                .i64_up_down_counter("wakeq.worker.lot")
                .with_unit("{notification}")
                .with_description("Notifications that wait in this process until they are due or can run")
                .build(),
            up: meter
                .u64_gauge("wakeq.notifier.up")
                .with_description("1 while this process receives notifications, else 0")
                .build(),
            shown_running: AtomicI64::new(0),
            shown_lot: AtomicI64::new(0),
        };
        gauges.running.add(0, &[]);
        gauges.lot.add(0, &[]);
        gauges
    }

    /// Shows the current numbers.
    pub(crate) fn show(&self, running: usize, lot: usize) {
        let change = |shown: &AtomicI64, count: usize| {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            count - shown.swap(count, Ordering::Relaxed)
        };
        self.running.add(change(&self.shown_running, running), &[]);
        self.lot.add(change(&self.shown_lot, lot), &[]);
    }

    /// Whether notifications arrive.
    pub(crate) fn record_receiving(&self, up: bool) {
        self.up.record(u64::from(up), &[]);
    }
}

impl Drop for WorkerGauges {
    fn drop(&mut self) {
        self.show(0, 0);
    }
}

/// What the minute's passes find.
#[derive(Clone)]
pub(crate) struct WakeMetrics {
    recovered: Counter<u64>,
}

impl WakeMetrics {
    pub(crate) fn new() -> Self {
        let recovered = counter(
            "wakeq.probe.recovered",
            "{event}",
            "Due events that the minute's pass found instead of their notifications",
        );
        recovered.add(0, &[]);
        Self { recovered }
    }

    pub(crate) fn recovered(&self, count: usize) {
        if count > 0 {
            self.recovered.add(u64::try_from(count).unwrap_or(u64::MAX), &[]);
        }
    }
}

/// Events that were broadcast, and those that listeners miss.
pub(crate) struct BroadcastMetrics {
    broadcasts: Counter<u64>,
}

impl BroadcastMetrics {
    pub(crate) fn new() -> Self {
        let broadcasts = counter(
            "wakeq.broadcasts",
            "{event}",
            "Events that were broadcast, and those that listeners miss",
        );
        Self { broadcasts }
    }

    /// The outcome is `sent`; `failed` if the broker did not take them; or `dropped` if too many
    /// were waiting.
    pub(crate) fn broadcast(&self, outcome: &'static str, count: usize) {
        if count > 0 {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            self.broadcasts.add(count, &[KeyValue::new("outcome", outcome)]);
        }
    }
}

/// A handler in the gauges of the queue.
#[derive(Clone, Debug)]
pub struct HandlerGauge {
    /// The handler.
    pub scope: HandlerScope,
    /// How many of its events are due and free to run.
    pub depth: u64,
    /// How long the first of them has been due.
    pub oldest: Option<Duration>,
}

/// A registered queue in the gauges. There are few, so their names are used as labels.
#[derive(Clone, Debug)]
pub struct QueueGauge {
    /// Its name.
    pub queue: Name,
    /// How many of its copies wait.
    pub depth: u64,
    /// Of how many canvases.
    pub canvases: u64,
}

/// Gauges that are read only when metrics are collected.
pub struct Gauges {
    _kept: (ObservableGauge<u64>, ObservableGauge<f64>, ObservableGauge<u64>, ObservableGauge<u64>),
    _of_queues: [ObservableGauge<u64>; 2],
    _of_log: ObservableGauge<f64>,
}

impl Gauges {
    /// Shows what the functions return whenever metrics are collected: handlers; how many objects
    /// are halted for each; queues; how long readers of the log have been held back; connections,
    /// in use and idle. They must not block for long.
    #[doc(hidden)]
    pub fn over(
        handlers: impl Fn() -> Vec<HandlerGauge> + Clone + Send + Sync + 'static,
        halted: impl Fn() -> Vec<(HandlerScope, u64)> + Send + Sync + 'static,
        queues: impl Fn() -> Vec<QueueGauge> + Clone + Send + Sync + 'static,
        held: impl Fn() -> Option<Duration> + Send + Sync + 'static,
        connections: impl Fn() -> Option<(u64, u64)> + Send + Sync + 'static,
    ) -> Self {
        let meter = meter();
        let labels = Arc::new(Labels::default());
        let (known, depths, of_halted) = (Arc::clone(&labels), handlers.clone(), Arc::clone(&labels));
        let depth = observed(
            "wakeq.handler.depth",
            "{event}",
            "Events that are due and free to run, of each handler; 10,000 at most",
            move |observer| {
                for (label, depth) in sums(depths(), &known) {
                    observer.observe(depth, &[KeyValue::new("handler", label)]);
                }
            },
        );
        let oldest = meter
            .f64_observable_gauge("wakeq.handler.oldest")
            .with_unit("s")
            .with_description("For how long the oldest of them has been due")
            .with_callback(move |observer| {
                for (label, oldest) in oldest_of(handlers(), &labels) {
                    observer.observe(oldest.as_secs_f64(), &[KeyValue::new("handler", label)]);
                }
            })
            .build();
        let halted = observed(
            "wakeq.handler.halted",
            "{object}",
            "Objects that are halted for a handler because one of their events died there",
            move |observer| {
                let mut sums: BTreeMap<String, u64> = BTreeMap::new();
                for (scope, objects) in halted() {
                    *sums.entry(of_halted.of(&scope).to_string()).or_default() += objects;
                }
                for (label, objects) in sums {
                    observer.observe(objects, &[KeyValue::new("handler", label)]);
                }
            },
        );
        let pool =
            observed("wakeq.pool.connections", "{connection}", "Connections to Postgres", move |observer| {
                if let Some((used, idle)) = connections() {
                    observer.observe(used, &[KeyValue::new("state", "used")]);
                    observer.observe(idle, &[KeyValue::new("state", "idle")]);
                }
            });
        let (_of_queues, _of_log) = (gauges_of_queues(queues), gauge_of_log(held));
        Self { _kept: (depth, oldest, halted, pool), _of_queues, _of_log }
    }
}

fn gauge_of_log(held: impl Fn() -> Option<Duration> + Send + Sync + 'static) -> ObservableGauge<f64> {
    meter()
        .f64_observable_gauge("wakeq.log.held")
        .with_unit("s")
        .with_description(
            "For how long the oldest open transaction that appended has held readers of the log back",
        )
        .with_callback(move |observer| {
            if let Some(held) = held() {
                observer.observe(held.as_secs_f64(), &[]);
            }
        })
        .build()
}

fn gauges_of_queues(
    queues: impl Fn() -> Vec<QueueGauge> + Clone + Send + Sync + 'static,
) -> [ObservableGauge<u64>; 2] {
    let label = |gauge: &QueueGauge| [KeyValue::new("queue", gauge.queue.to_string())];
    let depths = queues.clone();
    let depth = observed(
        "wakeq.queue.depth",
        "{event}",
        "Copies that are due and free to run, of each registered queue; 10,000 at most",
        move |observer| {
            depths().iter().for_each(|gauge| observer.observe(gauge.depth, &label(gauge)));
        },
    );
    let canvases = observed(
        "wakeq.queue.canvases",
        "{canvas}",
        "Canvases that have turns in each registered queue; 10,000 at most",
        move |observer| {
            queues().iter().for_each(|gauge| observer.observe(gauge.canvases, &label(gauge)));
        },
    );
    [depth, canvases]
}

/// A handler without due events is shown only if it has a name already; otherwise events of a far
/// day would use up the names.
fn is_shown(handler: &HandlerGauge, labels: &Labels) -> bool {
    handler.depth > 0 || labels.knows(&handler.scope)
}

/// One number per name, because `other` stands for many handlers.
fn sums(handlers: Vec<HandlerGauge>, labels: &Labels) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for handler in handlers.into_iter().filter(|handler| is_shown(handler, labels)) {
        *sums.entry(labels.of(&handler.scope).to_string()).or_default() += handler.depth;
    }
    sums
}

fn oldest_of(handlers: Vec<HandlerGauge>, labels: &Labels) -> BTreeMap<String, Duration> {
    let mut oldest = BTreeMap::new();
    for handler in handlers.into_iter().filter(|handler| is_shown(handler, labels)) {
        let age = handler.oldest.unwrap_or_default();
        let known = oldest.entry(labels.of(&handler.scope).to_string()).or_insert(age);
        *known = age.max(*known);
    }
    oldest
}
