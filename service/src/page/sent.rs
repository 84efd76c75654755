//! A form that was sent: whether two are the same one, sent twice by a double click, a page that is
//! loaded again, or a browser that was not answered. Decides nothing about what it does.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256, digest};
use axum::http::Method;
use chrono::{DateTime, Utc};
use tokio::time::Instant;
use wakeq::CanvasId;

/// The name of the field with a form's own key.
pub(super) const KEY: &str = "form_key";

/// How long a process remembers that forms were sent, how many of a canvas, and of how many
/// canvases.
const REMEMBERED: Duration = Duration::from_secs(12 * 3600);
const FORMS_OF_CANVAS: usize = 500;
const CANVASES_MAX: usize = 500;

/// A digest of a form's key and fields. One that is filled in differently before it is sent again
/// is another.
pub(super) struct Sent(Vec<u8>);

impl Sent {
    /// The form in a body, if it has a key.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let has_key = url::form_urlencoded::parse(body).any(|(name, value)| name == KEY && !value.is_empty());
        has_key.then(|| Self(digest(&SHA256, body).as_ref().to_vec()))
    }

    /// The key of a request that it leads to, such that the same request of the same form has the
    /// same one.
    pub(super) fn key_of(&self, method: &Method, path: &str) -> String {
        let mut context = Context::new(&SHA256);
        context.update(&self.0);
        context.update(method.as_str().as_bytes());
        context.update(path.as_bytes());
        let digits: String = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("page-{digits}")
    }
}

/// A form that was sent.
struct Form {
    digest: Vec<u8>,
    /// When it was sent first: for how long it is remembered, and what its lengths of time count
    /// from.
    at: Instant,
    first: DateTime<Utc>,
}

/// When forms were sent to this process first: of each canvas, the oldest in front. To do what they
/// ask for once is left to the API, which remembers them in all processes, unless their answer has
/// a secret and can't be given again.
#[derive(Default)]
pub(super) struct SentBefore(Mutex<HashMap<CanvasId, VecDeque<Form>>>);

impl SentBefore {
    /// Notes that a form is sent now; returns when it was sent first, if it was sent before. Beyond
    /// the limit the oldest of the canvas is forgotten.
    pub(super) fn note(&self, canvas: CanvasId, sent: &Sent, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut canvases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !canvases.contains_key(&canvas) && canvases.len() >= CANVASES_MAX {
            forget_one(&mut canvases);
        }
        let forms = canvases.entry(canvas).or_default();
        while forms.front().is_some_and(|form| form.at.elapsed() >= REMEMBERED) {
            forms.pop_front();
        }
        if let Some(form) = forms.iter().find(|form| form.digest == sent.0) {
            return Some(form.first);
        }
        if forms.len() >= FORMS_OF_CANVAS {
            forms.pop_front();
        }
        forms.push_back(Form { digest: sent.0.clone(), at: Instant::now(), first: now });
        None
    }

    /// Forgets a form, because nothing was done.
    pub(super) fn forget(&self, canvas: CanvasId, sent: &Sent) {
        let mut canvases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(forms) = canvases.get_mut(&canvas) {
            forms.retain(|form| form.digest != sent.0);
        }
    }
}

/// Forgets the canvas whose last form was sent the longest ago.
fn forget_one(canvases: &mut HashMap<CanvasId, VecDeque<Form>>) {
    let last_at = |forms: &VecDeque<Form>| forms.back().map(|form| form.at);
    let oldest = canvases.iter().min_by_key(|(_, forms)| last_at(forms)).map(|(canvas, _)| *canvas);
    if let Some(oldest) = oldest {
        canvases.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn key(body: &str, method: &Method, path: &str) -> Option<String> {
        Some(Sent::read(body.as_bytes())?.key_of(method, path))
    }

    #[test]
    fn a_form_that_is_sent_twice_has_the_same_key() {
        let form = "form_key=a&name=mail&value=1";
        let first = key(form, &Method::POST, "/events").unwrap();
        assert_eq!(key(form, &Method::POST, "/events").as_ref(), Some(&first));
        assert!(first.len() <= 255 && first.bytes().all(|byte| byte.is_ascii_graphic()), "{first}");
        for (body, method, path) in [
            ("form_key=b&name=mail&value=1", Method::POST, "/events"),
            ("form_key=a&name=mail&value=2", Method::POST, "/events"),
            (form, Method::PUT, "/events"),
            (form, Method::POST, "/operations"),
        ] {
            assert_ne!(key(body, &method, path).unwrap(), first, "{body} {method} {path}");
        }
    }

    #[test]
    fn a_form_without_a_key_is_never_the_same() {
        for body in ["", "name=mail", "form_key=&name=mail", "other_form_key=a"] {
            assert_eq!(key(body, &Method::POST, "/events"), None, "{body}");
        }
    }

    const OWN: CanvasId = CanvasId(Uuid::from_u128(1));

    fn note(before: &SentBefore, canvas: CanvasId, key: usize, second: i64) -> Option<i64> {
        let sent = Sent::read(format!("form_key={key}").as_bytes()).unwrap();
        let first = before.note(canvas, &sent, DateTime::from_timestamp(second, 0).unwrap());
        first.map(|first| first.timestamp())
    }

    #[tokio::test(start_paused = true)]
    async fn a_form_is_known_by_when_it_was_sent_first_until_it_is_forgotten() {
        let before = SentBefore::default();
        let note = |key: usize, second: i64| note(&before, OWN, key, second);
        assert_eq!((note(1, 10), note(1, 11), note(2, 12), note(1, 13)), (None, Some(10), None, Some(10)));
        before.forget(OWN, &Sent::read(b"form_key=1").unwrap());
        assert_eq!((note(1, 14), note(1, 15)), (None, Some(14)));
        tokio::time::advance(REMEMBERED).await;
        assert_eq!((note(1, 16), note(1, 17)), (None, Some(16)), "hours later");
    }

    #[tokio::test(start_paused = true)]
    async fn forms_of_others_do_not_make_one_forgotten() {
        let (before, other) = (SentBefore::default(), CanvasId(Uuid::from_u128(2)));
        note(&before, OWN, 1, 10);
        for key in 0..2 * FORMS_OF_CANVAS {
            note(&before, other, key, 11);
        }
        let of_other = before.0.lock().unwrap()[&other].len();
        assert_eq!((of_other, note(&before, OWN, 1, 12)), (FORMS_OF_CANVAS, Some(10)));
        assert_eq!(note(&before, other, 0, 12), None, "too many came after it");
    }

    #[tokio::test(start_paused = true)]
    async fn few_canvases_are_remembered_those_of_the_latest_forms() {
        let before = SentBefore::default();
        for number in 0..2 * CANVASES_MAX {
            tokio::time::advance(Duration::from_millis(1)).await;
            note(&before, CanvasId(Uuid::from_u128(number as u128)), 1, 10);
        }
        let latest = CanvasId(Uuid::from_u128(2 * CANVASES_MAX as u128 - 1));
        assert_eq!(note(&before, latest, 1, 11), Some(10));
        assert_eq!(before.0.lock().unwrap().len(), CANVASES_MAX);
    }
}
