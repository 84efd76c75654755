//! Which page of a list.

use crate::admin::Cursor;

use super::problem::Problem;

/// How many items a page has when nobody says.
const DEFAULT: u32 = 100;
/// Most items of a page.
const MOST: u32 = 1000;

/// The length of a page.
pub(super) fn limit(given: Option<u32>) -> Result<u32, Problem> {
    let limit = given.unwrap_or(DEFAULT);
    if (1..=MOST).contains(&limit) {
        Ok(limit)
    } else {
        Err(Problem::bad_request("`limit` must be 1 to 1000"))
    }
}

/// Where a page starts.
pub(super) fn cursor(given: Option<&str>) -> Result<Option<Cursor>, Problem> {
    Ok(given.map(str::parse).transpose()?)
}
