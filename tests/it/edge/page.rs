//! The page at `/docs/` in a real browser that can reach only this machine. A raw server that hangs
//! up stands in for every other host.

use std::path::PathBuf;

use serde_json::Value;
use tokio::net::TcpListener;

use super::requests::operations;
use crate::support::service::Service;

const OPTIONS: &str =
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --no-pings
    --disable-background-networking --disable-component-update --disable-sync --disable-default-apps
    --disable-client-side-phishing-detection --disable-domain-reliability --disable-extensions";

/// Stands in for all other hosts, and answers nothing: the browser makes requests of its own, too.
async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    address
}

/// The URLs that a page of this origin requested, according to the browser's own log.
fn asked_by(origin: &str, log: &Value) -> Vec<String> {
    let events = log["events"].as_array().unwrap().iter().map(|event| &event["params"]);
    let by_page = events.filter(|asked| asked["initiator"] == origin);
    by_page.filter_map(|asked| asked["url"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
#[ignore = "needs Chromium: `cargo xtask edge` runs it"]
async fn the_page_works_without_any_other_host() {
    let program =
        PathBuf::from(std::env::var_os("WAKEQ_CHROMIUM").expect("`cargo xtask edge` says where it is"));
    let service = Service::start().await;
    let (elsewhere, origin) = (nowhere().await, format!("http://{}", service.address));
    let profile = std::env::temp_dir().join(format!("wakeq-page-{}", std::process::id()));
    std::fs::create_dir_all(&profile).unwrap();
    let output = tokio::process::Command::new(program)
        .args(OPTIONS.split_whitespace())
        .arg("--disable-features=OptimizationHints,MediaRouter,AutofillServerCommunication,Translate")
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--proxy-server=http://{elsewhere}"))
        .arg(format!("--log-net-log={}", profile.join("log.json").display()))
        .args(["--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("{origin}/docs/"))
        .output()
        .await
        .unwrap();
    let log = std::fs::read(profile.join("log.json")).expect("the browser keeps a log");
    std::fs::remove_dir_all(&profile).ok();
    let dom = String::from_utf8_lossy(&output.stdout);
    let all = operations(&service).await;
    let ids = all.iter().map(|operation| &operation.id);
    let missing: Vec<_> = ids.filter(|id| !dom.contains(&format!("{id}\""))).collect();
    let (errors, shown) = (String::from_utf8_lossy(&output.stderr), &dom[..dom.len().min(3000)]);
    assert!(missing.is_empty(), "the page does not show {missing:?}\n{errors}\n{shown}");
    let asked = asked_by(&origin, &serde_json::from_slice(&log).unwrap());
    let is_own = |url: &str| url.starts_with(&format!("{origin}/")) || url.starts_with("data:");
    let elsewhere: Vec<_> = asked.iter().filter(|url| !is_own(url)).collect();
    assert!(asked.contains(&format!("{origin}/openapi.json")), "{asked:?}");
    let (operations, requests) = (all.len(), asked.len());
    println!("the page shows all {operations} operations after {requests} requests, none to another host");
    assert!(elsewhere.is_empty(), "other hosts were asked: {elsewhere:?}");
    service.stop().await;
}
