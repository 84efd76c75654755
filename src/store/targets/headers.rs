//! The headers of its own that a target adds to its requests, as a registration replaces them. They
//! are kept encrypted, and only their names are shown.

use sqlx::PgConnection;

use crate::event::{HandlerAddress, SealError, SealedSecret, SecretKeys, TargetHeaders, TargetUrl};

/// Longest text about headers in a line of the audit log, which has room for 1,000 characters.
const TOLD_CHARS_MAX: usize = 400;

/// Headers to be stored: their names, and all of them encrypted, unless there are none.
#[derive(Clone, Debug)]
pub(crate) struct SealedHeaders {
    pub(super) names: Vec<String>,
    sealed: Option<SealedSecret>,
}

impl SealedHeaders {
    pub(crate) fn new(
        keys: &SecretKeys,
        address: &HandlerAddress,
        headers: &TargetHeaders,
    ) -> Result<Self, SealError> {
        let names = headers.names().map(str::to_owned).collect();
        let sealed = if headers.is_empty() { None } else { Some(keys.seal_headers(address, headers)?) };
        Ok(Self { names, sealed })
    }

    /// What the audit log says of them.
    pub(super) fn told(&self) -> String {
        if self.names.is_empty() {
            return "without headers of its own".to_owned();
        }
        let told = format!("with the headers {}", self.names.join(", "));
        match told.char_indices().nth(TOLD_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &told[..end]),
            None => told,
        }
    }
}

/// Whether a target has headers that this URL would send to another origin, where a caller who may
/// not see them could read them. Registrations of an address are serialized by its note.
pub(super) async fn would_leave(
    connection: &mut PgConnection,
    address: &HandlerAddress,
    url: &TargetUrl,
) -> Result<bool, sqlx::Error> {
    let HandlerAddress { scope, modifier } = address;
    let standing = sqlx::query_scalar!(
        "select url from wakeq.http_targets
          where canvas_id = $1 and module = $2 and name = $3 and modifier = $4 and headers is not null",
        scope.canvas.0,
        scope.module.as_str() as _,
        scope.name.as_str() as _,
        modifier.as_str() as _
    );
    let origin = |url: String| url.parse::<TargetUrl>().ok().map(|url| url.origin());
    let standing = standing.fetch_optional(connection).await?;
    Ok(standing.is_some_and(|standing| origin(standing) != Some(url.origin())))
}

/// Replaces the headers of a target. Its registration, in the same transaction, records that.
pub(super) async fn replace(
    connection: &mut PgConnection,
    address: &HandlerAddress,
    headers: &SealedHeaders,
) -> Result<(), sqlx::Error> {
    let HandlerAddress { scope, modifier } = address;
    sqlx::query!(
        "update wakeq.http_targets set header_names = $5, headers = $6, headers_key = $7
          where canvas_id = $1 and module = $2 and name = $3 and modifier = $4",
        scope.canvas.0,
        scope.module.as_str() as _,
        scope.name.as_str() as _,
        modifier.as_str() as _,
        &headers.names,
        headers.sealed.as_ref().map(|sealed| sealed.bytes.as_slice()),
        headers.sealed.as_ref().and_then(|sealed| sealed.key.as_deref())
    )
    .execute(connection)
    .await
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_names_headers_within_its_room() {
        let told = |names: Vec<String>| SealedHeaders { names, sealed: None }.told();
        assert_eq!(told(vec![]), "without headers of its own");
        assert_eq!(told(vec!["x-a".into(), "x-b".into()]), "with the headers x-a, x-b");
        let many = told((0..20).map(|number| format!("{number}{}", "x".repeat(120))).collect());
        assert_eq!((many.chars().count(), many.ends_with('…')), (401, true));
    }
}
