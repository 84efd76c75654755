//! Answers in JSON: a method's response, or a refusal in the format of Google's APIs.

use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use tonic::Code;

use super::query::Query;
use crate::broker::{Answer, Refusal};
use crate::server::grpc::ErrorInfo;

/// The output format that the caller requested.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Form {
    pretty: bool,
    enums_as_numbers: bool,
}

impl Form {
    pub(super) fn of(query: &Query) -> Answer<Self> {
        if let Some(name) = ["callback", "fields"].iter().find(|name| query.system(name).is_some()) {
            return Err(Refusal::unsupported(format!(
                "This emulator returns whole resources as plain JSON: omit {name}."
            )));
        }
        let alt = query.system("alt").unwrap_or("json");
        let enums_as_numbers = match alt {
            "json" | "json;enum-encoding=string" => false,
            "json;enum-encoding=int" => true,
            other => {
                return Err(Refusal::invalid(format!(
                    "The format \"{other}\" is not supported: use alt=json, or gRPC."
                )));
            }
        };
        let pretty = query.system("prettyPrint").is_some_and(|value| value == "true" || value == "1");
        Ok(Self { pretty, enums_as_numbers })
    }

    pub(super) fn answered(self, mut value: Value) -> Response<Body> {
        if self.enums_as_numbers {
            number_enums(&mut value);
        }
        self.written(StatusCode::OK, &value)
    }

    pub(super) fn refused(self, refusal: Refusal) -> Response<Body> {
        let (status, name) = names(refusal.code);
        let mut error = Map::from_iter([
            ("code".to_owned(), json!(status.as_u16())),
            ("message".to_owned(), json!(refusal.message)),
            ("status".to_owned(), json!(name)),
        ]);
        if let Some(reason) = refusal.reason {
            let info = ErrorInfo::new(reason);
            let info = json!({
                "@type": ErrorInfo::TYPE,
                "reason": info.reason,
                "domain": info.domain,
                "metadata": info.metadata,
            });
            error.insert("details".to_owned(), json!([info]));
        }
        self.written(status, &json!({ "error": error }))
    }

    pub(super) fn no_such_route(self, method: &Method, path: &str) -> Response<Body> {
        self.refused(Refusal::new(Code::NotFound, format!("There is no method at {method} {path}.")))
    }

    fn written(self, status: StatusCode, value: &Value) -> Response<Body> {
        let text = if self.pretty { format!("{value:#}\n") } else { value.to_string() };
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = status;
        let json = HeaderValue::from_static("application/json; charset=UTF-8");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

/// A code's HTTP status and name, as listed in `google.rpc.Code`.
pub(super) fn names(code: Code) -> (StatusCode, &'static str) {
    match code {
        Code::Ok => (StatusCode::OK, "OK"),
        Code::Cancelled => (client_closed_request(), "CANCELLED"),
        Code::Unknown => (StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN"),
        Code::InvalidArgument => (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT"),
        Code::DeadlineExceeded => (StatusCode::GATEWAY_TIMEOUT, "DEADLINE_EXCEEDED"),
        Code::NotFound => (StatusCode::NOT_FOUND, "NOT_FOUND"),
        Code::AlreadyExists => (StatusCode::CONFLICT, "ALREADY_EXISTS"),
        Code::PermissionDenied => (StatusCode::FORBIDDEN, "PERMISSION_DENIED"),
        Code::ResourceExhausted => (StatusCode::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED"),
        Code::FailedPrecondition => (StatusCode::BAD_REQUEST, "FAILED_PRECONDITION"),
        Code::Aborted => (StatusCode::CONFLICT, "ABORTED"),
        Code::OutOfRange => (StatusCode::BAD_REQUEST, "OUT_OF_RANGE"),
        Code::Unimplemented => (StatusCode::NOT_IMPLEMENTED, "UNIMPLEMENTED"),
        Code::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL"),
        Code::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE"),
        Code::DataLoss => (StatusCode::INTERNAL_SERVER_ERROR, "DATA_LOSS"),
        Code::Unauthenticated => (StatusCode::UNAUTHORIZED, "UNAUTHENTICATED"),
    }
}

/// 499 has no name in HTTP.
fn client_closed_request() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

/// The enum fields of answers, with the numbers of their values. It only covers what this emulator
/// answers: exports and ingestion have more states, but here are always ACTIVE.
const ENUMS: &[(&str, &[(&str, i32)])] = &[
    ("state", &[("ACTIVE", 1), ("RESOURCE_ERROR", 2), ("INGESTION_RESOURCE_ERROR", 2)]),
    ("logType", &[("ADMIN_READ", 1), ("DATA_WRITE", 2), ("DATA_READ", 3)]),
    ("type", &[("PROTOCOL_BUFFER", 1), ("AVRO", 2)]),
    ("encoding", &[("JSON", 1), ("BINARY", 2)]),
    ("severity", &[("DISABLED", 1), ("DEBUG", 2), ("INFO", 3), ("WARNING", 4), ("ERROR", 5)]),
];

/// Fields that hold users' values under users' keys.
const MAPS: &[&str] = &["attributes", "labels", "tags"];

fn number_enums(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(number_enums),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut().filter(|(name, _)| !MAPS.contains(&name.as_str())) {
                match number(name, value) {
                    Some(number) => *value = number.into(),
                    None => number_enums(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn number(field: &str, value: &Value) -> Option<i32> {
    let text = value.as_str()?;
    let (_, values) = ENUMS.iter().find(|(name, _)| *name == field)?;
    values.iter().find(|(name, _)| *name == text).map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enums_are_numbers_where_asked_for_and_users_words_stay() {
        let mut value =
            json!({"topics": [{"state": "ACTIVE", "labels": {"state": "ACTIVE"}, "name": "ACTIVE"}]});
        number_enums(&mut value);
        assert_eq!(value, json!({"topics": [{"state": 1, "labels": {"state": "ACTIVE"}, "name": "ACTIVE"}]}));
        let mut value = json!({"platformLogsSettings": {"severity": "WARNING"}});
        number_enums(&mut value);
        assert_eq!(value, json!({"platformLogsSettings": {"severity": 4}}));
    }

    #[test]
    fn the_numbers_are_the_protos() {
        use crate::proto::google::iam::v1::audit_log_config::LogType;
        use crate::proto::pubsub::platform_logs_settings::Severity;
        use crate::proto::pubsub::{Encoding, schema, subscription, topic};
        for (field, values) in ENUMS {
            for (name, number) in *values {
                let known = [
                    topic::State::from_str_name(name).map(i32::from),
                    subscription::State::from_str_name(name).map(i32::from),
                    LogType::from_str_name(name).map(i32::from),
                    Severity::from_str_name(name).map(i32::from),
                    schema::Type::from_str_name(name).map(i32::from),
                    Encoding::from_str_name(name).map(i32::from),
                ];
                assert!(known.contains(&Some(*number)), "{field}: {name}");
            }
        }
    }

    #[test]
    fn other_forms_are_refused() {
        assert!(Form::of(&Query::parse("alt=proto")).is_err());
        assert!(Form::of(&Query::parse("fields=name")).is_err());
        assert!(Form::of(&Query::parse("$callback=run")).is_err());
        assert!(Form::of(&Query::parse("$alt=json;enum-encoding=int")).unwrap().enums_as_numbers);
        assert!(Form::of(&Query::parse("prettyPrint=true")).unwrap().pretty);
    }
}
