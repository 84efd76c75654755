//! Requests from this process to its own API: the same routes without a connection, for the
//! operator of a command and for a person who is signed in to the page.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{Extensions, HeaderValue, Method, header};
use tower_service::Service;

use super::answer::RequestId;
use super::caller::{Operator, SignedIn};
use super::client::Client;
use super::operations::IDEMPOTENCY_KEY;
use super::problem::{Problem, Words};
use super::record::{ReadBefore, Recorded};
use crate::access::Principal;

/// The routes of the API.
#[derive(Clone)]
pub(crate) struct Inside(Router);

/// Who sends a request.
#[derive(Clone)]
pub(crate) enum Sender {
    /// May do everything; has no limits.
    Operator(Operator),
    /// May do what the principal may.
    Person(Box<Person>),
}

/// A person who is signed in, and the request that the page answers.
#[derive(Clone)]
pub(crate) struct Person {
    principal: SignedIn,
    client: Client,
    request: Option<RequestId>,
    has_read: bool,
}

impl Person {
    /// In the name of this principal, for a request with these extensions.
    pub(crate) fn of(principal: Principal, extensions: &Extensions) -> Self {
        let request = extensions.get().cloned();
        Self { principal: SignedIn(principal), client: Client::of(extensions), request, has_read: false }
    }

    /// The same for a request whose answer the person is shown again, if so: that it is read was
    /// recorded a moment ago.
    pub(crate) fn having_read(self, has_read: bool) -> Self {
        Self { has_read, ..self }
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.principal.0
    }
}

impl Sender {
    fn sign(self, extensions: &mut Extensions) {
        match self {
            Self::Operator(operator) => {
                extensions.insert(operator);
            }
            Self::Person(person) => {
                let Person { principal, client, request, has_read } = *person;
                extensions.insert(principal);
                extensions.insert(client);
                if let Some(request) = request {
                    extensions.insert(request);
                }
                if has_read {
                    extensions.insert(ReadBefore);
                }
            }
        }
    }
}

/// What a request has beside its path.
#[derive(Clone, Default)]
pub(crate) struct Content {
    /// JSON.
    pub(crate) body: Option<Vec<u8>>,
    /// An `Idempotency-Key`.
    pub(crate) key: Option<String>,
}

/// The answer to a request.
pub(crate) struct Reply {
    pub(crate) body: Bytes,
    /// Whether it is recorded who has read it, so that nobody else may be shown it.
    pub(crate) is_recorded: bool,
}

impl From<Option<Vec<u8>>> for Content {
    fn from(body: Option<Vec<u8>>) -> Self {
        Self { body, key: None }
    }
}

impl Inside {
    /// `router` has the routes with their guard, and none of the layers around them.
    pub(crate) fn new(router: Router) -> Self {
        Self(router)
    }

    /// The answer to a request to a path with its query. Errors: the problem that any caller would
    /// be told.
    pub(crate) async fn call(
        &self,
        sender: Sender,
        method: Method,
        path: &str,
        Content { body, key }: Content,
    ) -> Result<Reply, Problem> {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| Problem::bad_request(format!("{path} is too long")))?;
        if let Some(body) = body {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = body.into();
        }
        if let Some(key) = key {
            let key = HeaderValue::try_from(key).map_err(Problem::invalid)?;
            request.headers_mut().insert(IDEMPOTENCY_KEY, key);
        }
        sender.sign(request.extensions_mut());
        let Ok(mut response) = self.0.clone().call(request).await;
        if !response.status().is_success() {
            let problem = response.extensions_mut().remove();
            return Err(problem.unwrap_or_else(|| Problem::of_status(response.status())));
        }
        let is_recorded = response.extensions().get::<Recorded>().is_some();
        let body = to_bytes(response.into_body(), usize::MAX).await;
        let body = body.map_err(|error| Problem::internal().because(Words(error.to_string())))?;
        Ok(Reply { body, is_recorded })
    }
}
