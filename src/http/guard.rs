//! Who may call what: the routes of `/v1`, each with the scope it needs, and the layer that asks for it.
//!
//! A route can be added with its scope only, so that none is open by being forgotten; the same call documents it.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{KnownFormat, SchemaFormat, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, ObjectBuilder, Ref, RefOr, Required, ResponseBuilder};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};

use super::answer::RequestId;
use super::problem::Problem;
use super::{Api, body};
use crate::access::{Principal, Scope, authorize};
use crate::event::{Actor, CanvasId, HandlerScope};

/// The name of the credential in the OpenAPI document.
pub(super) const CREDENTIAL: &str = "bearer";

/// How a part of a handler's address looks.
const NAME: &str = "^[A-Za-z0-9_.-]{1,128}$";

const UUID: SchemaFormat = SchemaFormat::KnownFormat(KnownFormat::Uuid);

/// Routes that only those may call who hold a scope on the canvas that the path names.
pub(super) struct Guarded {
    api: Api,
    router: OpenApiRouter<Api>,
}

impl Guarded {
    pub(super) fn new(api: &Api) -> Self {
        Self { api: api.clone(), router: OpenApiRouter::new() }
    }

    /// Adds a route for holders of a scope.
    pub(super) fn on(mut self, scope: Scope, (schemas, mut paths, methods): UtoipaMethodRouter<Api>) -> Self {
        for (path, item) in &mut paths.paths {
            item.parameters = Some(path_parameters(path));
            let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
            operations.into_iter().flatten().for_each(|operation| describe(operation, scope));
        }
        let routes: UtoipaMethodRouter<Api> = (schemas, paths, methods);
        let layer = from_fn_with_state((self.api.clone(), scope), admit);
        self.router = self.router.routes(routes.map(|methods| methods.route_layer(layer)));
        self
    }

    pub(super) fn into_router(self) -> OpenApiRouter<Api> {
        self.router
    }
}

/// The parts of a path that vary.
fn path_parameters(path: &str) -> Vec<RefOr<Parameter>> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let (words, schema) = match name {
            "canvas" => ("The tenant", text.format(Some(UUID))),
            "id" => ("The event", text.format(Some(UUID))),
            "module" => {
                ("The handler's module, `WORKER` for events that user code emits", text.pattern(Some(NAME)))
            }
            "key" => ("The key's public part", text.pattern(Some("^[0-9a-f]{12}$"))),
            _ => ("The handler's name", text.pattern(Some(NAME))),
        };
        let built =
            ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        RefOr::T(built.description(Some(words)).schema(Some(schema)).build())
    };
    names.map(parameter).collect()
}

/// What every guarded operation answers beside its own.
fn describe(operation: &mut Operation, scope: Scope) {
    let words = format!("Needs the scope `{scope}` on the canvas.");
    let description = operation.description.take().map_or(words.clone(), |text| format!("{text}\n\n{words}"));
    operation.description = Some(description);
    operation.security = Some(vec![SecurityRequirement::new(CREDENTIAL, [scope.as_str()])]);
    for (status, words) in [
        ("400", "The request is not valid"),
        ("401", "No credential, or none that counts"),
        ("403", "The credential lacks the scope"),
        ("404", "Nothing of that name here, or a canvas that the credential knows nothing of"),
        (
            "default",
            "What may happen to any request: `too-many-requests`, `timeout`, `unavailable`, `internal`",
        ),
    ] {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new().description(words).content("application/problem+json", content);
        let responses = &mut operation.responses.responses;
        responses.entry(status.to_owned()).or_insert_with(|| RefOr::T(response.build()));
    }
}

/// Who calls, on which canvas; only made by the guard.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    principal: Principal,
    /// The canvas of the path, on which the caller holds the route's scope.
    pub(super) canvas: CanvasId,
    request: RequestId,
}

impl Caller {
    /// For the record.
    pub(super) fn actor(&self) -> Actor {
        let admin = authorize(&self.principal, self.canvas, Scope::Admin).is_ok();
        let name = self.principal.name();
        let actor = if admin { Actor::admin(name) } else { Actor::user(name) };
        actor.request(&self.request.0)
    }

    /// The stable name of who calls.
    pub(super) fn name(&self) -> &str {
        self.principal.name()
    }

    /// A handler of the caller's canvas.
    pub(super) fn scope(&self, handler: body::HandlerPath) -> HandlerScope {
        HandlerScope { canvas: self.canvas, module: handler.module, name: handler.name }
    }
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        // A handler outside the guard has no caller, and so does nothing.
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::not_found)
    }
}

/// Lets a request through to its handler, or refuses it. Nothing of the request but path and headers was looked at.
async fn admit(State((api, scope)): State<(Api, Scope)>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match caller(&api, scope, &mut parts).await {
        Ok(caller) => {
            parts.extensions.insert(caller);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(problem) => problem.into_response(),
    }
}

async fn caller(api: &Api, scope: Scope, parts: &mut Parts) -> Result<Caller, Problem> {
    let authorization =
        parts.headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
    let several = parts.headers.get_all(header::AUTHORIZATION).iter().nth(1).is_some();
    let authorization = if several { Some("") } else { authorization };
    let principal = api.access.authenticate(authorization).await?;
    let canvas = body::canvas(parts, api).await.ok_or_else(Problem::not_found)?;
    let request = parts.extensions.get::<RequestId>().cloned().ok_or_else(Problem::not_found)?;
    match authorize(&principal, canvas, scope) {
        Ok(()) => Ok(Caller { principal, canvas, request }),
        Err(denied) => Err(denied.into()),
    }
}
