//! Leases, retries, dead letters, flow control, fates.

use super::*;

#[test]
fn a_message_is_handed_out_once_until_its_lease_runs_out() {
    let mut bench = Bench::new(settings());
    bench.publish(&["", ""]);
    assert_eq!(bench.numbers(A, 10), [1, 2]);
    bench.pass(LEASE - Duration::from_nanos(1));
    assert!(bench.take(B, 10).is_empty());
    assert!(bench.pass(Duration::from_nanos(1)).deliverable);
    assert_eq!(bench.numbers(B, 10), [1, 2]);
}

#[test]
fn what_is_acknowledged_never_comes_again() {
    let mut bench = Bench::new(settings());
    bench.publish(&["", ""]);
    let taken = bench.take(A, 1);
    assert_eq!(bench.ack_all(&taken).acked.len(), 1);
    bench.pass(secs(86_400));
    assert_eq!(bench.numbers(A, 10), [2]);
}

#[test]
fn a_lease_is_extended_from_now() {
    let mut bench = Bench::new(settings());
    bench.publish(&[""]);
    let taken = bench.take(A, 1);
    bench.pass(secs(9));
    bench.modify(&taken[0], secs(60));
    assert_eq!(bench.delivery.next_due(), Some(bench.now + secs(60)));
    bench.pass(secs(59));
    assert_eq!(bench.delivery.next_due(), Some(bench.now + secs(1)));
    assert!(bench.take(B, 1).is_empty());
    bench.pass(secs(1));
    assert_eq!(bench.numbers(B, 1), [1]);
}

#[test]
fn leases_of_many_lengths_run_out_in_the_order_of_their_ends() {
    let mut bench = Bench::new(settings());
    bench.publish(&["", "", ""]);
    let taken = bench.take(A, 3);
    for (taken, seconds) in taken.iter().zip([30, 20, 25]) {
        bench.modify(taken, secs(seconds));
    }
    bench.pass(secs(30));
    assert_eq!(bench.numbers(B, 3), [2, 3, 1]);
}

#[test]
fn a_nack_brings_the_message_again_at_once_and_the_backlog_gets_its_turn_too() {
    let mut bench = Bench::new(settings());
    bench.publish(&["", "", ""]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let taken = bench.take(A, 1);
        seen.extend(numbers(&taken));
        bench.nack(&taken[0]);
    }
    assert_eq!(seen, [1, 1, 2, 1]);
}

#[test]
fn failed_deliveries_wait_longer_and_longer() {
    let mut bench = Bench::new(Settings { retry: retry(10, 60), ..settings() });
    bench.publish(&[""]);
    for wait in [10, 20, 40, 60, 60] {
        let taken = bench.take(A, 1);
        bench.nack(&taken[0]);
        assert_eq!(bench.delivery.next_due(), Some(bench.now + secs(wait)));
        bench.pass(secs(wait) - Duration::from_nanos(1));
        assert!(bench.take(A, 1).is_empty());
        assert!(bench.pass(Duration::from_nanos(1)).deliverable);
    }
    let taken = bench.take(A, 1);
    assert_eq!(numbers(&taken), [1]);
    bench.pass(LEASE + secs(59));
    assert!(bench.take(A, 1).is_empty(), "a lease that runs out is a failure too");
    bench.pass(secs(1));
    assert_eq!(bench.numbers(A, 1), [1]);
}

#[test]
fn a_back_off_never_overflows() {
    let mut bench = Bench::new(Settings { retry: retry(600, 600), ..settings() });
    bench.publish(&[""]);
    for _ in 0..100 {
        let taken = bench.take(A, 1);
        bench.nack(&taken[0]);
        bench.pass(secs(600));
    }
    assert_eq!(bench.numbers(A, 1), [1]);
}

