//! A refusal as a gRPC status, with its machine-readable reason in the details.

use std::collections::BTreeMap;

use crate::proto::protobuf::Any;
use prost::Message as _;
use tonic::Status;

use crate::broker::{Reason, Refusal};

/// The domain of the reasons.
const DOMAIN: &str = "pubsub.googleapis.com";

/// `google.rpc.Status`, the content of the header `grpc-status-details-bin`. Clients only accept it
/// if its code and message equal those of the status.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DetailedStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ErrorInfo {
    #[prost(string, tag = "1")]
    pub(crate) reason: String,
    #[prost(string, tag = "2")]
    pub(crate) domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) metadata: BTreeMap<String, String>,
}

impl ErrorInfo {
    pub(crate) const TYPE: &str = "type.googleapis.com/google.rpc.ErrorInfo";

    pub(crate) fn new(reason: Reason) -> Self {
        Self { reason: reason.reason, domain: DOMAIN.to_owned(), metadata: reason.metadata }
    }
}

impl DetailedStatus {
    pub(crate) fn new(refusal: Refusal) -> Self {
        let details = refusal
            .reason
            .map(ErrorInfo::new)
            .map(|info| Any { type_url: ErrorInfo::TYPE.to_owned(), value: info.encode_to_vec().into() });
        Self { code: refusal.code.into(), message: refusal.message, details: details.into_iter().collect() }
    }
}

/// Converts a refusal to tonic's status.
pub(crate) fn status(refusal: Refusal) -> Status {
    let code = refusal.code;
    if refusal.reason.is_none() {
        return Status::new(code, refusal.message);
    }
    let detailed = DetailedStatus::new(refusal);
    let details = detailed.encode_to_vec().into();
    Status::with_details(code, detailed.message, details)
}
