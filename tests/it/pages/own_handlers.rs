//! What people see whose key is for some handlers only.

use reqwest::{Method, StatusCode};
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::scene::EVIL;
use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

/// What leads to pages about more than some handlers.
const WHOLE: [&str; 12] = [
    "/events",
    "/dead-events",
    "/ended-events",
    "/handlers",
    "/cron",
    "/hooks",
    "/batches",
    "/log",
    "/limits",
    "/operations",
    "/keys",
    "/switches",
];

/// Somebody with a key of this canvas for these scopes.
async fn limited(service: &Service, scopes: &[&str]) -> Visitor {
    let holder = scopes.join(" ").replace([':', '/', '*'], "-");
    let made = service.admin(Method::POST, "/keys", json!({"holder": holder, "scopes": scopes})).await.json();
    Visitor::with_key(service, made["key"].as_str().unwrap()).await
}

async fn emit(service: &Service, key: &str, canvas: CanvasId, (module, name): (&str, &str)) -> String {
    let options = json!({"tags": [format!("of:{name}")]});
    let event = json!({"module": module, "name": name, "value": EVIL, "delay_s": 3600, "options": options});
    let emitted = service.ask(key, Method::POST, &format!("/canvases/{canvas}/events"), event).await.json();
    emitted["id"].as_str().unwrap().to_owned()
}

