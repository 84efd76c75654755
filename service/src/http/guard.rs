//! Authorization: the routes of `/v1` with their scopes, and the layer that checks them. A route
//! can only be added with its scopes, so none is left open by mistake; the same call documents it.
//! What else is special about a route is marked right after it.

#[cfg(test)]
use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{KnownFormat, SchemaFormat, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ObjectBuilder, RefOr, Required, ResponseBuilder};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};

use super::Api;
use super::answer::RequestId;
use super::body::announced;
use super::caller::{Caller, Operator, SignedIn};
use super::client::Client;
use super::credential::{authorization, credential, reason};
use super::operations::Operations;
use super::path::{self, HandlerPath};
use super::problem::Problem;
use super::reads::RecordedReads;
use super::record::{Line, ReadBefore, Recorded};
use super::shares::{LimitKey, credential_of};
use super::slots::Slot;
use crate::access::{
    Denied, Principal, Scope, Scopes, authorize, authorize_everywhere, authorize_handler,
    authorize_some_handler,
};
use wakeq::control::AuditOutcome;
use wakeq::internals::{Purpose, on_behalf_of};
use wakeq::{CanvasId, HandlerScope};

/// The name of the credential in the OpenAPI document.
pub(super) const CREDENTIAL: &str = "bearer";

/// Pattern of each part of a handler's address.
const NAME: &str = "^[A-Za-z0-9_.-]{1,128}$";
/// Pattern of an object.
const OBJECT: &str = "^[A-Za-z0-9_.:@=+~-]{1,200}$";
/// Pattern of the name of a limit.
const LIMIT: &str =
    "^(canvas|handler:[A-Za-z0-9_.-]{1,128}/[A-Za-z0-9_.-]{1,128}|[A-Za-z0-9_.:@=+~-]{1,200})$";

const UUID: SchemaFormat = SchemaFormat::KnownFormat(KnownFormat::Uuid);

/// The subject of a route, which determines where its scopes are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// The canvas in its path, and the handler, if the path names one.
    Canvas,
    /// Events on the canvas in its path: the route itself checks the handler of each.
    Events,
    EveryCanvas,
}

/// What else is true of a route's operations.
#[derive(Clone, Copy, Default)]
struct Marks {
    recorded_reads: RecordedReads,
    has_optional_body: bool,
    is_always_there: bool,
    is_work: bool,
}

/// A route, what it operates on, and the scopes that it requires.
struct GuardedRoute {
    about: About,
    scopes: Scopes,
    marks: Marks,
    routes: UtoipaMethodRouter<Api>,
}

/// Routes that require scopes. A mark is of the route that was added last.
#[derive(Default)]
pub(crate) struct GuardedRoutes(Vec<GuardedRoute>);

impl GuardedRoutes {
    /// Adds a route for holders of a scope.
    pub(crate) fn on(self, scope: Scope, routes: UtoipaMethodRouter<Api>) -> Self {
        self.with(About::Canvas, [scope].into_iter().collect(), routes)
    }

    /// Adds a route for holders of [`Scope::Emit`], even if for some handlers only: for each event
    /// it has to call [`Caller::may_emit`], and for other writes [`Caller::may_emit_with`].
    pub(crate) fn emitting(self, routes: UtoipaMethodRouter<Api>) -> Self {
        self.with(About::Events, [Scope::Emit].into_iter().collect(), routes)
    }

    /// Adds a route on one event for holders of [`Scope::Operate`], even if for some handlers only:
    /// for those it has to call [`Caller::may_work_on`].
    pub(crate) fn working(self, routes: UtoipaMethodRouter<Api>) -> Self {
        self.with(About::Events, [Scope::Operate].into_iter().collect(), routes).works()
    }

    /// Adds a route for holders of [`Scope::Read`], even if for some handlers only: for those it
    /// has to call [`Caller::may_list`] or [`Caller::may_see`], or to answer with those handlers
    /// alone.
    pub(crate) fn reading(self, routes: UtoipaMethodRouter<Api>) -> Self {
        self.with(About::Events, [Scope::Read].into_iter().collect(), routes)
    }

    /// Adds a route that does what two scopes allow, and so requires both.
    pub(crate) fn on_both(self, scopes: [Scope; 2], routes: UtoipaMethodRouter<Api>) -> Self {
        self.with(About::Canvas, scopes.into_iter().collect(), routes)
    }

