//! A form that was sent: whether two are the same one, sent twice by a double click, a page that is
//! loaded again, or a browser that was not answered. Decides nothing about what it does.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256, digest};
use axum::http::Method;
use chrono::{DateTime, Utc};
use tokio::time::Instant;

/// The name of the field with a form's own key.
pub(super) const KEY: &str = "form_key";

/// How long, and of how many forms, a process remembers that they were sent.
const REMEMBERED: Duration = Duration::from_secs(12 * 3600);
const FORMS_MAX: usize = 10_000;

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

/// When a form was sent first: for how long it is remembered, and what its lengths of time count
/// from.
type FirstSent = (Instant, DateTime<Utc>);

/// When forms were sent to this process first. To do what they ask for once is left to the API,
/// which remembers them in all processes, unless their answer has a secret and can't be given
/// again.
#[derive(Default)]
pub(super) struct SentBefore(Mutex<HashMap<Vec<u8>, FirstSent>>);

impl SentBefore {
    /// Notes that a form is sent now; returns when it was sent first, if it was sent before. Beyond
    /// the limit the oldest is forgotten.
    pub(super) fn note(&self, sent: &Sent, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, first)) = forms.get(&sent.0)
            && at.elapsed() < REMEMBERED
        {
            return Some(*first);
        }
        if forms.len() >= FORMS_MAX {
            let oldest = forms.iter().min_by_key(|(_, (at, _))| *at).map(|(form, _)| form.clone());
            if let Some(oldest) = oldest {
                forms.remove(&oldest);
            }
        }
        forms.insert(sent.0.clone(), (Instant::now(), now));
        None
    }

    /// Forgets a form, because nothing was done.
    pub(super) fn forget(&self, sent: &Sent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&sent.0);
    }
}

#[cfg(test)]
mod tests {
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

    #[tokio::test(start_paused = true)]
    async fn a_form_is_known_by_when_it_was_sent_first_until_it_is_forgotten() {
        let before = SentBefore::default();
        let note = |key: usize, second: i64| {
            let sent = Sent::read(format!("form_key={key}").as_bytes()).unwrap();
            before.note(&sent, DateTime::from_timestamp(second, 0).unwrap()).map(|first| first.timestamp())
        };
        assert_eq!((note(1, 10), note(1, 11), note(2, 12), note(1, 13)), (None, Some(10), None, Some(10)));
        before.forget(&Sent::read(b"form_key=1").unwrap());
        assert_eq!((note(1, 14), note(1, 15)), (None, Some(14)));
        tokio::time::advance(REMEMBERED).await;
        assert_eq!((note(1, 16), note(1, 17)), (None, Some(16)), "hours later");
        for key in 0..FORMS_MAX + 10 {
            note(key, 18);
        }
        assert!(before.0.lock().unwrap().len() <= FORMS_MAX);
    }
}
