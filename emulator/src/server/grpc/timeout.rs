//! How long a caller will wait: gRPC's `grpc-timeout` header.

use std::time::Duration;

use tonic::metadata::MetadataMap;

/// `None` if there is no limit, or the header is malformed.
pub(super) fn of(metadata: &MetadataMap) -> Option<Duration> {
    parse(metadata.get("grpc-timeout")?.to_str().ok()?)
}

/// Parses at most eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 60 * 60)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_all_units_of_grpc_timeouts() {
        assert_eq!(parse("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parse("3M"), Some(Duration::from_secs(180)));
        assert_eq!(parse("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("7u"), Some(Duration::from_micros(7)));
        assert_eq!(parse("8n"), Some(Duration::from_nanos(8)));
    }

    #[test]
    fn rejects_malformed_grpc_timeouts() {
        for text in ["", "S", "1", "1h", "-1S", "1.5S", "123456789S", "1é"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
