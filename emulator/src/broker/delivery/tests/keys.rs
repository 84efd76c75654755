//! Ordering keys.

use super::*;

#[test]
fn a_key_goes_to_one_stream_in_order_and_others_get_other_keys() {
    let mut bench = Bench::new(ordered());
    bench.publish(&["x", "x", "y", "x", ""]);
    let first = bench.take(A, 1);
    assert_eq!(numbers(&first), [1]);
    assert_eq!(bench.numbers(B, 10), [5, 3], "x is A's");
    assert_eq!(bench.numbers(A, 10), [2, 4]);
}

#[test]
fn any_stream_gets_a_key_once_all_its_leases_are_settled() {
    let mut bench = Bench::new(ordered());
    bench.publish(&["x", "x", "x"]);
    let taken = bench.take(A, 2);
    bench.ack(&taken[0]);
    assert!(bench.take(B, 1).is_empty());
    bench.ack(&taken[1]);
    assert_eq!(bench.numbers(B, 1), [3]);
}

#[test]
fn keys_do_not_order_messages_unless_ordering_is_enabled() {
    let mut bench = Bench::new(settings());
    bench.publish(&["x", "x"]);
    assert_eq!(bench.numbers(A, 1), [1]);
    assert_eq!(bench.numbers(B, 1), [2]);
}

#[test]
fn after_a_nack_it_and_all_later_ones_of_the_key_come_again_acknowledged_ones_too() {
    let mut bench = Bench::new(ordered());
    bench.publish(&["x", "x", "x", "y", "x"]);
    let taken = bench.take(A, 4);
    assert_eq!(numbers(&taken), [1, 2, 4, 3]);
    bench.ack(&taken[3]);
    bench.nack(&taken[1]);
    bench.ack(&taken[0]);
    assert_eq!(bench.numbers(A, 10), [2, 3, 5], "y is out and stays out");
    assert_eq!(bench.delivery.figures(bench.now).leased, 4);
}

#[test]
fn after_a_lease_ran_out_the_key_starts_there_and_later_leases_count_no_more() {
    let mut bench = Bench::new(ordered());
    bench.publish(&["x", "x", "x"]);
    let taken = bench.take(A, 3);
    bench.modify(&taken[2], secs(600));
    bench.ack(&taken[0]);
    bench.pass(LEASE);
    let again = bench.take(B, 10);
    assert_eq!(numbers(&again), [2, 3]);
    bench.ack(&taken[2]);
    assert_eq!(bench.backlog(), 2);
    bench.ack_all(&again);
    assert_eq!(bench.backlog(), 0);
}

#[test]
fn out_of_order_acknowledgements_are_kept_until_the_earlier_ones_come() {
    let mut bench = Bench::new(ordered());
    bench.publish(&["x", "x", "x"]);
    let taken = bench.take(A, 3);
    bench.ack(&taken[2]);
    bench.ack(&taken[1]);
    assert_eq!(bench.backlog(), 1);
    bench.ack(&taken[0]);
    bench.pass(secs(3600));
    assert!(bench.take(A, 3).is_empty());
    assert_eq!(bench.delivery.keys.in_use().count(), 0);
}

#[test]
fn a_back_off_of_the_first_blocks_the_key_and_no_other() {
    let mut bench = Bench::new(Settings { retry: retry(10, 60), ..ordered() });
    bench.publish(&["x", "x", "y"]);
    let taken = bench.take(A, 1);
    bench.nack(&taken[0]);
    assert_eq!(bench.numbers(B, 10), [3]);
    assert_eq!(bench.delivery.figures(bench.now).ordering_keys_blocked, 1);
    bench.publish(&["x"]);
    assert!(bench.take(B, 10).is_empty());
    assert!(bench.pass(secs(10)).deliverable);
    assert_eq!(bench.numbers(B, 10), [1, 2, 4], "y's lease ran out only now");
}

