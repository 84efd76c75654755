//! The claim's conditions and the machine's checks are the same rules written twice; tests check
//! that they agree.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio_util::sync::CancellationToken;

use super::handlers::{Handlers, Registry, Room, Route};
use crate::event::{Actor, CanvasId, EventFilter, EventId, EventState, NewLimit, RuleKind, Turn};
use crate::machine::{Effect, Input, Policy, State, check_schedule};
use crate::store::tests::{Row, Table, told};
use crate::store::{ClaimLimits, ClaimedEvent, LimitedClaim, LoadedEvent};

const LOSSES_BELOW: i32 = 3;
const LEASE_MS: i64 = 60_000;

/// Which handler a worker has for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandlerMatch {
    No,
    ForEveryCanvas,
    ForThisCanvas,
    ForAnotherCanvas,
}

/// Milliseconds around a moment: well before, just before, at, just after, well after.
fn around(moment_ms: i64) -> impl Strategy<Value = i64> {
    let near = [-3_600_000, -500, -20, -1, 0, 1, 20, 500, 3_600_000];
    proptest::sample::select(near.map(|offset| moment_ms + offset).to_vec())
}

fn rows() -> impl Strategy<Value = (Row, HandlerMatch)> {
    let due = prop_oneof![3 => Just(-1000), 1 => around(0)];
    let locked =
        prop_oneof![3 => Just(None), 3 => around(-LEASE_MS).prop_map(Some), 1 => around(0).prop_map(Some)];
    let kind = prop_oneof![Just(RuleKind::Pause), Just(RuleKind::Block)];
    let until = prop_oneof![1 => Just(None), 2 => around(0).prop_map(Some)];
    let rule = prop_oneof![3 => Just(None), 2 => (kind, until).prop_map(Some)];
    let handler_match = prop_oneof![
        1 => Just(HandlerMatch::No),
        3 => Just(HandlerMatch::ForEveryCanvas),
        2 => Just(HandlerMatch::ForThisCanvas),
        1 => Just(HandlerMatch::ForAnotherCanvas),
    ];
    let turn = prop_oneof![
        4 => Just(None),
        2 => Just(Some(Turn::First)),
        1 => Just(Some(Turn::Behind)),
        1 => Just(Some(Turn::Halted)),
    ];
    (due, locked, 0..5, rule, handler_match, turn).prop_map(
        |(due_ms, locked_ms, losses, rule, handler_match, turn)| {
            (Row { name: String::new(), due_ms, locked_ms, losses, rule, turn }, handler_match)
        },
    )
}

/// Whether the machine gets from the load's answer to the claim.
fn reaches_the_claim(event: &LoadedEvent, registry: &Registry) -> bool {
    let lease = Duration::from_millis(LEASE_MS.cast_unsigned());
    let policy = Policy {
        lease,
        horizon: Duration::from_secs(600),
        losses_max: 5,
        retry_delay_max: Duration::MAX,
        spreads: true,
    };
    let mut state = State::EventLoad;
    loop {
        let input = match state.effect() {
            Effect::LoadEvent => Input::Loaded(Some(event.schedule)),
            Effect::Decide => Input::Decide,
            Effect::FindHandler => Input::Handler(registry.find(&event.address).map(|handler| handler.retry)),
            Effect::ClaimLock => return true,
            Effect::Recall
            | Effect::Park
            | Effect::Defer
            | Effect::RunHandler
            | Effect::PauseHandler
            | Effect::SaveRetry { .. }
            | Effect::Release(_)
            | Effect::Remove(..)
            | Effect::HandOver
            | Effect::Wait(_)
            | Effect::Answer(_) => return false,
        };
        state = state.step(input, &policy).unwrap().next;
    }
}