    /// Adds a route of programs that are handed whole events: it requires all that these allow.
    pub(crate) fn on_all(self, scopes: [Scope; 3], routes: UtoipaMethodRouter<Api>) -> Self {
        self.with(About::Canvas, scopes.into_iter().collect(), routes)
    }

    /// Adds a route that concerns every canvas, and so requires its scopes on all of them.
    pub(crate) fn everywhere<const N: usize>(
        self,
        scopes: [Scope; N],
        routes: UtoipaMethodRouter<Api>,
    ) -> Self {
        self.with(About::EveryCanvas, scopes.into_iter().collect(), routes)
    }

    fn with(mut self, about: About, scopes: Scopes, routes: UtoipaMethodRouter<Api>) -> Self {
        self.0.push(GuardedRoute { about, scopes, marks: Marks::default(), routes });
        self
    }

    /// Marks a route that answers with values, states, crons or dead events: the audit log records
    /// which caller read them.
    pub(crate) fn records_reads(self) -> Self {
        self.marked(|marks| marks.recorded_reads = RecordedReads::All)
    }

    /// The same for a route that answers with values to callers with the scope `values` only, which
    /// it has to ask [`Caller::sees_values`]; to others it says that they are hidden.
    pub(crate) fn hides_values(self) -> Self {
        self.marked(|marks| marks.recorded_reads = RecordedReads::Shown)
    }

    /// The same for a route that answers with a value only if the query has `view=full`, for which
    /// the scope `values` is required then.
    pub(crate) fn records_full_views(self) -> Self {
        self.marked(|marks| marks.recorded_reads = RecordedReads::FullViews)
    }

    /// The same for a route that answers only which events there are, if the query asks for what is
    /// in their values. The scope `values` is required then, as on any route with such a query.
    pub(crate) fn records_value_searches(self) -> Self {
        self.marked(|marks| marks.recorded_reads = RecordedReads::ValueSearches)
    }

    /// Marks a route whose body may be omitted, since all its fields are optional.
    pub(crate) fn optional_body(self) -> Self {
        self.marked(|marks| marks.has_optional_body = true)
    }

    /// Marks a route of programs that work on events: the audit log has no line for its requests.
    pub(crate) fn works(self) -> Self {
        self.marked(|marks| marks.is_work = true)
    }

    /// Marks a route for every canvas that never answers 404, even if what it names does not exist.
    pub(crate) fn always_there(self) -> Self {
        self.marked(|marks| marks.is_always_there = true)
    }

    fn marked(mut self, mark: impl FnOnce(&mut Marks)) -> Self {
        if let Some(last) = self.0.last_mut() {
            mark(&mut last.marks);
        }
        self
    }

    /// The names of the operations whose reads are recorded.
    #[cfg(test)]
    pub(crate) fn recorded_reads(&self) -> BTreeSet<String> {
        let recorded = self.0.iter().filter(|route| route.marks.recorded_reads != RecordedReads::None);
        let items = recorded.flat_map(|route| route.routes.1.paths.values());
        let operations = items.flat_map(|item| [&item.get, &item.put, &item.post, &item.delete]);
        operations.flatten().filter_map(|operation| operation.operation_id.clone()).collect()
    }

    pub(crate) fn into_router(self, api: &Api) -> OpenApiRouter<Api> {
        let router: OpenApiRouter<Api> = OpenApiRouter::new();
        self.0.into_iter().fold(router, |router, route| router.routes(route.guarded(api)))
    }
}

