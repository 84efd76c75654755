//! The authorized caller of a request, as handlers know it and act for it.
//!
//! Made only by the guard, so that nothing is done for a caller that was not authorized.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;

use super::Api;
use super::answer::RequestId;
use super::client::Client;
use super::credential::credential;
use super::path::{AddressPath, HandlerPath};
use super::problem::Problem;
use super::record::{Line, shown};
use super::shares::LimitKey;
use crate::access::{
    CredentialFilter, Denied, Grant, Principal, Reach, Scope, authorize, authorize_everywhere,
    authorize_handler, authorize_handlers,
};
use wakeq::control::{AuditOutcome, EventFilter};
use wakeq::{Actor, Admin, CanvasId, Event, HandlerAddress, HandlerScope, Name};

/// The authorized caller, and the canvas.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(super) principal: Principal,
    /// The canvas in the path, where the scopes are held; the default one for routes without it.
    pub(crate) canvas: CanvasId,
    /// Whether the route concerns every canvas: its records are not shown to a tenant.
    pub(super) is_platform: bool,
    /// The keys that the request and its bytes count for.
    pub(super) limit_keys: Arc<[LimitKey]>,
    /// `None` for the operator of a command: there is no HTTP request.
    pub(super) request: Option<RequestId>,
    pub(super) client: Client,
}

/// The operator of a command, by the name in the audit log: may do everything. Only
/// [`Inside`](super::inside::Inside) attaches it to a request.
#[derive(Clone)]
pub(crate) struct Operator(pub(crate) Arc<str>);

/// A person who is signed in to the page, whose session was checked. Only requests of this process
/// have it.
#[derive(Clone)]
pub(super) struct SignedIn(pub(super) Principal);

impl Caller {
    /// The operator of a command, to whom no limits apply.
    pub(super) fn operator(Operator(name): &Operator, canvas: CanvasId) -> Self {
        let everything = Grant { reach: Reach::EveryCanvas, scopes: Scope::ALL.into_iter().collect() };
        Self {
            principal: Principal::trusted(&**name, vec![everything]),
            canvas,
            is_platform: false,
            limit_keys: [].into(),
            request: None,
            client: Client::of(&Extensions::new()),
        }
    }

    /// The actor for the audit log.
    pub(crate) fn actor(&self) -> Actor {
        let admin = authorize(&self.principal, self.canvas, Scope::Admin).is_ok();
        let name = self.principal.name();
        let actor = if admin { Actor::admin(name) } else { Actor::user(name) };
        match &self.request {
            Some(request) => actor
                .request(&request.0)
                .credential(&shown(credential(&self.principal).as_deref(), self.client)),
            None => actor,
        }
    }

    /// An audit log line about the caller.
    pub(super) fn line(&self, outcome: AuditOutcome, action: Arc<str>, scope: Option<HandlerScope>) -> Line {
        Line {
            outcome,
            canvas: (!self.is_platform).then_some(self.canvas),
            actor: Some(self.principal.name().to_owned()),
            credential: credential(&self.principal),
            client: self.client,
            action,
            scope,
            reason: None,
        }
    }

    /// Whether the caller may see what is in the events that the route is about.
    pub(crate) fn sees_values(&self) -> bool {
        self.may_see_values().is_ok()
    }

    /// Refuses a caller that may not.
    pub(crate) fn may_see_values(&self) -> Result<(), Denied> {
        match self.is_platform {
            true => authorize_everywhere(&self.principal, Scope::Values),
            false => authorize(&self.principal, self.canvas, Scope::Values),
        }
    }

    /// Whether the caller has this scope for some handlers only.
    pub(crate) fn is_limited(&self, scope: Scope) -> bool {
        authorize(&self.principal, self.canvas, scope).is_err()
    }

    /// Checks that a caller with the scope `operate` for some handlers only has it for the one of
    /// an event; `None` if the canvas has no such event. If not, records that it tried. The answer
    /// is the same for both, so that it tells nothing of the events of others.
    pub(crate) fn may_work_on(
        &self,
        api: &Api,
        action: &'static str,
        handler: Option<HandlerScope>,
    ) -> Result<(), Problem> {
        let Some(HandlerScope { module, name, .. }) = &handler else { return Err(Problem::not_found()) };
        authorize_handler(&self.principal, self.canvas, Scope::Operate, module, name).map_err(|denied| {
            self.record_refusal(api, action, &denied, handler.clone());
            Problem::not_found()
        })
    }

    /// The handlers to which the caller's reading is limited, each a module, with a name unless it
    /// is all of the module; `None` if it may read all.
    pub(crate) fn reads_only(&self) -> Option<Vec<(Name, Option<Name>)>> {
        self.is_limited(Scope::Read).then(|| self.principal.handlers_on(self.canvas, Scope::Read))
    }

    /// Checks that a caller with the scope `read` for some handlers only lists events of one of
    /// them, or of its module if it has all of that, dead ones or others, and that they are not
    /// looked for among those of other handlers; if not, records that it tried. So it is with the
    /// scope `values` if the filter asks for what is in values.
    pub(crate) fn may_list(
        &self,
        api: &Api,
        action: &'static str,
        (filter, of_dead): (&EventFilter, bool),
    ) -> Result<(), Problem> {
        let worker = Name::worker();
        let name = filter.name.as_ref();
        let module = filter.module.as_ref().or(name.is_some().then_some(&worker));
        let values = filter.value.is_some() || filter.value_text.is_some();
        let is_shared = is_found_among_others(filter, of_dead);
        let decided = scopes_to_see(values).try_for_each(|scope| match module {
            Some(module) if !is_shared || scope != Scope::Read => {
                authorize_handlers(&self.principal, self.canvas, scope, (module, name))
            }
            Some(_) | None => authorize(&self.principal, self.canvas, scope),
        });
        decided.map_err(|denied| {
            let scope = module.zip(name).map(|(module, name)| HandlerScope {
                canvas: self.canvas,
                module: module.clone(),
                name: name.clone(),
            });
            self.record_refusal(api, action, &denied, scope);
            denied.into()
        })
    }

