//! Pages of lists.

use std::fmt::Display;
use std::str::FromStr;

use super::problem::Problem;

/// Default number of items per page.
const DEFAULT: u32 = 100;
/// Maximum number of items per page.
const MOST: u32 = 1000;

/// Defines the query for a page of a list whose cursors have at most this many characters.
macro_rules! page_query {
    ($name:ident, $cursor_max:tt) => {
        $crate::http::paging::page_query!($name, $cursor_max, "Maximum number of items. Default 100.");
    };
    ($name:ident, $cursor_max:tt, $limit_words:tt) => {
        /// Which page to return.
        #[derive(serde::Deserialize, utoipa::IntoParams)]
        #[into_params(parameter_in = Query)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            #[doc = $limit_words]
            #[param(minimum = 1, maximum = 1000)]
            pub(crate) limit: Option<u32>,
            /// The `next_cursor` of the previous page.
            #[param(max_length = $cursor_max)]
            pub(crate) cursor: Option<String>,
        }

        impl $name {
            /// The page size, and where the page starts.
            pub(crate) fn read<C: std::str::FromStr<Err: std::fmt::Display>>(
                &self,
            ) -> Result<(u32, Option<C>), $crate::http::problem::Problem> {
                use $crate::http::paging::{cursor, limit};
                Ok((limit(self.limit)?, cursor(self.cursor.as_deref())?))
            }
        }
    };
}
pub(crate) use page_query;

page_query!(PageQuery, 400);

/// The page size.
pub(crate) fn limit(given: Option<u32>) -> Result<u32, Problem> {
    let limit = given.unwrap_or(DEFAULT);
    if (1..=MOST).contains(&limit) {
        Ok(limit)
    } else {
        Err(Problem::bad_request("`limit` must be 1 to 1000"))
    }
}

/// Where the page starts.
pub(crate) fn cursor<C: FromStr<Err: Display>>(given: Option<&str>) -> Result<Option<C>, Problem> {
    given.map(str::parse).transpose().map_err(Problem::invalid)
}
