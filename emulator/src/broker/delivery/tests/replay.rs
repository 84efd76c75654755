//! Retained messages, seek, snapshots.

use super::*;

fn retaining(settings: Settings) -> Settings {
    Settings { retain_acked: true, ..settings }
}

/// Publishes five messages a minute apart, and takes and acknowledges the first four; the clock is
/// at the last.
fn after_an_hour(settings: Settings, key: &str) -> (Bench, Time) {
    let mut bench = Bench::new(settings);
    let start = bench.now;
    for _ in 0..5 {
        bench.publish(&[key]);
        bench.pass(secs(60));
    }
    let taken = bench.take(A, 4);
    bench.ack_all(&taken);
    (bench, start)
}

#[test]
fn seeking_back_brings_acknowledged_messages_again_as_if_for_the_first_time() {
    for key in ["", "x"] {
        let (mut bench, start) = after_an_hour(retaining(ordered()), key);
        assert_eq!(bench.delivery.figures(bench.now).acked_retained, 4);
        bench.delivery.seek_to_time(bench.now, start + secs(120));
        assert_eq!(bench.backlog(), 3);
        let mut numbers = bench.numbers(B, 10);
        numbers.sort_unstable();
        assert_eq!(numbers, [3, 4, 5]);
    }
}

#[test]
fn seeking_back_keeps_the_order_of_a_key_whatever_was_out() {
    let (mut bench, start) = after_an_hour(retaining(ordered()), "x");
    let out = bench.take(B, 1);
    assert_eq!(numbers(&out), [5]);
    bench.delivery.seek_to_time(bench.now, start);
    assert_eq!(bench.numbers(A, 10), [1, 2, 3, 4, 5]);
}

#[test]
fn a_seek_withdraws_what_is_leased_and_its_old_ids_acknowledge_nothing() {
    let exactly_once = Settings { exactly_once: true, ..ordered() };
    for (settings, key) in
        [(settings(), ""), (ordered(), "x"), (exactly_once.clone(), ""), (exactly_once, "x")]
    {
        for to_snapshot in [false, true] {
            let mut bench = Bench::new(settings.clone());
            let start = bench.now;
            bench.publish(&[key, key, key]);
            let contents = bench.delivery.snapshot(bench.now);
            let taken = bench.take(A, 2);
            if to_snapshot {
                bench.delivery.seek_to(bench.now, &contents);
            } else {
                bench.delivery.seek_to_time(bench.now, start);
            }
            assert_eq!(bench.delivery.held_by(StreamId(1)).0, 0);
            bench.ack_all(&taken);
            let mut again = bench.numbers(B, 10);
            again.sort_unstable();
            assert_eq!(again, [1, 2, 3], "{key:?} {to_snapshot}");
            assert_eq!(bench.backlog(), 3);
        }
    }
}

#[test]
fn a_seek_withdraws_both_copies_of_a_duplicated_message() {
    let mut bench = Bench::new(settings());
    let first = message(1, bench.now, "");
    bench.delivery.enqueue(bench.now, first, Fate::Twice);
    let contents = bench.delivery.snapshot(bench.now);
    let taken = bench.take(A, 2);
    assert_eq!(numbers(&taken), [1, 1]);
    bench.delivery.seek_to(bench.now, &contents);
    assert_eq!(bench.numbers(B, 10), [1, 1]);
}

#[test]
fn without_retention_of_acknowledged_messages_there_is_nothing_to_bring_back() {
    let (mut bench, start) = after_an_hour(ordered(), "");
    bench.delivery.seek_to_time(bench.now, start);
    assert_eq!(bench.numbers(B, 10), [5]);
}

#[test]
fn seeking_forward_acknowledges_what_was_published_before_leased_or_not() {
    for settings in [settings(), ordered()] {
        let mut bench = Bench::new(settings);
        bench.publish(&["", "x", "x"]);
        let taken = bench.take(A, 2);
        bench.pass(secs(1));
        bench.publish(&["x"]);
        bench.delivery.seek_to_time(bench.now, bench.now);
        bench.nack(&taken[0]);
        assert_eq!(bench.numbers(B, 10), [4]);
        assert_eq!(bench.backlog(), 1);
    }
}

