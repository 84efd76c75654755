//! Every form of the page, sent by those who lack a scope for it: from pages of their own, so that
//! nothing but their rights keeps it from being obeyed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use reqwest::StatusCode;
use serde_json::{Map, Value};
use wakeq::CanvasId;
use wakeq_service::access::{ApiKey, Scope};

use super::onlookers::Holder;
use super::scene::Scene;
use super::visitor::{Shown, on_canvas};
use crate::canvases::rows;
use crate::support::repository::root;
use crate::support::service::Service;
use crate::support::{OTHER, Statements};

/// A form, and what it takes to send it.
struct Form {
    /// Its route below the canvas, with a query if that decides what it takes.
    route: &'static str,
    /// In the order of all scopes.
    needs: &'static [Scope],
    /// Whether it takes them on every canvas.
    everywhere: bool,
    /// What would be done at once if nobody asked for rights.
    fields: &'static [(&'static str, &'static str)],
}

const fn here(
    route: &'static str,
    needs: &'static [Scope],
    fields: &'static [(&'static str, &'static str)],
) -> Form {
    Form { route, needs, everywhere: false, fields }
}

const fn everywhere(
    route: &'static str,
    needs: &'static [Scope],
    fields: &'static [(&'static str, &'static str)],
) -> Form {
    Form { route, needs, everywhere: true, fields }
}

const EMIT: &[Scope] = &[Scope::Emit];
const OPERATE: &[Scope] = &[Scope::Operate];
const ADMIN: &[Scope] = &[Scope::Admin];
/// What emits events by itself.
const EMITTER: &[Scope] = &[Scope::Emit, Scope::Operate];
const READ_TOO: &[Scope] = &[Scope::Read, Scope::Operate];
/// A target receives values.
const TARGET: &[Scope] = &[Scope::Read, Scope::Values, Scope::Operate];

