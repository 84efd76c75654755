//! Lists the entities of a type on a canvas, page by page and without their states.

use std::fmt;
use std::str::FromStr;

use crate::event::{EntityId, EntityType};
use crate::store::Store;
use wakeq::log::StreamName;
use wakeq::{CanvasId, StoreError, Timestamp};

/// An entity in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntitySummary {
    /// The entity.
    pub id: EntityId,
    /// How many events of it are in the repository.
    pub version: i64,
    /// The version of the stored state; 0 before the first snapshot.
    pub state_version: i64,
    /// The size of that state as JSON, in bytes; `None` before the first snapshot.
    pub state_bytes: Option<u64>,
    /// When the outcome of its last event was decided.
    pub updated_at: Timestamp,
}

/// Where a page of entities starts.
///
/// ```
/// let cursor: wakeq_streams::entities::EntityCursor = "account~616461".parse().unwrap();
/// assert_eq!(cursor.to_string(), "account~616461");
/// assert!("ada".parse::<wakeq_streams::entities::EntityCursor>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityCursor {
    /// The listed type.
    pub entity_type: EntityType,
    /// The last entity of the previous page.
    pub id: StreamName,
}

impl fmt::Display for EntityCursor {
    /// Ids have characters that are special in URLs, so they are written in hexadecimal.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}~", self.entity_type)?;
        self.id.as_str().bytes().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl FromStr for EntityCursor {
    type Err = InvalidEntityCursor;

    fn from_str(text: &str) -> Result<Self, InvalidEntityCursor> {
        let (entity_type, digits) = text.split_once('~').ok_or(InvalidEntityCursor)?;
        let entity_type = entity_type.parse().map_err(|_| InvalidEntityCursor)?;
        let pair = |pair: &[u8]| {
            let digits = std::str::from_utf8(pair).ok().filter(|digits| digits.len() == 2)?;
            u8::from_str_radix(digits, 16).ok().filter(u8::is_ascii).map(char::from)
        };
        let id: Option<String> = digits.as_bytes().chunks(2).map(pair).collect();
        let id = id.and_then(|id| id.parse().ok()).ok_or(InvalidEntityCursor)?;
        Ok(Self { entity_type, id })
    }
}

/// A text that is not a cursor of a list of entities, or is one of another type's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a cursor of this list: pass `next_cursor` of its last page unchanged, or start without one"
)]
pub struct InvalidEntityCursor;

impl Store {
    /// The entities of a type on a canvas after this one, ordered by id; reads no more rows than
    /// `limit`.
    pub(crate) async fn list_entities(
        &self,
        canvas: CanvasId,
        entity_type: &EntityType,
        after: Option<&StreamName>,
        limit: i64,
    ) -> Result<Vec<EntitySummary>, StoreError> {
        let query = sqlx::query!(
            r#"select id::text as "id!", version, state_version, octet_length(state)::bigint as bytes, updated_at
                 from wakeq.entities
                where entity_type = $1 and canvas_id = $2 and id::text > $3::text
                order by entity_type, canvas_id, id::text limit $4"#,
            entity_type.as_str() as _,
            canvas.0,
            after.map_or("", StreamName::as_str),
            limit
        );
        let rows = self.session().await?.all("list entities", query).await?;
        let summaries = rows.into_iter().filter_map(|row| {
            Some(EntitySummary {
                id: EntityId { canvas, entity_type: entity_type.clone(), id: row.id.parse().ok()? },
                version: row.version,
                state_version: row.state_version,
                state_bytes: row.bytes.and_then(|bytes| u64::try_from(bytes).ok()),
                updated_at: row.updated_at,
            })
        });
        Ok(summaries.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_exactly() {
        for id in ["ada", "a+b:c@d=e~f", &"~".repeat(200)] {
            let cursor = EntityCursor { entity_type: "account".parse().unwrap(), id: id.parse().unwrap() };
            let text = cursor.to_string();
            assert!(
                text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte)),
                "{text}"
            );
            assert_eq!(text.parse(), Ok(cursor));
        }
    }

    #[test]
    fn rejects_invalid_entity_cursors() {
        for text in [
            "",
            "~",
            "account",
            "account~",
            "account~6",
            "account~616",
            "account~zz",
            "account~+6",
            "account~ff",
            "account~20",
            "status~61",
            "account~c3a9",
            "account~é",
        ] {
            assert_eq!(text.parse::<EntityCursor>(), Err(InvalidEntityCursor), "{text}");
        }
    }
}
