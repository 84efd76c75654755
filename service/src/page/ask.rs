//! A request to the API in a visitor's name.

use std::fmt::Display;

use axum::http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::state::Page;
use super::visit::{Visit, joined};
use crate::access::Scope;
use crate::http::inside::{Reply, Sender};
use crate::http::problem::{Problem, Words};

/// A request that is not sent yet.
pub(crate) struct Ask {
    visit: Visit,
    path: String,
    query: Vec<(String, String)>,
}

impl Visit {
    /// A request about this canvas: `["handlers", module, name]` is
    /// `/v1/canvases/{canvas}/handlers/{module}/{name}`.
    pub(crate) fn ask(&self, path: &[&str]) -> Ask {
        Ask::new(self.clone(), format!("/v1/canvases/{}{}", self.canvas().0, joined(path)))
    }

    /// The same below the routes of a canvas's admins.
    pub(crate) fn ask_admin(&self, path: &[&str]) -> Ask {
        Ask::new(self.clone(), format!("/v1/admin/canvases/{}{}", self.canvas().0, joined(path)))
    }

    /// The same below the routes that concern all canvases.
    pub(crate) fn ask_everywhere(&self, path: &[&str]) -> Ask {
        Ask::new(self.clone(), format!("/v1/admin{}", joined(path)))
    }
}

impl Ask {
    fn new(visit: Visit, path: String) -> Self {
        Self { visit, path, query: Vec::new() }
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
    /// asked for anew for each person.
    pub(crate) async fn shared<T: DeserializeOwned>(self) -> Result<T, Problem> {
        if !self.visit.may(Scope::Read) {
            return self.get().await;
        }
        let visit = self.visit.clone();
        let rights = visit.principal().rights_on(visit.canvas());
        let question = format!("{rights} {}", self.path_and_query());
        let (page, asking) = (visit.parts().page.clone(), self.send(Method::GET, None));
        let answer = if visit.parts().is_watched {
            page.memo.watch(&question, page.pulse.mark(page.api.checkup.snapshot()), asking).await?
        } else if let Some(earlier) = page.memo.earlier(&question) {
            tokio::spawn(renew(page, question, asking));
            earlier
        } else {
            page.memo.find(&question, asking).await?
        };
        read(&answer)
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
        let sender = Sender::Person(Box::new(parts.person.clone()));
        let changes = !method.is_safe();
        let answer = parts.page.inside.call(sender, method, &path, body).await;
        if changes {
            parts.page.memo.forget();
        }
        answer
    }

    fn path_and_query(&self) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let query = query.extend_pairs(&self.query).finish();
        if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) }
    }
}

/// Asks again, for those who look next.
async fn renew(page: Page, question: String, asking: impl Future<Output = Result<Reply, Problem>>) {
    tokio::select! {
        () = page.stop.cancelled() => {}
        _ = page.memo.find(&question, asking) => {}
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem::internal().because(Words(error.to_string())))
}

fn written(body: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(body).map_err(|error| Problem::internal().because(Words(error.to_string())))
}
