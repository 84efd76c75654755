//! How many connections and requests are served at a time, and the answer to those beyond the
//! limit.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use reqwest::Method;
use wakeq::StoreConfig;
use wakeq_service::server::{HttpConfig, HttpError, HttpServer};

use super::raw::{Raw, authorized};
use crate::support::service::{Answer, Service};
use crate::support::{TIMEOUT, wait_while};

#[tokio::test]
async fn a_busy_process_says_so_at_once() {
    let patient = StoreConfig { lock_timeout: TIMEOUT, statement_timeout: TIMEOUT, ..StoreConfig::default() };
    let service = Service::over(patient, HttpConfig { max_requests: 1, ..HttpConfig::default() }).await;
    service.get("/handlers").await.json(); // the key is cached from now on
    let mut held = service.stage.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table wakeq.events_v2").execute(&mut *held).await.unwrap();
    let mut asking: FuturesUnordered<_> = (0..3).map(|_| service.get("/handlers")).collect();
    for _ in 0..2 {
        let refused = asking.next().await.unwrap();
        assert_eq!(refused.problem(), (429, "too-many-requests".into()));
        assert_eq!(refused.headers["retry-after"], "1");
    }
    let alive = Answer::of(service.request(Method::GET, "/livez")).await;
    assert_eq!(alive.status, 204, "whether it lives is told all the same");
    held.rollback().await.unwrap();
    asking.next().await.unwrap().json();
    drop(asking);
    service.stop().await;
}

#[tokio::test]
async fn slow_bodies_do_not_block_other_requests() {
    let service = Service::with(HttpConfig { max_requests: 1, ..HttpConfig::default() }).await;
    let emit = authorized(&service, "POST", "/events");
    let mut slow = Vec::new();
    for _ in 0..10 {
        let mut raw =
            Raw::sending(&service, format!("{emit}expect: 100-continue\r\ncontent-length: 12\r\n\r\n")).await;
        assert_eq!(raw.answer().await.status, 100, "its body is waited for");
        slow.push(raw);
    }
    service.get("/handlers").await.json();
    for raw in &mut slow {
        raw.send(r#"{"name":"a"}"#).await;
        assert_eq!(raw.answer().await.status, 202);
    }
    service.stop().await;
}

#[tokio::test]
async fn a_client_beyond_the_connection_limit_gets_a_problem() {
    let service =
        Service::with(HttpConfig { max_connections: 2, share_percent: 100, ..HttpConfig::default() }).await;
    let mut taken = Vec::new();
    for _ in 0..2 {
        let mut raw = Raw::sending(&service, "GET /livez HTTP/1.1\r\n\r\n").await;
        assert_eq!(raw.answer().await.status, 204);
        taken.push(raw);
    }
    let mut raw = Raw::connect(service.address).await;
    let answer = raw.answer().await;
    assert_eq!(answer.problem(), (503, "unavailable".into()));
    assert!(answer.head.contains("retry-after: 1\r\n"), "{}", answer.head);
    taken.pop();
    // The slot is free again once the server has seen the end of the connection.
    let alive = async || Raw::sending(&service, "GET /livez HTTP/1.1\r\n\r\n").await.answer().await.status;
    wait_while!(alive().await != 204, "no place becomes free");
    service.stop().await;
}

#[tokio::test]
async fn rejects_invalid_limits() {
    let (stage, notifier) = crate::support::Stage::memory().await;
    let usual = HttpConfig::default;
    for config in [
        HttpConfig { max_connections: 0, ..usual() },
        HttpConfig { max_requests: 0, ..usual() },
        HttpConfig { body_limit_bytes: 10, ..usual() },
        HttpConfig { body_limit_bytes: 1 << 30, ..usual() },
        HttpConfig { idle_timeout: Duration::ZERO, ..usual() },
        HttpConfig { write_timeout: Duration::from_secs(86_400), ..usual() },
    ] {
        let bound = HttpServer::bind(stage.store.clone(), notifier.clone(), config).await;
        assert!(matches!(bound.err(), Some(HttpError::Config(_))));
    }
}
