//! Keys: requests and answers.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, Type};
use uuid::Uuid;

use crate::access;
use crate::resources::targets::wire::SecretText;
use crate::resources::wire::wire_from;

/// A key to be created.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateKey {
    /// Name of the holder: letters, digits, ASCII punctuation, and spaces except at the ends. Up to
    /// two live keys may share it, for rotation.
    #[schema(min_length = 1, max_length = 190, example = "billing")]
    pub(crate) holder: String,
    /// The scopes: `emit`, `read`, `operate` or `admin`; none implies another. Registering targets
    /// requires `operate` and `read`, creating crons `operate` and `emit`. All but `admin` can be
    /// limited to the handlers of a module, or to one handler: `emit:WORKER/*`,
    /// `operate:WORKER/resize`; at most 16 of these.
    #[schema(schema_with = scopes)]
    pub(crate) scopes: Vec<String>,
    /// Lifetime of the key in seconds, at most ten years. Default: one year.
    #[schema(minimum = 1, maximum = 315_532_800)]
    pub(crate) lifetime_s: Option<u64>,
}

/// The schema of a key's scopes.
fn scopes() -> Array {
    let scope = ObjectBuilder::new().schema_type(Type::String).pattern(Some(
        "^(admin|(emit|read|values|operate)(:[A-Za-z0-9_.-]{1,128}/([*]|[A-Za-z0-9_.-]{1,128}))?)$",
    ));
    ArrayBuilder::new().items(scope).min_items(Some(1)).max_items(Some(20)).build()
}

/// A new key. Its text is shown only once.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = CreatedKey)]
pub(crate) struct CreatedKeyJson {
    /// The key's prefix, which is public.
    #[schema(example = "0123456789ab")]
    pub(crate) id: String,
    /// The whole key, for its holder only.
    #[schema(value_type = String)]
    pub(crate) key: SecretText,
    pub(crate) expires_at: DateTime<Utc>,
}

/// A key, without its secret.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Key)]
pub(crate) struct KeyJson {
    /// The key's prefix, which is public.
    #[schema(example = "0123456789ab")]
    pub(crate) id: String,
    #[schema(example = "billing")]
    pub(crate) holder: String,
    /// The canvas the key is valid on; null for all canvases.
    pub(crate) canvas: Option<Uuid>,
    pub(crate) scopes: Vec<String>,
    /// `live`, `revoked` or `expired`.
    #[schema(example = "live")]
    pub(crate) state: String,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) created_by: String,
    pub(crate) expires_at: DateTime<Utc>,
    pub(crate) revoked_at: Option<DateTime<Utc>>,
    /// When the key was last used, to the minute.
    pub(crate) last_used_at: Option<DateTime<Utc>>,
}

impl From<access::CreatedKey> for CreatedKeyJson {
    fn from(created: access::CreatedKey) -> Self {
        let id = created.key.id().to_string();
        Self { id, key: SecretText(created.key.reveal()), expires_at: created.expires_at }
    }
}

/// All scopes of a credential, as text.
pub(crate) fn scope_texts(whole: access::Scopes, narrow: &[access::NarrowScope]) -> Vec<String> {
    whole.iter().map(|scope| scope.to_string()).chain(narrow.iter().map(ToString::to_string)).collect()
}

wire_from! { access::Key => KeyJson, |key| {
    holder, created_at, created_by, expires_at, revoked_at, last_used_at;
    id: key.id.to_string(),
    canvas: canvas(key.reach),
    scopes: scope_texts(key.scopes, &key.narrow),
    state: key.state.as_str().to_owned(),
} }

/// The canvas that a credential is valid on; `None` means every canvas.
pub(crate) fn canvas(reach: access::Reach) -> Option<Uuid> {
    match reach {
        access::Reach::Canvas(canvas) => Some(canvas.0),
        access::Reach::EveryCanvas => None,
    }
}
