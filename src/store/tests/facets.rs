//! DRV-24, as a property: whatever happens to the copies of a facet with a limit, in whatever
//! order, and whichever process dies meanwhile, no copy that may run is forgotten.

use std::collections::HashSet;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use uuid::Uuid;

use super::desk::{CLOSED, Desk, Holder, OPENED, Run, scope};
use super::queues::{canvas, event};
use super::tester;
use crate::event::{CanvasId, Cause, Due, EventId, Lane, NewEvent, Notification};
use crate::store::{CommandOutcome, Retry};

const OBJECT: &str = "mail:1";
/// Later than most of what may happen next, and before the next pass of the probe.
const SOON: Duration = Duration::from_secs(20);
/// How often to ask what the minute's pass finds, because each answer has only a part of it.
const LOOKS: i32 = 20;

/// A canvas and a handler.
type Of = (u128, &'static str);

/// One thing that happens. A number picks one of the possible subjects. A flag about notifying or
/// waking is false if a process ends just before that.
#[derive(Clone, Debug)]
enum Step {
    Emit {
        of: Of,
        count: usize,
        linked: bool,
        delayed: bool,
        announced: bool,
        told: bool,
    },
    Pause(Of),
    Lift(Of, bool),
    Weigh(u128, u32, bool),
    /// A worker loads the event of a notification, and later acts on what it loaded.
    Load(usize),
    GoOn(usize),
    Finish(usize),
    /// A worker takes the next step after a run, or ends before it.
    After(usize),
    Ends(usize),
    Fail(usize, Failure),
    /// A notification is lost that is not at the broker.
    Forget(usize),
    Operate(Operation),
}

/// Operators' actions, and time.
#[derive(Clone, Debug)]
enum Operation {
    RunNow(usize, bool),
    Cancel(usize, bool),
    Skip(Of, bool),
    Redrive(u128, bool),
    Later(Duration),
    Minute,
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Retry(Duration),
    Release,
    Death {
        halts: bool,
    },
    /// Its owner dies. The broker still has what it delivered, and nothing else remains.
    Owner,
}

/// One canvas more often than the other, so that more happens to one facet.
fn canvases() -> impl Strategy<Value = u128> {
    prop_oneof![4 => Just(1), 1 => Just(2)]
}

fn of() -> impl Strategy<Value = Of> {
    (canvases(), select(vec![OPENED, CLOSED]))
}

fn steps() -> impl Strategy<Value = Step> {
    let pick = || 0..64_usize;
    let emit = (
        of(),
        1..=4_usize,
        prop::bool::weighted(0.4),
        prop::bool::weighted(0.1),
        any::<bool>(),
        any::<bool>(),
    );
    let failure = prop_oneof![
        select(vec![Duration::ZERO, SOON]).prop_map(Failure::Retry),
        Just(Failure::Release),
        any::<bool>().prop_map(|halts| Failure::Death { halts }),
        Just(Failure::Owner),
        Just(Failure::Owner),
    ];
    prop_oneof![
        5 => emit.prop_map(|(of, count, linked, delayed, announced, told)| {
            Step::Emit { of, count, linked, delayed, announced, told }
        }),
        3 => of().prop_map(Step::Pause),
        3 => (of(), any::<bool>()).prop_map(|(of, wakes)| Step::Lift(of, wakes)),
        1 => (canvases(), prop_oneof![1 => Just(0_u32), 2 => Just(1)], any::<bool>())
            .prop_map(|(of, weight, wakes)| Step::Weigh(of, weight, wakes)),
        12 => pick().prop_map(Step::Load),
        12 => pick().prop_map(Step::GoOn),
        6 => pick().prop_map(Step::Finish),
        8 => pick().prop_map(Step::After),
        1 => pick().prop_map(Step::Ends),
        5 => (pick(), failure).prop_map(|(at, how)| Step::Fail(at, how)),
        1 => pick().prop_map(Step::Forget),
        6 => operations().prop_map(Step::Operate),
    ]
}

fn operations() -> impl Strategy<Value = Operation> {
    let pick = || 0..64_usize;
    prop_oneof![
        (pick(), any::<bool>()).prop_map(|(at, told)| Operation::RunNow(at, told)),
        (pick(), any::<bool>()).prop_map(|(at, told)| Operation::Cancel(at, told)),
        (of(), any::<bool>()).prop_map(|(of, told)| Operation::Skip(of, told)),
        (canvases(), any::<bool>()).prop_map(|(of, told)| Operation::Redrive(of, told)),
        select(vec![SOON, 2 * SOON]).prop_map(Operation::Later),
        Just(Operation::Minute),
    ]
}

/// A program of steps, and how many copies of a facet may be in flight.
// Shows: DRV-24
#[test]
#[ignore = "long: `cargo xtask long` runs it"]
fn no_copy_that_may_run_is_forgotten() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let desk = std::cell::RefCell::new(runtime.block_on(Desk::new(1)));
    let config = Config { cases: 16, source_file: Some(file!()), max_shrink_iters: 400, ..Config::default() };
    TestRunner::new(config)
        .run(&(1..=4_i32, vec(steps(), 30..120)), |(cap, program)| {
            runtime.block_on(desk.borrow_mut().play(cap, program));
            Ok(())
        })
        .unwrap();
    // Its table keeps a connection, which belongs to the runtime.
    runtime.block_on(async { drop(desk) });
}

