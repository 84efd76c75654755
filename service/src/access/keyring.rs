//! Creates, lists and revokes keys, and admits service accounts. The caller decides who may do
//! that.

use std::time::Duration;

use super::{Access, AccessError, ApiKey, KeyId, NarrowScope, Reach, Scopes};
use crate::store::{AccountRow, KeyRow, NewKeyRow, RowsOf};
use wakeq::{Actor, CanvasId, StoreError, Timestamp};

/// Maximum number of characters of a holder's name or an account's address: with its prefix it has
/// to fit into the columns for actors' names.
pub const NAME_MAX: usize = 190;
/// Default lifetime of a key: 365 days.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum lifetime of a key: ten years.
pub const LIFETIME_MAX: Duration = Duration::from_secs(3652 * 24 * 3600);

/// Maximum number of handler-limited scopes per key or account.
pub const NARROW_MAX: usize = 16;

const LIFETIME_MIN: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 4;
const LIST_MAX: u32 = 1000;

/// A key to be created.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// The holder's name: 1 to 190 letters, digits, spaces and ASCII punctuation characters. A
    /// holder may have two live keys.
    pub holder: String,
    /// Where the key is valid.
    pub reach: Reach,
    /// What the key allows. May only be empty if [`Access::create_narrow_key`] adds narrow scopes.
    pub scopes: Scopes,
    /// From one second to ten years; [`DEFAULT_LIFETIME`] if `None`.
    pub lifetime: Option<Duration>,
}

/// A new key. This is the only time that it can be shown.
#[derive(Debug)]
pub struct CreatedKey {
    /// The key itself: [`ApiKey::reveal`] shows it.
    pub key: ApiKey,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// A stored key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its public part.
    pub id: KeyId,
    /// The holder's name.
    pub holder: String,
    /// Where the key is valid.
    pub reach: Reach,
    /// What the key allows.
    pub scopes: Scopes,
    /// What it additionally allows for some handlers.
    pub narrow: Vec<NarrowScope>,
    /// Whether it is valid.
    pub state: KeyState,
    /// When it was created.
    pub created_at: Timestamp,
    /// The actor that created it.
    pub created_by: String,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
}

/// Whether a key is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Valid.
    Live,
    /// Revoked.
    Revoked,
    /// Expired.
    Expired,
}

impl KeyState {
    /// `live`, `revoked` or `expired`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
        }
    }
}

/// An account that has access: a service account of Google or, in the pages, a person by an address
/// that a proxy or an OpenID provider vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its address, in lower case.
    pub email: String,
    /// Where it has access.
    pub reach: Reach,
    /// What it may do there.
    pub scopes: Scopes,
    /// What it may additionally do there for some handlers.
    pub narrow: Vec<NarrowScope>,
    /// When it was admitted.
    pub created_at: Timestamp,
    /// The actor that admitted it.
    pub created_by: String,
}

/// The keys or accounts that an operation covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialFilter {
    /// All of them. For callers that control the whole database anyway.
    Everything,
    /// Those with exactly this reach: an admin of one canvas does not see keys that are valid on
    /// every canvas.
    Reach(Reach),
}

impl CredentialFilter {
    fn rows(self) -> RowsOf {
        match self {
            Self::Everything => RowsOf::All,
            Self::Reach(reach) => RowsOf::Reach(reach.to_row()),
        }
    }
}

impl From<CanvasId> for CredentialFilter {
    fn from(canvas: CanvasId) -> Self {
        Self::Reach(Reach::Canvas(canvas))
    }
}

impl Access {
    /// Creates a key and its audit log entry. Errors: [`AccessError::Invalid`],
    /// [`AccessError::TwoLive`] and, if other callers are creating keys for the same holder,
    /// [`AccessError::Busy`].
    pub async fn create_key(&self, new: &NewKey, by: &Actor) -> Result<CreatedKey, AccessError> {
        self.create_narrow_key(new, &[], by).await
    }

    /// Like [`Access::create_key`], with up to [`NARROW_MAX`] additional scopes for some handlers
    /// only.
    pub async fn create_narrow_key(
        &self,
        new: &NewKey,
        narrow: &[NarrowScope],
        by: &Actor,
    ) -> Result<CreatedKey, AccessError> {
        let lifetime = new.lifetime.unwrap_or(DEFAULT_LIFETIME);
        check_holder(&new.holder)?;
        check_reach(new.reach)?;
        check_scopes(new.scopes, narrow)?;
        check_actor(by)?;
        if !(LIFETIME_MIN..=LIFETIME_MAX).contains(&lifetime) {
            return Err(AccessError::Invalid("a key lives for at least a second and at most ten years"));
        }
        let store = &self.inner.store;
        let holder = || new.holder.clone();
        let checks = self.checks().await?;
        for _ in 0..ATTEMPTS {
            let key = ApiKey::generate(checks)?;
            let hash = key.hash();
            let row = NewKeyRow {
                id: &key.id().to_string(),
                secret_sha256: hash.as_bytes(),
                canvas: new.reach.to_row(),
                holder: &new.holder,
                scopes: &rows_of(new.scopes, narrow),
                actor: by,
                lifetime,
            };
            let added = match store.add_key(&row).await {
                // Another caller is creating a key for this holder and still holds the lock; the
                // checks below show the outcome.
                Err(error) if error.is_contention() => None,
                added => added?,
            };
            if let Some((created_at, expires_at)) = added {
                return Ok(CreatedKey { key, created_at, expires_at });
            }
            if store.has_two_live_keys(new.reach.to_row(), &new.holder).await? {
                return Err(AccessError::TwoLive { holder: holder() });
            }
            if let Reach::Canvas(canvas) = new.reach
                && let Some(exceeded) = store.key_quota_exceeded(canvas).await?
            {
                return Err(StoreError::Quota(exceeded).into());
            }
        }
        Err(AccessError::Busy { holder: holder() })
    }