fn registry(handler_matches: &[HandlerMatch]) -> Registry {
    let mut handlers = Handlers::new();
    for (index, handler_match) in handler_matches.iter().enumerate() {
        let route = Route::new(&format!("h{index}"));
        let route = match handler_match {
            HandlerMatch::No => continue,
            HandlerMatch::ForEveryCanvas => route,
            HandlerMatch::ForThisCanvas => route.canvas(CanvasId::DEFAULT),
            HandlerMatch::ForAnotherCanvas => route.canvas(CanvasId(uuid::Uuid::from_u128(7))),
        };
        handlers = handlers.on(route, |_event| async { Ok(()) });
    }
    handlers.registry(&Room::of_test(1, CancellationToken::new())).unwrap()
}

/// Every row has a twin. The row is loaded, then claimed, then its twin is loaded. Time can only
/// make a row claimable, so the claim must succeed if the first load finds the row claimable, and
/// the second load must find the twin claimable if the claim succeeds.
async fn agree(table: &Table, drawn: Vec<(Row, HandlerMatch)>, is_limited: bool) -> (usize, usize) {
    let (rows, handler_matches): (Vec<Row>, Vec<HandlerMatch>) = drawn.into_iter().unzip();
    let named = rows.into_iter().enumerate().map(|(index, row)| Row { name: format!("h{index}"), ..row });
    let rows: Vec<Row> = named.flat_map(|row| [row.clone(), row]).collect();
    let registry = registry(&handler_matches);
    let limits = ClaimLimits {
        handlers: registry.any_canvas().into(),
        canvas_handlers: registry.one_canvas(),
        losses_below: LOSSES_BELOW,
        value_max: i32::MAX,
    };
    let ids = table.set(&rows).await;
    let (firsts, twins): (Vec<EventId>, Vec<EventId>) = ids.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
    let before = table.store.load(&firsts).await.unwrap();
    let mut claimed = table.store.claim(&told(&firsts), &limits).await.unwrap();
    if is_limited {
        assert!(claimed.iter().all(Option::is_none), "an event with limits was claimed without them");
        assert!(before.iter().flatten().all(|event| event.is_limited));
        let turns = table.store.claim_limited(&told(&firsts), &limits).await.unwrap();
        claimed = turns.claims.into_iter().map(claimed_through_limits).collect();
    }
    let after = table.store.load(&twins).await.unwrap();
    let mut won = 0;
    for (at, row) in rows.iter().step_by(2).enumerate() {
        let few_losses = row.losses + i32::from(row.locked_ms.is_some()) < LOSSES_BELOW;
        let opened = |loaded: &Option<LoadedEvent>| {
            few_losses && reaches_the_claim(loaded.as_ref().expect("it is there"), &registry)
        };
        let (early, late) = (opened(&before[at]), opened(&after[at]));
        assert!(
            !early || claimed[at].is_some(),
            "the machine lets it through, the claim does not: {row:?}, {:?}",
            handler_matches[at]
        );
        assert!(
            claimed[at].is_none() || late,
            "the claim lets it through, the machine does not: {row:?}, {:?}",
            handler_matches[at]
        );
        if let Some(event) = &claimed[at] {
            won += 1;
            assert_eq!(event.losses, row.losses + i32::from(row.locked_ms.is_some()), "{row:?}");
            assert_eq!(event.took_over, row.locked_ms.is_some() && event.losses > 0, "{row:?}");
        }
    }
    (won, claimed.len())
}

/// The claim that was made. The limit has more places than there are events.
fn claimed_through_limits(turn: LimitedClaim) -> Option<ClaimedEvent> {
    match turn {
        LimitedClaim::Claimed(event) => {
            assert!(event.held.as_ref().is_some_and(|held| held.len() == 1), "it has a place: {event:?}");
            Some(*event)
        }
        LimitedClaim::Not => None,
        LimitedClaim::Full(_) | LimitedClaim::Later(_) => {
            panic!("the limit has room: {turn:?}")
        }
    }
}

