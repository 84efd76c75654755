//! Objects: show, list halted lanes and tombstones, and skip dead events.

use axum::Json;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Scope;
use crate::http::body;
use crate::http::caller::Call;
use crate::http::filter;
use crate::http::paging;
use crate::http::path::{ObjectPath, Parameters};
use crate::http::problem::{Answer, Problem};
use crate::resources::handlers::routes as handlers;
use crate::resources::objects::wire::{HaltedLaneJson, Object, SkipRequest, Skipped, TombstoneJson};
use crate::resources::wire::List;
use wakeq::Name;
use wakeq::control::LIST_MAX;
use wakeq::order::{Lane, ObjectKey};

/// Which halted objects to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct HaltedQuery {
    /// Only this object, by each handler for which it is halted.
    #[param(max_length = 200, example = "work:1")]
    object: Option<String>,
    /// Maximum number of items. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[param(max_length = 400)]
    cursor: Option<String>,
}

/// List the halted objects of a canvas
///
/// Lists objects that are halted by a dead event, the longest halted first.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/halted-objects", operation_id = "list_halted_objects", tag = "objects",
    params(HaltedQuery),
    responses((status = 200, description = "A page of halted objects", body = List<HaltedLaneJson>)))]
pub(crate) async fn halted(
    Call { api, caller }: Call,
    Parameters(query): Parameters<HaltedQuery>,
) -> Answer<List<HaltedLaneJson>> {
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    let (admin, cursor) = (caller.admin(&api, Scope::Read), cursor.as_ref());
    let object: Option<ObjectKey> = filter::one(query.object.as_deref())?;
    let page = match &object {
        Some(object) => admin.halted_on(caller.canvas, object, cursor, limit).await?,
        None => admin.halted(caller.canvas, cursor, limit).await?,
    };
    Ok(Json(page.into()))
}

/// Show an object
///
/// Returns the end of its chain, its state, the workers with its events, and where it is halted.
/// The state needs the scope `values`.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/objects/{object}", operation_id = "show_object", tag = "objects",
    responses((status = 200, description = "The object", body = Object)))]
pub(crate) async fn one(Call { api, caller }: Call, ObjectPath(key): ObjectPath) -> Answer<Object> {
    let object = api.admin.object(caller.canvas, &key).await?.ok_or_else(|| {
        Problem::missing(format!("no event was ever emitted on {key} on canvas {}", caller.canvas))
    })?;
    let admin = caller.admin(&api, Scope::Read);
    let running = admin.running(caller.canvas, &key, LIST_MAX + 1).await?;
    let halted = admin.halted_on(caller.canvas, &key, None, LIST_MAX).await?;
    let object = Object::of(object, running, halted);
    Ok(Json(if caller.sees_values() { object } else { object.hidden() }))
}

/// Which tombstones to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TombstonesQuery {
    /// Only links after this one, the last that was consumed. Default 0.
    #[serde(default)]
    #[param(minimum = 0, default = 0)]
    after: i64,
    /// As seen by consumers of this registered queue.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    queue: Option<String>,
    /// Maximum number of items. Default 1,000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page, which `after` need not repeat.
    #[param(max_length = 20)]
    cursor: Option<String>,
}

/// List the missing links of an object's chain
///
/// Lists the links that will never arrive, because their events were cancelled or purged, or died
/// and were skipped. They are in the order of the chain.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/objects/{object}/tombstones", operation_id = "list_tombstones",
    tag = "objects", params(TombstonesQuery),
    responses((status = 200, description = "A page of missing links", body = List<TombstoneJson>)))]
pub(crate) async fn tombstones(
    Call { api, caller }: Call,
    ObjectPath(key): ObjectPath,
    Parameters(query): Parameters<TombstonesQuery>,
) -> Answer<List<TombstoneJson>> {
    let queue = query.queue.as_deref().map(str::parse::<Name>).transpose()?;
    if query.after < 0 {
        return Err(Problem::bad_request("`after` is the number of an event of the object, or 0"));
    }
    let invalid = |_| Problem::bad_request("`cursor` is not one of this list");
    let after = query.cursor.as_deref().map(str::parse::<i64>).transpose().map_err(invalid)?;
    let (after, limit) = (after.unwrap_or(0).max(query.after), paging::limit(query.limit.or(Some(1000)))?);
    let admin = caller.admin(&api, Scope::Read);
    let found = admin.tombstones(caller.canvas, &key, queue.as_ref(), after, limit + 1).await?;
    Ok(Json(List::page(found, limit, |gone| gone.link.id.to_string())))
}

/// Resume an object for a handler without its dead event
///
/// To run the dead event again, redrive it.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/objects/{object}/skip", operation_id = "skip_object", tag = "objects",
    request_body = SkipRequest,
    responses((status = 200, description = "The object is not halted for the handler",
        body = Skipped)))]
pub(crate) async fn skip(
    Call { api, caller }: Call,
    ObjectPath(object): ObjectPath,
    body::Json(request): body::Json<SkipRequest>,
) -> Answer<Skipped> {
    let scope = handlers::scope(&caller, request.module.as_deref(), Some(&request.name))?;
    let lane = Lane { scope: scope.ok_or_else(Problem::not_found)?, object, queue: None };
    let skipped = caller.admin(&api, Scope::Operate).skip(&lane, &caller.actor()).await?;
    Ok(Json(Skipped { skipped }))
}