impl Desk {
    async fn play(&mut self, cap: i32, program: Vec<Step>) {
        self.clear(cap).await;
        for (number, step) in program.into_iter().enumerate() {
            let told = format!("step {number}, {step:?}");
            self.take_step(step).await;
            self.check(&told).await;
        }
        self.come_to_an_end().await;
    }

    async fn clear(&mut self, cap: i32) {
        let emptied = "truncate wakeq.events_v2, wakeq.dead_events, wakeq.facets, wakeq.facet_settings, wakeq.queue_wakes,
                                wakeq.resume_jobs, wakeq.scheduling_rules, wakeq.halted_lanes, wakeq.tombstones, wakeq.objects";
        self.table.run(emptied).await;
        let capped = sqlx::query("update wakeq.queues set in_flight_max = $1").bind(cap);
        capped.execute(&self.table.pool).await.unwrap();
        (self.bag, self.memory, self.looks, self.running, self.ended) = Default::default();
        (self.emitted, self.done) = (0, 0);
    }

    async fn take_step(&mut self, step: Step) {
        match step {
            Step::Emit { of: (of, name), count, linked, delayed, announced, told } => {
                let due = if delayed { Due::After(SOON) } else { Due::Now };
                let object = linked.then(|| OBJECT.parse().unwrap());
                let new =
                    |_| NewEvent { object: object.clone(), due, ..event(canvas(of), "email_event", name) };
                let copies = self.insert(&(0..count).map(new).collect::<Vec<_>>()).await;
                if announced {
                    self.announce(&copies).await;
                }
                if told {
                    self.promise_late(&copies).await;
                    self.bag.extend(copies);
                }
            }
            Step::Pause((of, name)) => self.pause(of, name).await,
            Step::Lift((of, name), wakes) => self.lift(of, name, wakes).await,
            Step::Weigh(of, weight, wakes) => self.weigh(of, weight, wakes).await,
            Step::Load(at) => {
                if let Some((told, kept)) = self.pick(at) {
                    self.load(told, kept).await;
                }
            }
            Step::GoOn(at) => {
                if let Some(look) = picked(&mut self.looks, at) {
                    self.go_on(look).await;
                }
            }
            Step::Finish(at) if !self.running.is_empty() => self.finish(at % self.running.len()).await,
            Step::After(at) if !self.ended.is_empty() => self.after(at % self.ended.len()).await,
            Step::Ends(at) => drop(picked(&mut self.ended, at)),
            Step::Fail(at, how) => {
                if let Some(run) = picked(&mut self.running, at) {
                    self.fail(run, how).await;
                }
            }
            Step::Forget(at) => drop(picked(&mut self.memory, at)),
            Step::Finish(_) | Step::After(_) => {}
            Step::Operate(operation) => self.operate(operation).await,
        }
    }

