//! Pages about registered queues, their canvases and leases.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Shown, Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::{NONE, Service, has};

const QUEUE: &str = "/admin/queues/emails";
const EVIL: &str = "<script>alert(1)</script>";

/// A service with a queue, and a key for everything on every canvas.
struct Scene {
    service: Service,
    root: String,
}

impl Scene {
    async fn with(queue: Value) -> Self {
        let service = Service::start().await;
        let root = service.wide_key("root", &Scope::ALL).await;
        let scene = Self { service, root };
        scene.ask(Method::PUT, QUEUE, queue).await;
        scene
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        self.service.ask(&self.root, method, path, body).await.json()
    }

    /// Emits events that the queue gets copies of, on two canvases.
    async fn emit(&self, count: usize) {
        for number in 0..count {
            let event = json!({"name": "mail", "value": number, "only_queues": true});
            for canvas in [CanvasId::DEFAULT, OTHER] {
                self.ask(Method::POST, &format!("/canvases/{canvas}/events"), event.clone()).await;
            }
        }
    }

    async fn facet(&self, canvas: CanvasId) -> Value {
        let facets = self.ask(Method::GET, &format!("{QUEUE}/facets"), NONE).await;
        let canvas = json!(canvas.0);
        facets["items"].as_array().unwrap().iter().find(|facet| facet["canvas"] == canvas).unwrap().clone()
    }

    async fn visitor(&self) -> Visitor {
        Visitor::with_key(&self.service, &self.root).await
    }
}

fn facet(canvas: CanvasId) -> String {
    format!("/queues/emails/facets/{canvas}")
}

/// Posts to a page of the default canvas what a form there has.
async fn post(visitor: &Visitor, page: &Shown, action: &str, fields: &[(&str, &str)]) -> Shown {
    let token = page.form(action).token();
    let mut fields = fields.to_vec();
    fields.push(("form_token", &token));
    visitor.post(&on_canvas(CanvasId::DEFAULT, action), &fields).await
}

