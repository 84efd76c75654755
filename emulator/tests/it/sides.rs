//! Runs a case on either emulator, and compares the result with the list of known differences.

use std::any::Any;
use std::io::Write;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;
use wakeq_emulator::Options;
use wakeq_testbed::{GoogleEmulator, PubSub, TestTime};

use crate::differences::{DIFFERENCES, Difference};
use crate::limited::LimitedEmulator;
use crate::stage::Stage;

/// Whose emulator a case runs on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    Ours,
    Google,
}

/// Boxed, so that the code that runs it is compiled once.
type Case = BoxFuture<'static, ()>;

/// Makes two tests of each case, `ours::NAME` and `google::NAME`, and lists the names.
macro_rules! cases {
    ($($(#[$attribute:meta])* async fn $name:ident($($stage:tt)+) $body:block)+) => {
        pub(crate) const CASES: &[&str] = &[$(stringify!($name)),+];

        $($(#[$attribute])* async fn $name($($stage)+: crate::stage::Stage) $body)+

        mod ours {
            $(#[tokio::test]
            async fn $name() {
                crate::sides::on_ours(stringify!($name), |stage| Box::pin(super::$name(stage))).await;
            })+
        }

        mod google {
            $(#[tokio::test]
            async fn $name() {
                crate::sides::on_google(stringify!($name), |stage| Box::pin(super::$name(stage))).await;
            })+
        }
    };
}

/// Each case has an emulator of its own, as it starts in milliseconds.
pub(crate) async fn on_ours(name: &str, case: fn(Stage) -> Case) {
    let emulator = LimitedEmulator::start(Options::default()).await;
    run(Side::Ours, name, case(Stage::new(emulator.host(), project()).await)).await;
    emulator.stop().await;
}

pub(crate) async fn on_google(name: &str, case: fn(Stage) -> Case) {
    let _time = TestTime::begin();
    let Some(host) = google().await else { return };
    run(Side::Google, name, case(Stage::new(host, project()).await)).await;
}

/// All tests share one, started by the first: from a container, if one was requested and contains
/// Google's, else the installed one. `None`, with a line on stderr, if it is not installed and not
/// required.
pub(crate) async fn google() -> Option<String> {
    static SHARED: OnceCell<Option<GoogleEmulator>> = OnceCell::const_new();
    if let Some(container) = PubSub::googles_container().await.unwrap() {
        return Some(container.host());
    }
    let started = SHARED.get_or_init(async || {
        let emulator = GoogleEmulator::start_if_installed("every case on Google's emulator").await.unwrap();
        if let Some(emulator) = &emulator {
            say(&format!(
                "Conformance: also on Google's emulator {} on {}",
                emulator.version(),
                emulator.host()
            ));
        }
        emulator
    });
    started.await.as_ref().map(GoogleEmulator::host)
}

/// Writes past the capture of test output, which would hide it.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Each case has a project of its own.
fn project() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("conformance-{}", LAST.fetch_add(1, Ordering::Relaxed))
}

async fn run(side: Side, name: &str, case: Case) {
    let known = DIFFERENCES.iter().find(|difference| difference.side == side && difference.case == name);
    let ended = tokio::spawn(case).await.map_err(tokio::task::JoinError::into_panic);
    match (known, ended) {
        (None, Ok(())) => (),
        (None, Err(failure)) => resume_unwind(failure),
        (Some(difference), Ok(())) => {
            panic!("{side:?}: {name} passes now: strike it from differences.rs ({})", difference.does)
        }
        (Some(difference), Err(failure)) => differs_as_listed(difference, failure.as_ref()),
    }
}

fn differs_as_listed(difference: &Difference, failure: &(dyn Any + Send)) {
    let Difference { case, does, sign, .. } = difference;
    let words =
        failure.downcast_ref::<String>().map(String::as_str).or(failure.downcast_ref::<&str>().copied());
    let words = words.unwrap_or_default();
    assert!(words.contains(sign), "{case} fails, but not as listed ({does}; {sign:?}): {words}");
}
