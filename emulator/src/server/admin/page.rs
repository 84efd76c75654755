//! Page.
use super::Admin;
use axum::extract::State;
pub(super) async fn show(State(_admin): State<Admin>) -> &'static str {
    "Ok"
}
