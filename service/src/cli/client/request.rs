//! A request of the HTTP API, whatever carries it.

use std::fmt::Display;

use serde::Serialize;
use uuid::Uuid;
use wakeq_client::Method;

use wakeq::CanvasId;

/// How often a request with an idempotency key is sent again.
const RETRIES: u32 = 3;

/// A request to be sent.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    admin: bool,
    everywhere: bool,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    pub(crate) body: Option<Vec<u8>>,
    /// Whether it may be sent again if its answer is lost, with an idempotency key.
    repeatable: bool,
    pub(crate) wakes: Wakes,
}

/// Which events a request wakes. A server knows this by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// None: it publishes nothing, and so works without Pub/Sub.
    None,
    /// All that it frees.
    All,
    /// Possibly very many, of which it wakes those that it reaches in a while. The rest is left to
    /// long-running processes.
    ForAWhile,
}

/// A page of a list to be requested.
pub(crate) struct Page {
    pub(crate) limit: u32,
    pub(crate) cursor: Option<String>,
}

impl Request {
    fn new(method: Method, path: &[&str], wakes: Wakes) -> Self {
        let path = path.iter().map(|&part| part.to_owned()).collect();
        let (admin, everywhere, repeatable) = (false, false, false);
        Self { method, admin, everywhere, path, query: Vec::new(), body: None, repeatable, wakes }
    }

    pub(crate) fn get(path: &[&str]) -> Self {
        Self::new(Method::GET, path, Wakes::None)
    }

    pub(crate) fn post(path: &[&str]) -> Self {
        Self::new(Method::POST, path, Wakes::All)
    }

    pub(crate) fn put(path: &[&str]) -> Self {
        Self::new(Method::PUT, path, Wakes::All)
    }

    pub(crate) fn delete(path: &[&str]) -> Self {
        Self::new(Method::DELETE, path, Wakes::All)
    }

    /// Below the routes for admins.
    pub(crate) fn admin(self) -> Self {
        Self { admin: true, ..self }
    }

    /// Below the routes for admins of every canvas.
    pub(crate) fn everywhere(self) -> Self {
        Self { admin: true, everywhere: true, ..self }
    }

    /// Wakes no events.
    pub(crate) fn silent(self) -> Self {
        Self { wakes: Wakes::None, ..self }
    }

    /// May wake very many events.
    pub(crate) fn for_a_while(self) -> Self {
        Self { wakes: Wakes::ForAWhile, ..self }
    }

    pub(crate) fn query(mut self, name: &'static str, value: Option<impl Display>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    pub(crate) fn page(self, page: Page) -> Self {
        self.query("limit", Some(page.limit)).query("cursor", page.cursor)
    }

    pub(crate) fn body(self, body: &impl Serialize) -> anyhow::Result<Self> {
        Ok(Self { body: Some(serde_json::to_vec(body)?), ..self })
    }

    /// May be sent again if its answer is lost.
    pub(crate) fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    /// As it is sent about a canvas: repeated only if it has an idempotency key, which is then the
    /// same in each attempt.
    pub(crate) fn about(&self, canvas: CanvasId) -> wakeq_client::Request {
        let canvas = canvas.to_string();
        let mut path = vec!["v1"];
        path.extend(self.admin.then_some("admin"));
        if !self.everywhere {
            path.extend(["canvases", &canvas]);
        }
        path.extend(self.path.iter().map(String::as_str));
        let mut request = wakeq_client::Request::new(self.method.clone(), "").retries(0);
        for part in path {
            request = request.segment(part);
        }
        for (name, value) in &self.query {
            request = request.query(name, value);
        }
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        if self.repeatable {
            request = request.idempotency_key(Uuid::new_v4().to_string()).retries(RETRIES);
        }
        request
    }
}
