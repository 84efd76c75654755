//! Rules on whole canvases and on everything: what they hold, what lifting them wakes, and that
//! they cost nothing where there are none.

use std::collections::{BTreeSet, HashSet};

use super::cost::{CLAIM, buffers, claim_arguments, plan};
use super::queues::{canvas, email, emails, emit_emails, take};
use super::{Table, limits, scope, shuffled, tester, told};
use crate::event::{Actor, CanvasId, EventId, HandlerScope, Notification, RuleKind, RuleReach};
use crate::store::{FacetSettings, Store, StoreConfig};

const OTHER: CanvasId = CanvasId(uuid::Uuid::from_u128(7));

impl Table {
    async fn switch_off(&self, scope: &HandlerScope) {
        self.store.add_rule(RuleKind::Block, scope, None, None, &operator()).await.unwrap();
    }

    /// Lifts a switch; returns its job.
    async fn switch_on(&self, scope: &HandlerScope) -> i64 {
        self.store.lift_rule(RuleKind::Block, scope, &operator()).await.unwrap().jobs[0]
    }

    /// Adds parked events: this many of each of so many handlers of a canvas.
    async fn add_parked(&self, of: CanvasId, handlers: i32, each: i32) {
        let add = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
                   select gen_random_uuid(), $1, 'WORKER', 'h' || n % $2, '_', '1', null from generate_series(1, $2 * $3) n";
        let add = sqlx::query(add).bind(of.0).bind(handlers).bind(each);
        add.execute(&self.pool).await.unwrap();
    }

    async fn rule_of(&self, id: EventId) -> Option<RuleKind> {
        self.store.load(&[id]).await.unwrap()[0].as_ref().unwrap().schedule.rule
    }

    async fn claimed(&self, events: &[Notification]) -> usize {
        self.store.claim(events, &limits()).await.unwrap().into_iter().flatten().count()
    }

    async fn jobs_left(&self) -> i64 {
        self.number("select count(*) from wakeq.resume_jobs").await
    }
}

fn operator() -> Actor {
    Actor::admin("operator")
}

fn whole() -> HandlerScope {
    HandlerScope::of_canvas(CanvasId::DEFAULT)
}

/// Runs a job, and those that it makes, to their end; as another process would, those that are
/// made are only taken from the table.
async fn resume_all(store: &Store, job: i64) -> Vec<Notification> {
    let (mut woken, mut jobs) = (Vec::new(), vec![job]);
    while let Some(job) = jobs.pop() {
        loop {
            let page = store.resume_page(job).await.unwrap();
            woken.extend(page.notifications);
            jobs.extend(page.jobs.into_iter().map(|(_, job)| job));
            if !page.more {
                break;
            }
        }
    }
    woken
}

