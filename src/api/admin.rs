//! Keys, and the record of who did what.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{access, store};

/// Something that was done, or asked for and refused.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AuditEntry {
    pub(crate) id: i64,
    pub(crate) at: DateTime<Utc>,
    /// Who: `key:<holder>`, `account:<email>`, `cli:<user>`, or a name that a program gave.
    #[schema(example = "key:billing")]
    pub(crate) actor: String,
    #[schema(example = "pause")]
    pub(crate) action: String,
    /// The handler it was about.
    pub(crate) module: Option<String>,
    pub(crate) name: Option<String>,
    /// The event it was about.
    pub(crate) event_id: Option<Uuid>,
    /// `done` or `refused`.
    #[schema(example = "done")]
    pub(crate) outcome: String,
    /// More, in words.
    pub(crate) detail: Option<String>,
    /// How many events it touched; how often it was refused.
    #[schema(minimum = 0)]
    pub(crate) times: i32,
    /// The request's id, as in the header `x-request-id`.
    pub(crate) request_id: Option<String>,
}

/// A key to make.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateKey {
    /// Who will hold it, for the record: letters, digits, ASCII signs, and spaces within. A holder may have two live
    /// keys: the second replaces the first at leisure.
    #[schema(min_length = 1, max_length = 190, example = "billing")]
    pub(crate) holder: String,
    /// Some of `emit`, `read`, `operate`, `admin`; none implies another. Registering a target takes `operate` and `read`,
    /// putting a cron `operate` and `emit`.
    #[schema(value_type = Vec<ScopeName>, min_items = 1, example = json!(["emit", "read"]))]
    pub(crate) scopes: Vec<String>,
    /// For how long it counts, in seconds: ten years at most. Default: a year.
    #[schema(minimum = 1, maximum = 315_532_800)]
    pub(crate) lifetime_s: Option<u64>,
}

/// What a key may allow.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[allow(dead_code, reason = "only described: requests are read by the scopes' own parser")]
pub(crate) enum ScopeName {
    /// Emitting.
    Emit,
    /// Looking.
    Read,
    /// Pausing, cancelling, redriving, deleting.
    Operate,
    /// Blocks, keys, the record.
    Admin,
}

/// A key that was made. Its text is shown this once.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CreatedKey {
    /// Its public part.
    #[schema(example = "0123456789ab")]
    pub(crate) id: String,
    /// The whole key: for its holder, and nobody else.
    pub(crate) key: String,
    pub(crate) expires_at: DateTime<Utc>,
}

/// What is known of a key; its secret is not.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Key {
    /// Its public part.
    #[schema(example = "0123456789ab")]
    pub(crate) id: String,
    #[schema(example = "billing")]
    pub(crate) holder: String,
    /// The canvas it counts on; null for every canvas.
    pub(crate) canvas: Option<Uuid>,
    pub(crate) scopes: Vec<String>,
    /// `live`, `revoked` or `expired`.
    #[schema(example = "live")]
    pub(crate) state: String,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) created_by: String,
    pub(crate) expires_at: DateTime<Utc>,
    pub(crate) revoked_at: Option<DateTime<Utc>>,
    /// To the minute.
    pub(crate) last_used_at: Option<DateTime<Utc>>,
}

/// A Google service account that is let in.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Account {
    #[schema(example = "billing@my-project.iam.gserviceaccount.com")]
    pub(crate) email: String,
    /// The canvas it is let in on; null for every canvas.
    pub(crate) canvas: Option<Uuid>,
    pub(crate) scopes: Vec<String>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) created_by: String,
}

impl From<store::AuditEntry> for AuditEntry {
    fn from(entry: store::AuditEntry) -> Self {
        Self {
            id: entry.id,
            at: entry.at,
            actor: entry.actor,
            action: entry.action,
            module: entry.module,
            name: entry.name,
            event_id: entry.event_id.map(|id| id.0),
            outcome: entry.outcome.as_str().to_owned(),
            detail: entry.detail,
            times: entry.times,
            request_id: entry.request_id,
        }
    }
}

impl From<access::CreatedKey> for CreatedKey {
    fn from(created: access::CreatedKey) -> Self {
        let id = created.key.id().to_string();
        Self { id, key: created.key.reveal(), expires_at: created.expires_at }
    }
}

impl From<access::Key> for Key {
    fn from(key: access::Key) -> Self {
        Self {
            id: key.id.to_string(),
            holder: key.holder,
            canvas: canvas(key.reach),
            scopes: key.scopes.iter().map(|scope| scope.to_string()).collect(),
            state: key.state.as_str().to_owned(),
            created_at: key.created_at,
            created_by: key.created_by,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
            last_used_at: key.last_used_at,
        }
    }
}

impl From<access::Account> for Account {
    fn from(account: access::Account) -> Self {
        Self {
            email: account.email,
            canvas: canvas(account.reach),
            scopes: account.scopes.iter().map(|scope| scope.to_string()).collect(),
            created_at: account.created_at,
            created_by: account.created_by,
        }
    }
}

fn canvas(reach: access::Reach) -> Option<Uuid> {
    match reach {
        access::Reach::Canvas(canvas) => Some(canvas.0),
        access::Reach::EveryCanvas => None,
    }
}
