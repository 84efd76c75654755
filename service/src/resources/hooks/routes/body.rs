//! What the body of a webhook becomes: an event's value, and the id by which a repeat is
//! recognized. Pure. Read only after the signature was verified, and never repeated in a fault.

use std::borrow::Cow;

use axum::http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use url::form_urlencoded;

use super::proof::Proof;
use super::signature::ID_BYTES_MAX;
use crate::resources::emit::wire::json;
use crate::resources::emit::wire::refusal::{Fault, Refusal};
use wakeq::hooks::HookKind;
use wakeq::{CanvasId, Name};

/// Longest name of a kind of event that is kept, in bytes.
const TYPE_BYTES_MAX: usize = 256;
/// The type of a CloudEvent whose sender has no name for it.
const UNNAMED: &str = "webhook";
const FORM: &str = "application/x-www-form-urlencoded";
/// The field in which GitHub sends the JSON if its webhook has the content type of a form.
const PAYLOAD: &str = "payload";

/// A webhook as its hook takes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// The sender's id.
    pub(super) id: String,
    /// JSON.
    pub(super) value: String,
    /// How many bytes of the value are around what the sender has sent.
    pub(super) envelope_bytes: usize,
}

impl Received {
    /// Why this is too large for an event of at most this many bytes, if it is.
    pub(super) fn excess(&self, most: usize) -> Option<String> {
        let (bytes, envelope_bytes) = (self.value.len(), self.envelope_bytes);
        (bytes > most).then(|| match (envelope_bytes, most.saturating_sub(envelope_bytes)) {
            (0, _) => format!("the JSON has {bytes} bytes, and an event has {most} at most: send less"),
            (_, left) => format!(
                "with its envelope of {envelope_bytes} bytes the JSON has {bytes} bytes, and an event has {most} at \
                 most: send {left} bytes at most, or let the hook pass on `data` alone"
            ),
        })
    }
}

/// The fields of a body that a sender may have put its id and its name of the event into.
#[derive(Default, Deserialize)]
struct Named<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    event_type: Option<&'a RawValue>,
}

/// The value of a verified webhook is its body, which is JSON. GitHub may send it in a field of a
/// form.
pub(super) fn read(proof: &Proof<'_>, headers: &HeaderMap, body: &[u8]) -> Result<Received, Refusal> {
    let text = text_of(proof, headers, body)?;
    let value = json::value(&text)?;
    let id = id_of(proof, value)?.into_owned();
    Ok(Received { id, value: value.get().to_owned(), envelope_bytes: 0 })
}

/// The same, with a CloudEvent around the body as the value.
pub(super) fn read_enveloped(
    proof: &Proof<'_>,
    headers: &HeaderMap,
    body: &[u8],
    (canvas, hook): (CanvasId, &Name),
) -> Result<Received, Refusal> {
    let text = text_of(proof, headers, body)?;
    let value = json::value(&text)?;
    let id = id_of(proof, value)?.into_owned();
    let source = format!("/canvases/{canvas}/hooks/{hook}");
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let enveloped = format!(
        r#"{{"specversion":"1.0","id":{},"source":{},"type":{},"datacontenttype":"application/json","data":{}}}"#,
        quoted(&id),
        quoted(&source),
        quoted(&type_of(proof, value)),
        value.get()
    );
    let envelope_bytes = enveloped.len() - value.get().len();
    Ok(Received { id, value: enveloped, envelope_bytes })
}

fn text_of<'a>(proof: &Proof<'_>, headers: &HeaderMap, body: &'a [u8]) -> Result<Cow<'a, str>, Fault> {
    if proof.kind() != HookKind::GitHub || !is_form(headers) {
        return json::text(body).map(Cow::Borrowed);
    }
    // GitHub sends no other field. The content type is not signed, and a body that was signed as
    // JSON must not be read as a form: no JSON begins with this field.
    let first = form_urlencoded::parse(body).next();
    let payload = first.and_then(|(name, value)| (name == PAYLOAD).then_some(value));
    payload.ok_or(Fault::Missing("the field `payload` of the form"))
}