#[test]
fn retained_messages_go_when_they_are_too_old_or_not_retained_any_more() {
    let (mut bench, _) = after_an_hour(retaining(settings()), "");
    bench.pass(RETENTION - secs(300) + secs(60));
    assert_eq!(bench.delivery.figures(bench.now).acked_retained, 2);
    bench.delivery.configure(bench.now, settings());
    assert_eq!(bench.delivery.figures(bench.now).acked_retained, 0);
    assert_eq!(bench.backlog(), 1);
}

#[test]
fn a_snapshot_brings_back_its_backlog_and_what_was_published_since_and_acknowledges_the_rest() {
    for (retains, key) in [(false, ""), (false, "x"), (true, ""), (true, "x")] {
        let mut bench = Bench::new(Settings { retain_acked: retains, ..ordered() });
        bench.publish(&[key, key, key]);
        let first = bench.take(A, 1);
        bench.ack_all(&first);
        let out = bench.take(A, 1);
        let mut contents = bench.delivery.snapshot(bench.now);
        assert_eq!((contents.len(), contents.oldest()), (2, Some(bench.now)));
        bench.publish(&[key]);
        contents.retain(message(4, bench.now, key));
        let rest = bench.take(A, 10);
        bench.ack_all(&out);
        bench.ack_all(&rest);
        assert_eq!(bench.backlog(), 0);

        bench.delivery.seek_to(bench.now, &contents);
        assert_eq!(bench.backlog(), 3);
        assert_eq!(bench.numbers(B, 10), [2, 3, 4]);
        bench.delivery.seek_to(bench.now, &contents.filtered(|message| message.id == 4));
        assert_eq!(bench.backlog(), 1);
        bench.pass(LEASE);
        assert_eq!(bench.numbers(B, 10), [4]);
    }
}

#[test]
fn a_snapshot_of_one_subscription_sets_another() {
    let mut bench = Bench::new(ordered());
    bench.publish(&["x", "", "x"]);
    let contents = bench.delivery.snapshot(bench.now);
    let mut other = Bench::new(ordered());
    other.now = bench.now;
    other.delivery.seek_to(other.now, &contents);
    assert_eq!(other.numbers(A, 10), [1, 2, 3]);
}

#[test]
fn restores_retained_messages_of_the_topic_unless_expired_or_present() {
    let mut bench = Bench::new(Settings { retention: secs(600), ..settings() });
    let old = message(1, bench.now, "");
    bench.pass(secs(600));
    let kept = message(2, bench.now, "");
    bench.last = 2;
    bench.publish(&[""]);
    let here = bench.delivery.snapshot(bench.now);
    let topic: Vec<_> = [old, kept].into_iter().chain(here.messages().iter().cloned()).collect();
    bench.delivery.restore(bench.now, &topic);
    let mut numbers = bench.numbers(A, 10);
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);
}

#[test]
fn ack_ids_from_before_a_seek_are_ignored() {
    let (mut bench, start) = after_an_hour(retaining(settings()), "");
    bench.delivery.seek_to_time(bench.now, start);
    let first = bench.take(A, 10);
    bench.ack_all(&first);
    bench.delivery.seek_to_time(bench.now, start);
    bench.ack_all(&first);
    assert_eq!(bench.backlog(), 5);
}

#[test]
fn what_was_acknowledged_behind_an_earlier_message_of_its_key_comes_again_after_a_seek() {
    let mut bench = Bench::new(ordered());
    bench.publish(&["x"]);
    bench.pass(secs(5));
    bench.publish(&["x"]);
    let taken = bench.take(A, 2);
    bench.ack(&taken[1]);
    bench.delivery.seek_to_time(bench.now, bench.now);
    assert_eq!(bench.delivery.figures(bench.now).backlog, 1);
    assert_eq!(bench.numbers(B, 10), [2]);
}