    /// Lists keys, newest first, including revoked and expired ones, starting after the key
    /// `after`. Returns at most `limit` keys, up to 1,001: asking for one more than a page shows
    /// whether another page follows.
    pub async fn keys(
        &self,
        filter: CredentialFilter,
        after: Option<KeyId>,
        limit: u32,
    ) -> Result<Vec<Key>, AccessError> {
        let after = after.map(|id| id.to_string());
        let limit = i64::from(limit.min(LIST_MAX + 1));
        let rows = self.inner.store.keys(filter.rows(), after.as_deref(), limit).await?;
        Ok(rows.into_iter().filter_map(key_of_row).collect())
    }

    /// A key, also if it is revoked or has expired; `None` if there is none of this id.
    pub async fn key(&self, filter: CredentialFilter, id: KeyId) -> Result<Option<Key>, AccessError> {
        let row = self.inner.store.key(filter.rows(), &id.to_string()).await?;
        Ok(row.and_then(key_of_row))
    }

    /// Revokes a key: immediately in this process, within a minute in all others. Returns whether
    /// it existed and was not revoked yet.
    pub async fn revoke_key(
        &self,
        filter: CredentialFilter,
        id: KeyId,
        by: &Actor,
    ) -> Result<bool, AccessError> {
        check_actor(by)?;
        let revoked = self.inner.store.revoke_key(filter.rows(), &id.to_string(), by).await?;
        self.inner.keys.forget(&id);
        Ok(revoked)
    }

    /// Admits an account, or replaces its scopes there. Returns whether it is new there. A service
    /// account may use the API with its ID tokens. A person may use the pages, if Google's
    /// identity-aware proxy is in front of them ([`AccessConfig::iap_audience`]) or people sign in
    /// at an OpenID provider ([`AccessConfig::oidc`]), and nothing else.
    ///
    /// [`AccessConfig::iap_audience`]: super::AccessConfig::iap_audience
    /// [`AccessConfig::oidc`]: super::AccessConfig::oidc
    pub async fn allow_account(
        &self,
        email: &str,
        reach: Reach,
        scopes: Scopes,
        by: &Actor,
    ) -> Result<bool, AccessError> {
        self.allow_narrow_account(email, reach, scopes, &[], by).await
    }

    /// Like [`Access::allow_account`], with up to [`NARROW_MAX`] additional scopes for some
    /// handlers only.
    pub async fn allow_narrow_account(
        &self,
        email: &str,
        reach: Reach,
        scopes: Scopes,
        narrow: &[NarrowScope],
        by: &Actor,
    ) -> Result<bool, AccessError> {
        let email = account_email(email)?;
        check_reach(reach)?;
        check_scopes(scopes, narrow)?;
        check_actor(by)?;
        let rows = rows_of(scopes, narrow);
        let new = self.inner.store.allow_account(&email, reach.to_row(), &rows, by).await?;
        self.inner.accounts.forget(&email);
        Ok(new)
    }

    /// Removes an account's access there: immediately in this process, within a minute in
    /// all others. Returns whether it had access there.
    pub async fn remove_account(&self, email: &str, reach: Reach, by: &Actor) -> Result<bool, AccessError> {
        let email = account_email(email)?;
        check_actor(by)?;
        let removed = self.inner.store.remove_account(&email, reach.to_row(), by).await?;
        self.inner.accounts.forget(&email);
        Ok(removed)
    }

    /// Lists the admitted accounts by address, those for every canvas first, starting after
    /// the address and reach `after`; at most `limit`, up to 1,001.
    pub async fn accounts(
        &self,
        filter: CredentialFilter,
        after: Option<(&str, Reach)>,
        limit: u32,
    ) -> Result<Vec<Account>, AccessError> {
        let after = after.map(|(email, reach)| (email, reach.to_row()));
        let limit = i64::from(limit.clamp(1, LIST_MAX + 1));
        let rows = self.inner.store.accounts(filter.rows(), after, limit).await?;
        Ok(rows.into_iter().map(account_of_row).collect())
    }
}

fn check_reach(reach: Reach) -> Result<(), AccessError> {
    match reach {
        Reach::Canvas(canvas) if canvas.is_reserved() => Err(AccessError::Invalid(
            "the largest uuid is reserved and can't be a canvas: choose another one",
        )),
        Reach::Canvas(_) | Reach::EveryCanvas => Ok(()),
    }
}

