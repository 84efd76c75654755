//! The fields of a form, and of the query of an address.

use axum::body::Body;
use axum::http::Uri;
use percent_encoding::percent_decode;

use crate::broker::{Answer, Refusal};

/// Room for the largest message, each of whose bytes takes three in a form.
const FORM_BYTES_MAX: usize = 32 * 1024 * 1024;
/// More than any form has. An empty field takes two bytes in a form, and many more here.
const FIELDS_MAX: usize = 16;

/// The fields in their original order.
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads the body of a form.
    pub(super) async fn read(body: Body) -> Answer<Self> {
        let form = axum::body::to_bytes(body, FORM_BYTES_MAX)
            .await
            .map_err(|_| Refusal::invalid(format!("A form has at most {FORM_BYTES_MAX} bytes.")))?;
        let fields = Self::parse(&form);
        if fields.0.len() > FIELDS_MAX {
            return Err(Refusal::invalid(format!("A form has at most {FIELDS_MAX} fields.")));
        }
        Ok(fields)
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

    /// Reads as many fields as there may be, and one more that tells if there are too many.
    fn parse(form: &[u8]) -> Self {
        let fields = form.split(|byte| *byte == b'&').filter(|field| !field.is_empty()).map(|field| {
            let equals = field.iter().position(|byte| *byte == b'=').unwrap_or(field.len());
            let (name, value) = field.split_at(equals);
            (decoded(name), decoded(value.strip_prefix(b"=").unwrap_or_default()))
        });
        Self(fields.take(FIELDS_MAX + 1).collect())
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

    #[tokio::test]
    async fn a_form_of_many_fields_is_refused_and_not_read_to_its_end() {
        let form = |fields: usize| "a&".repeat(fields);
        assert!(Fields::read(Body::from(form(FIELDS_MAX))).await.is_ok());
        let refusal = Fields::read(Body::from(form(FIELDS_MAX + 1))).await.err();
        assert!(refusal.is_some_and(|refusal| refusal.message.contains("at most 16 fields")));
        assert_eq!(Fields::parse(form(1_000_000).as_bytes()).0.len(), FIELDS_MAX + 1);
    }
}
