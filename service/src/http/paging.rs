//! Pages of lists.

use serde::Deserialize;
use utoipa::IntoParams;

use super::problem::Problem;
use wakeq::control::Cursor;

/// Default number of items per page.
const DEFAULT: u32 = 100;
/// Maximum number of items per page.
const MOST: u32 = 1000;

/// Which page to return.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    /// Maximum number of items. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[param(max_length = 400)]
    pub(crate) cursor: Option<String>,
}

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
pub(crate) fn cursor(given: Option<&str>) -> Result<Option<Cursor>, Problem> {
    Ok(given.map(str::parse).transpose()?)
}
