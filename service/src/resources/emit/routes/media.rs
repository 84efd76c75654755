//! Content types, as far as they determine how a body is parsed.

use crate::resources::emit::wire::refusal::Fault;

/// A media type in lower case, without the parameters that are irrelevant here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    kind: String,
    subtype: String,
    charset: Option<String>,
}

impl MediaType {
    /// Parses `type/subtype; charset=…`.
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        const WRONG: Fault = Fault::MediaType("the content type is not of the form `type/subtype`");
        let mut parts = text.split(';');
        let (kind, subtype) = parts.next().and_then(|essence| essence.split_once('/')).ok_or(WRONG)?;
        let (kind, subtype) = (kind.trim().to_ascii_lowercase(), subtype.trim().to_ascii_lowercase());
        if !is_token(&kind) || !is_token(&subtype) {
            return Err(WRONG);
        }
        let charset = parts.filter_map(|parameter| parameter.split_once('=')).find_map(|(name, value)| {
            name.trim()
                .eq_ignore_ascii_case("charset")
                .then(|| value.trim().trim_matches('"').to_ascii_lowercase())
        });
        Ok(Self { kind, subtype, charset })
    }

    /// Whether it is this type, given in lower case.
    pub(super) fn is(&self, kind: &str, subtype: &str) -> bool {
        self.kind == kind && self.subtype == subtype
    }

    /// Whether it is an event format of CloudEvents, supported here or not.
    pub(super) fn is_cloud_event(&self) -> bool {
        self.kind == "application" && self.subtype.starts_with("cloudevents")
    }

    /// `*/json` or `*/*+json`.
    pub(super) fn is_json(&self) -> bool {
        self.subtype == "json" || self.subtype.ends_with("+json")
    }

    pub(super) fn is_text(&self) -> bool {
        self.kind == "text" && !self.is_json()
    }

    /// Refuses charsets other than UTF-8.
    pub(super) fn check_charset(&self) -> Result<(), Fault> {
        match self.charset.as_deref() {
            None | Some("utf-8" | "utf8" | "us-ascii") => Ok(()),
            Some(_) => {
                Err(Fault::MediaType("the content type has another charset than UTF-8: encode it as UTF-8"))
            }
        }
    }
}

fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=127).contains(&text.len()) && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_json_and_what_is_text() {
        for (text, json, is_text) in [
            ("application/json", true, false),
            ("Application/JSON ; Charset=\"UTF-8\"", true, false),
            ("application/vnd.acme+json", true, false),
            ("text/json", true, false),
            ("text/plain; charset=us-ascii", false, true),
            ("text/csv", false, true),
            ("application/xml", false, false),
            ("application/octet-stream", false, false),
        ] {
            let media = MediaType::parse(text).unwrap();
            assert_eq!((media.is_json(), media.is_text()), (json, is_text), "{text}");
            media.check_charset().unwrap();
        }
    }

    #[test]
    fn rejects_invalid_media_types() {
        for text in ["", "json", "application/", "/json", "application/j son", "a/b/c", "ä/b"] {
            assert!(matches!(MediaType::parse(text), Err(Fault::MediaType(_))), "{text}");
        }
        assert!(MediaType::parse("text/plain; charset=latin1").unwrap().check_charset().is_err());
    }
}
