//! Which categories and streams a canvas has in the log, by their names. A stream has a row from
//! its first append on, so the rows of events are not looked at.

use super::read::LogEnd;
use crate::event::{CanvasId, Category, StreamName};
use crate::store::kernel::{Store, StoreError};

/// A stream of a category.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStream {
    /// Its name.
    pub name: StreamName,
    /// Its end.
    pub end: LogEnd,
}

impl Store {
    /// The categories of a canvas after this one, by name. Each is found by a look at the index of
    /// streams, however many streams the one before it has.
    pub(crate) async fn log_categories(
        &self,
        canvas: CanvasId,
        after: Option<&Category>,
        limit: i64,
    ) -> Result<Vec<Category>, StoreError> {
        let query = sqlx::query!(
            r#"with recursive found as (
                   (select s.category::text as category from wakeq.log_streams s
                     where s.canvas_id = $1 and s.category::text > $2::text
                     order by s.canvas_id, s.category::text limit 1)
                    union all
                   select (select s.category::text from wakeq.log_streams s
                            where s.canvas_id = $1 and s.category::text > f.category
                            order by s.canvas_id, s.category::text limit 1)
                     from found f where f.category is not null
               )
               select category as "category!" from found where category is not null limit $3"#,
            canvas.0,
            after.map_or("", Category::as_str),
            limit
        );
        let rows = self.session().await?.all("list the categories of the log", query).await?;
        Ok(rows.into_iter().filter_map(|row| row.category.parse().ok()).collect())
    }

    /// The streams of a category of a canvas after this one, by name; reads no more rows than
    /// `limit`, apart from streams that were never appended to.
    pub(crate) async fn log_streams(
        &self,
        canvas: CanvasId,
        category: &Category,
        after: Option<&StreamName>,
        limit: i64,
    ) -> Result<Vec<LogStream>, StoreError> {
        let query = sqlx::query!(
            r#"select s.stream::text as "stream!", s.position, s.last_seq
                 from wakeq.log_streams s
                where s.canvas_id = $1 and s.category::text = $2::text and s.stream::text > $3::text and s.position >= 0
                order by s.canvas_id, s.category::text, s.stream::text limit $4"#,
            canvas.0,
            category.as_str(),
            after.map_or("", StreamName::as_str),
            limit
        );
        let rows = self.session().await?.all("list the streams of a category", query).await?;
        let streams = rows.into_iter().filter_map(|row| {
            let end = LogEnd { position: row.position, seq: row.last_seq };
            Some(LogStream { name: row.stream.parse().ok()?, end })
        });
        Ok(streams.collect())
    }
}
