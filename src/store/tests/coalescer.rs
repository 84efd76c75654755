//! The coalescer with made-up statements: batches, order, halving, and that no caller waits for
//! ever.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::error::{DatabaseError, ErrorKind};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::store::{Coalescer, StoreError};

/// A server error with this code.
#[derive(Debug)]
struct Code(&'static str);

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl Error for Code {}

impl DatabaseError for Code {
    fn message(&self) -> &str {
        self.0
    }
    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.0.into())
    }
    fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self
    }
    fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
        self
    }
    fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
        self
    }
    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

pub(crate) fn refused(code: &'static str) -> StoreError {
    StoreError::from_sqlx("made up", sqlx::Error::Database(Box::new(Code(code))))
}

/// An error that another session or an administrator can cause is not the statement's fault.
#[test]
fn a_server_that_has_used_something_up_is_unavailable() {
    for code in ["53000", "53100", "53200", "53300", "57P01", "25006"] {
        let error = refused(code);
        assert!(matches!(error, StoreError::Unavailable(_)) && error.kind() == "unavailable", "{error:?}");
        assert_eq!(error.to_string().contains("used up"), code.starts_with("53"), "{error}");
    }
    assert!(matches!(refused("42601"), StoreError::Refused { .. }));
}

/// The batches that a statement saw.
type Seen = Arc<Mutex<Vec<Vec<u32>>>>;

/// One statement at a time, which waits for a permit and then returns what `answer` does.
fn gated(answer: fn(&[u32]) -> Result<Vec<u32>, StoreError>) -> (Coalescer<u32, u32>, Arc<Semaphore>, Seen) {
    gates(1, answer)
}

/// As [`gated`], with this many statements at once.
fn gates(
    in_flight: usize,
    answer: fn(&[u32]) -> Result<Vec<u32>, StoreError>,
) -> (Coalescer<u32, u32>, Arc<Semaphore>, Seen) {
    let (gate, seen) = (Arc::new(Semaphore::new(0)), Seen::default());
    let coalescer = Coalescer::new(100, in_flight, {
        let (gate, seen) = (Arc::clone(&gate), Arc::clone(&seen));
        move |requests: Vec<u32>| {
            let (gate, seen) = (Arc::clone(&gate), Arc::clone(&seen));
            async move {
                seen.lock().unwrap().push(requests.clone());
                gate.acquire().await.unwrap().forget();
                answer(&requests)
            }
        }
    });
    (coalescer, gate, seen)
}

fn doubled(requests: &[u32]) -> Result<Vec<u32>, StoreError> {
    Ok(requests.iter().map(|request| request * 2).collect())
}

/// Calls with 0, waits until that statement is in flight, then calls with all the others; returns
/// the answers, in order.
async fn while_one_is_in_flight(
    coalescer: &Coalescer<u32, u32>,
    gate: &Semaphore,
    seen: &Seen,
    others: u32,
) -> Vec<Result<u32, StoreError>> {
    let call = |request| {
        let coalescer = coalescer.clone();
        tokio::spawn(async move { coalescer.call(request).await })
    };
    let first = call(0);
    wakeq_testbed::wait_while!(seen.lock().unwrap().is_empty(), "no statement begins");
    let calls: Vec<_> = (1..=others).map(call).collect();
    tokio::task::yield_now().await;
    gate.add_permits(1000);
    let mut answers = vec![first.await.unwrap()];
    for call in calls {
        answers.push(call.await.unwrap());
    }
    answers
}

/// Low load: at once and alone. High load: all that waits while a statement is in flight becomes
/// the next one.
#[tokio::test]
async fn waiting_requests_form_the_next_batch() {
    let (coalescer, gate, seen) = gated(doubled);
    let answers = while_one_is_in_flight(&coalescer, &gate, &seen, 150).await;
    let answers: Vec<u32> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, (0..=150).map(|request| request * 2).collect::<Vec<_>>(), "each its own answer");
    let sizes: Vec<usize> = seen.lock().unwrap().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 100, 50]);
}

