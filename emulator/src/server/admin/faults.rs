//! Faults at run time: shown, replaced, cleared. The broker carries them out.

use std::path::Path;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use serde_json::{Value, json};

use super::Admin;
use super::json::{answer, refuse};
use crate::broker::{FaultCode, Faults, Method};

const LONGEST_BODY_BYTES: usize = 64 * 1024;

/// Shows the faults in force; of the counted ones, what is left.
pub(super) async fn show(State(admin): State<Admin>) -> Response<Body> {
    answer(&json!(admin.core.with(|broker, _| broker.faults().clone())))
}

/// Replaces all faults with those in the body: JSON, or TOML if its content type says so.
pub(super) async fn replace(State(admin): State<Admin>, headers: HeaderMap, body: Body) -> Response<Body> {
    let Ok(body) = axum::body::to_bytes(body, LONGEST_BODY_BYTES).await else {
        let words = format!("Faults have at most {LONGEST_BODY_BYTES} bytes.");
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, &words);
    };
    match read(&headers, &body) {
        Ok(faults) => set(&admin, faults),
        Err(words) => refuse(StatusCode::BAD_REQUEST, &format!("{words}\n{}", allowed())),
    }
}

/// Removes all faults.
pub(super) async fn clear(State(admin): State<Admin>) -> Response<Body> {
    set(&admin, Faults::default())
}

fn set(admin: &Admin, faults: Faults) -> Response<Body> {
    let faults = admin.core.with(|broker, _| {
        broker.set_faults(faults);
        broker.faults().clone()
    });
    answer(&json!(faults))
}

fn read(headers: &HeaderMap, body: &[u8]) -> Result<Faults, String> {
    let toml = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().ends_with(b"toml"));
    let name = if toml { "faults.toml" } else { "faults.json" };
    let text = std::str::from_utf8(body).map_err(|_| "The body is not UTF-8.".to_owned())?;
    Faults::parse(Path::new(name), text).map_err(|error| error.to_string())
}

/// The fields that a body may have, by their type.
fn allowed() -> String {
    let names = |keep: fn(&Value) -> bool| {
        let fields = serde_json::to_value(Faults::default()).unwrap_or_default();
        let fields = fields.as_object().cloned().unwrap_or_default();
        let names: Vec<String> =
            fields.into_iter().filter(|(_, value)| keep(value)).map(|(name, _)| name).collect();
        names.join(", ")
    };
    let list = |names: Vec<&str>| names.join(", ");
    format!(
        "Allowed are probabilities from 0 to 1 ({}), durations as in \"1.5s\" ({}), a whole number (seed), methods: [a \
         method, …], and next: [{{\"times\": a number, \"code\": a code, \"methods\": [a method, …]}}, …].\nMethods: {}.\n\
         Codes: {}.",
        names(Value::is_f64),
        names(Value::is_string),
        list(Method::ALL.iter().map(|method| method.as_str()).collect()),
        list(FaultCode::ALL.iter().map(|code| code.as_str()).collect()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_text_names_every_field_of_faults() {
        let allowed = allowed();
        let fields = serde_json::to_value(Faults::default()).unwrap();
        for field in fields.as_object().unwrap().keys() {
            assert!(allowed.contains(field.as_str()), "{field} is not in: {allowed}");
        }
        assert!(allowed.contains("StreamingPull") && allowed.contains("RESOURCE_EXHAUSTED"));
    }

    #[test]
    fn reads_toml_only_with_its_content_type() {
        let toml = HeaderMap::from_iter([(header::CONTENT_TYPE, "application/toml".parse().unwrap())]);
        assert_eq!(read(&toml, b"seed = 7").unwrap().seed, 7);
        assert_eq!(read(&HeaderMap::new(), b"{\"seed\": 7}").unwrap().seed, 7);
        let refusal = read(&HeaderMap::new(), b"seed = 7").unwrap_err();
        assert!(refusal.contains("faults.json"), "{refusal}");
    }
}