/// A canvas is held, and no other; with everything, all are. An event is not claimed, is loaded
/// with the rule, is parked, and has no promise then.
#[tokio::test]
async fn a_switch_holds_what_it_says() {
    let table = Table::new().await;
    let own = table.add(2).await;
    let theirs = table.add(2).await;
    let give = sqlx::query("update wakeq.events_v2 set canvas_id = $1 where id = any ($2)").bind(OTHER.0);
    give.bind(theirs.iter().map(|id| id.0).collect::<Vec<_>>()).execute(&table.pool).await.unwrap();
    let other: Vec<_> = theirs.iter().map(|id| Notification::new(*id, OTHER)).collect();
    table.switch_off(&whole()).await;
    assert_eq!(table.claimed(&told(&own[..1])).await, 0);
    assert_eq!(table.claimed(&other[..1]).await, 1, "of another canvas");
    assert_eq!((table.rule_of(own[0]).await, table.rule_of(theirs[1]).await), (Some(RuleKind::Block), None));
    assert_eq!(table.store.park(&[own[0], theirs[1]]).await.unwrap(), [true, false]);
    assert_eq!(table.store.depth(CanvasId::DEFAULT, None).await.unwrap().depth, 0);
    assert_eq!(table.store.depth(OTHER, None).await.unwrap().depth, 1);
    let depths = table.store.depths().await.unwrap();
    assert_eq!(depths.iter().map(|found| found.depth.depth).sum::<u64>(), 1);

    table.switch_off(&HandlerScope::of_everything()).await;
    assert_eq!(table.claimed(&other[1..]).await, 0);
    assert_eq!(table.store.park(&[theirs[1]]).await.unwrap(), [true]);
    let over = table.store.rules_over(&scope()).await.unwrap();
    let reaches: Vec<_> = over.iter().map(|rule| rule.reach()).collect();
    assert_eq!(reaches, [RuleReach::Everything, RuleReach::Canvas]);
    let job = table.switch_on(&HandlerScope::of_everything()).await;
    assert_eq!(resume_all(&table.store, job).await, other[1..], "the canvas is still stopped");
    let job = table.switch_on(&whole()).await;
    assert_eq!(resume_all(&table.store, job).await, told(&own[..1]));
    assert_eq!((table.parked().await, table.jobs_left().await), (0, 0));
    assert_eq!(table.claimed(&told(&own)).await, 2);
    assert_eq!(table.claimed(&other[1..]).await, 1);
}

/// 10,000 events of 250 handlers: three pages of jobs, then the events. A handler's own rule and
/// another canvas stay as they are.
#[tokio::test]
async fn lifting_a_switch_wakes_page_after_page_and_leaves_what_else_is_held() {
    let table = Table::new().await;
    table.switch_off(&whole()).await;
    table.add_parked(CanvasId::DEFAULT, 250, 40).await;
    table.add_parked(OTHER, 1, 5).await;
    let own = HandlerScope::worker(CanvasId::DEFAULT, "h77").unwrap();
    table.store.add_rule(RuleKind::Pause, &own, None, None, &tester()).await.unwrap();
    let job = table.switch_on(&whole()).await;
    let mut made = Vec::new();
    for (jobs, more) in [(100, true), (200, true), (249, false)] {
        let page = table.store.resume_page(job).await.unwrap();
        assert!(page.notifications.is_empty() && !page.elsewhere && page.more == more, "{page:?}");
        made.extend(page.jobs);
        // One of them is of the paused handler, and makes no job.
        assert!(made.len() == jobs || made.len() + 1 == jobs, "{} jobs", made.len());
    }
    assert_eq!(made.len(), 249);
    assert!(!table.store.resume_page(job).await.unwrap().more, "it has ended");
    let mut woken = HashSet::new();
    for (_, job) in made {
        woken.extend(resume_all(&table.store, job).await);
    }
    assert_eq!((woken.len(), table.parked().await, table.jobs_left().await), (9_960, 40 + 5, 0));
    let job = table.store.lift_rule(RuleKind::Pause, &own, &tester()).await.unwrap().jobs[0];
    assert_eq!(resume_all(&table.store, job).await.len(), 40);
}

/// A process that dies between two pages leaves its place in the job's row, and the jobs that it
/// made: any other finds them by its minute's pass.
#[tokio::test]
async fn the_job_of_a_switch_outlives_its_process() {
    let table = Table::new().await;
    table.switch_off(&HandlerScope::of_everything()).await;
    for number in [0, 7, 8] {
        table.add_parked(canvas(number), 120, 2).await;
    }
    table.switch_on(&HandlerScope::of_everything()).await;
    let mut passes = 0;
    while table.jobs_left().await > 0 {
        passes += 1;
        assert!(passes < 20, "{} jobs are left", table.jobs_left().await);
        table.run("update wakeq.chores set next_at = now() where name = 'minute'").await;
        let minute = table.store.minute(false, None).await.unwrap();
        // One page of each, and then the process is dead.
        let other = table.other_store(StoreConfig::default()).await;
        for (_, job) in minute.jobs {
            other.resume_page(job).await.unwrap();
        }
    }
    assert_eq!(table.parked().await, 0);
}

