//! Why the API is not served.

use std::net::SocketAddr;

use crate::access::AccessError;
use crate::delivery::DeliveryError;
use wakeq::StoreError;

/// Why the API can't be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The configuration is invalid.
    #[error("{0}")]
    Config(&'static str),
    /// The access configuration is invalid.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The delivery configuration is invalid.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The address can't be listened on.
    #[error("can't listen on {address}: choose another port (PORT), or stop the process that uses it")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}
