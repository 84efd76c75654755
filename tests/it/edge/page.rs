//! The page at `/docs/` in a real browser that can reach this machine only.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::requests::operations;
use crate::service::Service;

/// Stands in for the rest of the world: notes what it is asked for, and gives nothing.
async fn nowhere() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut begin = [0; 200];
            let length = stream.read(&mut begin).await.unwrap_or_default();
            let line =
                String::from_utf8_lossy(&begin[..length]).lines().next().unwrap_or_default().to_owned();
            noted.lock().unwrap().push(line);
        }
    });
    (address, asked)
}

#[tokio::test]
#[ignore = "needs Chromium: `cargo xtask edge` runs it"]
async fn the_page_works_without_any_other_host() {
    let program =
        PathBuf::from(std::env::var_os("WAKEQ_CHROMIUM").expect("`cargo xtask edge` says where it is"));
    let service = Service::start().await;
    let (elsewhere, asked) = nowhere().await;
    let profile = std::env::temp_dir().join(format!("wakeq-page-{}", std::process::id()));
    let output = tokio::process::Command::new(program)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--no-pings",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-default-apps",
        ])
        .args([
            "--disable-client-side-phishing-detection",
            "--disable-domain-reliability",
            "--disable-extensions",
        ])
        .arg("--disable-features=OptimizationHints,MediaRouter,AutofillServerCommunication,Translate")
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--proxy-server=http://{elsewhere}"))
        .args(["--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("http://{}/docs/", service.address))
        .output()
        .await
        .unwrap();
    std::fs::remove_dir_all(&profile).ok();
    let dom = String::from_utf8_lossy(&output.stdout);
    let all = operations(&service).await;
    let missing: Vec<_> = all
        .iter()
        .filter(|operation| !dom.contains(&format!("{}\"", operation.id)))
        .map(|operation| &operation.id)
        .collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        missing.is_empty(),
        "the page does not show {missing:?}\n{errors}\n{}",
        &dom[..dom.len().min(3000)]
    );
    let asked = asked.lock().unwrap().clone();
    println!("the page shows all {} operations; asked of other hosts: {asked:?}", all.len());
    assert!(asked.is_empty(), "other hosts were asked: {asked:?}");
    service.stop().await;
}
