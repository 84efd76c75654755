//! Which callers may push notifications and request the minute's pass: service accounts named in
//! the configuration, with ID tokens for an audience of their own. Needs no database and grants
//! nothing else.

use std::collections::HashSet;

use super::error::AccessError;
use super::token::{AcceptedClaims, TokenKind};

/// Maximum number of accounts, and of audiences.
const NAMED_MAX: usize = 100;

/// Which callers `POST /v1/push` and `POST /v1/wake` accept.
///
/// ```
/// use wakeq_service::access::{AccessConfig, PushCallers};
///
/// let push = PushCallers {
///     audiences: vec!["my-project/wakeq/push".into()],
///     accounts: vec!["wakeq-invoker@my-project.iam.gserviceaccount.com".into()],
/// };
/// let config = AccessConfig { push, ..AccessConfig::default() };
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushCallers {
    /// Accepted `aud` claims of their ID tokens, compared exactly. Must not contain any of
    /// [`AccessConfig::audiences`]: a token for one purpose must not be valid for the other.
    ///
    /// [`AccessConfig::audiences`]: super::AccessConfig::audiences
    pub audiences: Vec<String>,
    /// Addresses of the service accounts that may push.
    pub accounts: Vec<String>,
}

/// Identifies callers that push.
pub(super) struct Pushers {
    pub(super) accepted: AcceptedClaims,
    /// In lower case.
    pub(super) accounts: HashSet<String>,
}

impl Pushers {
    /// `None` if push is not configured. `audiences` and `issuers` are those of the API's tokens.
    pub(super) fn new(
        push: PushCallers,
        audiences: &[String],
        issuers: &[String],
    ) -> Result<Option<Self>, AccessError> {
        let PushCallers { audiences: own, accounts } = push;
        if own.is_empty() && accounts.is_empty() {
            return Ok(None);
        }
        if own.is_empty() || accounts.is_empty() {
            return Err(AccessError::Config(
                "push mode needs both the audience of its tokens (WAKEQ_PUSH_AUDIENCE) and the accounts that may push \
                 (WAKEQ_PUSH_ACCOUNTS): set the one that is missing, or neither",
            ));
        }
        if own.len() > NAMED_MAX || accounts.len() > NAMED_MAX {
            return Err(AccessError::Config("at most 100 accounts may push, for at most 100 audiences"));
        }
        if own.iter().any(String::is_empty) || !accounts.iter().all(|account| is_address(account)) {
            return Err(AccessError::Config(
                "an account that may push is the address of a service account, name@project.iam.gserviceaccount.com, and \
                 its audience is not empty",
            ));
        }
        if own.iter().any(|audience| audiences.contains(audience)) {
            return Err(AccessError::Config(
                "tokens for pushes need a different audience from tokens for the API: a push token \
                 must not grant access to the API, nor an API token allow pushes",
            ));
        }
        let accounts = accounts.iter().map(|account| account.to_ascii_lowercase()).collect();
        let (issuers, kind) = (issuers.to_vec(), TokenKind::Id);
        Ok(Some(Self { accepted: AcceptedClaims { audiences: own, issuers, kind }, accounts }))
    }
}

fn is_address(account: &str) -> bool {
    account.len() <= 320
        && account.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: &str = "Push@p.iam.gserviceaccount.com";

    fn pushers(audiences: &[&str], accounts: &[&str]) -> Result<Option<Pushers>, AccessError> {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let push = PushCallers { audiences: texts(audiences), accounts: texts(accounts) };
        Pushers::new(push, &["https://api.example".to_owned()], &[])
    }

    #[test]
    fn rejects_partial_push_configuration() {
        assert!(pushers(&[], &[]).unwrap().is_none());
        let whole = pushers(&["push"], &[ACCOUNT]).unwrap().unwrap();
        assert!(whole.accounts.contains(&ACCOUNT.to_lowercase()));
        for (audiences, accounts, words) in [
            (&["push"][..], &[][..], "WAKEQ_PUSH_ACCOUNTS"),
            (&[], &[ACCOUNT], "WAKEQ_PUSH_AUDIENCE"),
            (&[""], &[ACCOUNT], "not empty"),
            (&["push"], &["everybody"], "address"),
            (&["push"], &["@p.iam"], "address"),
            (&["push", "https://api.example"], &[ACCOUNT], "a different audience"),
            (&["push"; 101], &[ACCOUNT], "at most 100"),
        ] {
            let error = pushers(audiences, accounts).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
