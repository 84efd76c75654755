//! The OpenAPI 3.1 document, made from the routes, and a page that shows it without asking any other host.

use std::borrow::Cow;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_swagger_ui::{Config, Url};

use super::Api;
use super::bytes::sliced;
use super::guard::CREDENTIAL;
use super::problem::{Details, Problem};

/// What the page may load: its own files, and the document.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'";

/// How long a caller may take over a page.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(OpenApi)]
#[openapi(
    info(title = "wakeq", description = "A durable event queue: Postgres holds every event, Google Cloud Pub/Sub only wakes the workers.", license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")),
    components(schemas(Details)),
    tags(
        (name = "emit", description = "Emitting events"),
        (name = "events", description = "Single events: look, cancel, run now"),
        (name = "handlers", description = "Counts, pauses and blocks, and where events are sent over HTTP"),
        (name = "cron", description = "Events that are emitted at their times"),
        (name = "objects", description = "What events are ordered by, and where that stands still"),
        (name = "entities", description = "What is kept in memory by one processor of its type, and changes by events"),
        (name = "log", description = "What happened, in order: appended to streams, never changed"),
        (name = "dead events", description = "Events that are not tried again"),
        (name = "groups", description = "Consumer groups: who reads which part of the log, and how far they have come"),
        (name = "queues", description = "Queues that services register: copies of the events of every canvas"),
        (name = "quotas", description = "What a canvas may keep, and what it keeps"),
        (name = "admin", description = "Keys, and who did what"),
        (name = "push", description = "For Pub/Sub and Cloud Scheduler, in deployments with a push subscription"),
        (name = "health", description = "For those who start, stop and route to the process"),
    )
)]
struct Base;

/// The name of the credential of pushes in the document.
const PUSH_CREDENTIAL: &str = "push";

/// The document before any route is in it.
pub(super) fn base() -> utoipa::openapi::OpenApi {
    let mut document = Base::openapi();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "An API key (`wakeq keys create`), or a Google ID token of an allowed service account",
        ))
        .build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(CREDENTIAL, SecurityScheme::Http(bearer));
    let pushing = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "A Google ID token of an account in WAKEQ_PUSH_ACCOUNTS, for WAKEQ_PUSH_AUDIENCE: good for this and nothing else",
    ));
    components.add_security_scheme(PUSH_CREDENTIAL, SecurityScheme::Http(pushing.build()));
    document
}

/// `/openapi.json` and `/docs`, where `/` points to.
pub(super) fn pages(document: utoipa::openapi::OpenApi) -> Router<Api> {
    // Written once: nobody pays for it who asks.
    let document: Bytes = serde_json::to_vec(&document).unwrap_or_default().into();
    let config = std::sync::Arc::new(Config::new([Url::new("wakeq", "/openapi.json")]).validator_url("none"));
    let page = move |file: String| {
        let config = config.clone();
        async move { asset(&file, config) }
    };
    let index = page.clone();
    Router::new()
        .route("/openapi.json", get(async move || shown(document.clone())))
        // Until there is a page of its own. Not for good: browsers would keep it.
        .route("/", get(async || Redirect::temporary("/docs/")))
        .route("/docs", get(async || Redirect::permanent("/docs/")))
        .route("/docs/", get(async move || index(String::new()).await))
        .route("/docs/{*file}", get(async move |Path(file): Path<String>| page(file).await))
}

fn shown(document: Bytes) -> Response {
    let kind = HeaderValue::from_static("application/json");
    sliced(([(header::CONTENT_TYPE, kind)], document).into_response(), PATIENCE)
}

fn asset(file: &str, config: std::sync::Arc<Config<'static>>) -> Response {
    match utoipa_swagger_ui::serve(file, config) {
        Ok(Some(file)) => {
            let bytes = match file.bytes {
                Cow::Borrowed(bytes) => Bytes::from_static(bytes),
                Cow::Owned(bytes) => bytes.into(),
            };
            let mut response = sliced((StatusCode::OK, bytes).into_response(), PATIENCE);
            let headers = response.headers_mut();
            if let Ok(kind) = HeaderValue::from_str(&file.content_type) {
                headers.insert(header::CONTENT_TYPE, kind);
            }
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
            headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
            response
        }
        Ok(None) => Problem::not_found().into_response(),
        Err(error) => Problem::internal(error.as_ref()).into_response(),
    }
}
