//! A request to the API in a visitor's name.

use std::fmt::Display;
use std::time::Duration;

use axum::http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;
use wakeq::CanvasId;

use super::question::Question;
use super::renewals::Renewal;
use super::state::Page;
use super::visit::{Visit, joined};
use crate::access::{Principal, Scope, authorize_everywhere};
use crate::http::inside::{Content, Reply, Sender};
use crate::http::problem::{Kind, Problem, Words};

/// How often the answer of a form that was sent twice is looked for, and after which time again.
const LOOKS: u32 = 20;
const LOOKS_AGAIN: Duration = Duration::from_millis(250);
/// When an answer that took long is renewed for those who look next.
const RENEWS_AFTER: Duration = Duration::from_millis(500);

/// A request that is not sent yet.
pub(crate) struct Ask {
    visit: Visit,
    /// What it is about: the platform if it is none.
    canvas: Option<CanvasId>,
    path: String,
    query: Vec<(String, String)>,
    is_once: bool,
    is_look: bool,
}

impl Visit {
    /// A request about this canvas: `["handlers", module, name]` is
    /// `/v1/canvases/{canvas}/handlers/{module}/{name}`.
    pub(crate) fn ask(&self, path: &[&str]) -> Ask {
        self.asking(Some(self.canvas()), format!("/v1/canvases/{}{}", self.canvas().0, joined(path)))
    }

    /// The same below the routes of a canvas's admins.
    pub(crate) fn ask_admin(&self, path: &[&str]) -> Ask {
        self.asking(Some(self.canvas()), format!("/v1/admin/canvases/{}{}", self.canvas().0, joined(path)))
    }

    /// The same below the routes that concern all canvases.
    pub(crate) fn ask_everywhere(&self, path: &[&str]) -> Ask {
        self.asking(None, format!("/v1/admin{}", joined(path)))
    }

    fn asking(&self, canvas: Option<CanvasId>, path: String) -> Ask {
        Ask { visit: self.clone(), canvas, path, query: Vec::new(), is_once: false, is_look: false }
    }
}

impl Ask {
    /// Does what the form asks for once, however often it is sent. For routes that honour an
    /// `Idempotency-Key`.
    pub(crate) fn once(self) -> Self {
        Self { is_once: true, ..self }
    }

    /// Adds a parameter, unless it is empty.
    pub(crate) fn query(mut self, name: &str, value: impl Display) -> Self {
        let value = value.to_string();
        if !value.is_empty() {
            self.query.push((name.to_owned(), value));
        }
        self
    }

    /// Adds parameters, without those that are empty.
    pub(crate) fn queries(self, pairs: &[(String, String)]) -> Self {
        pairs.iter().fold(self, |ask, (name, value)| ask.query(name, value))
    }

    /// Reads. For what only this visitor sees, such as values.
    pub(crate) async fn get<T: DeserializeOwned>(self) -> Result<T, Problem> {
        read(&self.send(Method::GET, None).await?.body)
    }

    /// Reads what others with the same rights may have asked for a moment ago. What is recorded is
    /// asked for anew for each person. A browser that is left open is recorded as reading it once
    /// in five minutes.
    pub(crate) async fn shared<T: DeserializeOwned>(self) -> Result<T, Problem> {
        let visit = self.visit.clone();
        let rights = visit.principal().rights_on(visit.canvas());
        let question = Question::new(self.canvas, format!("{rights} {}", self.path_and_query()));
        let (page, asking) = (visit.parts().page.clone(), self.send(Method::GET, None));
        let answer = if let Some(alone) = visit.parts().alone.as_deref() {
            let mark = page.pulse.mark(page.api.checkup.snapshot());
            page.memo.watch(&question, alone, mark, asking).await?.ok_or_else(not_now)?
        } else if let Some(earlier) = page.memo.earlier(&question) {
            if let Some(renewal) = page.renewals.begin(visit.canvas()) {
                tokio::spawn(renew(page, renewal, question, asking));
            }
            earlier
        } else {
            page.memo.find(&question, asking).await?
        };
        read(&answer)
    }