#[test]
fn a_nack_counts_a_delivery_attempt_for_its_message_only() {
    let mut bench = Bench::new(Settings { dead_letter_after: Some(5), ..ordered() });
    bench.publish(&["x", "x"]);
    let taken = bench.take(A, 2);
    bench.nack(&taken[0]);
    let attempts: Vec<_> = bench.take(A, 2).iter().map(|taken| taken.attempt).collect();
    assert_eq!(attempts, [Some(2), Some(1)]);
}

#[test]
fn a_dead_letter_unblocks_its_key() {
    let mut bench = Bench::new(Settings { dead_letter_after: Some(1), ..ordered() });
    bench.publish(&["x", "x", "x"]);
    let taken = bench.take(A, 2);
    bench.nack(&taken[0]);
    assert_eq!(bench.pass(Duration::ZERO).dead.len(), 1);
    assert_eq!(bench.numbers(A, 10), [3], "the second is still out");
    bench.ack(&taken[1]);
    assert_eq!(bench.backlog(), 1);
}

#[test]
fn a_unary_pull_takes_several_of_a_key_and_the_next_one_waits_for_them() {
    let mut bench = Bench::new(ordered());
    bench.publish(&["x", "x", "x", "y", "y"]);
    let first = bench.take(Holder::Pull, 3);
    assert_eq!(numbers(&first), [1, 2, 4]);
    assert!(bench.take(Holder::Pull, 10).is_empty());
    bench.ack(&first[2]);
    assert_eq!(bench.numbers(Holder::Pull, 10), [5]);
    bench.ack_all(&first[..2]);
    assert_eq!(bench.numbers(Holder::Pull, 10), [3]);
}

#[test]
fn push_has_one_message_of_a_key_at_a_time() {
    let mut bench = Bench::new(ordered());
    bench.publish(&["x", "x", "y"]);
    let taken = bench.take(Holder::Push, 10);
    assert_eq!(numbers(&taken), [1, 3]);
    assert!(bench.take(Holder::Push, 10).is_empty());
    bench.ack(&taken[0]);
    assert_eq!(bench.numbers(Holder::Push, 10), [2]);
}

#[test]
fn keys_of_a_closed_stream_are_free_once_its_leases_expire() {
    let mut bench = Bench::new(ordered());
    bench.publish(&["x", "x"]);
    bench.take(A, 1);
    bench.delivery.release(bench.now, StreamId(1));
    assert!(!bench.delivery.deliverable());
    assert!(bench.take(B, 10).is_empty());
    bench.pass(LEASE);
    assert_eq!(bench.numbers(B, 10), [1, 2]);
    assert_eq!(bench.delivery.streams.len(), 1, "only B holds something");
}

#[test]
fn a_late_acknowledgement_of_the_first_unblocks_its_key() {
    let mut bench = Bench::new(Settings { retry: retry(60, 60), ..ordered() });
    bench.publish(&["x", "x", "x"]);
    let taken = bench.take(A, 2);
    bench.pass(LEASE);
    bench.ack(&taken[0]);
    assert_eq!(bench.numbers(A, 10), [2, 3]);
}

#[test]
fn faults_never_break_the_order_of_a_key() {
    let mut bench = Bench::new(ordered());
    bench.publish(&["x"]);
    bench.publish_with("x", Fate::Ahead);
    bench.publish_with("x", Fate::Late(secs(5)));
    bench.publish_with("x", Fate::Twice);
    bench.publish_with("y", Fate::Ahead);
    assert_eq!(bench.numbers(A, 10), [5, 1, 2]);
    bench.pass(secs(5));
    assert_eq!(bench.numbers(A, 10), [3, 4, 4]);
}

#[test]
fn expired_messages_are_removed_from_their_key() {
    let mut bench = Bench::new(Settings { retention: secs(600), ..ordered() });
    bench.publish(&["x", "x"]);
    bench.pass(secs(300));
    bench.publish(&["x"]);
    let taken = bench.take(A, 2);
    for taken in &taken {
        bench.modify(taken, secs(600));
    }
    bench.pass(secs(300));
    assert_eq!(bench.numbers(B, 10), [3]);
    assert_eq!(bench.backlog(), 1);
}
