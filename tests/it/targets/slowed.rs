//! Targets without capacity, as their own canvas sees them.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq_service::access::Scope;

use super::scene::GREET;
use crate::support::OTHER;
use crate::support::service::{NONE, Service, has};

/// Three workers slow down what is registered on the default canvas, the last of which is lost.
const FILL: &str = "
    insert into wakeq.workers (name, instance, release, capacity, handler_count, handlers, has_targets, seen_at, slowed)
    select 'w' || n, gen_random_uuid(), '0.1.0', 64, 0, '{}'::text[], true, now() - n / 3 * interval '1 hour',
           jsonb_agg(jsonb_build_object(
               'canvas', t.canvas_id, 'module', t.module::text, 'name', t.name::text, 'modifier', t.modifier::text,
               'revision', t.revision, 'per_second', 3.5 * n, 'held_s', 30 * n))
      from generate_series(1, 3) as n, wakeq.http_targets t
     where t.canvas_id = '00000000-0000-0000-0000-000000000000'
     group by n";

/// The sum over the workers that are there, until the target is registered again. Another canvas,
/// with a target of the same handler, sees nothing of it.
#[tokio::test]
async fn a_target_shows_how_fast_it_gets_events_to_its_own_canvas() {
    let service = Service::start().await;
    let body = json!({"url": "https://a.example/"});
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let their = async |method: Method, path: &str, body: Value| {
        service.ask(&theirs, method, &format!("/canvases/{OTHER}{path}"), body).await.json()
    };
    service.put(GREET, body.clone()).await.json();
    their(Method::PUT, GREET, body.clone()).await;
    let one = format!("{GREET}/_");
    assert_eq!(service.get(&one).await.json().get("slowed"), None);

    service.stage.execute(FILL).await;
    let shown = service.get(&one).await.json();
    has(&shown["slowed"], json!({"per_second": 10.5}));
    assert!(shown["slowed"]["until"].is_string(), "{shown}");
    assert_eq!(service.get("/targets").await.json()["items"][0]["slowed"], shown["slowed"]);
    assert_eq!(service.get(GREET).await.json()["targets"][0]["slowed"], shown["slowed"]);
    assert_eq!(their(Method::GET, &one, NONE).await.get("slowed"), None);
    assert_eq!(their(Method::GET, "/targets", NONE).await["items"][0].get("slowed"), None);
    assert_eq!(their(Method::GET, GREET, NONE).await["targets"][0].get("slowed"), None);

    service.stage.execute("update wakeq.workers set seen_at = seen_at - interval '2 minutes'").await;
    let later = service.get(&one).await.json();
    assert_eq!(later["slowed"], json!({"per_second": 10.5, "until": null}));
    service.put(GREET, body).await.json();
    assert_eq!(service.get(&one).await.json().get("slowed"), None);
    service.stop().await;
}
