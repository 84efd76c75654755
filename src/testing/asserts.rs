//! The assertions, and the messages of failed ones.

use std::fmt::Write as _;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::drained::wanted;
use super::emitted::{EmittedEvent, is_for};
use super::kit::TestKit;

/// Maximum number of events that a failed assertion shows.
const SHOWN_MAX: usize = 50;

/// Fails unless events were emitted for a handler: at least one, or `count` of them.
///
/// The handler is `name`, `MODULE/name` or `MODULE/name/modifier`. It may be followed, in this
/// order, by:
///
/// | | |
/// |---|---|
/// | `count = 2` | exactly this many; 0 for none |
/// | `value = …` | whose value is this, as JSON |
/// | `like = …` | whose value has at least these fields, with these values |
/// | `matching = \|value: T\| …` | whose value reads as a `T` for which this is true |
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use wakeq::Event;
/// use wakeq::testing::{TestKit, assert_emitted};
///
/// #[derive(Serialize, Deserialize)]
/// struct Mail {
///     to: String,
///     subject: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let kit = TestKit::new();
/// let mail = Mail { to: "ada@example.com".into(), subject: "Hello".into() };
/// kit.emit(Event::new("send-mail", &mail)?).await?;
///
/// assert_emitted!(kit, "send-mail");
/// assert_emitted!(kit, "send-mail", value = mail);
/// assert_emitted!(kit, "send-mail", like = serde_json::json!({ "to": "ada@example.com" }));
/// assert_emitted!(kit, "send-mail", count = 1, matching = |mail: Mail| mail.subject.len() < 10);
/// assert_emitted!(kit, "send-letter", count = 0);
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! assert_emitted {
    ($kit:expr, $handler:expr $(, count = $count:expr)? $(,)?) => {
        $crate::assert_emitted!(@ $kit, $handler, $crate::testing::Expected::any() $(, $count)?)
    };
    ($kit:expr, $handler:expr $(, count = $count:expr)?, value = $value:expr $(,)?) => {
        $crate::assert_emitted!(@ $kit, $handler, $crate::testing::Expected::value(&$value) $(, $count)?)
    };
    ($kit:expr, $handler:expr $(, count = $count:expr)?, like = $value:expr $(,)?) => {
        $crate::assert_emitted!(@ $kit, $handler, $crate::testing::Expected::like(&$value) $(, $count)?)
    };
    ($kit:expr, $handler:expr $(, count = $count:expr)?, matching = $matcher:expr $(,)?) => {
        $crate::assert_emitted!(@ $kit, $handler,
            $crate::testing::Expected::matching(stringify!($matcher), $matcher) $(, $count)?)
    };
    (@ $kit:expr, $handler:expr, $expected:expr) => {
        $crate::testing::check_emitted(&$kit, &$handler, $expected, None)
    };
    (@ $kit:expr, $handler:expr, $expected:expr, $count:expr) => {
        $crate::testing::check_emitted(&$kit, &$handler, $expected, Some($count))
    };
}

/// Fails unless events of a handler are dead: at least one, or `count` of them; with `error = "…"`
/// only those whose last error contains this text. It awaits, so it can be used in async tests
/// only.
///
/// ```
/// # use std::time::Duration;
/// # use wakeq::{Event, HandlerError, Handlers};
/// # use wakeq::testing::{TestKit, assert_dead};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut kit = TestKit::new();
/// kit.handlers(Handlers::new().on("ship", |_| async { Err::<(), _>(HandlerError::operational("no such address")) }))?;
/// kit.emit(Event::new("ship", &17)?).await?;
/// kit.drain_for(Duration::from_secs(3600)).await?;
///
/// assert_dead!(kit, "ship", error = "no such address");
/// assert_dead!(kit, "charge", count = 0);
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! assert_dead {
    ($kit:expr, $handler:expr $(, error = $error:expr)? $(,)?) => {
        $crate::assert_dead!(@ $kit, $handler, ::std::option::Option::None $(, $error)?)
    };
    ($kit:expr, $handler:expr, count = $count:expr $(, error = $error:expr)? $(,)?) => {
        $crate::assert_dead!(@ $kit, $handler, ::std::option::Option::Some($count) $(, $error)?)
    };
    (@ $kit:expr, $handler:expr, $count:expr) => {
        $crate::assert_dead!(@ $kit, $handler, $count, "")
    };
    // The macro panics itself, so that the message shows the caller's line: a future has none.
    (@ $kit:expr, $handler:expr, $count:expr, $error:expr) => {
        if let ::std::option::Option::Some(words) =
            $crate::testing::check_dead(&$kit, &$handler, $count, &$error).await
        {
            ::std::panic!("{words}");
        }
    };
}