/// The states in a list are those of the machine for the same rows at the same moment.
async fn listed(table: &Table, drawn: Vec<(Row, HandlerMatch)>) -> BTreeSet<String> {
    let named = drawn.into_iter().enumerate();
    let rows: Vec<Row> = named.map(|(index, (row, _))| Row { name: format!("h{index}"), ..row }).collect();
    table.set(&rows).await;
    let lease = Duration::from_millis(LEASE_MS.cast_unsigned());
    let policy = Policy {
        lease,
        horizon: Duration::from_secs(600),
        losses_max: 5,
        retry_delay_max: Duration::MAX,
        spreads: true,
    };
    let ahead = rows.iter().filter(|row| row.turn == Some(Turn::Behind)).count();
    let found = async |filter: EventFilter| {
        let found = table.store.events(CanvasId::DEFAULT, &filter, true, None, (1000, 1000)).await.unwrap();
        found.into_iter().filter(|event| event.is_meant).collect::<Vec<_>>()
    };
    assert_eq!(found(EventFilter::default()).await.len(), rows.len() + ahead);
    let mut states = BTreeSet::new();
    // From one list to the next, events come due, and rules and leases end.
    for state in EventState::ALL {
        for event in found(EventFilter { states: vec![state], ..EventFilter::default() }).await {
            assert_eq!(
                check_schedule(event.schedule, &policy).at_limit(event.waits).as_str(),
                state.as_str(),
                "{event:?}"
            );
            states.insert(state.as_str().to_owned());
        }
    }
    states
}

#[test]
fn the_lists_states_and_the_machine_agree_on_every_row() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let table = runtime.block_on(Table::new());
    let config = Config { cases: 5, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let seen = std::cell::RefCell::new(BTreeSet::new());
    TestRunner::new(config)
        .run(&vec(rows(), 300), |drawn| {
            seen.borrow_mut().extend(runtime.block_on(listed(&table, drawn)));
            Ok(())
        })
        .unwrap();
    assert_eq!(seen.into_inner().len(), 7, "every state was among them");
    runtime.block_on(async { drop(table) });
}

/// On every row the claim succeeds if and only if the machine gets from the load to the claim, the
/// handler is known and the losses are few.
// Shows: EV2-54, EV2-55, EV2-56, EV2-57, EV2-63, EV2-64
#[test]
fn the_claim_and_the_machine_agree_on_every_row() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let table = runtime.block_on(Table::new());
    let config = Config { cases: 5, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let (won, all) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    TestRunner::new(config)
        .run(&vec(rows(), 200), |drawn| {
            let (some, many) = runtime.block_on(agree(&table, drawn, false));
            won.set(won.get() + some);
            all.set(all.get() + many);
            Ok(())
        })
        .unwrap();
    assert!(won.get() * 10 > all.get(), "hardly any row could be claimed: {won:?} of {all:?}");
    // The table holds a connection, which belongs to the runtime.
    runtime.block_on(async { drop(table) });
}

/// The claim through limits has the conditions of the ordinary one, which leaves such events to it.
#[test]
fn the_claim_through_limits_and_the_machine_agree_on_every_row() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let table = runtime.block_on(Table::new());
    let many = NewLimit { concurrency: Some(NewLimit::CONCURRENCY_MAX), ..NewLimit::default() };
    let (name, ada) = ("canvas".parse().unwrap(), Actor::admin("ada"));
    runtime.block_on(table.store.put_limit(CanvasId::OF_ALL, &name, &many, &ada)).unwrap().unwrap();
    let config = Config { cases: 3, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let won = std::cell::Cell::new(0);
    TestRunner::new(config)
        .run(&vec(rows(), 200), |drawn| {
            won.set(won.get() + runtime.block_on(agree(&table, drawn, true)).0);
            Ok(())
        })
        .unwrap();
    assert!(won.get() > 60, "hardly any row could be claimed: {won:?}");
    runtime.block_on(async { drop(table) });
}
