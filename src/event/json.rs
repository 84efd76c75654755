//! What a payload may look like: JSON text, not too deep, without NUL.

/// Deepest nesting of arrays and objects in a payload.
const DEPTH_LIMIT: usize = 64;

/// Why a payload was refused. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The value has no JSON form, or the text is no JSON.
    #[error("the value is not JSON")]
    Invalid(#[source] serde_json::Error),
    /// Nested deeper than the limit.
    #[error("the value is nested deeper than {DEPTH_LIMIT} levels: flatten it, or pass a reference to it")]
    TooDeep,
    /// A string in it has the character NUL, which Postgres and many consumers can't hold.
    #[error("the value has a NUL character (\\u0000) in a string: remove it, or encode the bytes as base64")]
    Nul,
}

/// Checks JSON text that was serialized or parsed before: depth and NUL.
pub(super) fn check(text: &str) -> Result<(), JsonError> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (in_string, byte) {
            (true, b'\\') => {
                bytes.next();
                if text.as_bytes()[at..].starts_with(b"\\u0000") {
                    return Err(JsonError::Nul);
                }
            }
            (_, b'"') => in_string = !in_string,
            (false, b'[' | b'{') => depth += 1,
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            (true | false, _) => {}
        }
        if depth > DEPTH_LIMIT {
            return Err(JsonError::TooDeep);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn depth_is_limited_at_64() {
        assert!(check(&nested(64)).is_ok());
        assert!(matches!(check(&nested(65)), Err(JsonError::TooDeep)));
        assert!(check(&format!("{:?}", "[".repeat(100))).is_ok(), "brackets in strings do not nest");
    }

    #[test]
    fn nul_is_refused_wherever_it_stands() {
        assert!(matches!(check(r#"{"a":"x\u0000"}"#), Err(JsonError::Nul)));
        assert!(matches!(check(r#"{"a\u0000":1}"#), Err(JsonError::Nul)));
        assert!(check(r#""\\u0000""#).is_ok(), "an escaped backslash before u0000 is plain text");
        assert!(matches!(check(r#""\\\u0000""#), Err(JsonError::Nul)));
    }
}
