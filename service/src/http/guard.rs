//! Authorization: the routes of `/v1` with their scopes, and the layer that checks them. A route
//! can only be added with its scopes, so none is left open by mistake; the same call documents it.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use url::form_urlencoded;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{KnownFormat, SchemaFormat, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ObjectBuilder, RefOr, Required, ResponseBuilder};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};

use super::answer::RequestId;
use super::body::{HandlerPath, announced};
use super::caller::{Caller, Operator};
use super::client::Client;
use super::limits::Slot;
use super::operations::Operations;
use super::problem::Problem;
use super::record::Line;
use super::shares::{LimitKey, credential_of};
use super::{Api, body};
use crate::access::{
    Denied, Principal, Scope, Scopes, Unauthenticated, authorize, authorize_everywhere, authorize_handler,
    authorize_some_handler,
};
use wakeq::control::AuditOutcome;
use wakeq::internals::{Purpose, on_behalf_of};
use wakeq::{CanvasId, HandlerScope};

/// The name of the credential in the OpenAPI document.
pub(super) const CREDENTIAL: &str = "bearer";

/// Operations whose body may be omitted, since all its fields are optional.
const BODY_OPTIONAL: [&str; 6] =
    ["pause_handler", "block_handler", "purge_handler", "pause_cron", "set_facet", "lease_copies"];

/// Operations for every canvas that never answer 404, even if what they name does not exist.
const ALWAYS_THERE: [&str; 9] = [
    "total_depth",
    "put_queue",
    "list_queues",
    "list_groups",
    "list_nodes",
    "list_group_dead",
    "redrive_group_dead",
    "set_quota",
    "unset_quota",
];

/// Operations that read values, states, crons or dead events: the audit log records who used them.
const READS_VALUES: [&str; 9] = [
    "list_dead_events",
    "list_group_dead",
    "show_object",
    "show_entity",
    "entity_status",
    "read_log",
    "show_cron",
    "list_crons",
    "lease_copies",
];
/// The operation whose answer contains a value on request.
const SHOWS_A_VALUE: &str = "show_event";

/// Pattern of each part of a handler's address.
const NAME: &str = "^[A-Za-z0-9_.-]{1,128}$";
/// Pattern of an object.
const OBJECT: &str = "^[A-Za-z0-9_.:@=+~-]{1,200}$";

const UUID: SchemaFormat = SchemaFormat::KnownFormat(KnownFormat::Uuid);

/// The subject of a route, which determines where its scopes are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// The canvas in its path, and the handler, if the path names one.
    Canvas,
    /// Events on the canvas in its path: the route itself calls [`Caller::may_emit`] for each.
    Events,
    EveryCanvas,
}

/// Routes that require scopes.
pub(super) struct GuardedRoutes {
    api: Api,
    router: OpenApiRouter<Api>,
}

impl GuardedRoutes {
    pub(super) fn new(api: &Api) -> Self {
        Self { api: api.clone(), router: OpenApiRouter::new() }
    }

    /// Adds a route for holders of a scope.
    pub(super) fn on(self, scope: Scope, routes: UtoipaMethodRouter<Api>) -> Self {
        self.on_all(About::Canvas, [scope].into_iter().collect(), routes)
    }

    /// Adds a route for holders of [`Scope::Emit`], even if for some handlers only: for each event
    /// it has to call [`Caller::may_emit`], and for other writes [`Caller::may_emit_with`].
    pub(super) fn emitting(self, routes: UtoipaMethodRouter<Api>) -> Self {
        self.on_all(About::Events, [Scope::Emit].into_iter().collect(), routes)
    }

    /// Adds a route that does what two scopes allow, and so requires both.
    pub(super) fn on_both(self, scopes: [Scope; 2], routes: UtoipaMethodRouter<Api>) -> Self {
        self.on_all(About::Canvas, scopes.into_iter().collect(), routes)
    }

    /// Adds a route that concerns every canvas, and so requires its scopes on all of them.
    pub(super) fn everywhere<const N: usize>(
        self,
        scopes: [Scope; N],
        routes: UtoipaMethodRouter<Api>,
    ) -> Self {
        self.on_all(About::EveryCanvas, scopes.into_iter().collect(), routes)
    }