/// Two keys of a canvas: each begins with its handlers, reads their events, and finds nothing of
/// the other one's, nor of another tenant's.
#[tokio::test]
async fn each_of_two_keys_begins_with_its_own_handlers() {
    let service = Service::start().await;
    let neighbour = service.key("neighbour", OTHER, &[Scope::Emit]).await;
    let here = CanvasId::DEFAULT;
    let blur = emit(&service, &service.key, here, ("image", "blur")).await;
    let send = emit(&service, &service.key, here, ("mail", "send")).await;
    let foreign = emit(&service, &neighbour, OTHER, ("image", "foreign")).await;
    let images = limited(&service, &["read:image/*", "operate:image/blur"]).await;
    let mails =
        limited(&service, &["read:mail/send", "read:mail/idle", "emit:mail/send", "operate:mail/sort"]).await;

    let home = images.get("/").await.found();
    assert_eq!(home.path, on_canvas(here, ""));
    home.says("Your handlers").says("image/blur").says("see, operate").says_nothing_of("mail");
    let home_of_mails = mails.get("/").await.found();
    home_of_mails.says("mail/send").says("see, emit").says("mail/idle").says_nothing_of("blur");
    home_of_mails.says("You may operate <strong>mail/sort</strong>");
    for home in [&home, &home_of_mails] {
        home.says_nothing_of("foreign");
        for path in WHOLE {
            assert!(!home.offers(&on_canvas(here, path)), "{path}");
        }
    }
    let new = on_canvas(here, "/new-event");
    assert!(!home.offers(&new) && home_of_mails.offers(&new));

    let own = [(&images, "image", "blur", &blur, &send), (&mails, "mail", "send", &send, &blur)];
    for (visitor, module, name, event, others) in own {
        let list = visitor.page(&format!("/events?module={module}&name={name}")).await.found();
        list.says(event).says("<strong>1 event</strong> in all.").says_nothing_of(others);
        assert!(!list.offers("/events?tag=of%3Ablur"), "a tag is one of all handlers");
        let page = visitor.page(&format!("/events/{event}")).await.found();
        page.says("Story").says("delayed").says_nothing_of("<script>document");
        assert!(!page.offers("/run-now") && !page.offers("/cancel"), "it takes rights on the canvas");
        let hidden = visitor.page(&format!("/events/{event}?value=shown")).await;
        assert_eq!(hidden.status, StatusCode::FORBIDDEN);
        hidden.says("needs the scope `values`").says_nothing_of("document.title");
        visitor.page(&format!("/dead-events/list?module={module}&name={name}")).await.found();
        for id in [others, &foreign] {
            assert_eq!(visitor.page(&format!("/events/{id}")).await.status, StatusCode::NOT_FOUND);
        }
        for path in WHOLE {
            assert_eq!(visitor.page(path).await.status, StatusCode::FORBIDDEN, "{path}");
        }
        assert_eq!(visitor.get(&on_canvas(OTHER, "")).await.status, StatusCode::NOT_FOUND);
    }
    for path in
        ["/events?module=mail&name=send", "/handlers/mail/send", "/dead-events/list?module=mail&name=send"]
    {
        assert_eq!(images.page(path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    images.page("/events?module=image").await.found().says(&blur).says_nothing_of(&foreign);
    assert_eq!(
        mails.page("/events?module=mail").await.status,
        StatusCode::FORBIDDEN,
        "there are others in it"
    );
}

/// Controls of one's own handlers are there; and one emits to those for which one may.
#[tokio::test]
async fn what_a_key_may_do_is_done_from_its_first_page() {
    let service = Service::start().await;
    let visitor = limited(&service, &["read:mail/send", "emit:mail/send", "operate:mail/send"]).await;
    let home = visitor.get("/").await.found();
    home.says("see, emit, operate");
    let form = visitor.page("/new-event").await.found();
    let emitted = visitor.send(&form, "/new-event", &[("module", "mail"), ("name", "send")]).await.found();
    emitted.says("The event was emitted.").says("mail/send");
    let form = visitor.page("/new-event").await.found();
    let refused = visitor.send(&form, "/new-event", &[("module", "mail"), ("name", "sort")]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let page = visitor.page("/handlers/mail/send").await.found();
    assert!(!page.offers(&on_canvas(CanvasId::DEFAULT, "/halted-objects")));
    let asked = visitor.page("/handlers/mail/send/pause").await.found();
    visitor.send(&asked, "/pause", &[("reason", "a test")]).await.found().says("mail/send is paused");
    assert!(visitor.page("").await.found().html.contains("paused</span>"));
    let rules = service.get("/handlers/mail/send").await.json()["rules"].clone();
    assert_eq!((rules.as_array().map(Vec::len), &rules[0]["reason"]), (Some(1), &json!("a test")));
}

/// Keys whose rights are equal in words ask for the same, each on its own canvas.
#[tokio::test]
async fn keys_with_equal_rights_are_shown_what_is_of_their_canvas() {
    let service = Service::start().await;
    let operator = service.wide_key("operator", &Scope::ALL).await;
    let mut shown = Vec::new();
    for (canvas, name) in [(CanvasId::DEFAULT, "blur"), (OTHER, "foreign")] {
        emit(&service, &operator, canvas, ("image", name)).await;
        for holder in ["first", "second"] {
            let path = format!("/admin/canvases/{canvas}/keys");
            let body = json!({"holder": holder, "scopes": ["read:image/*"]});
            let made = service.ask(&operator, Method::POST, &path, body).await.json();
            shown.push((canvas, name, Visitor::with_key(&service, made["key"].as_str().unwrap()).await));
        }
    }
    // Within two seconds the later ones are shown what was read for others, if at all.
    for (canvas, name, visitor) in &shown {
        let home = visitor.get("/").await.found();
        assert_eq!(home.path, on_canvas(*canvas, ""));
        let foreign = if *name == "blur" { "image/foreign" } else { "image/blur" };
        home.says(&format!("image/{name}")).says_nothing_of(foreign);
        let elsewhere = if *canvas == OTHER { CanvasId::DEFAULT } else { OTHER };
        assert_eq!(visitor.get(&on_canvas(elsewhere, "")).await.status, StatusCode::NOT_FOUND);
    }
}

/// A key without the right to read is told so, and shown what it may do.
#[tokio::test]
async fn a_key_that_reads_nothing_has_a_first_page() {
    let service = Service::start().await;
    emit(&service, &service.key, CanvasId::DEFAULT, ("mail", "send")).await;
    let emits = limited(&service, &["emit:mail/*"]).await;
    let home = emits.get("/").await.found();
    home.says("You may emit <strong>mail/*</strong>").says_nothing_of("mail/send");
    assert!(home.offers(&on_canvas(CanvasId::DEFAULT, "/new-event")));
    let operates = limited(&service, &["operate"]).await;
    operates.get("/").await.found().says("You have no right to see events here.").says_nothing_of("mail");
    let listed = service.get("/handlers").await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
}