/// Every canvas with parked events has a job of its own, beginning with that of zeros, which is
/// before all others.
#[tokio::test]
async fn everything_is_woken_canvas_by_canvas() {
    let table = Table::new().await;
    table.switch_off(&HandlerScope::of_everything()).await;
    for number in 0..150 {
        table.add_parked(canvas(number), 1, 1).await;
    }
    let paused = HandlerScope::of_canvas(canvas(3));
    table.store.add_rule(RuleKind::Pause, &paused, None, None, &tester()).await.unwrap();
    let job = table.switch_on(&HandlerScope::of_everything()).await;
    let first = table.store.resume_page(job).await.unwrap();
    let second = table.store.resume_page(job).await.unwrap();
    assert!(first.more && !second.more);
    let canvases: BTreeSet<u128> =
        first.jobs.iter().chain(&second.jobs).map(|(canvas, _)| canvas.0.as_u128()).collect();
    assert_eq!(canvases, (0..150).filter(|number| *number != 3).collect());
    for (_, job) in first.jobs.into_iter().chain(second.jobs) {
        assert_eq!(resume_all(&table.store, job).await.len(), 1);
    }
    assert_eq!((table.parked().await, table.jobs_left().await), (1, 0));
}

/// While the block stands, lifting the pause of the same canvas wakes nothing; and a switch that
/// reached its end is lifted by the minute's statement, with its job.
#[tokio::test]
async fn a_switch_under_another_wakes_nothing_and_one_that_ends_wakes_its_canvas() {
    let table = Table::new().await;
    table.switch_off(&whole()).await;
    table.store.add_rule(RuleKind::Pause, &whole(), None, None, &tester()).await.unwrap();
    table.add_parked(CanvasId::DEFAULT, 2, 2).await;
    let lifted = table.store.lift_rule(RuleKind::Pause, &whole(), &tester()).await.unwrap();
    assert!(lifted.other_stands);
    assert!(resume_all(&table.store, lifted.jobs[0]).await.is_empty());
    assert_eq!((table.parked().await, table.jobs_left().await), (4, 0));
    table.run("update wakeq.scheduling_rules set until = now() - interval '1 s'").await;
    let minute = table.store.minute(false, None).await.unwrap();
    assert_eq!(minute.jobs.len(), 1);
    assert_eq!(resume_all(&table.store, minute.jobs[0].1).await.len(), 4);
}

/// What a switch holds still is not woken when the pause of its handler is lifted, but with the
/// switch. Another canvas, whose handler is lifted meanwhile, is woken.
#[tokio::test]
async fn a_handler_lifted_beneath_a_switch_stays_parked() {
    let table = Table::new().await;
    let theirs = HandlerScope::worker(OTHER, "h0").unwrap();
    let own = HandlerScope::worker(CanvasId::DEFAULT, "h0").unwrap();
    table.add_parked(CanvasId::DEFAULT, 1, 1_200).await;
    table.add_parked(OTHER, 1, 3).await;
    for switch in [whole(), HandlerScope::of_everything()] {
        table.switch_off(&switch).await;
        table.store.add_rule(RuleKind::Pause, &own, None, None, &tester()).await.unwrap();
        let job = table.store.lift_rule(RuleKind::Pause, &own, &tester()).await.unwrap().jobs[0];
        let page = table.store.resume_page(job).await.unwrap();
        assert!(page.notifications.is_empty() && !page.more && !page.elsewhere, "{page:?}");
        assert_eq!((table.parked().await, table.jobs_left().await), (1_203, 0));
        table.run("delete from wakeq.scheduling_rules").await;
    }
    table.switch_off(&whole()).await;
    table.store.add_rule(RuleKind::Pause, &theirs, None, None, &tester()).await.unwrap();
    let job = table.store.lift_rule(RuleKind::Pause, &theirs, &tester()).await.unwrap().jobs[0];
    assert_eq!(resume_all(&table.store, job).await.len(), 3);
    let job = table.switch_on(&whole()).await;
    assert_eq!(resume_all(&table.store, job).await.len(), 1_200);
    assert_eq!((table.parked().await, table.jobs_left().await), (0, 0));
}