    fn on_all(
        mut self,
        about: About,
        scopes: Scopes,
        (schemas, mut paths, methods): UtoipaMethodRouter<Api>,
    ) -> Self {
        for (path, item) in &mut paths.paths {
            item.parameters = Some(path_parameters(path));
            let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
            operations.into_iter().flatten().for_each(|operation| describe(operation, about, scopes));
        }
        let rule = Rule { api: self.api.clone(), about, scopes, operations: Operations::of(&paths) };
        let routes: UtoipaMethodRouter<Api> = (schemas, paths, methods);
        let layer = from_fn_with_state(rule, admit);
        self.router = self.router.routes(routes.map(|methods| methods.route_layer(layer)));
        self
    }

    pub(super) fn into_router(self) -> OpenApiRouter<Api> {
        self.router
    }
}

/// Describes the variable parts of a path.
fn path_parameters(path: &str) -> Vec<RefOr<Parameter>> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let (words, schema) = match name {
            "canvas" => ("The canvas, which is a tenant", text.format(Some(UUID))),
            "id" if path.contains("{queue}") => ("The copy's id", text.format(Some(UUID))),
            "id" => ("The event's id", text.format(Some(UUID))),
            "module" => {
                ("The handler's module; `WORKER` for events that user code emits", text.pattern(Some(NAME)))
            }
            "modifier" => ("The handler's modifier; `_` if it has none", text.pattern(Some(NAME))),
            "type" => ("The entity type", text.pattern(Some(NAME))),
            "entity" => ("The entity's id within its type", text.pattern(Some(OBJECT))),
            "queue" => ("The queue's name", text.pattern(Some(NAME))),
            "cron" => ("The cron's name", text.pattern(Some(NAME))),
            "object" => ("The object, by which events are ordered", text.pattern(Some(OBJECT))),
            "group" => ("The consumer group's name", text.pattern(Some(NAME))),
            "quota" => (
                "The quota: events, event-bytes, objects, object-bytes, chosen-ids, idempotency-keys, \
                 log-streams, log-bytes, entities, entity-events, crons, cron-ticks, keys, targets, rules \
                 or audit-lines",
                text.pattern(Some("^[a-z-]{1,32}$")),
            ),
            "key" => ("The key's prefix", text.pattern(Some("^[0-9a-f]{12}$"))),
            _ => ("The handler's name", text.pattern(Some(NAME))),
        };
        let built =
            ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        RefOr::T(built.description(Some(words)).schema(Some(schema)).build())
    };
    names.map(parameter).collect()
}

/// Adds the answers common to guarded operations.
fn describe(operation: &mut Operation, about: About, scopes: Scopes) {
    let names: Vec<_> = scopes.iter().map(|scope| format!("`{scope}`")).collect();
    let noun = if names.len() == 1 { "scope" } else { "scopes" };
    let place = match about {
        About::Canvas | About::Events => "the canvas",
        About::EveryCanvas => "every canvas; keys and accounts of single canvases do not suffice",
    };
    let words = format!("Requires the {noun} {} on {place}.", names.join(" and "));
    let description = operation.description.take().map_or(words.clone(), |text| format!("{text}\n\n{words}"));
    operation.description = Some(description);
    operation.security = Some(vec![SecurityRequirement::new(CREDENTIAL, scopes.iter().map(Scope::as_str))]);
    if let (Some(RefOr::T(body)), Some(id)) = (&mut operation.request_body, &operation.operation_id)
        && BODY_OPTIONAL.contains(&id.as_str())
    {
        body.required = Some(Required::False);
    }
    for (status, words) in [
        ("400", "The request is not valid"),
        ("401", "The credential is missing or not valid"),
        ("403", "The credential lacks a required scope"),
        ("404", "There is no such resource, or the credential has no access to the canvas"),
        (
            "default",
            "An error that any request can receive: `too-many-requests`, `timeout`, `unavailable`, `internal`",
        ),
    ] {
        let is_there = operation.operation_id.as_ref().is_some_and(|id| ALWAYS_THERE.contains(&id.as_str()));
        if status == "404" && is_there {
            continue;
        }
        let response = ResponseBuilder::new().description(words).build();
        operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(response));
    }
}

/// The checks of a route's guard.
#[derive(Clone)]
struct Rule {
    api: Api,
    about: About,
    /// All of them are required.
    scopes: Scopes,
    operations: Operations,
}

