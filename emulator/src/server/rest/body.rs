//! A request's body: plain or gzipped, and of limited size in both forms.
//!
//! It does not look at what is in it.

use std::io::Read as _;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;

use crate::broker::{Answer, Refusal};
use crate::server::grpc::LARGEST_REQUEST_BYTES;

pub(super) async fn read(headers: &HeaderMap, body: Body) -> Answer<Bytes> {
    let is_packed = is_packed(headers)?;
    let body = axum::body::to_bytes(body, LARGEST_REQUEST_BYTES).await.map_err(|error| {
        Refusal::invalid(format!(
            "The body could not be read in full ({error}); the limit is {LARGEST_REQUEST_BYTES} bytes."
        ))
    })?;
    // Nothing is nothing, packed or not.
    if is_packed && !body.is_empty() {
        unpack(&body, LARGEST_REQUEST_BYTES).map(Bytes::from)
    } else {
        Ok(body)
    }
}

fn is_packed(headers: &HeaderMap) -> Answer<bool> {
    match headers.get(header::CONTENT_ENCODING).map(|encoding| encoding.as_bytes()) {
        None => Ok(false),
        Some(encoding) if encoding.eq_ignore_ascii_case(b"identity") => Ok(false),
        Some(encoding) if encoding.eq_ignore_ascii_case(b"gzip") => Ok(true),
        // The same, by RFC 9110.
        Some(encoding) if encoding.eq_ignore_ascii_case(b"x-gzip") => Ok(true),
        Some(_) => Err(Refusal::invalid("A body over REST may be compressed with gzip only.")),
    }
}

fn unpack(packed: &[u8], most_bytes: usize) -> Answer<Vec<u8>> {
    let mut body = Vec::new();
    // The byte beyond the limit tells a body that is too large from one that has just its size.
    let read = MultiGzDecoder::new(packed).take(most_bytes as u64 + 1).read_to_end(&mut body);
    read.map_err(|error| Refusal::invalid(format!("The body is not valid gzip ({error}).")))?;
    if body.len() > most_bytes {
        return Err(Refusal::invalid(format!("The body is larger than {most_bytes} bytes when unpacked.")));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use axum::http::HeaderValue;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn gzip_has_two_names_and_an_empty_body_is_not_unpacked() {
        for encoding in ["gzip", "GZIP", "x-gzip"] {
            let encoding = HeaderValue::from_static(encoding);
            let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, encoding.clone())]);
            for (sent, expected) in [(packed(b"{}"), &b"{}"[..]), (Vec::new(), &b""[..])] {
                let unpacked = read(&headers, Body::from(sent)).await;
                assert!(unpacked.is_ok_and(|unpacked| unpacked == expected), "{encoding:?}");
            }
        }
    }

    #[test]
    fn a_small_body_that_unpacks_to_a_large_one_is_refused() {
        let large = vec![b' '; 100_000];
        let small = packed(&large);
        assert!(small.len() < 1_000, "{}", small.len());
        assert_eq!(unpack(&small, large.len()).unwrap(), large);
        let refusal = unpack(&small, large.len() - 1).unwrap_err();
        assert!(refusal.message.contains("99999 bytes"), "{refusal}");
    }

    #[test]
    fn what_is_not_whole_gzip_is_refused() {
        let whole = packed(b"{}");
        assert_eq!(unpack(&whole, 2).unwrap(), b"{}");
        for broken in [&whole[..whole.len() - 1], b"{}", &[]] {
            assert!(unpack(broken, 100).is_err(), "{broken:?}");
        }
    }
}
