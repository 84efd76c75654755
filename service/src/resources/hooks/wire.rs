//! Hooks: what other systems may emit by webhooks.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::resources::targets::wire::SecretText;
use wakeq::events::InvalidName;
use wakeq::hooks::InvalidHookSecret;
use wakeq::{CanvasId, HandlerAddress, HandlerScope, Name};

/// A hook to be created or replaced. Its kind can't be changed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutHook {
    pub(crate) kind: HookKind,
    /// The handler of the events.
    pub(crate) handler: HookHandler,
    /// What becomes the value of an event.
    #[serde(default)]
    pub(crate) value: HookValue,
    /// The secret that the sender signs with. Default: the current secret, or a generated one.
    /// Required for a new hook of the kind `stripe`. A replaced secret is accepted for 24 more
    /// hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[!-~]{16,256}$", write_only)]
    pub(crate) secret: Option<SecretText>,
    /// Whether to generate a new secret, in place of the current one. Excludes `secret`.
    #[serde(default)]
    pub(crate) rotate_secret: bool,
    /// Whether earlier secrets stop being accepted now, including the one that this replaces.
    #[serde(default)]
    pub(crate) drop_previous_secret: bool,
}

/// How the sender of a hook signs, and where the id is by which a repeat is recognized: `standard`
/// for Standard Webhooks, `stripe`, or `github`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HookKind {
    Standard,
    Stripe,
    GitHub,
}

/// What becomes the value of an event: the body of the webhook (`data`), or a CloudEvent 1.0 in
/// JSON format that has it as its data (`envelope`), with the sender's id and its name for the kind
/// of event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HookValue {
    #[default]
    Data,
    Envelope,
}

/// The handler of a hook's events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HookHandler {
    /// The handler's module. Default `WORKER`.
    #[serde(default = "worker")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "WORKER", default = "WORKER")]
    pub(crate) module: String,
    /// The handler's name.
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "on-payment")]
    pub(crate) name: String,
    /// The handler's modifier. Default `_`.
    #[serde(default = "no_modifier")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "_", default = "_")]
    pub(crate) modifier: String,
}

fn worker() -> String {
    Name::worker().to_string()
}

fn no_modifier() -> String {
    Name::no_modifier().to_string()
}

/// A hook, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Hook)]
pub(crate) struct HookJson {
    #[schema(example = "payments")]
    pub(crate) name: String,
    pub(crate) kind: HookKind,
    /// The handler of the events.
    pub(crate) handler: HookHandler,
    pub(crate) value: HookValue,
    /// Until when the previous secret is accepted, too.
    pub(crate) previous_secret_until: Option<DateTime<Utc>>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) created_by: String,
    /// When the hook was last replaced.
    pub(crate) updated_at: DateTime<Utc>,
    pub(crate) updated_by: String,
}

/// The result of putting a hook.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PutHookAnswer {
    /// Whether no hook had this name.
    pub(crate) new: bool,
    /// The hook as it is now.
    pub(crate) hook: HookJson,
    /// The generated secret, to be given to the sender; shown only once.
    #[schema(value_type = Option<String>)]
    pub(crate) secret: Option<SecretText>,
}

/// Why a request does not describe a hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidHook {
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error(transparent)]
    Secret(#[from] InvalidHookSecret),
    #[error("give `secret` or `rotate_secret`, not both")]
    TwoSecrets,
}

impl PutHook {
    /// The hook to be put on this canvas.
    pub(crate) fn read(self, canvas: CanvasId) -> Result<wakeq::hooks::NewHook, InvalidHook> {
        let kind = self.kind.into();
        let secret = match (self.secret, self.rotate_secret) {
            (Some(_), true) => return Err(InvalidHook::TwoSecrets),
            (Some(SecretText(text)), false) => {
                wakeq::hooks::NewHookSecret::Given(wakeq::hooks::HookSecret::new(kind, &text)?)
            }
            (None, true) => wakeq::hooks::NewHookSecret::Rotate,
            (None, false) => wakeq::hooks::NewHookSecret::Keep,
        };
        Ok(wakeq::hooks::NewHook {
            kind,
            address: self.handler.on(canvas)?,
            enveloped: self.value == HookValue::Envelope,
            secret,
            drops_previous: self.drop_previous_secret,
        })
    }
}

