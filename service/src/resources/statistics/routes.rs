//! Statistics of handlers and canvases, for charts.

use std::time::Duration;

use axum::Json;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::caller::Call;
use crate::http::path::{HandlerPath, Parameters};
use crate::http::problem::Answer;
use crate::resources::statistics::wire::StatisticsJson;
use wakeq::control::StatisticsRange;

/// Which time, and in which steps: at most 1,500.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatisticsQuery {
    /// The beginning; that of its minute or hour is taken. Default: a day before the end.
    from: Option<DateTime<Utc>>,
    /// The end. Default: now.
    to: Option<DateTime<Utc>>,
    /// The length of a step in seconds, which are whole minutes, and whole hours if the time begins
    /// more than a day ago. Default: 60 for the last day, else 3,600.
    #[param(minimum = 60, maximum = 1_209_600)]
    step_s: Option<u64>,
}

impl StatisticsQuery {
    fn range(&self) -> StatisticsRange {
        StatisticsRange { from: self.from, to: self.to, step: self.step_s.map(Duration::from_secs) }
    }
}

/// Show the statistics of a handler
///
/// Returns what happened to its events, in columns for a chart: by the minute for a day, and by the
/// hour for 14 days. Each process writes what it has counted once a minute. Copies in queues are
/// not counted.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/statistics",
    operation_id = "handler_statistics", tag = "handlers", params(StatisticsQuery),
    responses((status = 200, description = "The statistics of the handler", body = StatisticsJson)))]
pub(crate) async fn of_handler(
    Call { api, caller }: Call,
    handler: HandlerPath,
    Parameters(query): Parameters<StatisticsQuery>,
) -> Answer<StatisticsJson> {
    let scope = caller.scope(handler);
    Ok(Json(api.admin.statistics(caller.canvas, Some(&scope), &query.range()).await?.into()))
}

/// Show the statistics of a canvas
///
/// The same for all handlers of the canvas together.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/statistics", operation_id = "canvas_statistics",
    tag = "handlers", params(StatisticsQuery),
    responses((status = 200, description = "The statistics of the canvas", body = StatisticsJson)))]
pub(crate) async fn of_canvas(
    Call { api, caller }: Call,
    Parameters(query): Parameters<StatisticsQuery>,
) -> Answer<StatisticsJson> {
    Ok(Json(api.admin.statistics(caller.canvas, None, &query.range()).await?.into()))
}
