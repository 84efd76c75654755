//! Push.
mod endpoint;
mod oidc;
mod request;
