//! Floods of invalid credentials: they send no statement to the database, and never keep a valid
//! key out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Method;
use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;
use wakeq::{Actor, CanvasId};
use wakeq_service::access::{Access, AccessConfig, CredentialFilter, Reach, Refusal, Scope, Unauthenticated};
use wakeq_service::server::HttpConfig;

use crate::support::service::{Service, make_key};
use crate::support::{Stage, wait_while};

const OTHER: CanvasId = CanvasId(Uuid::from_u128(0x07e5));
/// Connections of the flood.
const FLOOD: usize = 100;

/// A key of the right form, whose checksum was not computed.
fn made_up() -> String {
    let digits = || Uuid::new_v4().simple().to_string();
    format!("wakeq_{}_{}{}{}", &digits()[..12], digits(), digits(), &digits()[..16])
}

/// Without the database, a made-up key is refused, and a real one that was not looked up yet can't
/// be checked.
#[tokio::test]
async fn a_made_up_key_is_refused_without_the_database() {
    let (stage, _) = Stage::memory().await;
    let maker = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
    let asker = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
    let key = make_key(&maker, "known", Reach::Canvas(OTHER), &[Scope::Emit]).await;
    let unseen = make_key(&maker, "unseen", Reach::Canvas(OTHER), &[Scope::Emit]).await;
    let ask = async |key: &str| asker.authenticate(Some(&format!("Bearer {key}"))).await;
    ask(&key).await.unwrap();
    stage.store.close().await;
    for _ in 0..100 {
        let refused = ask(&made_up()).await;
        assert!(matches!(refused, Err(Unauthenticated::Unknown(Refusal::WrongCheck(_)))), "{refused:?}");
    }
    let mut mistyped = unseen.clone();
    let last = if mistyped.pop() == Some('0') { '1' } else { '0' };
    mistyped.push(last);
    let refused = ask(&mistyped).await;
    assert!(matches!(refused, Err(Unauthenticated::Unknown(Refusal::WrongCheck(_)))), "{refused:?}");
    assert!(matches!(ask(&unseen).await, Err(Unauthenticated::Unavailable(_))), "it has to be looked up");
    ask(&key).await.unwrap();
}

/// What a hundred clients send without pause.
#[derive(Clone, Copy, Debug)]
enum Flood {
    Malformed,
    MadeUp,
    Revoked,
}

/// During each flood, keys of two canvases that the process has not seen yet pass at their first
/// request.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_flood_of_invalid_keys_blocks_no_valid_key() {
    let service = Service::with(HttpConfig::default()).await;
    let revoked = service.key("revoked", OTHER, &Scope::ALL).await;
    let id = revoked.split('_').nth(1).unwrap().parse().unwrap();
    let by = Actor::admin("tests");
    assert!(service.access.revoke_key(CredentialFilter::from(OTHER), id, &by).await.unwrap());
    for flood in [Flood::Malformed, Flood::MadeUp, Flood::Revoked] {
        let answered = Arc::new(AtomicUsize::new(0));
        let mut clients = JoinSet::new();
        for _ in 0..FLOOD {
            let path = format!("/v1/canvases/{OTHER}/events");
            let (request, revoked) = (service.request(Method::POST, &path), revoked.clone());
            let answered = Arc::clone(&answered);
            clients.spawn(async move {
                loop {
                    let key = match flood {
                        Flood::Malformed => format!("wakeq_{}", Uuid::new_v4()),
                        Flood::MadeUp => made_up(),
                        Flood::Revoked => revoked.clone(),
                    };
                    let request = request.try_clone().unwrap().bearer_auth(key).json(&json!({"name": "x"}));
                    let status = request.send().await.unwrap().status().as_u16();
                    assert!(matches!(status, 401 | 429), "{flood:?}: {status}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_while!(answered.load(Ordering::Relaxed) < FLOOD, "the flood begins");
        for (index, canvas) in [CanvasId::DEFAULT, OTHER].into_iter().cycle().take(10).enumerate() {
            let key = service.key(&format!("{flood:?} {index}"), canvas, &[Scope::Emit]).await;
            let path = format!("/canvases/{canvas}/events");
            let answer = service.ask(&key, Method::POST, &path, json!({"name": "greet"})).await;
            assert_eq!(answer.status, 202, "{flood:?}: {}", answer.text);
        }
        let before = answered.load(Ordering::Relaxed);
        wait_while!(answered.load(Ordering::Relaxed) == before, "the flood goes on");
        clients.abort_all();
        while let Some(ended) = clients.join_next().await {
            assert!(ended.unwrap_err().is_cancelled(), "a client of the flood failed");
        }
    }
    service.stop().await;
}