#[test]
fn a_late_acknowledgement_counts_until_the_message_is_handed_out_again() {
    let mut bench = Bench::new(Settings { retry: retry(60, 60), ..settings() });
    bench.publish(&["", ""]);
    let taken = bench.take(A, 2);
    bench.pass(LEASE);
    assert_eq!(bench.ack(&taken[0]).acked.len(), 1);
    bench.pass(secs(60));
    let again = bench.take(A, 2);
    assert_eq!(numbers(&again), [2]);
    assert_eq!(
        bench.ack(&taken[1]),
        super::super::AckResult { acked: vec![taken[1].ack_id.clone()], ..Default::default() }
    );
    assert_eq!(bench.backlog(), 1, "it was handed out again: the old id changes nothing");
    bench.ack(&again[0]);
    assert_eq!(bench.backlog(), 0);
}

#[test]
fn an_id_of_another_subscription_or_of_none_is_invalid() {
    let mut bench = Bench::new(settings());
    bench.publish(&[""]);
    let taken = bench.take(A, 1);
    let mut other = Delivery::new(8, settings());
    other.enqueue(bench.now, message(1, bench.now, ""), Fate::OnTime);
    other.take(bench.now, A, 1, usize::MAX, LEASE);
    let ids = [taken[0].ack_id.clone(), "ack".to_owned()];
    assert_eq!(other.acknowledge(bench.now, &ids).invalid, ids);
    assert_eq!(other.modify_deadline(bench.now, &[(ids[0].clone(), LEASE)]).invalid, ids[..1]);
    assert_eq!(other.figures(bench.now).leased, 1);
}

#[test]
fn attempts_are_counted_and_the_last_failure_makes_a_dead_letter() {
    let mut bench = Bench::new(Settings { dead_letter_after: Some(5), ..settings() });
    bench.publish(&[""]);
    for attempt in 1..=5 {
        assert!(bench.pass(Duration::ZERO).dead.is_empty());
        let taken = bench.take(A, 1);
        assert_eq!(taken[0].attempt, Some(attempt));
        if attempt % 2 == 0 {
            bench.nack(&taken[0]);
        } else {
            bench.now = bench.now + LEASE;
        }
    }
    bench.delivery.take(bench.now, A, 1, 0, LEASE);
    assert_eq!(bench.delivery.next_due(), Some(bench.now), "somebody has to take the dead");
    let dead = bench.pass(Duration::ZERO).dead;
    assert_eq!((dead.len(), dead[0].message.id, dead[0].attempts), (1, 1, 5));
    assert_eq!((bench.backlog(), bench.delivery.next_due()), (0, None));
}

#[test]
fn reports_delivery_attempts_only_with_dead_lettering() {
    let mut bench = Bench::new(settings());
    bench.publish(&[""]);
    assert_eq!(bench.take(A, 1)[0].attempt, None);
}

#[test]
fn bytes_are_a_limit_except_for_a_message_that_is_larger_than_all() {
    let mut bench = Bench::new(settings());
    bench.publish(&["", "", ""]);
    let take = |bench: &mut Bench, bytes| bench.delivery.take(bench.now, A, 10, bytes, LEASE);
    let first = take(&mut bench, 25);
    assert_eq!(numbers(&first), [1, 2]);
    assert_eq!(bench.delivery.held_by(StreamId(1)), (2, 20));
    assert!(take(&mut bench, 5).is_empty(), "too large, and the stream holds something");
    bench.ack_all(&first);
    assert_eq!(numbers(&take(&mut bench, 5)), [3], "too large, but the stream holds nothing");
}

#[test]
fn what_a_closed_stream_held_comes_again_when_its_lease_runs_out() {
    let mut bench = Bench::new(settings());
    bench.publish(&["", ""]);
    let taken = bench.take(A, 2);
    bench.delivery.release(bench.now, StreamId(1));
    assert!(bench.take(B, 2).is_empty());
    assert_eq!(bench.ack(&taken[0]).acked.len(), 1, "its ids stay valid");
    bench.pass(LEASE);
    assert_eq!(bench.numbers(B, 2), [2]);
    assert_eq!(bench.delivery.held_by(StreamId(1)), (0, 0));
}