impl GuardedRoute {
    /// The route behind the layer that checks its scopes, with what that can answer described.
    fn guarded(self, api: &Api) -> UtoipaMethodRouter<Api> {
        let Self { about, scopes, marks, routes: (schemas, mut paths, methods) } = self;
        for (path, item) in &mut paths.paths {
            item.parameters = Some(path_parameters(path));
            let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
            operations.into_iter().flatten().for_each(|operation| describe(operation, about, scopes, marks));
        }
        let operations = Operations::of(&paths);
        let rule = Rule { api: api.clone(), about, scopes, marks, operations };
        let routes: UtoipaMethodRouter<Api> = (schemas, paths, methods);
        routes.map(|methods| methods.route_layer(from_fn_with_state(rule, admit)))
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
            "operation" => ("The operation's id", text.format(Some(UUID))),
            "error_group" => ("The error group's id", text.format(Some(UUID))),
            "module" => {
                ("The handler's module; `WORKER` for events that user code emits", text.pattern(Some(NAME)))
            }
            "modifier" => ("The handler's modifier; `_` if it has none", text.pattern(Some(NAME))),
            "type" => ("The entity type", text.pattern(Some(NAME))),
            "entity" => ("The entity's id within its type", text.pattern(Some(OBJECT))),
            "queue" => ("The queue's name", text.pattern(Some(NAME))),
            "cron" => ("The cron's name", text.pattern(Some(NAME))),
            "hook" => ("The hook's name", text.pattern(Some(NAME))),
            "batch" => ("The batch's name", text.pattern(Some("^[!-~]{1,255}$"))),
            "object" => ("The object, by which events are ordered", text.pattern(Some(OBJECT))),
            "group" => ("The consumer group's name", text.pattern(Some(NAME))),
            "quota" => (
                "The quota: events, event-bytes, objects, object-bytes, chosen-ids, idempotency-keys, \
                 log-streams, log-bytes, entities, entity-events, crons, cron-ticks, keys, targets, hooks, \
                 batches, rules or audit-lines",
                text.pattern(Some("^[a-z-]{1,32}$")),
            ),
            "limit" => (
                "The limit: `canvas`, `handler:MODULE/NAME`, a key that emits name, or a family of keys",
                text.pattern(Some(LIMIT)),
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
fn describe(operation: &mut Operation, about: About, scopes: Scopes, marks: Marks) {
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
    if let Some(RefOr::T(body)) = &mut operation.request_body
        && marks.has_optional_body
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
        if status == "404" && marks.is_always_there {
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
    marks: Marks,
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
            let is_known = parts.extensions.get::<ReadBefore>().is_some();
            let (canvas, method) = (caller.canvas, parts.method.clone());
            parts.extensions.insert(caller.clone());
            let answering = next.run(Request::from_parts(parts, body));
            let mut response = match rule.about {
                About::Canvas | About::Events => {
                    let is_contended = rule.api.recent_canvases.record(canvas);
                    on_behalf_of(Purpose { canvas, reads: method.is_safe(), is_contended }, answering).await
                }
                About::EveryCanvas => answering.await,
            };
            if let Some(line) = read.filter(|_| response.status().is_success()) {
                if !is_known {
                    rule.api.audit.record_read(line, caller.request_id());
                }
                response.extensions_mut().insert(Recorded);
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
                path::any_canvas(parts, &self.api).await.ok_or_else(Problem::not_found)?
            }
            About::EveryCanvas => CanvasId::DEFAULT,
        };
        Ok(Caller::operator(operator, canvas))
    }

    async fn caller(&self, parts: &mut Parts) -> Result<Caller, Problem> {
        let client = Client::of(&parts.extensions);
        let principal = match parts.extensions.get() {
            Some(SignedIn(principal)) => Ok(principal.clone()),
            None => self.api.access.authenticate(authorization(&parts.headers)).await,
        };
        let canvas = match self.about {
            About::Canvas | About::Events => path::canvas(parts, &self.api).await,
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
        let canvas = canvas.ok_or_else(|| path::no_canvas(parts))?;
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
        self.api.audit.record_sign_in(&credential, recorded_on, caller.request_id(), || {
            caller.line(AuditOutcome::Done, "sign-in".into(), None)
        });
        Ok(caller)
    }

    /// Whether the audit log has a line for each request, and its canvas needs room for that. An
    /// admin is never kept from changing keys and blocks by what others had recorded.
    fn records_changes(&self, method: &Method) -> bool {
        let changes = !method.is_safe() && !self.marks.is_work && self.scopes.contains(Scope::Operate);
        self.about == About::Canvas && changes
    }

    /// The first of the scopes that the caller lacks, as the reason for the refusal.
    async fn missing(&self, parts: &mut Parts, principal: &Principal, canvas: CanvasId) -> Option<Denied> {
        let handler = match self.about {
            About::Canvas => HandlerPath::from_request_parts(parts, &self.api).await.ok(),
            About::Events | About::EveryCanvas => None,
        };
        let values = self.marks.recorded_reads.asks_for_values(parts).then_some(Scope::Values);
        self.scopes.iter().chain(values).find_map(|scope| {
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
        let is_recorded = match self.marks.recorded_reads {
            RecordedReads::None => false,
            reads @ (RecordedReads::FullViews | RecordedReads::ValueSearches) => reads.asks_for_values(parts),
            RecordedReads::Shown => caller.sees_values(),
            RecordedReads::All => true,
        };
        is_recorded.then(|| caller.line(AuditOutcome::Done, self.operations.action(&parts.method), None))
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
        self.api.audit.record_refusal(line, request);
    }
}