/// A queue that does not show its copies is not held by the switch of a canvas, so its copies are
/// woken beneath it.
#[tokio::test]
async fn copies_that_a_switch_does_not_hold_are_woken_beneath_it() {
    let table = emails(FacetSettings::default()).await;
    table.run("update wakeq.queues set tenant_visible = true").await;
    let copies = emit_emails(&table.store, canvas(1), 2).await;
    let (switch, handler) = (HandlerScope::of_canvas(canvas(1)), email(canvas(1)).address.scope);
    table.store.add_rule(RuleKind::Pause, &handler, None, None, &tester()).await.unwrap();
    table.switch_off(&switch).await;
    assert_eq!(table.store.park(&copies).await.unwrap(), [true; 2]);
    let job = table.store.lift_rule(RuleKind::Pause, &handler, &tester()).await.unwrap().jobs[0];
    assert!(resume_all(&table.store, job).await.is_empty(), "the queue shows them");
    table.run("update wakeq.queues set tenant_visible = false").await;
    table.store.add_rule(RuleKind::Pause, &handler, None, None, &tester()).await.unwrap();
    let job = table.store.lift_rule(RuleKind::Pause, &handler, &tester()).await.unwrap().jobs[0];
    assert_eq!(resume_all(&table.store, job).await.len(), 2);
}

/// A claim that has not seen a switch can't commit after it has been set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_claim_commits_after_a_switch_was_set() {
    let table = Table::new().await;
    let ids = table.add(60).await;
    let mut late = 0;
    for round in 0..30 {
        let store = table.store.clone();
        let batches: Vec<Vec<EventId>> = shuffled(&ids, round).chunks(6).map(<[_]>::to_vec).collect();
        let claiming = tokio::spawn(async move {
            for batch in batches {
                store.claim(&told(&batch), &limits()).await.unwrap();
            }
        });
        for _ in 0..round % 6 {
            table.number("select 1::bigint").await;
        }
        let switch = if round % 2 == 0 { whole() } else { HandlerScope::of_everything() };
        table.switch_off(&switch).await;
        let claimed = "select count(*) from wakeq.events_v2 where locked_at is not null";
        let at_return = table.number(claimed).await;
        claiming.await.unwrap();
        late += table.number(claimed).await - at_return;
        table.switch_on(&switch).await;
        table.run("update wakeq.events_v2 set locked_at = null, worker = null").await;
    }
    assert_eq!(late, 0);
}

/// Workers park under a handler's pause and under a switch while both are lifted, in either order:
/// nothing stays parked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: `cargo xtask long` runs it"]
async fn nothing_stays_parked_behind_a_lifted_switch() {
    let table = Table::new().await;
    let ids = table.add(60).await;
    let mut parked = 0;
    for round in 0..100 {
        table.pause().await;
        table.switch_off(&whole()).await;
        let mut parkers = tokio::task::JoinSet::new();
        for half in ids.chunks(30) {
            let (store, half) = (table.store.clone(), shuffled(half, round));
            parkers.spawn(async move {
                let mut parked = 0;
                for batch in half.chunks(6) {
                    parked += store.park(batch).await.unwrap().into_iter().filter(|parked| *parked).count();
                }
                parked
            });
        }
        // At another moment in every round.
        for _ in 0..round % 10 {
            table.number("select 1::bigint").await;
        }
        for step in 0..2 {
            let job = match (round + step) % 2 {
                0 => table.unpause().await,
                _ => table.switch_on(&whole()).await,
            };
            resume_all(&table.store, job).await;
        }
        parked += parkers.join_all().await.into_iter().sum::<usize>();
        assert_eq!(table.parked().await, 0, "round {round}");
    }
    assert!(parked > 300, "the rounds met nothing: {parked} parked");
}

