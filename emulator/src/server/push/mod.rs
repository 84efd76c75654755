//! Push.
mod oidc;
mod request;
