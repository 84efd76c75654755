//! Pages about quotas.

use reqwest::StatusCode;
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

#[tokio::test]
async fn every_quota_is_shown_with_what_it_counts() {
    let service = Service::start().await;
    service.put("/limits/customer", json!({"concurrency": 5})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page("/quotas").await.found();
    let quotas = service.get("/quotas").await.json();
    for quota in quotas["items"].as_array().unwrap() {
        page.says(&format!("<td>{}</td>", quota["quota"].as_str().unwrap()));
    }
    page.says("class=\"bar\"").says("% used").says_nothing_of("<td class=\"words\"></td>");
    assert!(!page.offers("/quotas/events"), "an admin of one canvas sets none");
}

#[tokio::test]
async fn a_quota_is_set_and_unset_by_admins_of_every_canvas() {
    let service = Service::start().await;
    service.stage.emit("greet").await;
    let wide = service.wide_key("wide", &Scope::ALL).await;
    let visitor = Visitor::with_key(&service, &wide).await;
    let page = visitor.page("/quotas").await.found();
    assert!(page.offers("/quotas/hooks"));
    let asked = visitor.page("/quotas/hooks").await.found();
    asked.says("hooks, which receive webhooks").says_nothing_of("Back to the default");
    let done = visitor.send(&asked, "/quotas/hooks", &[("limit", "7")]).await.found();
    done.says("The quota hooks of this canvas is 7 now.").says("set for this canvas");
    let of_canvas = |page: serde_json::Value| {
        let items = page["items"].as_array().unwrap().clone();
        let hooks = items.iter().find(|quota| quota["quota"] == "hooks").unwrap();
        (hooks["limit"].as_u64().unwrap(), hooks["set"].as_bool().unwrap())
    };
    assert_eq!(of_canvas(service.get("/quotas").await.json()), (7, true));
    let theirs = service.key("theirs", OTHER, &[Scope::Read]).await;
    let path = format!("/canvases/{OTHER}/quotas");
    let there = service.ask(&theirs, reqwest::Method::GET, &path, serde_json::Value::Null).await;
    assert_eq!(of_canvas(there.json()), (100, false), "the other canvas has the default");
    let refused = visitor.send(&asked, "/quotas/hooks", &[("limit", "<script>")]).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    refused.says("a quota is a whole number").says_nothing_of("<script>");
    let asked = visitor.page("/quotas/hooks").await.found();
    let done = visitor.send(&asked, "/unset", &[]).await.found();
    done.says("The quota hooks is the default again.").says_nothing_of("set for this canvas");
    assert_eq!(of_canvas(service.get("/quotas").await.json()), (100, false));
    assert_eq!(visitor.page("/quotas/nonsense").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn tenants_set_no_quota() {
    let service = Service::start().await;
    let owner = Visitor::with_key(&service, &service.key).await;
    let asked = owner.page("/quotas/hooks").await.found();
    let refused = owner.send(&asked, "/quotas/hooks", &[("limit", "7000")]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let token = asked.form("/quotas/hooks").token();
    let unset = on_canvas(CanvasId::DEFAULT, "/quotas/hooks/unset");
    assert_eq!(owner.post(&unset, &[("form_token", &token)]).await.status, StatusCode::FORBIDDEN);
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    for path in ["/quotas", "/quotas/hooks"] {
        assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}
