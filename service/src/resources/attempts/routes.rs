//! The last attempts at the events of a handler.

use axum::Json;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::caller::Call;
use crate::http::filter;
use crate::http::path::Parameters;
use crate::http::problem::{Answer, Problem};
use crate::resources::attempts::wire::LastAttemptsJson;
use wakeq::{HandlerScope, Name};

/// How many attempts are shown by default.
const DEFAULT: u32 = 20;
/// How many are shown at most.
const MOST: u32 = 100;

/// Of which handler, and how many.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttemptsQuery {
    /// The handler's module. Default `WORKER`.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    module: Option<String>,
    /// The handler's name.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "send-email")]
    name: String,
    /// Only attempts at events with this modifier.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    modifier: Option<String>,
    /// Maximum number of attempts. Default 20.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// Show the last attempts of a handler
///
/// The latest first: those that failed or were too early, and those that ended an event that is
/// kept. So they are the last answers of an HTTP target, apart from plain completions, which are
/// not noted. Where the handler has many events, those of some may be left out, and `more` says so.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/attempts", operation_id = "last_attempts", tag = "handlers",
    params(AttemptsQuery),
    responses((status = 200, description = "The last attempts", body = LastAttemptsJson)))]
pub(crate) async fn last(
    Call { api, caller }: Call,
    Parameters(query): Parameters<AttemptsQuery>,
) -> Answer<LastAttemptsJson> {
    let limit = query.limit.unwrap_or(DEFAULT);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::bad_request("`limit` must be 1 to 100"));
    }
    let module = filter::one(query.module.as_deref())?.unwrap_or_else(Name::worker);
    let scope = HandlerScope { canvas: caller.canvas, module, name: query.name.parse()? };
    let modifier: Option<Name> = filter::one(query.modifier.as_deref())?;
    Ok(Json(api.admin.last_attempts(&scope, modifier.as_ref(), limit).await?.into()))
}
