//! The answers of the admin endpoints: readable JSON, and errors in the form of Google's APIs.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

pub(super) fn answer(value: &Value) -> Response<Body> {
    with_status(StatusCode::OK, value)
}

pub(super) fn refuse(status: StatusCode, message: &str) -> Response<Body> {
    with_status(status, &json!({"error": {"code": status.as_u16(), "message": message}}))
}

fn with_status(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{value:#}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=UTF-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