/// Passes a request on to its handler, or refuses it, looking only at its path and headers.
async fn admit(State(rule): State<Rule>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    if let Some(operator) = parts.extensions.get::<Operator>().cloned() {
        return match rule.operator(&mut parts, &operator).await {
            Ok(caller) => {
                parts.extensions.insert(caller);
                next.run(Request::from_parts(parts, body)).await
            }
            Err(problem) => problem.into_response(),
        };
    }
    let admitted = rule.caller(&mut parts).await;
    match admitted.and_then(|caller| rule.operations.accept(&parts).map(|()| caller)) {
        Ok(caller) => {
            let read = rule.reading(&parts, &caller);
            let (canvas, method) = (caller.canvas, parts.method.clone());
            parts.extensions.insert(caller.clone());
            let answering = next.run(Request::from_parts(parts, body));
            let response = match rule.about {
                About::Canvas | About::Events => {
                    let is_contended = rule.api.recent_canvases.record(canvas);
                    on_behalf_of(Purpose { canvas, reads: method.is_safe(), is_contended }, answering).await
                }
                About::EveryCanvas => answering.await,
            };
            if let Some(line) = read.filter(|_| response.status().is_success()) {
                rule.api.audit.read(line, caller.request_id());
            }
            if let Some(bytes) = response.body().size_hint().exact() {
                rule.api.shares.charge_bytes(&caller.limit_keys, bytes);
            }
            rule.api.limits.answers.count(&caller.limit_keys, &method, response)
        }
        Err(problem) if body.is_end_stream() => problem.into_response(),
        // The rest of the request is not read.
        Err(problem) => ([(header::CONNECTION, "close")], problem).into_response(),
    }
}

impl Rule {
    /// The operator as the caller. Reserved canvases are not hidden from it.
    async fn operator(&self, parts: &mut Parts, operator: &Operator) -> Result<Caller, Problem> {
        self.operations.accept(parts)?;
        let canvas = match self.about {
            About::Canvas | About::Events => {
                body::any_canvas(parts, &self.api).await.ok_or_else(Problem::not_found)?
            }
            About::EveryCanvas => CanvasId::DEFAULT,
        };
        Ok(Caller::operator(operator, canvas))
    }

    async fn caller(&self, parts: &mut Parts) -> Result<Caller, Problem> {
        let client = Client::of(&parts.extensions);
        let principal = self.api.access.authenticate(authorization(&parts.headers)).await;
        let canvas = match self.about {
            About::Canvas | About::Events => body::canvas(parts, &self.api).await,
            About::EveryCanvas => Some(CanvasId::DEFAULT),
        };
        let principal = match principal {
            Ok(principal) => principal,
            Err(error) => {
                if let Some(reason) = reason(&error) {
                    self.api.shares.count_unauthenticated(client)?;
                    if canvas.is_some() {
                        self.note(parts, canvas, None, reason).await;
                    }
                }
                return Err(error.into());
            }
        };
        let credential = credential_of(&principal);
        self.api.shares.count_request(&credential)?;
        let canvas = canvas.ok_or_else(|| body::no_canvas(parts))?;
        let request = parts.extensions.get::<RequestId>().cloned().ok_or_else(Problem::not_found)?;
        if let Some(denied) = self.missing(parts, &principal, canvas).await {
            match denied {
                // Names of one canvas must not be revealed to another.
                Denied::NotFound => {
                    self.note(parts, Some(canvas), None, "the credential of another canvas".to_owned()).await;
                }
                Denied::NotEverywhere { .. } => {
                    self.note(parts, Some(canvas), None, "not a credential for every canvas".to_owned())
                        .await;
                }
                Denied::Forbidden { .. } | Denied::Narrow { .. } | Denied::Beyond { .. } => {
                    self.note(parts, Some(canvas), Some(&principal), denied.to_string()).await
                }
            }
            return Err(denied.into());
        }
        let mut limit_keys = vec![LimitKey::Credential(Arc::clone(&credential))];
        if self.about != About::EveryCanvas {
            // Only now, so that credentials of other canvases use up nothing of this one.
            self.api.shares.count_canvas_request(canvas)?;
            limit_keys.push(LimitKey::Canvas(canvas));
        }
        let limit_keys: Arc<[LimitKey]> = limit_keys.into();
        self.api.shares.count_body(&limit_keys, announced(&parts.headers).unwrap_or(0))?;
        if let Some(slot) = parts.extensions.get::<Arc<Slot>>() {
            slot.count_for(Arc::clone(&limit_keys))?;
        }
        if self.records_changes(&parts.method) {
            self.api.admin.admit_lines(canvas, 1).await?;
        }
        let is_platform = self.about == About::EveryCanvas;
        let caller = Caller { principal, canvas, is_platform, limit_keys, request: Some(request), client };
        let recorded_on = (!is_platform).then_some(canvas);
        self.api.audit.signed_in(&credential, recorded_on, caller.request_id(), || {
            caller.line(AuditOutcome::Done, "sign-in".into(), None)
        });
        Ok(caller)
    }