/// Of two statements that may be in flight, the second is alone or full, or waits: for the end of
/// the first, or at most 5 ms.
#[tokio::test(start_paused = true)]
async fn several_requests_wait_for_the_statement_in_flight() {
    let _time = wakeq_testbed::TestTime::begin();
    for (waiting, first_ends, (begins_ms, sizes)) in [
        (1, None, (0, vec![1, 1])),
        (2, None, (5, vec![1, 2])),
        (2, Some(3), (3, vec![1, 3])),
        (100, None, (0, vec![1, 100])),
    ] {
        let (coalescer, gate, seen) = gates(2, doubled);
        let sizes_seen = || seen.lock().unwrap().iter().map(Vec::len).collect::<Vec<_>>();
        let call = |request| {
            let coalescer = coalescer.clone();
            tokio::spawn(async move { coalescer.call(request).await })
        };
        let mut calls = vec![call(0)];
        wakeq_testbed::wait_while!(sizes_seen().is_empty(), "no statement begins");
        let began = Instant::now();
        // All of them wait before the next statement is made: there is only this thread.
        calls.extend((1..=waiting).map(call));
        if let Some(after_ms) = first_ends {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            calls.push(call(7));
            tokio::task::yield_now().await;
            gate.add_permits(1);
        }
        while sizes_seen().len() < 2 {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        let took = began.elapsed();
        let expected = Duration::from_millis(begins_ms);
        assert!(
            (expected..expected + Duration::from_millis(2)).contains(&took),
            "{took:?}, not {expected:?}"
        );
        assert_eq!(sizes_seen(), sizes);
        gate.add_permits(1000);
        for call in calls {
            call.await.unwrap().unwrap();
        }
    }
}

/// A row that the server refuses ends up alone; the others of its batch pass.
#[tokio::test]
async fn a_rejected_row_is_isolated_from_its_batch() {
    let (coalescer, gate, seen) = gated(|requests| {
        if requests.contains(&7) || requests.contains(&30) {
            Err(refused("22021"))
        } else {
            doubled(requests)
        }
    });
    let answers = while_one_is_in_flight(&coalescer, &gate, &seen, 40).await;
    for (request, answer) in (0..).zip(answers) {
        match answer {
            Ok(answer) => assert_eq!(answer, request * 2),
            Err(error) => assert!([7, 30].contains(&request) && error.is_data(), "{request}: {error}"),
        }
    }
    assert!(seen.lock().unwrap().contains(&vec![7]) && seen.lock().unwrap().contains(&vec![30]));
}

/// A statement that the server cancels for taking too long is halved, so that one request does not
/// delay the others of its batch again and again. A statement without any answer is not, since it
/// may have taken effect.
#[tokio::test]
async fn a_batch_that_times_out_is_halved() {
    fn slow(ended: bool, requests: &[u32]) -> Result<Vec<u32>, StoreError> {
        let after = std::time::Duration::from_secs(5);
        let timed_out = StoreError::TimedOut { statement: "made up", after, ended };
        if requests.contains(&3) { Err(timed_out) } else { doubled(requests) }
    }
    let failed = |answers: Vec<Result<u32, StoreError>>| -> Vec<usize> {
        (0..).zip(&answers).filter(|(_, answer)| answer.is_err()).map(|(at, _)| at).collect()
    };
    let (coalescer, gate, seen) = gated(|requests| slow(true, requests));
    assert_eq!(failed(while_one_is_in_flight(&coalescer, &gate, &seen, 99).await), [3]);
    let tries = seen.lock().unwrap().iter().filter(|batch| batch.contains(&3)).count();
    assert_eq!(tries, 8, "99 requests, halved until it stands alone, and not once more");
    let (coalescer, gate, seen) = gated(|requests| slow(false, requests));
    assert_eq!(
        failed(while_one_is_in_flight(&coalescer, &gate, &seen, 8).await),
        (1..=8).collect::<Vec<_>>()
    );
    // If many are slow, the rest does not wait for each of them.
    let (coalescer, gate, seen) = gated(|requests| {
        if requests.iter().any(|request| request % 2 == 1) { slow(true, &[3]) } else { doubled(requests) }
    });
    assert!(failed(while_one_is_in_flight(&coalescer, &gate, &seen, 100).await).len() > 50);
    let tries = seen.lock().unwrap().len();
    assert!(tries <= 1 + 2 * 8 + 1, "{tries} statements");
}

/// A lock that can't be had halves the batch too, and the request that meets it is tried five
/// times.
#[tokio::test]
async fn contention_is_tried_again_in_halves() {
    let (coalescer, gate, seen) =
        gated(|requests| if requests.contains(&3) { Err(refused("55P03")) } else { doubled(requests) });
    let answers = while_one_is_in_flight(&coalescer, &gate, &seen, 8).await;
    let failed: Vec<usize> =
        (0..).zip(&answers).filter(|(_, answer)| answer.is_err()).map(|(at, _)| at).collect();
    assert_eq!(failed, [3]);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().filter(|batch| **batch == [3]).count(), 5);
    assert!(
        seen[seen.len() - 4..].iter().all(|batch| *batch == [3]),
        "the free ones do not wait for it: {seen:?}"
    );
}