fn is_form(headers: &HeaderMap) -> bool {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(FORM)
}

/// The sender's id: in a header, or the field `id` of the body.
fn id_of<'a>(proof: &Proof<'a>, value: &'a RawValue) -> Result<Cow<'a, str>, Fault> {
    if let Some(id) = proof.id() {
        return Ok(Cow::Borrowed(id));
    }
    let id = named(value).id.ok_or(Fault::Missing("the field `id` of the body"))?;
    let id = json::string(id, "`id`")?;
    if !(1..=ID_BYTES_MAX).contains(&id.len()) {
        return Err(Fault::shape("`id`", "a string of 1 to 256 bytes"));
    }
    Ok(id)
}

/// The sender's name for the kind of event: in a header, or the field `type` of the body.
fn type_of<'a>(proof: &Proof<'a>, value: &'a RawValue) -> Cow<'a, str> {
    let of_body = || json::string(named(value).event_type?, "`type`").ok();
    let found = proof.event_type().map(Cow::Borrowed).or_else(of_body);
    let is_kept = |text: &Cow<'_, str>| {
        (1..=TYPE_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
    };
    found.filter(is_kept).unwrap_or(Cow::Borrowed(UNNAMED))
}

/// Only of an object: a list would be taken for the fields in their order.
fn named(value: &RawValue) -> Named<'_> {
    let text = value.get();
    if text.starts_with('{') { serde_json::from_str(text).unwrap_or_default() } else { Named::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "00000000000000000000000000000000000000000000000000000000000000ff";
    const NOW_S: u64 = 1_700_000_000;

    fn headers(kind: HookKind) -> HeaderMap {
        let lines = match kind {
            HookKind::Standard => vec![
                ("webhook-id", "msg_1".to_owned()),
                ("webhook-timestamp", NOW_S.to_string()),
                ("webhook-signature", format!("v1,{}=", "A".repeat(43))),
            ],
            HookKind::Stripe => vec![("stripe-signature", format!("t={NOW_S},v1={HEX}"))],
            HookKind::GitHub => vec![
                ("x-github-delivery", "72d3162e".to_owned()),
                ("x-hub-signature-256", format!("sha256={HEX}")),
                ("x-github-event", "push".to_owned()),
            ],
        };
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.insert(name, value.parse().unwrap());
        }
        headers
    }

    fn form(headers: HeaderMap) -> HeaderMap {
        let mut headers = headers;
        headers.insert(header::CONTENT_TYPE, format!("{FORM}; charset=utf-8").parse().unwrap());
        headers
    }

    fn received(headers: &HeaderMap, body: &str) -> Result<(String, String), String> {
        let proof = &Proof::read(headers, NOW_S).unwrap();
        let read = read(proof, headers, body.as_bytes()).map_err(|refusal| refusal.to_string())?;
        Ok((read.id, read.value))
    }

    #[test]
    fn the_value_is_the_body_to_the_letter() {
        let expected = |id: &str, value: &str| Ok((id.to_owned(), value.to_owned()));
        let standard = headers(HookKind::Standard);
        assert_eq!(received(&standard, " {\"n\": 1.50} \n"), expected("msg_1", "{\"n\": 1.50}"));
        assert_eq!(received(&standard, "[1,2]"), expected("msg_1", "[1,2]"));
        let stripe = r#"{"id": "evt_\u0031", "type": "charge.succeeded", "data": {"id": 7}}"#;
        assert_eq!(received(&headers(HookKind::Stripe), stripe), expected("evt_1", stripe));
        let github = headers(HookKind::GitHub);
        assert_eq!(received(&github, "{\"ref\": \"main\"}"), expected("72d3162e", "{\"ref\": \"main\"}"));
        let body = "payload=%7B%22ref%22%3A%22a+b%22%7D&a=b";
        assert_eq!(received(&form(github), body), expected("72d3162e", "{\"ref\":\"a b\"}"));
    }

    #[test]
    fn bodies_without_json_or_an_id_are_refused_without_repeating_them() {
        let (standard, stripe) = (headers(HookKind::Standard), headers(HookKind::Stripe));
        let long = format!(r#"{{"id": "{}"}}"#, "s3cr3t".repeat(50));
        for (headers, body, words) in [
            (&standard, "", "not JSON"),
            (&standard, "s3cr3t", "not JSON"),
            (&form(standard.clone()), "payload=%7B%7D", "not JSON"),
            (&form(headers(HookKind::GitHub)), "s3cr3t=1", "the field `payload` of the form is missing"),
            (
                &form(headers(HookKind::GitHub)),
                "a=b&payload=%7B%7D",
                "the field `payload` of the form is missing",
            ),
            (
                &form(headers(HookKind::GitHub)),
                r#"{"a": "&payload=7&"}"#,
                "the field `payload` of the form is missing",
            ),
            (&form(headers(HookKind::GitHub)), "payload=s3cr3t", "not JSON"),
            (&stripe, r#"{"type": "s3cr3t"}"#, "the field `id` of the body is missing"),
            (&stripe, r#"["s3cr3t", "s3cr3t"]"#, "the field `id` of the body is missing"),
            (&stripe, r#"{"id": 7}"#, "`id` must be a string"),
            (&stripe, r#"{"id": ""}"#, "1 to 256 bytes"),
            (&stripe, &*long, "1 to 256 bytes"),
        ] {
            let refused = received(headers, body).unwrap_err();
            assert!(refused.contains(words) && !refused.contains("s3cr3t"), "{body}: {refused}");
        }
    }

    /// What counts is what will be stored.
    #[test]
    fn a_body_that_does_not_fit_is_told_what_would() {
        let github = headers(HookKind::GitHub);
        let proof = &Proof::read(&github, NOW_S).unwrap();
        let body = format!(" \"{}\" ", "x".repeat(98));
        let plain = read(proof, &github, body.as_bytes()).unwrap();
        assert_eq!(plain.excess(100), None);
        assert!(plain.excess(99).unwrap().contains("the JSON has 100 bytes, and an event has 99 at most"));
        let hook = (CanvasId::DEFAULT, &"incoming".parse::<Name>().unwrap());
        let whole = read_enveloped(proof, &github, body.as_bytes(), hook).unwrap();
        assert_eq!(whole.value.len(), 100 + whole.envelope_bytes);
        assert_eq!(whole.excess(whole.value.len()), None);
        let told = whole.excess(whole.value.len() - 1).unwrap();
        assert!(told.contains("send 99 bytes at most"), "{told}");
    }

    #[test]
    fn an_envelope_is_a_cloud_event_around_the_body() {
        let enveloped = |headers: &HeaderMap, body: &str| {
            let proof = &Proof::read(headers, NOW_S).unwrap();
            let hook = (CanvasId::DEFAULT, &"incoming".parse::<Name>().unwrap());
            let read = read_enveloped(proof, headers, body.as_bytes(), hook).unwrap();
            let value: serde_json::Value = serde_json::from_str(&read.value).unwrap();
            let ids = (value["id"].as_str(), value["specversion"].as_str());
            assert_eq!(ids, (Some(read.id.as_str()), Some("1.0")));
            assert_eq!(value["source"], format!("/canvases/{}/hooks/incoming", CanvasId::DEFAULT));
            assert!(read.value.ends_with(&format!("\"data\":{body}}}")), "{}", read.value);
            value["type"].as_str().unwrap().to_owned()
        };
        assert_eq!(enveloped(&headers(HookKind::GitHub), r#"{"type": "x"}"#), "push");
        assert_eq!(enveloped(&headers(HookKind::Stripe), r#"{"id": "1", "type": "charge"}"#), "charge");
        for body in [r#"{"type": 7}"#, r#"{"type": "a\nb"}"#, r#"["id", "charge"]"#, "1.50"] {
            assert_eq!(enveloped(&headers(HookKind::Standard), body), "webhook", "{body}");
        }
    }
}