/// All of them. What stands in braces is a name of the scene.
const FORMS: &[Form] = &[
    here("/events/{id}/run-now", OPERATE, &[]),
    here("/events/{id}/due", OPERATE, &[("due", "in 2 h")]),
    here("/events/{id}/redrive", OPERATE, &[]),
    here("/events/{id}/tags", OPERATE, &[("tags", "mine")]),
    here("/events/{id}/cancel", OPERATE, &[("running", "true")]),
    here("/dead-events/groups/{error_group}/known", OPERATE, &[("note", "mine")]),
    here("/dead-events/groups/{error_group}/forget", OPERATE, &[]),
    here("/handlers/{module}/{name}/pause", OPERATE, &[("reason", "mine")]),
    here("/handlers/{module}/{name}/unpause", OPERATE, &[]),
    here("/handlers/{module}/{name}/block", ADMIN, &[("reason", "mine")]),
    here("/handlers/{module}/{name}/unblock", ADMIN, &[]),
    here("/handlers/{module}/{name}/purge", OPERATE, &[("before", "2100-01-01T00:00:00Z")]),
    here("/handlers/{module}/{name}/new-target", TARGET, &[("modifier", "mine"), ("url", MINE)]),
    here(
        "/handlers/{module}/{name}/targets/{modifier}/change",
        TARGET,
        &[("url", MINE), ("changed_at", "{changed_at}")],
    ),
    here(
        "/handlers/{module}/{name}/targets/{modifier}/rotate",
        TARGET,
        &[("secret", ""), ("changed_at", "{changed_at}")],
    ),
    here("/handlers/{module}/{name}/targets/{modifier}/delete", OPERATE, &[]),
    here("/pause", OPERATE, &[("reason", "mine")]),
    here("/unpause", OPERATE, &[]),
    here("/block", ADMIN, &[("reason", "mine")]),
    here("/unblock", ADMIN, &[]),
    everywhere("/block-everything", ADMIN, &[("reason", "mine")]),
    everywhere("/unblock-everything", ADMIN, &[]),
    here("/cron", EMITTER, &[("name", "mine"), ("expression", "0 9 * * *"), ("value", "1")]),
    here("/cron/{cron}", EMITTER, &[("expression", "0 9 * * *"), ("value", "1")]),
    here("/cron/{cron}/run-now", EMITTER, &[]),
    here("/cron/{cron}/pause", OPERATE, &[("reason", "mine")]),
    here("/cron/{cron}/unpause", OPERATE, &[]),
    here("/cron/{cron}/delete", OPERATE, &[]),
    here("/hooks", EMITTER, &[("hook", "mine"), ("kind", "standard"), ("handler", "mine")]),
    here("/hooks/{hook}", EMITTER, &[("kind", "github"), ("handler", "mine")]),
    here("/hooks/{hook}/rotate-secret", EMITTER, &[("drop_replaced_secret", "true")]),
    here("/hooks/{hook}/delete", OPERATE, &[]),
    here("/new-event", EMIT, &[("name", "mine"), ("value", "1")]),
    here("/batches/{batch}/close", EMIT, &[]),
    here("/batches/{batch}/give-up", OPERATE, &[]),
    everywhere("/queues/{queue}/delete", OPERATE, &[("waiting", "drop")]),
    everywhere("/queues/{queue}/facets", OPERATE, &[("facet", "{facet}"), ("weight", "0")]),
    everywhere("/queues/{queue}/facets/{facet}", OPERATE, &[("weight", "0")]),
    everywhere("/queues/{queue}/leases/{id}/end", OPERATE, &[]),
    here("/pulled-handlers", READ_TOO, &[("handler", "mine")]),
    here("/pulled-handlers/{module}/{name}", READ_TOO, &[("retries", "9")]),
    here("/pulled-handlers/{module}/{name}/delete", OPERATE, &[]),
    here("/objects/{object}/skip", OPERATE, &[("module", "WORKER"), ("name", "index")]),
    here("/entities/{type}/{entity}/erase", ADMIN, &[("id", "{operation}")]),
    everywhere("/groups/{group}/reset", OPERATE, &[("to", "start")]),
    everywhere("/groups/{group}/recover", OPERATE, &[]),
    everywhere("/groups/{group}/remove", OPERATE, &[]),
    everywhere("/groups/{group}/dead/redrive", OPERATE, &[("seq", "1")]),
    here("/limits", OPERATE, &[("name", "{limit}"), ("concurrency", "9")]),
    everywhere("/limits?of=operator", ADMIN, &[("name", "{limit}"), ("concurrency", "9")]),
    here("/limits/{limit}/remove", OPERATE, &[]),
    everywhere("/limits/{limit}/remove?of=operator", ADMIN, &[]),
    everywhere("/quotas/{quota}", ADMIN, &[("limit", "5")]),
    everywhere("/quotas/{quota}/unset", ADMIN, &[]),
    here("/operations", READ_TOO, &[("operation", r#"{"kind": "cancel", "ids": ["{id}"]}"#)]),
    here("/operations/{operation}/cancel", OPERATE, &[]),
    here("/keys", ADMIN, &[("holder", "mine"), ("days", "1"), ("read", "true")]),
    here("/keys/{key}/revoke", ADMIN, &[]),
];

const MINE: &str = "https://mine.example/";

/// Forms that take no scope, and the reason.
const OF_EVERYBODY: [(&str, &str); 4] = [
    ("/sign-in", "whoever has a key opens a session with it"),
    ("/sign-out", "it ends the session that sends it"),
    ("/sessions/end-others", "they are those of the same key"),
    ("/sessions/{session}/end", "it is one of the same key"),
];

/// Where routes of the page are declared.
const DECLARED: [&str; 2] = ["service/src/pages.rs", "service/src/page/serve.rs"];

/// The routes to which forms are sent, as the source declares them.
fn declared() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in DECLARED {
        let text = fs::read_to_string(root().join(name)).unwrap();
        assert!(text.contains("use axum::routing::{get, post};"), "{name} has routes of other methods");
        for route in text.split(".route(").skip(1).filter(|route| route.contains("post(")) {
            let path = route.trim_start().strip_prefix('"').and_then(|path| path.split('"').next());
            found.insert(path.unwrap_or_else(|| panic!("{name}: no path begins {route}")).to_owned());
        }
    }
    assert!(found.len() > OF_EVERYBODY.len(), "no route was found");
    found
}

/// A form that is not listed is one of which nobody knows who may send it.
#[test]
fn every_form_is_listed_with_its_scopes() {
    let path = |form: &Form| form.route.split('?').next().unwrap_or_default();
    let listed = FORMS.iter().map(|form| format!("/canvases/{{canvas}}{}", path(form)));
    let listed: BTreeSet<_> = listed.chain(OF_EVERYBODY.map(|(route, _)| route.to_owned())).collect();
    let declared = declared();
    let differing: Vec<_> = declared.symmetric_difference(&listed).collect();
    assert!(differing.is_empty(), "these are declared or listed, and not both: {differing:?}");
}

/// What stands for the names in braces, each with something of the scene that has it.
async fn names(service: &Service) -> Vec<(&'static str, String)> {
    let pool = &service.stage.pool;
    let event = "select id::text from wakeq.events_v2 where name = 'remind' limit 1";
    let group = "select error_group::text from wakeq.dead_events limit 1";
    let changed_at = r#"select to_char(updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
                          from wakeq.http_targets where name = 'notify'"#;
    let (event, group): (String, String) = (pool.value(event).await, pool.value(group).await);
    let changed_at: String = pool.value(changed_at).await;
    let key = ApiKey::parse(&service.key).unwrap().id().to_string();
    let named = |pairs: &[(&'static str, &str)]| {
        pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>()
    };
    // The handler with a target is not pulled.
    let mut names = named(&[("pulled-handlers/{module}/{name}", "pulled-handlers/WORKER/render-remote")]);
    names.extend([("{id}", event), ("{error_group}", group), ("{changed_at}", changed_at), ("{key}", key)]);
    names.extend(named(&[
        ("{module}", "WORKER"),
        ("{name}", "notify"),
        ("{modifier}", "_"),
        ("{cron}", "nightly"),
        ("{hook}", "pushes"),
        ("{batch}", "import:42"),
        ("{queue}", "emails"),
        ("{object}", "work:1"),
        ("{type}", "account"),
        ("{entity}", "ada"),
        ("{group}", "projection"),
        ("{limit}", "customer"),
        ("{quota}", "hooks"),
        ("{operation}", "0198c0de-0000-7000-8000-000000000001"),
    ]));
    names.push(("{facet}", OTHER.to_string()));
    names
}

fn filled(text: &str, names: &[(&'static str, String)]) -> String {
    names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(*name, value))
}

async fn send(holder: &Holder, canvas: CanvasId, form: &Form, names: &[(&'static str, String)]) -> Shown {
    let fields: Vec<_> = form.fields.iter().map(|(name, value)| (*name, filled(value, names))).collect();
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    holder.post(&on_canvas(canvas, &filled(form.route, names)), &fields).await
}

/// Those who lack something.
struct Lacking {
    /// Only reads the canvas.
    reader: Holder,
    /// May do everything on this canvas, and nothing beyond it.
    owner: Holder,
    /// May do everything on another canvas.
    theirs: Holder,
    /// May do everything on this canvas but for one scope.
    here: Vec<(Scope, Holder)>,
    /// The same on every canvas.
    everywhere: Vec<(Scope, Holder)>,
}

impl Lacking {
    async fn of(service: &Service) -> Self {
        let (mut here, mut everywhere) = (Vec::new(), Vec::new());
        for scope in Scope::ALL {
            let others: Vec<_> = Scope::ALL.into_iter().filter(|other| *other != scope).collect();
            let key = service.key(&format!("without-{scope}"), CanvasId::DEFAULT, &others).await;
            here.push((scope, Holder::of(service, &key).await));
            let key = service.wide_key(&format!("wide-without-{scope}"), &others).await;
            everywhere.push((scope, Holder::of(service, &key).await));
        }
        let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
        let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
        Self {
            reader: Holder::of(service, &reader).await,
            owner: Holder::of(service, &service.key).await,
            theirs: Holder::of(service, &theirs).await,
            here,
            everywhere,
        }
    }

    /// Those who may not send a form, each with the scope that is named to them: the first one that
    /// they lack.
    fn for_form(&self, form: &Form) -> Vec<(&Holder, Scope)> {
        let but_one = if form.everywhere { &self.everywhere } else { &self.here };
        let but_one = but_one.iter().filter(|(scope, _)| form.needs.contains(scope));
        let mut lacking: Vec<_> = but_one.map(|(scope, holder)| (holder, *scope)).collect();
        let unread = form.needs.iter().find(|scope| form.everywhere || **scope != Scope::Read);
        lacking.push((&self.reader, *unread.expect("no form is for all who read")));
        lacking.extend(form.everywhere.then_some((&self.owner, form.needs[0])));
        lacking
    }
}

/// What the page changes of the platform: `rows::of` has what it changes of a canvas.
const PLATFORM: &str = "
    select 'queue ' || q::text from wakeq.queues q
    union all select 'facet ' || f::text from wakeq.facet_settings f
    union all select 'position ' || p::text from wakeq.consumer_positions p
    union all select 'rule ' || r::text from wakeq.scheduling_rules r
               where canvas_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff'
    union all select 'limit ' || l::text from wakeq.limits l
               where canvas_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff'
    order by 1";

async fn state(service: &Service) -> BTreeMap<String, Vec<String>> {
    let pool = &service.stage.pool;
    let mut rows = rows::of(pool, CanvasId::DEFAULT).await;
    rows.values_mut().flatten().for_each(without_upkeep);
    rows.insert("of the platform".to_owned(), pool.values(PLATFORM).await);
    rows
}

/// Columns that processes write by themselves meanwhile: as the worker of the scene renews its
/// claims, and as events come again whose handler no worker has.
const OF_PROCESSES: [&str; 5] = ["locked_at", "notify_at", "probes", "postponed_since", "last_seen"];

fn without_upkeep(row: &mut String) {
    let mut columns: Map<String, Value> = serde_json::from_str(row).unwrap();
    columns.retain(|name, _| !OF_PROCESSES.contains(&name.as_str()));
    *row = Value::Object(columns).to_string();
}

/// Whoever lacks one of the scopes of a form is told which, whatever other scopes there are; a
/// tenant of another canvas is told that there is nothing, and reaches nothing from its own canvas
/// by the names and ids of this one. Nothing changes.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_form_of_ones_own_session_is_refused_for_each_scope_that_it_takes() {
    let scene = Scene::with_everything().await;
    let service = &scene.service;
    let (names, lacking) = (names(service).await, Lacking::of(service).await);
    let before = state(service).await;
    assert!(before.values().filter(|rows| !rows.is_empty()).count() > 10, "the scene is filled");
    for form in FORMS {
        for (holder, scope) in lacking.for_form(form) {
            let refused = send(holder, CanvasId::DEFAULT, form, &names).await;
            let about = format!("{} without {scope}", form.route);
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{about}: {}", refused.html);
            refused.says(&format!("the scope `{scope}`"));
        }
        if form.everywhere {
            let refused = send(&lacking.owner, CanvasId::DEFAULT, form, &names).await;
            refused.says("reaches every canvas");
        }
        let none = send(&lacking.theirs, CanvasId::DEFAULT, form, &names).await;
        assert_eq!(none.status, StatusCode::NOT_FOUND, "{}: {}", form.route, none.html);
        none.says("you have no rights on this canvas");
        send(&lacking.theirs, OTHER, form, &names).await;
        let now = state(service).await;
        let changed: Vec<_> = now.iter().filter(|(table, rows)| before.get(*table) != Some(*rows)).collect();
        assert!(changed.is_empty(), "{} has changed {changed:?}", form.route);
    }
}
