//! What the emulator serves besides the API: faults at run time, forgetting everything, its state,
//! the keys of its push tokens, and pages for people.
//!
//! An endpoint changes nothing but what it documents. Unless their origin is allowed, requests of
//! other sites' pages to change something are refused before they get here, and what they ask for
//! their browser keeps from them.

mod body;
mod card;
mod faults;
mod fields;
mod forms;
mod html;
mod json;
mod page;
mod subscription;
mod topic;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::routing::{get, post};
use serde_json::json;

use self::json::{answer, refuse};
use super::core::Core;
use super::push::{DISCOVERY_PATH, KEYS_MAX_AGE_SECONDS, KEYS_PATH, KeyError, Tokens};

/// The state of the endpoints.
#[derive(Clone)]
struct Admin {
    core: Arc<Core>,
    tokens: Arc<Tokens>,
}

/// The routes of all endpoints.
pub(super) fn routes(core: &Arc<Core>, tokens: &Arc<Tokens>) -> Router {
    Router::new()
        .route("/", get(page::show))
        .route("/admin/topic", get(topic::show))
        .route("/admin/subscription", get(subscription::show))
        .route("/admin/publish", post(forms::publish))
        .route("/admin/acknowledge", post(forms::acknowledge))
        .route("/admin/purge", post(forms::purge))
        .route("/admin/seek", post(forms::seek))
        .route("/admin/snapshot", post(forms::snapshot))
        .route("/admin/faults", get(faults::show).put(faults::replace).delete(faults::clear))
        .route("/admin/forget", post(forget))
        .route("/admin/state", get(state))
        .route(KEYS_PATH, get(keys))
        .route(DISCOVERY_PATH, get(discovery))
        .with_state(Admin { core: Arc::clone(core), tokens: Arc::clone(tokens) })
}

async fn state(State(admin): State<Admin>) -> Response<Body> {
    let (overview, faults, counts) =
        admin.core.with(|broker, now| (broker.overview(now), broker.faults().clone(), broker.fault_counts()));
    match serde_json::to_value(overview) {
        Ok(mut state) => {
            state["faults"] = json!(faults);
            state["fault_counts"] = json!(counts);
            answer(&state)
        }
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn forget(State(admin): State<Admin>) -> Response<Body> {
    match admin.core.change(|broker, _| broker.forget_everything()).await {
        Ok(()) => answer(&json!({})),
        Err(refusal) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &refusal.message),
    }
}

async fn keys(State(admin): State<Admin>) -> Response<Body> {
    let mut response = match Tokens::keys(&admin.tokens).await {
        Ok(keys) => answer(&keys),
        Err(error @ KeyError) => return refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    if let Ok(control) = HeaderValue::try_from(format!("public, max-age={KEYS_MAX_AGE_SECONDS}")) {
        response.headers_mut().insert(header::CACHE_CONTROL, control);
    }
    response
}

/// The addresses in it are based on the one that the caller used.
async fn discovery(State(admin): State<Admin>, headers: HeaderMap) -> Response<Body> {
    match headers.get(header::HOST).and_then(|host| host.to_str().ok()) {
        Some(host) => answer(&admin.tokens.discovery(&format!("http://{host}"))),
        None => refuse(StatusCode::BAD_REQUEST, "The Host header must name the address of this request."),
    }
}
