//! What is shown to whom, and how often it is asked for.

use std::sync::atomic::AtomicUsize;

use uuid::Uuid;

use super::*;

fn question(text: &str) -> Question {
    question_about(CanvasId::DEFAULT, text)
}

fn question_about(canvas: CanvasId, text: &str) -> Question {
    Question::new(Some(canvas), text.to_owned())
}

const OTHER: CanvasId = CanvasId(Uuid::from_u128(2));
const THIRD: CanvasId = CanvasId(Uuid::from_u128(3));

async fn asked(memo: &Memo, text: &str, times: &AtomicUsize) -> Bytes {
    asked_about(memo, &question(text), times).await
}

async fn asked_about(memo: &Memo, question: &Question, times: &AtomicUsize) -> Bytes {
    let ask = async {
        times.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        Ok(reply(Bytes::from_static(b"answer")))
    };
    memo.find(question, ask).await.unwrap()
}

fn reply(body: Bytes) -> Reply {
    Reply { body, is_recorded: false }
}

#[tokio::test(start_paused = true)]
async fn a_recorded_answer_is_asked_for_by_each_reader() {
    let (memo, times) = (Memo::default(), AtomicUsize::new(0));
    let read = async || {
        let ask = async {
            times.fetch_add(1, Ordering::SeqCst);
            Ok(Reply { is_recorded: true, ..reply(Bytes::from_static(b"value")) })
        };
        memo.find(&question("a"), ask).await.unwrap()
    };
    assert_eq!((read().await, read().await), (Bytes::from("value"), Bytes::from("value")));
    assert_eq!(times.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn large_answers_are_kept_as_far_as_there_is_room() {
    let memo = Memo::default();
    let large = Bytes::from(vec![b'x'; BYTES_MAX / 2 - SMALL]);
    let is_kept = async |text: &str| is_kept(&memo, &question(text), &large).await;
    assert!(is_kept("a").await && is_kept("b").await);
    assert!(!is_kept("c").await, "there is no room");
    tokio::time::advance(FRESH).await;
    assert!(is_kept("c").await, "the others are old");
}

/// Asks for this answer; returns whether it is kept.
async fn is_kept(memo: &Memo, question: &Question, answer: &Bytes) -> bool {
    memo.find(question, async { Ok(reply(answer.clone())) }).await.unwrap();
    is_known(memo, question).await
}

async fn is_known(memo: &Memo, question: &Question) -> bool {
    memo.find(question, async { Err(Problem::internal()) }).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_canvas_with_large_answers_makes_room_for_as_many_of_another() {
    let memo = Memo::default();
    let large = Bytes::from(vec![b'x'; BYTES_MAX / 4 - SMALL]);
    let texts = ["a", "b", "c", "d"];
    for text in texts {
        assert!(is_kept(&memo, &question(text), &large).await);
    }
    for (text, has_room) in [("a", true), ("b", true), ("c", false), ("d", false)] {
        assert_eq!(is_kept(&memo, &question_about(OTHER, text), &large).await, has_room, "{text}");
    }
    let mut known = 0;
    for text in texts {
        known += usize::from(is_known(&memo, &question(text)).await);
    }
    assert_eq!(known, 2);
}

#[tokio::test(start_paused = true)]
async fn ten_browsers_ask_once_until_the_answer_is_old() {
    let (memo, times) = (Memo::default(), AtomicUsize::new(0));
    let many = futures_util::future::join_all((0..10).map(|_| asked(&memo, "a", &times))).await;
    assert!(many.iter().all(|answer| answer == "answer"));
    assert_eq!(times.load(Ordering::SeqCst), 1);
    asked(&memo, "b", &times).await;
    assert_eq!(times.load(Ordering::SeqCst), 2, "another question is another answer");
    tokio::time::advance(FRESH).await;
    asked(&memo, "a", &times).await;
    assert_eq!(times.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn after_a_change_everything_is_asked_for_again() {
    let (memo, times) = (Memo::default(), AtomicUsize::new(0));
    let (memo, times) = (&memo, &times);
    asked(memo, "a", times).await;
    // It was asked for before the change, so nobody else may have it.
    let early = asked(memo, "b", times);
    let change = async { drop(memo.changing(None)) };
    tokio::join!(early, change);
    for question in ["a", "b", "a", "b"] {
        asked(memo, question, times).await;
    }
    assert_eq!(times.load(Ordering::SeqCst), 4, "each once before the change, and once after it");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_canvas_leaves_what_is_known_of_others() {
    let canvas = |number| Some(CanvasId(Uuid::from_u128(number)));
    let questions = [canvas(1), canvas(2), None].map(|own| Question::new(own, "a".to_owned()));
    for (changed, again) in [(canvas(1), [true, false, true]), (None, [true; 3])] {
        let (memo, times) = (Memo::default(), AtomicUsize::new(0));
        for question in &questions {
            asked_about(&memo, question, &times).await;
        }
        memo.changing(changed).refuse();
        for question in &questions {
            asked_about(&memo, question, &times).await;
        }
        assert_eq!(times.load(Ordering::SeqCst), 3, "nothing was changed");
        drop(memo.changing(changed));
        for (question, is_asked) in questions.iter().zip(again) {
            let before = times.load(Ordering::SeqCst);
            asked_about(&memo, question, &times).await;
            assert_eq!(times.load(Ordering::SeqCst) > before, is_asked);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_change_is_not_shown_after_it() {
    let (memo, a) = (Memo::default(), question("a"));
    let ask = async |is_changed: bool| {
        let ask = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(is_changed.then(|| memo.changing(None)));
            Ok(reply(Bytes::from_static(b"answer")))
        };
        memo.find(&a, ask).await.unwrap()
    };
    ask(true).await;
    assert_eq!(memo.earlier(&a), None, "it was asked for before the change");
    ask(false).await;
    assert!(memo.earlier(&a).is_some());
}

/// As when the browser goes away, or the request takes too long.
#[tokio::test(start_paused = true)]
async fn after_a_change_without_an_answer_everything_is_asked_for_again() {
    let (memo, times) = (Memo::default(), AtomicUsize::new(0));
    asked(&memo, "a", &times).await;
    let change = async {
        let _changing = memo.changing(None);
        std::future::pending::<()>().await;
    };
    assert!(tokio::time::timeout(Duration::from_millis(1), change).await.is_err());
    asked(&memo, "a", &times).await;
    assert_eq!(times.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_is_asked_for_again_and_old_answers_make_room() {
    let (memo, times) = (Memo::default(), AtomicUsize::new(0));
    assert!(memo.find(&question("a"), async { Err(Problem::internal()) }).await.is_err());
    assert_eq!(asked(&memo, "a", &times).await, "answer");
    for number in 0..2 * ENTRIES_MAX {
        asked(&memo, &format!("{number}"), &times).await;
    }
    assert!(memo.entries.lock().unwrap().len() <= ENTRIES_MAX);
    tokio::time::advance(FRESH).await;
    asked(&memo, "new", &times).await;
    assert!(memo.entries.lock().unwrap().len() < 3, "old ones have gone");
}

#[tokio::test(start_paused = true)]
async fn a_canvas_with_many_questions_leaves_room_for_those_of_others() {
    let (memo, times) = (Memo::default(), AtomicUsize::new(0));
    let canvas = |number| Some(CanvasId(Uuid::from_u128(number)));
    for number in 0..2 * ENTRIES_MAX {
        asked_about(&memo, &Question::new(canvas(1), number.to_string()), &times).await;
    }
    let theirs = Question::new(canvas(2), "a".to_owned());
    for _ in 0..2 {
        asked_about(&memo, &theirs, &times).await;
    }
    assert_eq!(times.load(Ordering::SeqCst), 2 * ENTRIES_MAX + 1, "theirs is kept");
    assert_eq!(memo.entries().len(), ENTRIES_OF_CANVAS + 1);
}

#[tokio::test(start_paused = true)]
async fn two_canvases_with_many_questions_make_room_for_those_of_a_third() {
    let (memo, times) = (Memo::default(), AtomicUsize::new(0));
    for number in 0..ENTRIES_OF_CANVAS {
        for canvas in [CanvasId::DEFAULT, OTHER] {
            asked_about(&memo, &question_about(canvas, &number.to_string()), &times).await;
        }
    }
    for text in ["a", "b", "a", "b"] {
        asked_about(&memo, &question_about(THIRD, text), &times).await;
    }
    assert_eq!(times.load(Ordering::SeqCst), ENTRIES_MAX + 2, "theirs are kept");
    assert_eq!(memo.entries().len(), ENTRIES_MAX);
}

#[tokio::test(start_paused = true)]
async fn costly_questions_about_a_canvas_hold_up_no_cheap_one_about_another() {
    let (memo, times) = (Memo::default(), AtomicUsize::new(0));
    let (own, theirs) = (memo.alone(CanvasId::DEFAULT), memo.alone(OTHER));
    let answer = || Ok(reply(Bytes::from_static(b"answer")));
    for _ in 0..100 {
        own.begin();
        theirs.begin();
        for number in 0..20 {
            let ask = async {
                tokio::time::sleep(Duration::from_millis(500)).await;
                answer()
            };
            memo.watch(&question(&number.to_string()), &own, async { None }, ask).await.unwrap();
        }
        let ask = async {
            times.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            answer()
        };
        memo.watch(&question_about(OTHER, "a"), &theirs, async { None }, ask).await.unwrap();
        tokio::time::advance(FRESH).await;
    }
    assert_eq!(times.load(Ordering::SeqCst), 100);
}

/// Watches for a while, every two seconds; returns how often it was asked.
async fn watched(memo: &Memo, seconds: u64, took: Duration, mark: impl Fn(u64) -> Mark) -> usize {
    let (times, alone) = (AtomicUsize::new(0), memo.alone(CanvasId::DEFAULT));
    for second in (0..seconds).step_by(2) {
        alone.begin();
        let ask = async {
            times.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(took).await;
            Ok(reply(Bytes::from_static(b"answer")))
        };
        memo.watch(&question("a"), &alone, async { mark(second) }, ask).await.unwrap();
        tokio::time::advance(FRESH).await;
    }
    times.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn what_has_not_changed_is_not_asked_for_again_for_half_a_minute() {
    let cheap = Duration::from_millis(1);
    let same = watched(&Memo::default(), 60, cheap, |_| Some("1:1:".into())).await;
    assert!((2..=3).contains(&same), "once, and as time alone may change it: {same}");
    let changing = watched(&Memo::default(), 60, cheap, |second| Some(second.to_string().into())).await;
    assert_eq!(changing, 30, "each time");
    let unknown = watched(&Memo::default(), 60, cheap, |_| None).await;
    assert_eq!(unknown, 30, "what is not known may have changed");
}

#[tokio::test(start_paused = true)]
async fn what_costs_much_is_asked_for_seldom() {
    let costly = Duration::from_millis(500);
    let times = watched(&Memo::default(), 3_600, costly, |_| None).await;
    let part = costly.as_secs_f64() * times as f64 / 3_600.0;
    assert!(part < 0.012, "{times} times are {part} of the time");
    assert!(times > 20, "and not never: {times}");
}

#[tokio::test(start_paused = true)]
async fn forms_of_others_make_what_costs_much_no_more_frequent() {
    let (memo, costly) = (Memo::default(), Duration::from_millis(500));
    let changed = |_| {
        drop(memo.changing(None));
        None
    };
    let times = watched(&memo, 3_600, costly, changed).await;
    let part = costly.as_secs_f64() * times as f64 / 3_600.0;
    assert!(part < 0.012, "{times} times are {part} of the time");
}

#[tokio::test(start_paused = true)]
async fn whoever_opens_a_page_is_shown_what_is_fresh() {
    let (memo, times) = (Memo::default(), AtomicUsize::new(0));
    let (a, alone) = (question("a"), memo.alone(CanvasId::DEFAULT));
    let old = async { Ok(reply(Bytes::from_static(b"old"))) };
    memo.watch(&a, &alone, async { Some("1:1:".into()) }, old).await.unwrap();
    assert_eq!(memo.find(&a, async { Err(Problem::internal()) }).await.unwrap(), "old");
    tokio::time::advance(FRESH).await;
    assert_eq!(asked(&memo, "a", &times).await, "answer");
    let watching = memo.watch(&a, &alone, async { None }, async { Err(Problem::internal()) }).await;
    assert_eq!(watching.unwrap().unwrap(), "answer", "and with it those who watch");
}
