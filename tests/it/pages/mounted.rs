//! Pages below a path of another server: every address leads back to them.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::routing::get;
use reqwest::{Method, StatusCode};
use wakeq::CanvasId;
use wakeq_service::access::{Access, AccessConfig, Reach, Scope};
use wakeq_service::server::{HttpApi, HttpConfig, MountedApi};

use super::visitor::{Visitor, on_canvas};
use crate::support::service::{Answer, make_key};
use crate::support::{Stage, TIMEOUT};

/// Puts the API into a server that has a page of its own.
type Mount = fn(Router, &MountedApi) -> Router;

async fn check(mount: Mount) {
    let (stage, notifier) = Stage::memory().await;
    let api = HttpApi::new(stage.store.clone(), notifier, HttpConfig::default()).await.unwrap().mount();
    let server = mount(Router::new().route("/", get(async || "a shop")), &api);
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), api.stop_token());
    let stopped = stop.clone().cancelled_owned();
    let serving = tokio::spawn(async move {
        let server = server.into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, server).with_graceful_shutdown(stopped).await.unwrap();
        api.finish().await;
    });
    let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
    let key = make_key(&access, "tests", Reach::Canvas(CanvasId::DEFAULT), &Scope::ALL).await;
    signs_in_and_acts(&Visitor::at(address), &key).await;
    let lost = Visitor::at(address).sending("accept", "text/html").get("/queue/nowhere").await;
    assert_eq!(lost.status, StatusCode::NOT_FOUND);
    lost.says("there is no page at this address").says("href=\"/queue\"");
    stop.cancel();
    tokio::time::timeout(TIMEOUT, serving).await.expect("no end in time").unwrap();
}

async fn signs_in_and_acts(visitor: &Visitor, key: &str) {
    let keys = format!("/queue{}", on_canvas(CanvasId::DEFAULT, "/keys"));
    let asked = visitor.get(&keys).await.found();
    assert!(asked.path.starts_with("/queue/sign-in?next=%2Fcanvases"), "{}", asked.path);
    let signed_in = visitor.send(&asked, "/queue/sign-in", &[("key", key)]).await.found();
    assert_eq!(signed_in.path, keys, "on to the page that was asked for");
    assert!(visitor.cookie("wakeq_session-queue").is_some(), "a cookie of its own beside other queues");
    let home = visitor.get("/queue").await.found();
    assert_eq!(home.path, format!("/queue{}", on_canvas(CanvasId::DEFAULT, "")));
    let own = |link: &str| link.starts_with("/queue") || link.starts_with('#') || link.starts_with('?');
    for link in home.html.split("href=\"").skip(1).chain(home.html.split("action=\"").skip(1)) {
        let link = link.split('"').next().unwrap();
        assert!(own(link), "{link}");
    }
    let brand = home.html.split("class=\"brand\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(visitor.get(brand).await.found().path, home.path);

    let made = visitor.send(&signed_in, "/keys", &[("holder", "ada"), ("read", "true")]).await.found();
    made.says("the only time");
    let id = made.html.split("wakeq_").nth(1).unwrap()[..12].to_owned();
    let asked = visitor.get(&format!("{keys}/{id}/revoke")).await.found();
    let done = visitor.send(&asked, "/revoke", &[]).await.found();
    assert_eq!(done.path, keys, "a change leads back below the path, once");
    done.says("was revoked. It is refused");
    visitor.get(&keys).await.found().says_nothing_of("was revoked. It is refused");
    let out = Answer::of(visitor.request(Method::POST, "/queue/sign-out")).await;
    assert_eq!(
        (out.status, out.headers["location"].to_str().unwrap()),
        (StatusCode::SEE_OTHER, "/queue/sign-in")
    );
}

#[tokio::test]
async fn pages_are_found_below_a_path() {
    check(|server, api| server.nest("/queue", api.router())).await;
    check(|server, api| server.nest_service("/queue", api.router::<()>())).await;
}
