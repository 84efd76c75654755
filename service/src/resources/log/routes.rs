//! The log: append and read.

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging;
use crate::http::path::Parameters;
use crate::http::problem::{Answer, Problem};
use crate::resources::log::wire::{Append, AppendedAll, LogPageJson};
use wakeq::CanvasId;
use wakeq::log::{EventSource, StreamId};

/// Append events to streams of the log
///
/// All or none: if a condition on a stream does not hold, nothing is appended.
///
/// A request whose response was lost may have been carried out. Repeated with the same conditions,
/// it is answered with 409 if it was.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/log", operation_id = "append_to_log", tag = "log",
    request_body = Append, responses(
    (status = 201, description = "All events are committed", body = AppendedAll),
    (status = 409, description = "A condition on a stream does not hold (`condition-failed`)")))]
pub(crate) async fn append(
    Call { api, caller }: Call,
    body::Json(request): body::Json<Append>,
) -> Result<(StatusCode, Json<AppendedAll>), Problem> {
    let appends = request.read(caller.canvas).map_err(Problem::invalid)?;
    let appended = api.log.append_all(&appends).await?;
    Ok((StatusCode::CREATED, Json(AppendedAll::of(&appended))))
}

/// Which part of the log to read.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadQuery {
    /// Only this category.
    #[param(example = "accounts")]
    category: Option<String>,
    /// Only this stream of the category.
    #[param(example = "account-7")]
    stream: Option<String>,
    /// Start after this log number (`seq`). Default 0: from the beginning.
    #[serde(default)]
    #[param(minimum = 0, default = 0)]
    after: i64,
    /// Maximum number of events. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Read the log
///
/// Returns a page of the canvas's log, of a category or of a stream, in the order of `seq`. Events
/// that become readable after a page was read never precede those on it.
///
/// A page has at most 4 MiB of payloads and metadata, or a single event; `more` says that it ended
/// there. Payloads and metadata need the scope `values`.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/log", operation_id = "read_log", tag = "log", params(ReadQuery),
    responses((status = 200, description = "A page of the log", body = LogPageJson)))]
pub(crate) async fn read(
    Call { api, caller }: Call,
    Parameters(query): Parameters<ReadQuery>,
) -> Answer<LogPageJson> {
    let limit = paging::limit(query.limit)?;
    if query.after < 0 {
        return Err(Problem::bad_request("`after` is a `seq` of the log, or 0"));
    }
    let source = source(caller.canvas, query.category.as_deref(), query.stream.as_deref())?;
    let page = LogPageJson::from(api.log.read(&source, query.after, limit as usize).await?);
    Ok(Json(if caller.sees_values() { page } else { page.hidden() }))
}

fn source(canvas: CanvasId, category: Option<&str>, stream: Option<&str>) -> Result<EventSource, Problem> {
    let invalid = |error: wakeq::log::InvalidLogName| Problem::bad_request(error.to_string());
    match (category, stream) {
        (None, None) => Ok(EventSource::Log { canvas: Some(canvas) }),
        (Some(category), None) => Ok(EventSource::category(category).map_err(invalid)?.on(canvas)),
        (Some(category), Some(stream)) => {
            Ok(EventSource::Stream(StreamId::new(canvas, category, stream).map_err(invalid)?))
        }
        (None, Some(_)) => Err(Problem::bad_request("a `stream` belongs to a `category`: give both")),
    }
}
