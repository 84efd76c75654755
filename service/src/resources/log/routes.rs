//! The log: append and read, and list its categories and streams.

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging::{self, page_query};
use crate::http::path::Parameters;
use crate::http::problem::{Answer, Problem};
use crate::resources::log::wire::{Append, AppendedAll, CategoryJson, LogPageJson, StreamJson};
use crate::resources::wire::List;
use wakeq::CanvasId;
use wakeq::log::{Category, EventSource, StreamId, StreamName};

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

page_query!(CategoriesQuery, 200);

/// List the categories of the log
///
/// Those in which something was appended on the canvas, by name.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/log/categories", operation_id = "list_log_categories", tag = "log",
    params(CategoriesQuery),
    responses((status = 200, description = "A page of categories", body = List<CategoryJson>)))]
pub(crate) async fn categories(
    Call { api, caller }: Call,
    Parameters(query): Parameters<CategoriesQuery>,
) -> Answer<List<CategoryJson>> {
    let (limit, after) = query.read::<Category>()?;
    let categories = api.log.categories(caller.canvas, after.as_ref(), limit as usize + 1).await?;
    Ok(Json(List::page(categories, limit, Category::to_string)))
}

/// Which streams to list, and which page of them.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamsQuery {
    /// The category of the streams.
    #[param(example = "accounts")]
    category: String,
    /// Maximum number of items. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[param(max_length = 200)]
    cursor: Option<String>,
}

/// List the streams of a category
///
/// Those in which something was appended on the canvas, by name, each with the end that an append
/// to it can expect. A stream stays after its events have expired.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/log/streams", operation_id = "list_log_streams", tag = "log",
    params(StreamsQuery),
    responses((status = 200, description = "A page of streams", body = List<StreamJson>)))]
pub(crate) async fn streams(
    Call { api, caller }: Call,
    Parameters(query): Parameters<StreamsQuery>,
) -> Answer<List<StreamJson>> {
    let limit = paging::limit(query.limit)?;
    let after = paging::cursor::<StreamName>(query.cursor.as_deref())?;
    let category: Category = query.category.parse().map_err(Problem::invalid)?;
    let streams = api.log.streams(caller.canvas, &category, after.as_ref(), limit as usize + 1).await?;
    Ok(Json(List::page(streams, limit, |stream| stream.name.to_string())))
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
