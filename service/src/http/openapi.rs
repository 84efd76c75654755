//! The OpenAPI 3.1 document, generated from the routes, and a page that displays it without
//! contacting other hosts; and the list of the documents.

use std::borrow::Cow;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use serde_json::json;
use utoipa::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr};
use utoipa_swagger_ui::{Config, Url};

use super::Api;
use super::bytes::sliced;
use super::guard::CREDENTIAL;
use super::llms;
use super::mounted::Root;
use super::problem::{Details, Problem, Words};

/// The page may only load its own files and the document.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'";

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// How long a caller may take to receive a page.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(OpenApi)]
#[openapi(
    info(
        title = "wakeq",
        description = "A durable event queue: Postgres holds every event; Google Cloud Pub/Sub, or \
                       Postgres itself, only wakes the workers.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    components(schemas(Details)),
    tags(
        (name = "emit", description = "Emit events"),
        (name = "events", description = "List, explain, cancel and expedite single events"),
        (name = "handlers",
            description = "Counts, pauses and blocks of handlers, and their HTTP targets"),
        (name = "cron", description = "Schedules that emit events"),
        (name = "hooks", description = "Webhooks of other systems, which become events"),
        (name = "batches", description = "Many events, and one that is emitted when all have ended"),
        (name = "objects",
            description = "The objects that events are ordered by, and where they are halted"),
        (name = "entities",
            description = "States that events change, kept in memory by one processor per type"),
        (name = "log",
            description = "What happened, in order: events appended to streams, never changed"),
        (name = "operations", description = "What is done to all events that match a filter"),
        (name = "dead events", description = "Events that were given up: they are kept, and can be redriven"),
        (name = "ended events", description = "Events that are kept after they have ended"),
        (name = "groups", description = "Consumer groups, and their positions in the log"),
        (name = "queues",
            description = "Queues that services register: copies of the events of all canvases"),
        (name = "workers", description = "The worker processes, what they run, and programs that lease events"),
        (name = "quotas", description = "The limits of a canvas, and its usage"),
        (name = "limits",
            description = "How many events run at a time and start in a period, over all workers"),
        (name = "admin", description = "Keys, blocks, the audit log, and what is wrong"),
        (name = "push",
            description = "For Pub/Sub and Cloud Scheduler, if there is a push subscription"),
        (name = "health", description = "For orchestrators and load balancers"),
    )
)]
struct Base;

/// The name of the credential of pushes in the document.
const PUSH_CREDENTIAL: &str = "push";

/// The name of the credential of webhooks in the document.
const SIGNATURE: &str = "signature";

/// The document without any routes.
pub(crate) fn base() -> utoipa::openapi::OpenApi {
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
        "A Google ID token of an account in WAKEQ_PUSH_ACCOUNTS, for WAKEQ_PUSH_AUDIENCE; \
         valid for these routes only",
    ));
    components.add_security_scheme(PUSH_CREDENTIAL, SecurityScheme::Http(pushing.build()));
    let signed = ApiKeyValue::with_description(
        "webhook-signature",
        "The signature of a webhook with the secret of its hook: in `webhook-signature` by Standard Webhooks, in \
         `stripe-signature`, or in `x-hub-signature-256` by GitHub",
    );
    components.add_security_scheme(SIGNATURE, SecurityScheme::ApiKey(ApiKey::Header(signed)));
    document
}

/// `/openapi.json`, `/llms.txt` and `/docs`, to which `/` redirects if it is `first`.
pub(crate) fn pages(mut document: utoipa::openapi::OpenApi, first: bool) -> Router<Api> {
    describe_problems(&mut document);
    // Serialized once, not for each request.
    let document: Bytes = serde_json::to_vec(&document).unwrap_or_default().into();
    let list = llms::list();
    // From the page, wherever that is.
    let config = Config::new([Url::new("wakeq", "../openapi.json")]).validator_url("none");
    let config = std::sync::Arc::new(config);
    let page = move |file: String| {
        let config = config.clone();
        async move { asset(&file, config) }
    };
    let index = page.clone();
    let router = match first {
        // Temporary, because browsers would remember a permanent redirect when `/` gets a page of
        // its own.
        true => Router::new().route("/", get(async || Redirect::temporary("/docs/"))),
        false => Router::new(),
    };
    router
        .route("/openapi.json", get(async move |root: Root| shown(JSON, of_root(&document, &root))))
        .route("/llms.txt", get(async move || shown(TEXT, list.clone())))
        .route("/docs", get(async || Redirect::permanent("/docs/")))
        .route("/docs/", get(async move || index(String::new()).await))
        .route("/docs/{*file}", get(async move |uri: Uri| page(file_of(&uri)).await))
}

/// The file of the page that a path names.
fn file_of(uri: &Uri) -> String {
    uri.path().strip_prefix("/docs/").unwrap_or_default().to_owned()
}

/// The document for the place where the API is mounted, which its paths are below.
fn of_root(document: &Bytes, root: &Root) -> Bytes {
    match document.get(1..) {
        Some(rest) if !root.is_server() => {
            let servers = json!([{ "url": root.0 }]).to_string();
            [&b"{\"servers\":"[..], servers.as_bytes(), b",", rest].concat().into()
        }
        Some(_) | None => document.clone(),
    }
}

/// Adds the body of every error: a problem.
fn describe_problems(document: &mut utoipa::openapi::OpenApi) {
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
        let answers =
            operations.into_iter().flatten().flat_map(|operation| &mut operation.responses.responses);
        for (status, answer) in answers {
            if let RefOr::T(answer) = answer
                && !status.starts_with('2')
                && answer.content.is_empty()
            {
                answer.content.insert("application/problem+json".to_owned(), RefOr::T(problem.clone()));
            }
        }
    }
}

fn shown(kind: &'static str, document: Bytes) -> Response {
    let kind = HeaderValue::from_static(kind);
    sliced(([(header::CONTENT_TYPE, kind)], document).into_response(), SEND_TIMEOUT)
}

fn asset(file: &str, config: std::sync::Arc<Config<'static>>) -> Response {
    match utoipa_swagger_ui::serve(file, config) {
        Ok(Some(file)) => {
            let bytes = match file.bytes {
                Cow::Borrowed(bytes) => Bytes::from_static(bytes),
                Cow::Owned(bytes) => bytes.into(),
            };
            let mut response = sliced((StatusCode::OK, bytes).into_response(), SEND_TIMEOUT);
            let headers = response.headers_mut();
            if let Ok(kind) = HeaderValue::from_str(&file.content_type) {
                headers.insert(header::CONTENT_TYPE, kind);
            }
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
            headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
            response
        }
        Ok(None) => Problem::not_found().into_response(),
        Err(error) => Problem::internal().because(Words(error.to_string())).into_response(),
    }
}