/// A canvas's switch holds copies in the queues that show them to it. One on everything holds all;
/// lifting it wakes also those that are under other rules, which do not hold them.
#[tokio::test]
async fn copies_are_held_as_their_queue_says() {
    let table = emails(FacetSettings::default()).await;
    let copies =
        [emit_emails(&table.store, canvas(1), 1).await, emit_emails(&table.store, canvas(2), 1).await];
    let (first, handler) = (HandlerScope::of_canvas(canvas(1)), email(canvas(2)).address.scope);
    table.switch_off(&first).await;
    assert_eq!(table.rule_of(copies[0][0]).await, None);
    assert_eq!(table.store.park(&copies[0]).await.unwrap(), [false], "its queue does not show it");
    table.run("update wakeq.queues set tenant_visible = true").await;
    assert_eq!(table.rule_of(copies[0][0]).await, Some(RuleKind::Block));
    let taken = take(&table.store, 5).await;
    assert_eq!(taken.iter().map(|copy| copy.claim.id).collect::<Vec<_>>(), copies[1]);
    table.store.release(&[taken[0].claim]).await.unwrap();

    table.run("update wakeq.queues set tenant_visible = false").await;
    table.store.add_rule(RuleKind::Pause, &handler, None, None, &tester()).await.unwrap();
    table.switch_off(&HandlerScope::of_everything()).await;
    table.store.announce(&copies.concat()).await.unwrap();
    assert!(take(&table.store, 5).await.is_empty());
    assert_eq!(table.store.park(&copies.concat()).await.unwrap(), [true; 2]);
    let job = table.switch_on(&HandlerScope::of_everything()).await;
    assert_eq!(resume_all(&table.store, job).await.len(), 2, "no other rule holds them");
    table.store.announce(&copies.concat()).await.unwrap();
    assert_eq!(take(&table.store, 5).await.len(), 2);
}

/// Without rules, a claim looks up none; without switches, it looks for one once.
#[tokio::test]
async fn a_claim_pays_for_no_switch_where_there_is_none() {
    let table = Table::of_one_connection().await;
    let ids = table.add(400).await;
    table.claim(&ids[..1]).await;
    let claim = async |from: usize| plan(&table.store, CLAIM, &claim_arguments(&ids[from..from + 50])).await;
    claim(50).await;
    let none = claim(100).await;
    let executed =
        none.lines().filter(|line| line.contains("scheduling_rules") && !line.contains("never executed"));
    assert_eq!(executed.count(), 1, "whether there is any rule:\n{none}");
    table
        .run(
            "insert into wakeq.scheduling_rules (rule_type, canvas_id, event_space, handler_name)
               values ('pause', gen_random_uuid(), 'WORKER', 'known')",
        )
        .await;
    claim(150).await;
    let ruled = claim(200).await;
    let switches = buffers(&ruled, "scheduling_rules_switches");
    assert!(switches <= 2, "{switches} pages for whether there is a switch:\n{ruled}");
    let looked_up =
        ruled.lines().filter(|line| line.contains("scheduling_rules_switches") && line.contains("loops=50"));
    assert_eq!(looked_up.count(), 0, "{ruled}");
}

/// However many canvases have jobs, that of everything is among those that a pass continues.
#[tokio::test]
async fn the_job_of_everything_is_among_the_first() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.resume_jobs (kind, canvas_id, module, name)
             select 'lifted', gen_random_uuid(), 'WORKER', 'greet' from generate_series(1, 1500)
              union all
             select 'lifted', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'CANVAS', '_'",
        )
        .await;
    let of_all =
        "select count(*) from wakeq.open_jobs() where canvas_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff'";
    assert_eq!(table.number(of_all).await, 1);
    assert_eq!(table.number("select count(*) from wakeq.open_jobs()").await, 1_000);
}
