//! Accounts, as they are listed.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access;
use crate::resources::keys::wire::{canvas, scope_texts};
use crate::resources::wire::wire_from;

/// A Google account that may use the API or, as a person's, the pages.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Account)]
pub(crate) struct AccountJson {
    #[schema(example = "billing@my-project.iam.gserviceaccount.com")]
    pub(crate) email: String,
    /// The canvas it may use; null for all canvases.
    pub(crate) canvas: Option<Uuid>,
    pub(crate) scopes: Vec<String>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) created_by: String,
}

wire_from! { access::Account => AccountJson, |account| {
    email, created_at, created_by;
    canvas: canvas(account.reach),
    scopes: scope_texts(account.scopes, &account.narrow),
} }
