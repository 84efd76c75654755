//! The fields of a form, and of the query of an address.

use axum::body::Body;
use axum::http::Uri;
use percent_encoding::percent_decode;

use crate::broker::{Answer, Refusal};

/// Room for the largest message, each of whose bytes takes three in a form.
const FORM_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The fields in their original order.
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads the body of a form.
    pub(super) async fn read(body: Body) -> Answer<Self> {
        match axum::body::to_bytes(body, FORM_BYTES_MAX).await {
            Ok(form) => Ok(Self::parse(&form)),
            Err(_) => Err(Refusal::invalid(format!("A form has at most {FORM_BYTES_MAX} bytes."))),
        }
    }

    /// Reads the query of an address.
    pub(super) fn of(address: &Uri) -> Self {
        Self::parse(address.query().unwrap_or_default().as_bytes())
    }

    /// The value of a field; empty if there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(given, _)| given == name).map_or("", |(_, value)| value)
    }

    /// The value of a field with the line breaks of Unix: a browser sends those of Windows.
    pub(super) fn lines(&self, name: &str) -> String {
        self.text(name).replace("\r\n", "\n")
    }

    fn parse(form: &[u8]) -> Self {
        let fields = form.split(|byte| *byte == b'&').filter(|field| !field.is_empty()).map(|field| {
            let equals = field.iter().position(|byte| *byte == b'=').unwrap_or(field.len());
            let (name, value) = field.split_at(equals);
            (decoded(name), decoded(value.strip_prefix(b"=").unwrap_or_default()))
        });
        Self(fields.collect())
    }
}

fn decoded(text: &[u8]) -> String {
    let with_spaces: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&with_spaces).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded() {
        let fields = Fields::parse(b"data=a+%2B+b%0D%0A%C3%A4&&empty=&none&data=second&=x");
        assert_eq!(fields.text("data"), "a + b\r\n\u{e4}");
        assert_eq!(fields.lines("data"), "a + b\n\u{e4}");
        assert_eq!([fields.text("empty"), fields.text("none"), fields.text("other")], ["", "", ""]);
        assert_eq!(Fields::of(&"/admin/topic?name=a%26b=c".parse().unwrap()).text("name"), "a&b=c");
    }
}
