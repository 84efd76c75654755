//! Refusals are in the canvas's record.

use reqwest::Method;
use serde_json::json;
use sqlx::Row;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::requests::FOREIGN;
use crate::service::{Answer, Service};
use crate::support::Statements;

#[tokio::test]
async fn refusals_are_in_the_record_when_the_server_has_ended() {
    let service = Service::start().await;
    let operator = service.key("operator", CanvasId::DEFAULT, &[Scope::Operate]).await;
    let block = format!("/v1/admin/canvases/{}/handlers/WORKER/greet/block", CanvasId::DEFAULT);
    let own = Answer::of(service.request(Method::PUT, &block).bearer_auth(&service.key)).await;
    own.json();
    for times in 0..3 {
        let lift = service.request(Method::DELETE, &block).header("x-request-id", format!("try-{times}"));
        assert_eq!(Answer::of(lift.bearer_auth(&operator)).await.problem(), (403, "forbidden".into()));
    }
    let foreign = format!("/v1/canvases/{FOREIGN}/events");
    let foreign = Answer::of(service.request(Method::GET, &foreign).bearer_auth(&operator)).await;
    assert_eq!(foreign.problem(), (404, "not-found".into()));
    let unknown = format!("wakeq_{}_{}", "a".repeat(12), "b".repeat(80));
    let list = format!("/v1/canvases/{}/handlers", CanvasId::DEFAULT);
    let stranger = Answer::of(service.request(Method::GET, &list).bearer_auth(unknown)).await;
    assert_eq!(stranger.problem(), (401, "unauthenticated".into()));

    let stage = service.stop().await;
    let rows = "select canvas_id::text, actor, action, coalesce(name::text, ''), coalesce(detail, ''), times, request_id
                from wakeq.audit_log where outcome = 'refused' order by actor, canvas_id";
    let rows = sqlx::query(rows).fetch_all(&stage.pool).await.unwrap();
    let row = |index: usize| -> (String, String, String, String, String, i32) {
        let row = &rows[index];
        (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4), row.get(5))
    };
    assert_eq!(rows.len(), 3);
    let with = format!("with {} from 127.0.0.1; ", &operator[..18]);
    let words = format!("{with}this needs the scope `admin`, which was not granted");
    let (default, actor) = (CanvasId::DEFAULT.to_string(), "key:operator".to_owned());
    let lifts = (default.clone(), actor, "unblock_handler".into(), "greet".into(), words, 3);
    assert_eq!(row(0), lifts);
    assert_eq!(rows[0].get::<String, _>(6), "try-0");
    let (stranger, action) = ("unauthenticated".to_owned(), "list_handlers".to_owned());
    let words = format!(
        "from 127.0.0.1; key wakeq_{} was not made by this deployment, or is mistyped",
        "a".repeat(12)
    );
    assert_eq!(row(1), (default, stranger.clone(), action, String::new(), words, 1));
    // The other canvas's record does not say who it was.
    let words = "from 127.0.0.1; the credential of another canvas".to_owned();
    assert_eq!(row(2), (FOREIGN.to_string(), stranger, "list_events".into(), String::new(), words, 1));
    let blocked: i64 = stage.pool.value("select count(*) from wakeq.scheduling_rules").await;
    assert_eq!(blocked, 1, "the block stands");
}

/// The elements of a list have no names, so a list is not taken for a body's fields.
#[tokio::test]
async fn a_list_is_not_taken_for_the_fields_in_their_order() {
    let service = Service::start().await;
    let pause = "/handlers/WORKER/greet/pause";
    for body in [json!([null, null]), json!(["reason"]), json!(null), json!("reason")] {
        assert_eq!(service.put(pause, body).await.problem(), (400, "bad-request".into()));
    }
    assert_eq!(service.delete(pause).await.json()["lifted"], false);
    let empty = Answer::of(service.on_canvas(Method::PUT, pause)).await;
    assert_eq!(empty.json()["new"], true, "every field may be left out");
    assert_eq!(service.delete(pause).await.json()["lifted"], true);
    service.stop().await;
}