/// Any other failure goes to all callers, once.
#[tokio::test]
async fn a_failed_statement_fails_all_its_callers() {
    let (coalescer, gate, seen) = gated(|_| Err(refused("57014")));
    let answers = while_one_is_in_flight(&coalescer, &gate, &seen, 5).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(StoreError::Refused { .. }))), "{answers:?}");
    assert_eq!(seen.lock().unwrap().len(), 2);
}

/// A caller that left before the statement was sent is left out of it.
#[tokio::test]
async fn a_caller_that_gave_up_is_left_out_of_the_statement() {
    let (coalescer, gate, seen) = gated(doubled);
    let first = tokio::spawn({
        let coalescer = coalescer.clone();
        async move { coalescer.call(1).await }
    });
    wakeq_testbed::wait_while!(seen.lock().unwrap().is_empty(), "no statement begins");
    {
        let mut impatient = std::pin::pin!(coalescer.call(2));
        assert!(futures_util::poll!(impatient.as_mut()).is_pending());
    }
    gate.add_permits(10);
    assert_eq!(first.await.unwrap().unwrap(), 2);
    assert_eq!(coalescer.call(3).await.unwrap(), 6);
    assert_eq!(*seen.lock().unwrap(), [vec![1], vec![3]]);
}

/// When the last clone is dropped, waiting requests are still answered, and the tasks end.
#[tokio::test]
async fn nothing_hangs_when_it_is_dropped() {
    let (coalescer, gate, seen) = gated(doubled);
    let calls: Vec<_> = (1..=3)
        .map(|request| {
            let coalescer = coalescer.clone();
            tokio::spawn(async move { coalescer.call(request).await })
        })
        .collect();
    drop(coalescer);
    gate.add_permits(10);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    // The statement, and with it its clone of `seen`, is dropped when the last task has ended.
    wakeq_testbed::wait_while!(Arc::strong_count(&seen) > 1, "a task goes on");
}

/// A statement that panics, which only a bug does, is an error for its callers, and for none after
/// them.
#[tokio::test]
async fn a_defect_is_an_error_for_its_callers_only() {
    let coalescer = Coalescer::new(10, 1, |numbers: Vec<u32>| async move {
        assert!(!numbers.contains(&1), "made up");
        Ok(numbers)
    });
    assert!(matches!(coalescer.call(1).await, Err(StoreError::Defect)));
    assert!(matches!(coalescer.call(2).await, Ok(2)));
}

#[tokio::test]
async fn a_batch_ends_with_the_request_that_brings_it_to_its_bytes() {
    let (leave, seen) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let coalescer = Coalescer::within((500, 100), |bytes: &usize| *bytes, 1, {
        let (leave, seen) = (Arc::clone(&leave), Arc::clone(&seen));
        move |requests: Vec<usize>| {
            let (leave, seen) = (Arc::clone(&leave), Arc::clone(&seen));
            async move {
                leave.acquire().await.unwrap().forget();
                seen.lock().unwrap().push(requests.clone());
                Ok(requests)
            }
        }
    });
    let calls = [1, 40, 60, 99, 1, 500, 7].map(|bytes| {
        let coalescer = coalescer.clone();
        async move { coalescer.call(bytes).await.unwrap() }
    });
    leave.add_permits(100);
    let answers = futures_util::future::join_all(calls).await;
    assert_eq!(answers, [1, 40, 60, 99, 1, 500, 7], "each gets its own");
    let batches = seen.lock().unwrap().clone();
    assert!(batches.len() >= 4, "{batches:?}");
    for batch in &batches {
        let before_the_last: usize = batch[..batch.len() - 1].iter().sum();
        assert!(before_the_last < 100, "{batches:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lingering_requests_share_a_statement_and_a_full_batch_does_not_wait() {
    let seen = Seen::default();
    let coalescer = Coalescer::lingering(3, Duration::from_millis(5), 1, {
        let seen = Arc::clone(&seen);
        move |requests: Vec<u32>| {
            seen.lock().unwrap().push(requests.clone());
            async move { Ok(requests) }
        }
    });
    let began = Instant::now();
    let call = |request, after_ms| {
        let coalescer = coalescer.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            coalescer.call(request).await.unwrap();
            began.elapsed().as_millis()
        }
    };
    // The first two share a statement after 5 ms; the last three fill theirs after 2 ms.
    let ended = tokio::join!(call(1, 0), call(2, 4), call(3, 20), call(4, 21), call(5, 22));
    assert_eq!(ended, (5, 5, 22, 22, 22));
    assert_eq!(*seen.lock().unwrap(), [vec![1, 2], vec![3, 4, 5]]);
}
