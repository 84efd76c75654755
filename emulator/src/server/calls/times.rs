//! Times in JSON end in `Z`, as the service writes them; the generated code writes an offset of zero instead.
//!
//! Touches nothing that users name or fill.

use serde_json::Value;

/// The times among the answers' fields.
const TIMES: [&str; 3] = ["expireTime", "publishTime", "revisionCreateTime"];
/// Maps whose keys and values are the users' own.
const OWN: [&str; 2] = ["attributes", "labels"];

pub(super) fn end_in_z(answer: &mut Value) {
    match answer {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut().filter(|(name, _)| !OWN.contains(&name.as_str())) {
                match value {
                    Value::String(text) if TIMES.contains(&name.as_str()) => {
                        if let Some(time) = text.strip_suffix("+00:00") {
                            *text = format!("{time}Z");
                        }
                    }
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Array(_)
                    | Value::Object(_) => end_in_z(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(end_in_z),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::end_in_z;

    #[test]
    fn times_do_and_nothing_else() {
        let time = "2026-11-21T17:38:07.195+00:00";
        let mut answer = json!({ "receivedMessages": [{
            "ackId": time,
            "message": { "publishTime": time, "attributes": { "publishTime": time } },
        }]});
        end_in_z(&mut answer);
        let expected = json!({ "receivedMessages": [{
            "ackId": time,
            "message": { "publishTime": "2026-11-21T17:38:07.195Z", "attributes": { "publishTime": time } },
        }]});
        assert_eq!(answer, expected);
    }
}