impl HookHandler {
    fn on(self, canvas: CanvasId) -> Result<HandlerAddress, InvalidName> {
        let scope = HandlerScope { canvas, module: self.module.parse()?, name: self.name.parse()? };
        Ok(HandlerAddress { scope, modifier: self.modifier.parse()? })
    }
}

impl From<HandlerAddress> for HookHandler {
    fn from(address: HandlerAddress) -> Self {
        let HandlerAddress { scope, modifier } = address;
        Self {
            module: scope.module.to_string(),
            name: scope.name.to_string(),
            modifier: modifier.to_string(),
        }
    }
}

impl From<HookKind> for wakeq::hooks::HookKind {
    fn from(kind: HookKind) -> Self {
        match kind {
            HookKind::Standard => Self::Standard,
            HookKind::Stripe => Self::Stripe,
            HookKind::GitHub => Self::GitHub,
        }
    }
}

impl From<wakeq::hooks::HookKind> for HookKind {
    fn from(kind: wakeq::hooks::HookKind) -> Self {
        match kind {
            wakeq::hooks::HookKind::Standard => Self::Standard,
            wakeq::hooks::HookKind::Stripe => Self::Stripe,
            wakeq::hooks::HookKind::GitHub => Self::GitHub,
        }
    }
}

impl From<wakeq::hooks::RegisteredHook> for HookJson {
    fn from(hook: wakeq::hooks::RegisteredHook) -> Self {
        Self {
            name: hook.name.to_string(),
            kind: hook.kind.into(),
            handler: hook.address.into(),
            value: if hook.enveloped { HookValue::Envelope } else { HookValue::Data },
            previous_secret_until: hook.previous_secret_until,
            created_at: hook.created_at,
            created_by: hook.created_by,
            updated_at: hook.updated_at,
            updated_by: hook.updated_by,
        }
    }
}

impl From<wakeq::hooks::PutHookResult> for PutHookAnswer {
    fn from(put: wakeq::hooks::PutHookResult) -> Self {
        let wakeq::hooks::PutHookResult { new, hook, secret } = put;
        let secret = secret.map(|secret| SecretText(secret.reveal().to_owned()));
        Self { new, hook: hook.into(), secret }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<wakeq::hooks::NewHook, InvalidHook> {
        serde_json::from_str::<PutHook>(json).unwrap().read(CanvasId::DEFAULT)
    }

    #[test]
    fn omitted_fields_get_their_defaults() {
        let read = read(r#"{"kind": "github", "handler": {"name": "on-push"}}"#).unwrap();
        assert_eq!(read.kind, wakeq::hooks::HookKind::GitHub);
        assert_eq!(read.address.to_string(), "WORKER/on-push/_");
        assert_eq!((read.enveloped, read.drops_previous), (false, false));
        assert!(matches!(read.secret, wakeq::hooks::NewHookSecret::Keep));
        for kind in wakeq::hooks::HookKind::ALL {
            let named = format!("\"{kind}\"");
            assert_eq!(serde_json::to_string(&HookKind::from(kind)).unwrap(), named);
        }
    }

    #[test]
    fn rejects_invalid_hooks_without_repeating_secrets() {
        let secret = "s3cr3ts3cr3ts3cr3t";
        for (fields, words) in [
            (format!(r#""kind": "standard", "secret": "{secret}""#), "24 to 64 bytes in base64"),
            (format!(r#""kind": "stripe", "secret": "{secret}""#), "signing secret of the endpoint"),
            (format!(r#""kind": "github", "secret": "{secret}", "rotate_secret": true"#), "not both"),
        ] {
            let refused = read(&format!(r#"{{"handler": {{"name": "a"}}, {fields}}}"#)).unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains(words) && !refused.contains("s3cr3t"), "{fields}: {refused}");
        }
        assert!(read(r#"{"kind": "github", "handler": {"name": "a b"}}"#).is_err());
        let put = format!(r#"{{"kind": "github", "handler": {{"name": "a"}}, "secret": "{secret}"}}"#);
        let put: PutHook = serde_json::from_str(&put).unwrap();
        assert!(!format!("{put:?}").contains("s3cr3t"));
    }
}