#[tokio::test]
async fn a_queue_and_its_canvases_are_shown() {
    let pattern = format!(":mail$|{EVIL}");
    let scene = Scene::with(json!({"patterns": [pattern, ":a$", ":b$", ":c$"], "weight": 3})).await;
    scene.emit(2).await;
    let visitor = scene.visitor().await;
    let list = visitor.page("/queues").await.found();
    list.says("emails").says(":a$").says("functions of workers").says("in turns").says("…");
    list.says_nothing_of("<script>alert");
    let page = visitor.page("/queues/emails").await.found();
    page.says("copies ready to run").says("3 copies of a canvas per round").says(":c$");
    page.says(&CanvasId::DEFAULT.to_string()).says(&OTHER.to_string()).says("takes turns");
    page.says("see nothing of it").says_nothing_of("<script>alert");
    assert!(!page.offers("/queues/emails/leases"), "it is not pulled");
    let all = visitor.page("/queues/emails/facets").await.found();
    all.says(&CanvasId::DEFAULT.to_string()).says(&OTHER.to_string());
    let cursor = format!("/queues/emails/facets?cursor={}", CanvasId::DEFAULT);
    let rest = visitor.page(&cursor).await.found();
    rest.says(&facet(OTHER)).says("First page");
    assert!(!rest.offers(&facet(CanvasId::DEFAULT)), "it comes before");
    assert_eq!(visitor.page("/queues/none").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_share_of_one_canvas_is_changed_and_no_other() {
    let scene = Scene::with(json!({"patterns": [":mail$"]})).await;
    scene.emit(1).await;
    let visitor = scene.visitor().await;
    let page = visitor.page(&facet(OTHER)).await.found();
    page.says("1 waiting, 0 running");
    let five = [("weight", "5"), ("in_flight_max", "7")];
    let set = visitor.send(&page, &facet(OTHER), &five).await.found();
    set.says("The canvas has the weight 5 in this queue.").says("value=\"5\"").says("value=\"7\"");
    has(&scene.facet(OTHER).await, json!({"weight": 5, "in_flight_max": 7}));
    has(&scene.facet(CanvasId::DEFAULT).await, json!({"weight": null, "in_flight_max": null}));

    set.says("Pause it in this queue").says("Set it as the queue has it");
    let paused =
        post(&visitor, &set, &facet(OTHER), &[("weight", "0"), ("in_flight_max", "7")]).await.found();
    paused.says("is paused in this queue").says("paused here").says_nothing_of("Pause it in this queue");
    let back = post(&visitor, &paused, &facet(OTHER), &[]).await.found();
    back.says("The canvas has the weight of the queue.").says("takes turns");
    has(&scene.facet(OTHER).await, json!({"weight": null, "in_flight_max": null}));

    let queue = visitor.page("/queues/emails").await.found();
    let other = OTHER.to_string();
    let any = [("facet", other.as_str()), ("weight", "0")];
    let any = visitor.send(&queue, "/queues/emails/facets", &any).await.found();
    assert_eq!(any.path, on_canvas(CanvasId::DEFAULT, &facet(OTHER)));
    let settings = visitor.page("/queues/emails/settings").await.found();
    settings.says(&facet(OTHER)).says("paused here");
    assert!(!settings.offers(&facet(CanvasId::DEFAULT)), "it has no settings");
    for wrong in [[("facet", "x"), ("weight", "1")], [("facet", other.as_str()), ("weight", "x")]] {
        let wrong = visitor.send(&queue, "/queues/emails/facets", &wrong).await;
        assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    }
    assert_eq!(visitor.page("/queues/emails/facets/x").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_lease_is_shown_and_ended() {
    let scene = Scene::with(json!({"patterns": [":mail$"], "pull": {"retries": 4}})).await;
    scene.emit(1).await;
    let visitor = scene.visitor().await;
    visitor.page("/queues/emails").await.found().says("programs that lease").says("4, the first after 5 min");
    let leased = scene.ask(Method::POST, &format!("{QUEUE}/copies/lease"), json!({"max": 10})).await;
    let copies = leased["copies"].as_array().unwrap();
    assert_eq!(copies.len(), 2, "{leased}");
    let theirs = copies.iter().find(|copy| copy["canvas"] == json!(OTHER.0)).unwrap();
    let (id, token) = (theirs["id"].as_str().unwrap(), theirs["lease"].as_str().unwrap());
    let list = visitor.page("/queues/emails/leases").await.found();
    list.says(id).says("WORKER/mail").says_nothing_of(token);
    let end = format!("/queues/emails/leases/{id}/end");
    assert!(list.offers(&end));
    let asked = visitor.page(&end).await.found();
    asked.says("End 1 lease?");
    visitor.send(&asked, "/end", &[]).await.found().says("the copy can be leased again");
    let again = scene.ask(Method::POST, &format!("{QUEUE}/copies/lease"), json!({"max": 10})).await;
    let again = again["copies"].as_array().unwrap();
    assert_eq!((again.len(), again[0]["id"].as_str()), (1, Some(id)), "the other is still leased");
}

#[tokio::test]
async fn a_queue_is_deleted_with_its_copies_or_after_them() {
    let scene = Scene::with(json!({"patterns": [":mail$"]})).await;
    scene.emit(3).await;
    let visitor = scene.visitor().await;
    let asked = visitor.page("/queues/emails/delete").await.found();
    asked.says("It is gone once 6 waiting copies").says("Delete 6 waiting copies with it?");
    let drains = visitor.send(&asked, "/delete", &[]).await.found();
    drains.says("gets no more copies, and is gone once its last one has ended.");
    has(&scene.ask(Method::GET, QUEUE, NONE).await, json!({"draining": true}));
    let dropped = post(&visitor, &asked, "/queues/emails/delete", &[("waiting", "drop")]).await.found();
    dropped.says("The queue emails was deleted.").says("No queue is registered.");
    let gone = scene.service.ask(&scene.root, Method::GET, QUEUE, NONE).await;
    assert_eq!(gone.problem().0, 404);
}

#[tokio::test]
async fn queues_are_listed_page_by_page() {
    let scene = Scene::with(json!({"patterns": [":mail$"]})).await;
    for number in 0..20 {
        let path = format!("/admin/queues/q{number:02}");
        scene.ask(Method::PUT, &path, json!({"patterns": [":mail$"]})).await;
    }
    let visitor = scene.visitor().await;
    let first = visitor.page("/queues").await.found();
    first.says(">emails<").says(">q18<").says("?cursor=q18").says_nothing_of(">q19<");
    let next = visitor.page("/queues?cursor=q18").await.found();
    next.says(">q19<").says("First page").says_nothing_of(">q18<").says_nothing_of("Next page");
}

/// Queues get the events of every canvas: a key of one canvas, whichever, sees and changes nothing,
/// and one that reads every canvas is shown no control.
#[tokio::test]
async fn only_keys_for_every_canvas_see_queues() {
    let scene = Scene::with(json!({"patterns": [":mail$"], "pull": {}})).await;
    scene.emit(1).await;
    let leased = scene.ask(Method::POST, &format!("{QUEUE}/copies/lease"), json!({})).await;
    let end = format!("/queues/emails/leases/{}/end", leased["copies"][0]["id"].as_str().unwrap());
    let reader = scene.service.wide_key("reader", &[Scope::Read]).await;
    let reader = Visitor::with_key(&scene.service, &reader).await;
    let owner = Visitor::with_key(&scene.service, &scene.service.key).await;
    let theirs = scene.service.key("other", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&scene.service, &theirs).await;
    assert!(!owner.page("").await.found().offers("/queues"), "it is not in the navigation");
    let token = owner.page("/cron").await.found().form("/cron").token();
    let facet = facet(CanvasId::DEFAULT);
    for path in ["/queues", "/queues/emails", &facet, "/queues/emails/leases", "/queues/emails/settings"] {
        let page = reader.page(path).await.found();
        page.says_nothing_of("<details").says_nothing_of("Set its share").says_nothing_of("End it");
        assert!(!page.offers("/queues/emails/delete"), "{path}");
        assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(owner.page(path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    for path in ["/queues/emails/delete", &end] {
        for visitor in [&reader, &owner] {
            assert_eq!(visitor.page(path).await.status, StatusCode::FORBIDDEN, "{path}");
        }
        assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    for path in ["/queues/emails/facets", &facet, "/queues/emails/delete", &end] {
        let path = on_canvas(CanvasId::DEFAULT, path);
        let canvas = OTHER.to_string();
        let form = [("form_token", token.as_str()), ("facet", canvas.as_str()), ("weight", "0")];
        for (visitor, status) in [
            (&owner, StatusCode::FORBIDDEN),
            (&reader, StatusCode::FORBIDDEN),
            (&theirs, StatusCode::NOT_FOUND),
        ] {
            assert_eq!(visitor.post(&path, &form).await.status, status, "{path}");
        }
    }
    has(&scene.ask(Method::GET, QUEUE, NONE).await, json!({"draining": false, "settings": []}));
}