    async fn operate(&mut self, operation: Operation) {
        match operation {
            Operation::RunNow(at, told) => {
                let Some(waiting) = self.waiting(at).await else { return };
                let outcome = self.table.store.run_now(waiting.canvas, waiting.id, &tester()).await.unwrap();
                self.bag.extend(Some(waiting).filter(|_| told && outcome == CommandOutcome::Done));
            }
            Operation::Cancel(at, told) => {
                let Some(waiting) = self.waiting(at).await else { return };
                let cancelled = self.table.store.cancel(waiting.canvas, waiting.id, &tester()).await.unwrap();
                self.emitted -= usize::from(cancelled.0 == CommandOutcome::Done);
                self.wake_lanes(cancelled.1.lane.into_iter().filter(|_| told).collect()).await;
            }
            Operation::Skip((of, name), told) => {
                let lane = Lane { scope: scope(of, name), object: OBJECT.parse().unwrap(), queue: None };
                let lanes = self.table.store.skip_lane(&lane, true, &tester()).await.unwrap();
                self.wake_lanes(lanes.into_iter().filter(|_| told).collect()).await;
            }
            Operation::Redrive(of, told) => self.redrive(of, told).await,
            Operation::Later(by) => self.advance(by).await,
            Operation::Minute => self.minute().await,
        }
    }

    async fn wake_lanes(&mut self, lanes: Vec<Lane>) {
        self.bag.extend(self.table.store.arm_firsts(&lanes).await.unwrap());
    }

    /// Picks a notification of the broker's or the worker's.
    fn pick(&mut self, at: usize) -> Option<(Notification, Holder)> {
        let all = self.bag.len() + self.memory.len();
        let at = at % all.max(1);
        if at < self.bag.len() {
            Some((self.bag.swap_remove(at), Holder::Broker))
        } else {
            picked(&mut self.memory, at - self.bag.len()).map(|told| (told, Holder::Worker))
        }
    }

    /// Picks a copy that is not running.
    async fn waiting(&self, at: usize) -> Option<Notification> {
        let free = "select id, canvas_id from wakeq.events_v2
                     where locked_at is null or locked_at < now() - interval '1 min' order by canvas_id, delay_until, id";
        let mut rows: Vec<(Uuid, Uuid)> = sqlx::query_as(free).fetch_all(&self.table.pool).await.unwrap();
        let (id, of) = picked(&mut rows, at)?;
        Some(Notification::new(EventId(id), CanvasId(of)))
    }

    /// Ends a run without completing it.
    async fn fail(&mut self, Run { event, kept }: Run, how: Failure) {
        let (store, claim) = (&self.table.store, event.claim);
        let told = Notification::new(claim.id, event.address.scope.canvas);
        match how {
            Failure::Retry(delay) => {
                let retry =
                    Retry { claim, retries: event.retries + 1, delay, error: "no".into(), noted: None };
                assert_eq!(store.retry(&[retry.into()]).await.unwrap(), [true]);
                self.memory.push(told);
                self.ended_with(&event, false);
            }
            Failure::Release => {
                store.release(&[claim]).await.unwrap();
                match kept.unwrap_or(Holder::Worker) {
                    Holder::Broker => self.bag.push(told),
                    Holder::Worker => self.memory.push(told),
                }
                self.ended_with(&event, false);
            }
            Failure::Death { halts } => {
                assert!(store.die(claim, Cause::Retries, Some("no"), halts, None).await.unwrap());
                self.ended_with(&event, true);
            }
            Failure::Owner => {
                let lost = "update wakeq.events_v2 set locked_at = locked_at - interval '1 h' where id = $1";
                sqlx::query(lost).bind(claim.id.0).execute(&self.table.pool).await.unwrap();
                self.bag.extend(Some(told).filter(|_| kept == Some(Holder::Broker)));
            }
        }
    }

    /// For every copy that may run in a facet that is not full, one of these holds: its
    /// notification exists somewhere, its promise is as near as that of a new one, or the minute's
    /// pass finds it.
    pub(super) async fn check(&self, after: &str) {
        let known: HashSet<Uuid> = self
            .bag
            .iter()
            .chain(&self.memory)
            .chain(self.looks.iter().map(|look| &look.told))
            .map(|told| told.id.0)
            .collect();
        let mut alone = self.without_a_promise().await;
        alone.retain(|id| !known.contains(id));
        let mut looks = 0;
        while !alone.is_empty() && looks < LOOKS {
            let found = self.found_by_the_minute().await;
            alone.retain(|id| !found.contains(id));
            looks += 1;
        }
        assert!(alone.is_empty(), "forgotten after {after}: {alone:?}");
    }

