//! Lists of entities: page by page, of one type and one canvas.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::PgPool;
use wakeq::CanvasId;
use wakeq_service::access::Scope;
use wakeq_streams::entities::EntityCursor;
use wakeq_streams::{Entities, EntityError, EntityId, EntityType};

use super::{Bank, OTHER};
use crate::support::service::{Service, has};

/// Creates this many entities of a type on a canvas, every second one without a snapshot.
async fn fill(pool: &PgPool, canvas: CanvasId, entity_type: &str, prefix: &str, count: i32) {
    let fill = "insert into wakeq.entities (entity_type, canvas_id, id, version, last_link, state, state_version, state_seq)
                select $1, $2, $3 || lpad(n::text, 6, '0'), n + 1, n + 1, case when n % 2 = 0 then '{\"cents\":5}' end,
                       case when n % 2 = 0 then n + 1 else 0 end, case when n % 2 = 0 then n + 1 else 0 end
                  from generate_series(0, $4 - 1) n";
    let fill = sqlx::query(fill).bind(entity_type).bind(canvas.0).bind(prefix).bind(count);
    fill.execute(pool).await.unwrap();
}

/// Reads all pages of a list; a page never exceeds `limit`.
async fn all(entities: &Entities, canvas: CanvasId, entity_type: &EntityType, limit: u32) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None::<EntityCursor>);
    loop {
        let page = entities.list(canvas, entity_type, after.as_ref(), limit).await.unwrap();
        assert!(page.entities.len() <= limit as usize);
        let is_own = |id: &EntityId| id.canvas == canvas && id.entity_type == *entity_type;
        assert!(page.entities.iter().all(|one| is_own(&one.id)));
        found.extend(page.entities.iter().map(|one| one.id.id.to_string()));
        match page.next {
            Some(next) => after = Some(next.to_string().parse().unwrap()),
            None => return found,
        }
    }
}

/// 20,000 entities of a type, others of the same type on another canvas, and some of another type:
/// each list has exactly its own, once.
#[tokio::test]
async fn a_list_has_all_of_its_type_and_canvas_and_nothing_else() {
    let bank = Bank::open().await;
    let pool = &bank.stage.pool;
    let (account, order): (EntityType, EntityType) = ("account".parse().unwrap(), "order".parse().unwrap());
    fill(pool, CanvasId::DEFAULT, "account", "a", 20_000).await;
    fill(pool, OTHER, "account", "b+:@=~", 2_500).await;
    fill(pool, CanvasId::DEFAULT, "order", "o", 5).await;
    let entities = &bank.entities;
    let mine = all(entities, CanvasId::DEFAULT, &account, 1000).await;
    assert_eq!(mine.iter().collect::<BTreeSet<_>>().len(), 20_000);
    assert!(mine.len() == 20_000 && mine.iter().all(|id| id.starts_with('a')));
    let theirs = all(entities, OTHER, &account, 999).await;
    assert!(theirs.len() == 2_500 && theirs.iter().all(|id| id.starts_with('b')));
    assert_eq!(all(entities, CanvasId::DEFAULT, &order, 2).await.len(), 5);
    assert!(all(entities, OTHER, &order, 2).await.is_empty());
    // Another canvas's cursor reveals nothing of that canvas: only what comes after it here.
    let first = entities.list(OTHER, &account, None, 1).await.unwrap();
    let cursor = first.next.unwrap();
    let page = entities.list(CanvasId::DEFAULT, &account, Some(&cursor), 1000).await.unwrap();
    assert!(page.entities.iter().all(|one| one.id.canvas == CanvasId::DEFAULT));
    let refused = entities.list(CanvasId::DEFAULT, &order, Some(&cursor), 1000).await;
    assert!(matches!(refused, Err(EntityError::Cursor(_))), "{refused:?}");
    let summary = entities.list(CanvasId::DEFAULT, &account, None, 2).await.unwrap().entities;
    let versions: Vec<_> =
        summary.iter().map(|one| (one.version, one.state_version, one.state_bytes)).collect();
    assert_eq!(versions, [(1, 1, Some(11)), (2, 0, None)]);
}

/// Over HTTP, like every list: limits, cursors, scopes, and messages for what is invalid.
#[tokio::test]
async fn a_list_over_http() {
    let service = Service::start().await;
    let pool = &service.stage.pool;
    fill(pool, CanvasId::DEFAULT, "account", "a", 3).await;
    fill(pool, OTHER, "account", "b", 3).await;
    let page = service.get("/entities/account?limit=2").await.json();
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&page), ["a000000", "a000001"]);
    let first = &page["items"][0];
    has(first, json!({"type": "account", "version": 1, "state_bytes": 11, "state_version": 1}));
    assert_eq!(first.get("state"), None);
    let cursor = page["next_cursor"].as_str().unwrap();
    let page = service.get(&format!("/entities/account?limit=2&cursor={cursor}")).await.json();
    assert_eq!((ids(&page), &page["next_cursor"]), (vec!["a000002".to_owned()], &Value::Null));
    assert_eq!(service.get("/entities/order").await.json(), json!({"items": [], "next_cursor": null}));
    for path in [
        "/entities/account?limit=0",
        "/entities/account?limit=1001",
        "/entities/account?cursor=",
        "/entities/account?cursor=nonsense",
        "/entities/account?state=full",
        &format!("/entities/order?cursor={cursor}"),
        "/entities/account.inbox",
        "/entities/no%20type",
        "/entities/status",
    ] {
        assert_eq!(service.get(path).await.problem(), (400, "bad-request".into()), "{path}");
    }
    // A key of one canvas can't list the entities of another, nor, with `emit` alone, its own.
    let theirs = service.key("bob", OTHER, &[Scope::Read]).await;
    let emits = service.key("eve", CanvasId::DEFAULT, &[Scope::Emit]).await;
    let ask = async |key: &str, canvas: CanvasId, query: &str| {
        let path = format!("/canvases/{canvas}/entities/account{query}");
        service.ask(key, Method::GET, &path, Value::Null).await
    };
    assert_eq!(ask(&theirs, CanvasId::DEFAULT, "").await.problem(), (404, "not-found".into()));
    // The other's cursor is a place in its own list.
    let own = ask(&theirs, OTHER, &format!("?cursor={cursor}")).await.json();
    assert_eq!(ids(&own), ["b000000", "b000001", "b000002"]);
    assert_eq!(ask(&emits, CanvasId::DEFAULT, "").await.problem().0, 403);
    service.stop().await;
}
