//! A method's request in JSON, assembled from the path, the body and the query of its REST form.
//!
//! It knows no fields: an unknown one is detected when the request is deserialised.

use serde_json::{Map, Value};

use super::query::Query;
use super::template::Bound;
use crate::broker::{Answer, Refusal};

/// Enum fields, whose numbers must be numbers in JSON. Everything else may be a string.
const ENUMS: &[&str] = &["view"];

/// The most dots in the name of a parameter: no field of a request is nested deeper.
const DOTS_MAX: usize = 8;

pub(super) fn assemble(bound: &Bound<'_>, query: &Query, body: &[u8]) -> Answer<Value> {
    let mut request = match bound.route.body {
        "" => Map::new(),
        "*" => parse(body)?,
        field => Map::from_iter([(field.to_owned(), Value::Object(parse(body)?))]),
    };
    for (field, value) in query.fields() {
        add(&mut request, field, value)?;
    }
    *field_of(&mut request, bound.field)? = Value::String(bound.value.clone());
    Ok(Value::Object(request))
}

/// An empty body is an empty request.
fn parse(body: &[u8]) -> Answer<Map<String, Value>> {
    if body.is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_slice(body).map_err(|error| {
        Refusal::invalid(format!("Invalid JSON payload received: the body is not a JSON object ({error})."))
    })
}

/// Adds a value; a field that is given more than once becomes a list.
fn add(request: &mut Map<String, Value>, field: &str, value: &str) -> Answer<()> {
    if field.matches('.').count() > DOTS_MAX {
        return Err(Refusal::invalid(format!(
            "Invalid JSON payload received: the name of a parameter has more than {DOTS_MAX} dots."
        )));
    }
    let slot = field_of(request, field)?;
    let value = match value.parse::<i64>() {
        Ok(number) if ENUMS.contains(&field) => number.into(),
        _ => Value::String(value.to_owned()),
    };
    match slot {
        Value::Null => *slot = value,
        Value::Array(values) => values.push(value),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            *slot = Value::Array(vec![slot.take(), value]);
        }
    }
    Ok(())
}

/// Finds a nested field: `topic.name` is the field `name` of the field `topic`.
fn field_of<'a>(request: &'a mut Map<String, Value>, path: &str) -> Answer<&'a mut Value> {
    match path.split_once('.') {
        None => Ok(request.entry(path).or_insert(Value::Null)),
        Some((outer, inner)) => match request.entry(outer).or_insert_with(|| Value::Object(Map::new())) {
            Value::Object(fields) => field_of(fields, inner),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(Refusal::invalid(format!("Invalid JSON payload received: \"{outer}\" is not an object.")))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::proto::Route;

    fn assembled(body: &'static str, field: &str, query: &str, payload: &str) -> Answer<Value> {
        let route: &Route = Box::leak(Box::new(Route { verb: "", template: "", body, method: "" }));
        let bound = Bound { route, field, value: "projects/p".to_owned() };
        assemble(&bound, &Query::parse(query), payload.as_bytes())
    }

    #[test]
    fn the_body_is_the_request_or_one_field_of_it_or_nothing() {
        let check = |body, field, query, payload, expected: Value| {
            assert_eq!(assembled(body, field, query, payload).unwrap(), expected);
        };
        check(
            "*",
            "name",
            "",
            r#"{"labels":{"a":"b"}}"#,
            json!({"labels": {"a": "b"}, "name": "projects/p"}),
        );
        check("*", "name", "", "", json!({"name": "projects/p"}));
        check(
            "schema",
            "parent",
            "schemaId=s",
            r#"{"type":1}"#,
            json!({"schema": {"type": 1}, "schemaId": "s", "parent": "projects/p"}),
        );
        check("", "project", "pageSize=2", "ignored", json!({"project": "projects/p", "pageSize": "2"}));
    }

    #[test]
    fn paths_reach_into_the_request_and_outrank_the_body() {
        let request =
            assembled("*", "topic.name", "a.b=1&a.b=2&a.b=3", r#"{"topic":{"name":"other","x":1}}"#);
        assert_eq!(
            request.unwrap(),
            json!({"topic": {"name": "projects/p", "x": 1}, "a": {"b": ["1", "2", "3"]}})
        );
    }

    #[test]
    fn a_parameter_that_is_nested_deeply_is_refused() {
        let nested = |dots| assembled("", "project", &format!("{}a=1", "a.".repeat(dots)), "");
        assert!(nested(DOTS_MAX).is_ok());
        for dots in [DOTS_MAX + 1, 30_000] {
            let refusal = nested(dots).unwrap_err();
            assert!(refusal.message.contains("more than 8 dots"), "{refusal}");
        }
    }

    #[test]
    fn rejects_bodies_that_are_not_objects() {
        let refused = |payload, words: &str| {
            let refusal = assembled("*", "topic.name", "", payload).unwrap_err();
            assert!(refusal.message.contains(words), "{}", refusal.message);
        };
        refused("[1]", "not a JSON object");
        refused("{", "not a JSON object");
        refused(r#"{"topic":"t"}"#, "\"topic\" is not an object");
    }
}