    /// Copies that may run in facets that are not full, and whose promise is further away than that
    /// of a new copy, or missing.
    async fn without_a_promise(&self) -> Vec<Uuid> {
        let those = "select e.id from wakeq.events_v2 e
              where e.queue is not null and e.delay_until <= now()
                and coalesce(e.notify_at > now() + $1 * interval '1 second', true)
                and (e.locked_at is null or e.locked_at < now() - interval '1 min')
                and not exists (select from wakeq.scheduling_rules r
                                 where r.canvas_id = e.canvas_id and r.event_space = e.module and r.handler_name = e.name)
                and (e.object is null
                     or e.id = wakeq.first_of_lane(e.canvas_id, e.object, e.queue, e.module, e.name)
                        and not wakeq.lane_halts(e.canvas_id, e.object, e.queue, e.module, e.name))
                and not wakeq.facet_holds(e.queue, e.canvas_id, '1 min')
                -- Somebody is about to wake it, and if nobody is, then the minute's pass.
                and not exists (select from wakeq.queue_wakes w
                                 where w.queue = e.queue and e.canvas_id = coalesce(w.canvas_id, e.canvas_id))
                and not (e.notify_at is null and exists (
                    select from wakeq.resume_jobs j
                     where j.canvas_id = e.canvas_id and j.module = e.module and j.name = e.name))";
        let near = self.table.store.timing().grace.as_secs_f64();
        sqlx::query_scalar(those).bind(near).fetch_all(&self.table.pool).await.unwrap()
    }

    /// The copies that the minute's pass would find in facets, over several searches, each with
    /// room for the most that it returns.
    async fn found_by_the_minute(&self) -> HashSet<Uuid> {
        let mut transaction = self.table.pool.begin().await.unwrap();
        let roomy = "update wakeq.queues set in_flight_max = in_flight_max + 8";
        sqlx::query(roomy).execute(&mut *transaction).await.unwrap();
        let found = "select distinct room.id from generate_series(1, 8) as look (number)
                      cross join (select * from wakeq.facets where running <> '{}' or was_full) as f
                      cross join lateral wakeq.room_in_facet(
                            f.queue, f.canvas_id, interval '1 min' + look.number * interval '1 microsecond', true) as room (id)";
        let found: Vec<Uuid> = sqlx::query_scalar(found).fetch_all(&mut *transaction).await.unwrap();
        transaction.rollback().await.unwrap();
        found.into_iter().collect()
    }

    /// Once everything may run, all of it has run within the next period of the probe.
    async fn come_to_an_end(&mut self) {
        for of in [1, 2] {
            self.lift(of, OPENED, true).await;
            self.lift(of, CLOSED, true).await;
            self.weigh(of, 1, true).await;
            self.redrive(of, true).await;
        }
        self.check("the end").await;
        self.advance(self.table.store.timing().probe_period).await;
        self.minute().await;
        self.run_all().await;
        // A copy that may run only alone is passed over by the turns of others, and promised again
        // each time. Nothing runs any longer, so of each lane only its first one's promise is left.
        while self.table.holds("select exists (select from wakeq.events_v2)").await {
            let (forgotten, done) = (self.without_a_promise().await, self.done);
            assert!(forgotten.is_empty(), "something did not run within a minute: {forgotten:?}");
            self.advance(self.table.store.timing().grace).await;
            self.minute().await;
            self.run_all().await;
            assert!(self.done > done, "what was promised again did not run");
        }
        assert!(!self.table.holds("select exists (select from wakeq.dead_events)").await);
        assert_eq!(self.done, self.emitted);
    }

    async fn run_all(&mut self) {
        let mut rounds = 0;
        while self.is_busy() {
            rounds += 1;
            assert!(rounds < 1000, "it does not come to an end");
            while let Some(look) = self.looks.pop() {
                self.go_on(look).await;
            }
            self.bag.append(&mut self.memory);
            for told in std::mem::take(&mut self.bag) {
                self.deliver(told).await;
            }
            while !self.running.is_empty() {
                self.complete(0).await;
            }
            while !self.ended.is_empty() {
                self.after(0).await;
            }
        }
    }

    fn is_busy(&self) -> bool {
        let told = self.bag.len() + self.memory.len();
        told + self.looks.len() + self.running.len() + self.ended.len() > 0
    }
}

fn picked<T>(from: &mut Vec<T>, at: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(at % from.len()))
}