#[test]
fn faults_duplicate_delay_and_reorder_messages() {
    let mut bench = Bench::new(settings());
    bench.publish_with("", Fate::OnTime);
    bench.publish_with("", Fate::Twice);
    bench.publish_with("", Fate::Late(secs(5)));
    bench.publish_with("", Fate::Ahead);
    assert_eq!(bench.delivery.figures(bench.now).waiting, 1);
    assert_eq!(bench.numbers(A, 10), [4, 1, 2, 2]);
    assert!(bench.pass(secs(5)).deliverable);
    assert_eq!(bench.numbers(A, 10), [3]);
}

#[test]
fn expired_messages_are_removed_in_any_state() {
    let mut bench = Bench::new(Settings { retention: secs(600), retry: retry(600, 600), ..settings() });
    bench.publish(&["", "", ""]);
    let taken = bench.take(A, 2);
    bench.nack(&taken[0]);
    bench.modify(&taken[1], secs(600));
    bench.pass(secs(599));
    assert_eq!(bench.backlog(), 3);
    bench.pass(secs(1));
    let figures = bench.delivery.figures(bench.now);
    assert_eq!(figures, super::super::Figures::default());
    assert_eq!(bench.delivery.next_due(), None);
    assert_eq!(bench.ack(&taken[1]).acked.len(), 1, "no error, and no effect");
}

#[test]
fn the_oldest_message_is_the_oldest_that_is_not_acknowledged() {
    let mut bench = Bench::new(Settings { retain_acked: true, ..settings() });
    for _ in 0..3 {
        bench.publish(&[""]);
        bench.now = bench.now + secs(1);
    }
    let oldest = |bench: &Bench| bench.delivery.figures(bench.now).oldest_unacked;
    let taken = bench.take(A, 3);
    for (number, left) in [(1, Some(3)), (0, Some(1)), (2, None)] {
        bench.ack(&taken[number]);
        assert_eq!(oldest(&bench), left.map(secs), "after message {number}");
    }
    bench.delivery.seek_to_time(bench.now, Time::default());
    assert_eq!(oldest(&bench), Some(secs(3)));
}

#[test]
fn figures_count_messages_by_state() {
    let mut bench = Bench::new(Settings { retain_acked: true, retry: retry(60, 60), ..settings() });
    bench.publish(&["", "", "", ""]);
    let taken = bench.take(A, 3);
    bench.ack(&taken[0]);
    bench.nack(&taken[1]);
    bench.now = bench.now + secs(3);
    assert_eq!(
        bench.delivery.figures(bench.now),
        super::super::Figures {
            backlog: 3,
            leased: 1,
            waiting: 1,
            acked_retained: 1,
            bytes: 30,
            oldest_unacked: Some(secs(3)),
            ordering_keys_blocked: 0,
        }
    );
}

#[test]
fn a_clock_that_steps_back_is_not_followed() {
    let mut bench = Bench::new(settings());
    bench.publish(&[""]);
    bench.pass(secs(100));
    bench.now = bench.now.before(secs(50));
    bench.take(A, 1);
    bench.pass(secs(59));
    assert!(bench.take(A, 1).is_empty());
    bench.pass(secs(1));
    assert_eq!(bench.numbers(A, 1), [1]);
}

#[test]
fn undelivered_messages_are_redelivered_at_once_without_a_failed_attempt() {
    for key in ["", "x"] {
        let mut bench =
            Bench::new(Settings { retry: retry(10, 60), dead_letter_after: Some(2), ..ordered() });
        bench.publish(&[key]);
        for _ in 0..3 {
            let taken = bench.take(Holder::Pull, 1);
            assert_eq!(taken[0].attempt, Some(1));
            bench.delivery.give_back(bench.now, &[taken[0].ack_id.clone()]);
        }
        let taken = bench.take(A, 1);
        bench.nack(&taken[0]);
        bench.delivery.give_back(bench.now, &[taken[0].ack_id.clone()]);
        assert_eq!(bench.take(A, 1).len(), 0, "a lease that is over is nothing to give back");
        assert_eq!(bench.backlog(), 1);
    }
}