    /// Whether the audit log has a line for each request, and its canvas needs room for that. An
    /// admin is never kept from changing keys and blocks by what others had recorded.
    fn records_changes(&self, method: &Method) -> bool {
        self.about == About::Canvas && !method.is_safe() && self.scopes.contains(Scope::Operate)
    }

    /// The first of the route's scopes that the caller lacks, as the reason for the refusal.
    async fn missing(&self, parts: &mut Parts, principal: &Principal, canvas: CanvasId) -> Option<Denied> {
        let handler = match self.about {
            About::Canvas => HandlerPath::from_request_parts(parts, &self.api).await.ok(),
            About::Events | About::EveryCanvas => None,
        };
        self.scopes.iter().find_map(|scope| {
            let decided = match (self.about, &handler) {
                (About::Canvas, None) => authorize(principal, canvas, scope),
                (About::Canvas, Some(HandlerPath { module, name })) => {
                    authorize_handler(principal, canvas, scope, module, name)
                }
                (About::Events, _) => authorize_some_handler(principal, canvas, scope),
                (About::EveryCanvas, _) => authorize_everywhere(principal, scope),
            };
            decided.err()
        })
    }

    /// The audit log line about reading values, to be recorded if the request succeeds.
    fn reading(&self, parts: &Parts, caller: &Caller) -> Option<Line> {
        let action = self.operations.action(&parts.method);
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let whole = || form_urlencoded::parse(query).any(|(name, value)| name == "view" && value == "full");
        let reads = READS_VALUES.contains(&&*action) || action.as_ref() == SHOWS_A_VALUE && whole();
        reads.then(|| caller.line(AuditOutcome::Done, action, None))
    }

    /// Records a refusal for the canvas's admins, or for those of every canvas.
    async fn note(
        &self,
        parts: &mut Parts,
        canvas: Option<CanvasId>,
        who: Option<&Principal>,
        reason: String,
    ) {
        let canvas = canvas.filter(|_| self.about != About::EveryCanvas);
        let handler = HandlerPath::from_request_parts(parts, &self.api).await.ok();
        let request = parts.extensions.get::<RequestId>().map_or("", |id| &id.0);
        let line = Line {
            outcome: AuditOutcome::Refused,
            canvas,
            actor: who.map(|who| who.name().to_owned()),
            credential: who.and_then(credential),
            client: Client::of(&parts.extensions),
            action: self.operations.action(&parts.method),
            scope: canvas.zip(handler).map(|(canvas, handler)| HandlerScope {
                canvas,
                module: handler.module,
                name: handler.name,
            }),
            reason: Some(reason),
        };
        self.api.audit.refused(line, request);
    }
}

/// The only credential of a request.
pub(super) fn authorization(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let first = values.next().map(|value| value.to_str().unwrap_or_default());
    // With several headers, it would be ambiguous which one counts: this text is never valid.
    if values.next().is_some() { Some("several") } else { first }
}

/// The public part of the caller's key, which tells two keys of one holder apart in the audit log.
pub(super) fn credential(principal: &Principal) -> Option<String> {
    principal.key().map(|key| format!("with {key:?}"))
}

/// Why a credential was refused, with at most its public part; `None` if it wasn't checked.
pub(super) fn reason(error: &Unauthenticated) -> Option<String> {
    match error {
        Unauthenticated::Missing => Some("no credential".to_owned()),
        Unauthenticated::Malformed => Some("neither a key nor an ID token".to_owned()),
        Unauthenticated::Unknown(refusal) => Some(refusal.to_string()),
        Unauthenticated::Unavailable(_) => None,
    }
}