    /// Asks by POST for what would be changed, which changes nothing: what is known stays.
    pub(crate) async fn look<T: DeserializeOwned>(self, body: &impl Serialize) -> Result<T, Problem> {
        Self { is_look: true, ..self }.post(body).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(self, body: &impl Serialize) -> Result<T, Problem> {
        self.change(Method::POST, body).await
    }

    pub(crate) async fn put<T: DeserializeOwned>(self, body: &impl Serialize) -> Result<T, Problem> {
        self.change(Method::PUT, body).await
    }

    /// Deletes; the answer is not used.
    pub(crate) async fn delete(self) -> Result<(), Problem> {
        self.send(Method::DELETE, None).await.map(drop)
    }

    /// Changes something without a body; the answer is not used.
    pub(crate) async fn order(self, method: Method) -> Result<(), Problem> {
        self.send(method, None).await.map(drop)
    }

    /// Changes something without a body, and reads the answer.
    pub(crate) async fn answer_to<T: DeserializeOwned>(self, method: Method) -> Result<T, Problem> {
        read(&self.send(method, None).await?.body)
    }

    /// Changes something; the answer is not used.
    pub(crate) async fn tell(self, method: Method, body: &impl Serialize) -> Result<(), Problem> {
        self.send(method, Some(written(body)?)).await.map(drop)
    }

    async fn change<T: DeserializeOwned>(self, method: Method, body: &impl Serialize) -> Result<T, Problem> {
        read(&self.send(method, Some(written(body)?)).await?.body)
    }

    async fn send(self, method: Method, body: Option<Vec<u8>>) -> Result<Reply, Problem> {
        let path = self.path_and_query();
        let parts = self.visit.parts();
        let sent = parts.sent.as_ref().filter(|_| self.is_once);
        let content = Content { body, key: sent.map(|sent| sent.key_of(&method, &path)) };
        let is_change = !method.is_safe() && !self.is_look;
        let is_change = is_change && may_concern(self.visit.principal(), self.canvas);
        let changing = is_change.then(|| parts.page.memo.changing(self.canvas));
        let mut answer = self.call(method.clone(), &path, content.clone()).await;
        // Of the first answer: while the same form is in progress, it changes something.
        let is_refused = answer.as_ref().is_err_and(is_refusal);
        for _ in 0..LOOKS {
            // The same form was sent a moment ago, and its answer is this one's.
            if !answer.as_ref().is_err_and(|problem| problem.kind == Kind::IdempotencyInProgress) {
                break;
            }
            sleep(LOOKS_AGAIN).await;
            answer = self.call(method.clone(), &path, content.clone()).await;
        }
        if let Some(changing) = changing.filter(|_| is_refused) {
            changing.refuse();
        }
        answer.map_err(sent_before)
    }

    async fn call(&self, method: Method, path: &str, content: Content) -> Result<Reply, Problem> {
        let parts = self.visit.parts();
        let alone = parts.alone.as_deref().filter(|_| method.is_safe());
        let has_read = alone.is_some_and(|alone| alone.has_read(path));
        let sender = Sender::Person(Box::new(parts.person.clone().having_read(has_read)));
        let reply = parts.page.inside.call(sender, method, path, content).await?;
        if let Some(alone) = alone.filter(|_| reply.is_recorded && !has_read) {
            alone.note_read(path);
        }
        Ok(reply)
    }

    fn path_and_query(&self) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let query = query.extend_pairs(&self.query).finish();
        if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) }
    }
}

/// Whether the person may change anything about a canvas, or about the platform if there is none.
/// Somebody without any right there is refused, in whatever words.
fn may_concern(principal: &Principal, canvas: Option<CanvasId>) -> bool {
    let mut scopes = Scope::ALL.into_iter();
    canvas.is_some() || scopes.any(|scope| authorize_everywhere(principal, scope).is_ok())
}

/// Whether it says that nothing was even tried: the person has no right to what was asked for, or
/// asks more than a share allows. What is refused for the state of things is no such problem, since
/// others may have changed them.
fn is_refusal(problem: &Problem) -> bool {
    matches!(problem.kind, Kind::Unauthenticated | Kind::Forbidden | Kind::TooManyRequests)
}

/// Nobody is told: the browser goes on showing what it was shown.
fn not_now() -> Problem {
    Problem::new(Kind::Unavailable, "it would cost too much to look again now")
}

/// A form whose request depends on the time, such as a length that is counted from now, asks for
/// something else when another process is sent it again: it was done the first time.
fn sent_before(problem: Problem) -> Problem {
    if problem.kind != Kind::IdempotencyMismatch {
        return problem;
    }
    let words = "this form was sent before, and what it asks for was done then: nothing was done now. To do it \
                 once more, load the page again";
    Problem::new(problem.kind, words)
}

/// Asks again, for those who look next, when the page that is shown now has asked for all else.
async fn renew(
    page: Page,
    _renewal: Renewal,
    question: Question,
    asking: impl Future<Output = Result<Reply, Problem>>,
) {
    let renewing = async {
        sleep(RENEWS_AFTER).await;
        page.memo.find(&question, asking).await
    };
    tokio::select! {
        () = page.stop.cancelled() => {}
        _ = renewing => {}
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem::internal().because(Words(error.to_string())))
}

fn written(body: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(body).map_err(|error| Problem::internal().because(Words(error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Grant, Reach};

    #[test]
    fn whoever_has_no_right_everywhere_changes_nothing_about_the_platform() {
        let with = |reach, scope: Scope| {
            Principal::trusted("ada", vec![Grant { reach, scopes: [scope].into_iter().collect() }])
        };
        let own = Reach::Canvas(CanvasId::DEFAULT);
        for scope in Scope::ALL {
            assert!(!may_concern(&with(own, scope), None), "{scope}");
            assert!(may_concern(&with(own, scope), Some(CanvasId::DEFAULT)), "{scope}");
            assert!(may_concern(&with(Reach::EveryCanvas, scope), None), "{scope}");
        }
    }

    #[test]
    fn a_form_that_was_not_even_tried_has_changed_nothing() {
        let refuses = |kind| is_refusal(&Problem::new(kind, "no"));
        for kind in [Kind::Unauthenticated, Kind::Forbidden, Kind::TooManyRequests] {
            assert!(refuses(kind), "{kind:?}");
        }
        // The last two may also follow a change: waking the events may have failed after it.
        let others = [Kind::NotFound, Kind::Conflict, Kind::IdempotencyInProgress, Kind::IdempotencyMismatch];
        for kind in others.into_iter().chain([Kind::QuotaExceeded, Kind::Unavailable]) {
            assert!(!refuses(kind), "{kind:?}");
        }
    }
}
