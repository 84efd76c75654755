//! Pages of lists.

use super::problem::Problem;
use wakeq::control::Cursor;

/// Default number of items per page.
const DEFAULT: u32 = 100;
/// Maximum number of items per page.
const MOST: u32 = 1000;

/// The page size.
pub(super) fn limit(given: Option<u32>) -> Result<u32, Problem> {
    let limit = given.unwrap_or(DEFAULT);
    if (1..=MOST).contains(&limit) {
        Ok(limit)
    } else {
        Err(Problem::bad_request("`limit` must be 1 to 1000"))
    }
}

/// Where the page starts.
pub(super) fn cursor(given: Option<&str>) -> Result<Option<Cursor>, Problem> {
    Ok(given.map(str::parse).transpose()?)
}