fn key_of_row(row: KeyRow) -> Option<Key> {
    let state = match (row.revoked_at, row.expired) {
        (Some(_), _) => KeyState::Revoked,
        (None, true) => KeyState::Expired,
        (None, false) => KeyState::Live,
    };
    Some(Key {
        id: row.id.parse().ok()?,
        holder: row.holder,
        reach: Reach::of_row(row.canvas_id),
        scopes: Scopes::of_row(&row.scopes),
        narrow: NarrowScope::of_row(&row.scopes),
        state,
        created_at: row.created_at,
        created_by: row.created_by,
        expires_at: row.expires_at,
        revoked_at: row.revoked_at,
        last_used_at: row.last_used_at,
    })
}

fn account_of_row(row: AccountRow) -> Account {
    Account {
        email: row.email,
        reach: Reach::of_row(row.canvas_id),
        scopes: Scopes::of_row(&row.scopes),
        narrow: NarrowScope::of_row(&row.scopes),
        created_at: row.created_at,
        created_by: row.created_by,
    }
}

fn check_holder(name: &str) -> Result<(), AccessError> {
    let printable =
        |character: char| character.is_alphanumeric() || character.is_ascii_graphic() || character == ' ';
    let fits = (1..=NAME_MAX).contains(&name.chars().count());
    if fits && name.chars().all(printable) && name.trim() == name {
        Ok(())
    } else {
        Err(AccessError::Invalid(
            "the holder's name must have 1 to 190 letters, digits, ASCII signs and spaces, with no \
             space at either end",
        ))
    }
}

fn check_scopes(scopes: Scopes, narrow: &[NarrowScope]) -> Result<(), AccessError> {
    if scopes.is_empty() && narrow.is_empty() {
        return Err(AccessError::Invalid("give at least one scope"));
    }
    if narrow.len() > NARROW_MAX {
        return Err(AccessError::Invalid(
            "at most 16 scopes may be limited to handlers: limit them to modules",
        ));
    }
    Ok(())
}

/// The value of the column.
fn rows_of(scopes: Scopes, narrow: &[NarrowScope]) -> Vec<String> {
    scopes.to_row().into_iter().chain(narrow.iter().map(NarrowScope::to_string)).collect()
}

fn check_actor(actor: &Actor) -> Result<(), AccessError> {
    actor.check().map_err(AccessError::Invalid)?;
    if actor.name().chars().any(char::is_control) {
        return Err(AccessError::Invalid("the actor's name must have no control characters"));
    }
    Ok(())
}

/// Validates an account's address and converts it to lower case.
fn account_email(text: &str) -> Result<String, AccessError> {
    let email = text.to_ascii_lowercase();
    let sound = |part: &str, signs: &[u8]| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || signs.contains(&byte))
    };
    let is_address = email.split_once('@').is_some_and(|(name, domain)| {
        let labels = || domain.split('.');
        sound(name, b".-_+'") && labels().all(|label| sound(label, b"-_")) && labels().count() > 1
    });
    if is_address && email.len() <= NAME_MAX {
        Ok(email)
    } else {
        Err(AccessError::Invalid(
            "an account has an address like name@project.iam.gserviceaccount.com or, for the pages, that of a \
             person; of at most 190 characters",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_can_be_read_by_people() {
        for name in ["a", "billing", "Ada Lovelace", "ci/deploy #2", "Zoë", "山田", &"x".repeat(190)] {
            assert!(check_holder(name).is_ok(), "{name:?}");
        }
        for name in
            ["", " ", " a", "a ", "a\nb", "a\0", "a\u{202e}b", "a\u{200b}b", "a\u{a0}b", &"x".repeat(191)]
        {
            assert!(check_holder(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn accounts_are_googles_service_accounts_or_people() {
        for (email, is_service) in [
            ("robot@p.iam.gserviceaccount.com", true),
            ("123-compute@developer.gserviceaccount.com", true),
            ("p@appspot.gserviceaccount.com", true),
            ("Robot@P.iam.GServiceAccount.com", true),
            ("ada@gmail.com", false),
            ("Ada.o'Lovelace+wakeq@queue.example", false),
            ("robot@evilgserviceaccount.com", false),
            ("robot@gserviceaccount.com.evil.example", false),
        ] {
            let read = account_email(email).unwrap();
            assert_eq!(read, email.to_ascii_lowercase());
            assert_eq!(crate::access::token::is_service_account(&read), is_service, "{email}");
        }
        for email in [
            "",
            "robot",
            "@p.iam.gserviceaccount.com",
            "ada@localhost",
            "ada@example..com",
            "ada@.com",
            "a@b@p.iam.gserviceaccount.com",
            "accounts.google.com:ada@gmail.com",
            "ro bot@p.iam.gserviceaccount.com",
            "röbot@p.iam.gserviceaccount.com",
            " robot@p.iam.gserviceaccount.com",
            "allUsers",
            "*@example.com",
            &format!("{}@p.iam.gserviceaccount.com", "x".repeat(190)),
        ] {
            assert!(account_email(email).is_err(), "{email:?}");
        }
    }
}
