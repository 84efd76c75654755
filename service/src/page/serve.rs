//! Serves pages: each in the frame, and only to a person who is signed in.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::{get, post};

use super::state::Page;
use super::{files, frame, gate, oidc, sessions, sign_in};
use crate::access::CALLBACK;
use crate::http::mounted::Placed;

impl Page {
    /// Serves these pages and the way to sign in, and answers for every path that nothing is at.
    pub(crate) fn serve(self, pages: Router<Self>) -> Router {
        let framed = pages
            .route("/", get(sign_in::home))
            .route("/go", get(sign_in::go))
            .route("/sessions", get(sessions::list))
            .route("/sessions/end-others", post(sessions::end_others))
            .route("/sessions/{session}/end", post(sessions::end))
            .route("/canvases/{canvas}/{*rest}", get(sign_in::nowhere))
            // The frame has read the form, within its own limit.
            .layer(DefaultBodyLimit::disable())
            .route_layer(from_fn_with_state(self.clone(), frame::frame));
        let open = Router::new()
            .route("/sign-in", get(sign_in::show).post(sign_in::sign_in))
            .route("/sign-in/oidc", get(oidc::begin))
            .route(CALLBACK, get(oidc::end))
            .route("/sign-out", post(sign_in::sign_out))
            .route("/assets/{file}", get(files::file))
            .route_layer(from_fn_with_state(self.clone(), gate::counted));
        let all = framed.merge(open).method_not_allowed_fallback(gate::no_page);
        all.route_layer(map_response(placed)).fallback(gate::nowhere).with_state(self)
    }
}

/// Locations in pages have the root, as all of their links do.
async fn placed(mut response: Response) -> Response {
    response.extensions_mut().insert(Placed);
    response
}
