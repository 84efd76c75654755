//! Exactly-once delivery.

use super::*;

fn exactly_once() -> Settings {
    Settings { exactly_once: true, ..ordered() }
}

#[test]
fn the_id_of_a_lease_that_is_over_is_refused() {
    let mut bench = Bench::new(exactly_once());
    bench.publish(&["", ""]);
    let taken = bench.take(A, 2);
    bench.nack(&taken[1]);
    bench.now = bench.now + LEASE;
    let answer = bench.ack_all(&taken);
    assert_eq!((answer.acked.len(), answer.lapsed.len()), (0, 2));
    assert_eq!(bench.modify(&taken[0], LEASE).lapsed.len(), 1);
    let again = bench.take(A, 2);
    assert_eq!(again.len(), 2);
    assert_eq!(bench.ack_all(&taken).lapsed.len(), 2, "only the latest id counts");
    assert_eq!(bench.ack_all(&again).acked.len(), 2);
    assert_eq!(bench.backlog(), 0);
}

#[test]
fn repeated_acknowledgements_succeed_in_exactly_once_delivery() {
    let mut bench = Bench::new(exactly_once());
    bench.publish(&[""]);
    let taken = bench.take(A, 1);
    for _ in 0..3 {
        assert_eq!(bench.ack(&taken[0]).acked.len(), 1);
        bench.publish(&[""]);
        bench.take(B, 1);
    }
    assert_eq!(bench.modify(&taken[0], LEASE).lapsed.len(), 1, "there is nothing left to extend");
}

#[test]
fn faults_never_duplicate_in_exactly_once_delivery() {
    let mut bench = Bench::new(exactly_once());
    bench.publish_with("", Fate::Twice);
    assert_eq!(bench.numbers(A, 10), [1]);
}

#[test]
fn a_key_is_acknowledged_in_order_or_in_one_request() {
    let mut bench = Bench::new(exactly_once());
    bench.publish(&["x", "x", "x"]);
    let mut taken = bench.take(A, 3);
    let answer = bench.ack(&taken[1]);
    assert_eq!((answer.acked.len(), answer.unordered.len()), (0, 1));
    taken.reverse();
    assert_eq!(bench.ack_all(&taken).acked.len(), 3);
    assert_eq!(bench.backlog(), 0);
}

#[test]
fn after_a_nack_later_ones_stay_leased_and_come_again_only_if_their_leases_run_out() {
    let mut bench = Bench::new(exactly_once());
    bench.publish(&["x", "x", "x", "x"]);
    let taken = bench.take(A, 3);
    bench.nack(&taken[0]);
    let again = bench.take(A, 1);
    assert_eq!(numbers(&again), [1]);
    assert_eq!(bench.ack(&taken[1]).unordered.len(), 1);
    bench.ack(&again[0]);
    assert_eq!(bench.ack(&taken[1]).acked.len(), 1);
    bench.modify(&again[0], secs(60));
    assert_eq!(bench.numbers(A, 1), [4]);
    bench.pass(LEASE);
    assert_eq!(bench.numbers(B, 10), [3, 4]);
}

#[test]
fn disabling_exactly_once_restores_the_usual_ordering_rules() {
    let mut bench = Bench::new(exactly_once());
    bench.publish(&["x", "x", "x", "x"]);
    let taken = bench.take(A, 3);
    bench.nack(&taken[1]);
    bench.delivery.configure(bench.now, ordered());
    assert_eq!(bench.numbers(A, 10), [2, 3, 4]);
    assert_eq!(bench.ack(&taken[0]).acked.len(), 1);
    assert_eq!(bench.backlog(), 3);
}

#[test]
fn redelivers_the_first_of_a_key_while_a_pull_holds_a_later_one() {
    let mut bench = Bench::new(exactly_once());
    bench.publish(&["x", "x", "x"]);
    let taken = bench.take(Holder::Pull, 2);
    bench.nack(&taken[0]);
    let again = bench.take(Holder::Pull, 10);
    assert_eq!(numbers(&again), [1], "the third waits for the second, which another pull has");
    assert_eq!(bench.ack(&taken[1]).unordered.len(), 1);
    assert_eq!(bench.ack(&again[0]).acked.len(), 1);
    assert_eq!(bench.ack(&taken[1]).acked.len(), 1);
    assert_eq!(bench.numbers(A, 10), [3]);
}

#[test]
fn redelivers_the_first_of_a_key_to_its_stream_or_to_any_after_it_ended() {
    let mut bench = Bench::new(exactly_once());
    bench.publish(&["x", "x", "x", "x"]);
    let taken = bench.take(A, 2);
    bench.nack(&taken[0]);
    assert_eq!((bench.take(B, 10).len(), bench.take(Holder::Pull, 10).len()), (0, 0));
    bench.delivery.release(bench.now, StreamId(1));
    let again = bench.take(B, 10);
    assert_eq!(numbers(&again), [1]);
    bench.ack(&again[0]);
    assert_eq!(bench.take(B, 10).len(), 0, "the stream that ended still has the second");
    bench.pass(LEASE);
    assert_eq!(bench.numbers(B, 10), [2, 3, 4]);
}