    /// Checks that a caller with the scope `read`, or for its value the scope `values`, for some
    /// handlers only has it for the one of an event; `None` if the canvas has no such event. If
    /// not, records that it tried. Without `read` the answer is the same for both, so that it tells
    /// nothing of the events of others.
    pub(crate) fn may_see(
        &self,
        api: &Api,
        action: &'static str,
        handler: Option<(&str, &str)>,
        value: bool,
    ) -> Result<(), Problem> {
        for scope in scopes_to_see(value).filter(|scope| self.is_limited(*scope)) {
            let names =
                handler.and_then(|(module, name)| module.parse::<Name>().ok().zip(name.parse::<Name>().ok()));
            let Some((module, name)) = names else { return Err(Problem::not_found()) };
            authorize_handler(&self.principal, self.canvas, scope, &module, &name).map_err(|denied| {
                let about = HandlerScope { canvas: self.canvas, module, name };
                self.record_refusal(api, action, &denied, Some(about));
                if scope == Scope::Read { Problem::not_found() } else { denied.into() }
            })?;
        }
        Ok(())
    }

    /// Checks that the caller may write more than events of some handlers; if not, records that it
    /// tried.
    pub(crate) fn may_emit_with(&self, api: &Api, what: &'static str) -> Result<(), Problem> {
        if !self.is_limited(Scope::Emit) {
            return Ok(());
        }
        Err(self.refused_emit(api, Denied::Beyond { needed: Scope::Emit, what }, None))
    }

    /// Checks that the caller may emit these events; if not, records the first one that it may not.
    pub(crate) fn may_emit<'e>(
        &self,
        api: &Api,
        mut events: impl Iterator<Item = &'e Event>,
    ) -> Result<(), Problem> {
        events.try_for_each(|event| {
            let (module, name) = event.handler();
            let decided = authorize_handler(&self.principal, self.canvas, Scope::Emit, module, name);
            decided.map_err(|denied| {
                let scope = HandlerScope { canvas: self.canvas, module: module.clone(), name: name.clone() };
                self.refused_emit(api, denied, Some(scope))
            })
        })
    }

    fn refused_emit(&self, api: &Api, denied: Denied, scope: Option<HandlerScope>) -> Problem {
        self.record_refusal(api, "emit", &denied, scope);
        denied.into()
    }

    fn record_refusal(&self, api: &Api, action: &'static str, denied: &Denied, scope: Option<HandlerScope>) {
        let line = self.line(AuditOutcome::Refused, action.into(), scope);
        api.audit.record_refusal(Line { reason: Some(denied.to_string()), ..line }, self.request_id());
    }

    /// The id of the request; empty without one.
    pub(super) fn request_id(&self) -> &str {
        self.request.as_ref().map_or("", |id| &id.0)
    }

    /// The credentials that the caller may revoke.
    pub(crate) fn revocable(&self) -> CredentialFilter {
        if self.request.is_some() { self.canvas.into() } else { CredentialFilter::Everything }
    }

    /// The stable name of the caller.
    pub(crate) fn name(&self) -> &str {
        self.principal.name()
    }

    /// The control API as far as this caller may use it: copies in queues that are not shown to
    /// their canvases only exist for holders of the route's scope on every canvas.
    pub(crate) fn admin(&self, api: &Api, scope: Scope) -> Admin {
        match authorize_everywhere(&self.principal, scope) {
            Ok(()) => api.admin.clone(),
            Err(_) => api.admin.for_tenants(),
        }
    }

    /// The owner of this caller's idempotency keys: the same for two keys of one holder, but
    /// different for a holder of the same name on every canvas.
    pub(crate) fn holder(&self) -> String {
        let everywhere = self.principal.grants().iter().any(|grant| grant.reach == Reach::EveryCanvas);
        format!("{}{}", if everywhere { "*" } else { "" }, self.name())
    }

    /// A handler on the caller's canvas.
    pub(crate) fn scope(&self, handler: HandlerPath) -> HandlerScope {
        HandlerScope { canvas: self.canvas, module: handler.module, name: handler.name }
    }

    /// A handler address on the caller's canvas.
    pub(crate) fn address(&self, address: AddressPath) -> HandlerAddress {
        HandlerAddress { scope: self.scope(address.handler), modifier: address.modifier }
    }
}

/// A request that the guard has admitted: the API and the caller.
pub(crate) struct Call {
    pub(crate) api: Api,
    pub(crate) caller: Caller,
}

impl FromRequestParts<Api> for Call {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        Ok(Self { api: api.clone(), caller: Caller::from_request_parts(parts, api).await? })
    }
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        // A handler outside the guard has no caller, and so can't do anything.
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::not_found)
    }
}

/// Whether the events that a filter selects are looked for among those of other handlers, too: how
/// many were looked at, and where the next page begins, then tells of these.
fn is_found_among_others(filter: &EventFilter, of_dead: bool) -> bool {
    let is_shared = filter.object.is_some() || filter.batch.is_some() || filter.error_group.is_some();
    is_shared || filter.waits_for.is_some() || of_dead && (filter.name.is_none() || !filter.tags.is_empty())
}

/// What a caller needs to see events, and what is in their values as well.
fn scopes_to_see(values: bool) -> impl Iterator<Item = Scope> {
    [Scope::Read].into_iter().chain(values.then_some(Scope::Values))
}