type Fits<'a> = Box<dyn Fn(&EmittedEvent) -> bool + 'a>;

/// What a value is expected to be.
#[doc(hidden)]
pub struct Expected<'a> {
    words: String,
    fits: Fits<'a>,
}

impl<'a> Expected<'a> {
    /// Any value.
    pub fn any() -> Self {
        Self { words: String::new(), fits: Box::new(|_| true) }
    }

    /// This value, as JSON.
    pub fn value(value: &impl Serialize) -> Self {
        let value = json(value);
        Self { words: format!(" with the value {value}"), fits: Box::new(move |event| event.value == value) }
    }

    /// A value with at least these fields.
    pub fn like(value: &impl Serialize) -> Self {
        let value = json(value);
        Self {
            words: format!(" with a value like {value}"),
            fits: Box::new(move |event| has(&event.value, &value)),
        }
    }

    /// A value for which this is true.
    pub fn matching<T: DeserializeOwned>(words: &str, matcher: impl Fn(T) -> bool + 'a) -> Self {
        let words = format!(" with a value matching {words}");
        Self { words, fits: Box::new(move |event| event.read().is_ok_and(&matcher)) }
    }
}

/// Converts through text, like what was emitted: floats may differ between a `Value` and its text.
/// A value that can't be JSON equals none that was emitted.
fn json(value: &impl Serialize) -> Value {
    serde_json::to_string(value)
        .and_then(|text| serde_json::from_str(&text))
        .unwrap_or_else(|error| Value::String(format!("not JSON: {error}")))
}

/// Whether `whole` contains all of `part`: an object may have more fields, everything else must be
/// equal.
fn has(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(name, part)| whole.get(name).is_some_and(|whole| has(whole, part)))
        }
        (whole, part) => whole == part,
    }
}

/// Called by [`assert_emitted`](crate::assert_emitted).
#[doc(hidden)]
#[track_caller]
pub fn check_emitted(kit: &TestKit, handler: &str, expected: Expected<'_>, count: Option<usize>) {
    let emitted = kit.emitted();
    let found = emitted.iter().filter(|event| event.is_for(handler) && (expected.fits)(event)).count();
    let wanted = wanted(count);
    if count.map_or(found == 0, |count| found != count) {
        panic!(
            "expected {wanted} emitted for {handler}{}, found {found}; the emitted events are:\n{}",
            expected.words,
            lines(&emitted)
        );
    }
}

/// Called by [`assert_dead`](crate::assert_dead). Returns the message, if the assertion fails.
#[doc(hidden)]
pub async fn check_dead(kit: &TestKit, handler: &str, count: Option<usize>, error: &str) -> Option<String> {
    let dead = match kit.dead().await {
        Ok(dead) => dead,
        Err(error) => return Some(format!("the dead events could not be read: {error}")),
    };
    let says = |last: &Option<String>| last.as_deref().unwrap_or_default().contains(error);
    let found = dead.iter().filter(|dead| is_for(&dead.address, handler) && says(&dead.last_error)).count();
    let is_wrong = count.map_or(found == 0, |count| found != count);
    is_wrong.then(|| {
        let words = if error.is_empty() { String::new() } else { format!(" with the error {error:?}") };
        let line = |dead: &crate::store::DeadEvent| {
            let (cause, last) = (&dead.cause, dead.last_error.as_deref().unwrap_or("nothing"));
            format!("{} of {cause}, retried {} times; its last error: {last}", dead.address, dead.retries)
        };
        let dead: Vec<String> = dead.iter().map(line).collect();
        format!(
            "expected {} dead of {handler}{words}, found {found}; the dead events are:\n{}",
            wanted(count),
            lines(&dead)
        )
    })
}

/// One line each, for the last fifty.
fn lines(items: &[impl std::fmt::Display]) -> String {
    let mut text = String::new();
    let left_out = items.len().saturating_sub(SHOWN_MAX);
    if items.is_empty() {
        text.push_str("  none");
    }
    if left_out > 0 {
        let _ = writeln!(text, "  … {left_out} before these");
    }
    for item in &items[left_out..] {
        let _ = writeln!(text, "  {item}");
    }
    text
}
