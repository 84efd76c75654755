//! Pages about webhooks of other systems.

use reqwest::StatusCode;
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::onlookers::{Onlookers, have_two_pages};
use super::visitor::{Shown, Visitor};
use crate::hooks::signing::{GITHUB_SECRET, STRIPE_SECRET, webhook};
use crate::support::service::Service;

/// The fields of a hook's form; its kind, which comes first, is only chosen for a new one.
fn fields<'f>(kind: &'f str, handler: &'f str, secret: &'f str) -> [(&'f str, &'f str); 6] {
    [
        ("kind", kind),
        ("module", "WORKER"),
        ("handler", handler),
        ("modifier", "_"),
        ("value", "data"),
        ("secret", secret),
    ]
}

/// The secret that a page shows.
fn secret(page: &Shown) -> String {
    page.html.split("data-copy=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_hook_is_made_changed_and_deleted_and_its_secret_shown_once() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = visitor.page("/hooks").await.found();
    list.says("No other system may send webhooks here.");
    let mut new = fields("github", "on-push", "").to_vec();
    new.push(("hook", "pushes"));
    let made = visitor.send(&list, "/hooks", &new).await.found();
    made.says("it is not shown again");
    let first = secret(&made);
    assert!(first.starts_with("whsec_"), "{first}");
    assert!(visitor.cookie("wakeq_said").is_none(), "it is in no cookie");
    let sent = webhook("github", "1").signed_with(&first).sent(&service, "pushes").await;
    assert_eq!(sent.status, 202, "{}", sent.text);
    let taken = visitor.send(&list, "/hooks", &new).await;
    assert_eq!(taken.status, StatusCode::CONFLICT);
    taken.says("there is a hook pushes already");
    let page = visitor.page("/hooks/pushes").await.found();
    page.says("GitHub").says("WORKER/on-push").says("/v1/canvases/").says_nothing_of(&first);
    visitor.page("/hooks").await.found().says("pushes").says("GitHub").says_nothing_of(&first);

    let changed = visitor.send(&page, "/hooks/pushes", &fields("github", "pushed", "")[1..]).await.found();
    changed.says("The hook pushes was changed: what is sent to it goes to WORKER/pushed.");
    let rotated = visitor.send(&changed, "/rotate-secret", &[]).await.found();
    let second = secret(&rotated);
    assert_ne!(first, second);
    for (id, known) in [("2", &first), ("3", &second)] {
        let sent = webhook("github", id).signed_with(known).sent(&service, "pushes").await;
        assert_eq!(sent.status, 202, "both are accepted for a day");
    }
    let leaked = [("drop_replaced_secret", "true")];
    let again = visitor.send(&changed, "/rotate-secret", &leaked).await;
    assert_eq!(again.status, StatusCode::CONFLICT, "the form was sent before");
    let sent = webhook("github", "3b").signed_with(&second).sent(&service, "pushes").await;
    assert_eq!(sent.status, 202, "{}", sent.text);
    let page = visitor.page("/hooks/pushes").await.found();
    let third = secret(&visitor.send(&page, "/rotate-secret", &leaked).await.found());
    let sent = webhook("github", "4").signed_with(&second).sent(&service, "pushes").await;
    assert_eq!(sent.status, 401, "it has leaked");
    let sent = webhook("github", "5").signed_with(&third).sent(&service, "pushes").await;
    assert_eq!(sent.status, 202);

    let asked = visitor.page("/hooks/pushes/delete").await.found();
    asked.says("Delete 1 hook, pushes?");
    let deleted = visitor.send(&asked, "/delete", &[]).await.found();
    deleted.says("The hook pushes was deleted.");
    assert_eq!(visitor.page("/hooks/pushes").await.status, StatusCode::NOT_FOUND);
}

/// A secret that is given is never shown, and what is wrong with it is said without it.
#[tokio::test]
async fn a_secret_that_is_given_is_not_shown() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let list = visitor.page("/hooks").await.found();
    let mut stripe = fields("stripe", "on-payment", "").to_vec();
    stripe.push(("hook", "payments"));
    let refused = visitor.send(&list, "/hooks", &stripe).await;
    assert!(refused.status.is_client_error(), "Stripe makes the secret");
    stripe[5] = ("secret", STRIPE_SECRET);
    let made = visitor.send(&list, "/hooks", &stripe).await.found();
    made.says("The hook payments was made").says_nothing_of(STRIPE_SECRET);
    made.says_nothing_of("Generate a new secret");
    let wrong = visitor.send(&made, "/hooks/payments", &fields("stripe", "on-payment", "s3cr3t")[1..]).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    wrong.says_nothing_of("s3cr3t");
    let sent = webhook("stripe", "1").signed_with(STRIPE_SECRET).sent(&service, "payments").await;
    assert_eq!(sent.status, 202, "{}", sent.text);
}

#[tokio::test]
async fn only_those_with_rights_are_shown_controls_and_obeyed() {
    let service = Service::start().await;
    let hook = json!({"kind": "github", "handler": {"name": "on-push"}, "secret": GITHUB_SECRET});
    service.put("/hooks/pushes", hook).await.json();
    let onlookers = Onlookers::of(&service).await;
    onlookers.find_no_controls("/hooks", "/hooks/pushes", &[]).await;
    onlookers.operator.visitor.page("/hooks/pushes/delete").await.found();
    let put = fields("github", "mine", "");
    onlookers.may_not_emit("/hooks/pushes", &put).await;
    onlookers.may_not_emit("/hooks", &[&[("hook", "mine")][..], &put].concat()).await;
    onlookers.may_not_emit("/hooks/pushes/rotate-secret", &[]).await;
    onlookers.may_not_change("/hooks/pushes/delete", &[]).await;
    assert_eq!(service.get("/hooks/pushes").await.json()["handler"]["name"], "on-push");
}

#[tokio::test]
async fn hooks_are_listed_page_by_page() {
    let service = Service::start().await;
    // More than a canvas may have by default.
    let quota = format!("/admin/quotas/{}/hooks", CanvasId::DEFAULT);
    let root = service.wide_key("root", &Scope::ALL).await;
    let set = service.ask(&root, reqwest::Method::PUT, &quota, json!({"limit": 200})).await;
    assert!(set.status.is_success(), "{}", set.text);
    for number in 0..101 {
        let hook = json!({"kind": "github", "handler": {"name": "on-push"}, "secret": GITHUB_SECRET});
        service.put(&format!("/hooks/h{number:03}"), hook).await.json();
    }
    have_two_pages(&service, "/hooks", 'h').await;
}
