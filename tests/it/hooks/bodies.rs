//! What the bodies of webhooks become.

use serde_json::{Value, json};
use wakeq::CanvasId;

use super::signing::{Webhook, put, webhook};
use crate::support::service::Service;

/// The value of the event that a hook made of a webhook, to the letter.
async fn value_of(service: &Service, hook: &str, sent: &Webhook) -> String {
    let answer = sent.sent(service, hook).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let value = "select value::text from wakeq.events_v2 where id = $1::text::uuid";
    sqlx::query_scalar(value).bind(id).fetch_one(&service.stage.pool).await.unwrap()
}

#[tokio::test]
async fn the_value_is_the_body_or_a_cloud_event_around_it() {
    let service = Service::start().await;
    put(&service, "plain", "github", json!({})).await;
    put(
        &service,
        "whole",
        "github",
        json!({"value": "envelope", "handler": {"name": "receive", "modifier": "eu"}}),
    )
    .await;
    put(&service, "stripe", "stripe", json!({"value": "envelope"})).await;
    let body = r#"{"ref": "main", "n": 1.50}"#;
    let sent = webhook("github", "1").body(body);
    assert_eq!(value_of(&service, "plain", &sent).await, body);
    let form = Webhook { content_type: "application/x-www-form-urlencoded", ..webhook("github", "2") };
    let form = form.body("payload=%7B%22ref%22%3A+%22main%22%7D&x=1");
    assert_eq!(value_of(&service, "plain", &form).await, r#"{"ref": "main"}"#);

    let enveloped = value_of(&service, "whole", &sent).await;
    assert!(enveloped.ends_with(&format!("\"data\":{body}}}")), "{enveloped}");
    let enveloped: Value = serde_json::from_str(&enveloped).unwrap();
    let expected = json!({
        "specversion": "1.0",
        "id": "1",
        "source": format!("/canvases/{}/hooks/whole", CanvasId::DEFAULT),
        "type": "push",
        "datacontenttype": "application/json",
        "data": {"ref": "main", "n": 1.5},
    });
    assert_eq!(enveloped, expected);
    let addressed = "select count(*) from wakeq.events_v2 where name = 'receive' and modifier = 'eu'";
    assert_eq!(service.stage.count(addressed).await, 1);
    let stripe: Value =
        serde_json::from_str(&value_of(&service, "stripe", &webhook("stripe", "evt_1")).await).unwrap();
    assert_eq!((&stripe["id"], &stripe["type"]), (&json!("evt_1"), &json!("paid")));
    service.stop().await;
}

/// A body is judged once its signature is right, and nothing of it is repeated.
#[tokio::test]
async fn bodies_that_are_no_values_are_refused_with_advice() {
    let service = Service::start().await;
    for kind in ["standard", "stripe", "github"] {
        put(&service, kind, kind, json!({})).await;
    }
    let form = Webhook { content_type: "application/x-www-form-urlencoded", ..webhook("github", "1") };
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    for (hook, sent, words) in [
        ("standard", webhook("standard", "1").body("s3cr3t"), "not JSON"),
        ("standard", webhook("standard", "1").body(""), "not JSON"),
        ("standard", webhook("standard", "1").body(r#"{"a": "s3cr3t\u0000"}"#), "NUL"),
        ("standard", webhook("standard", "1").body(deep), "nested deeper than 64"),
        (
            "stripe",
            webhook("stripe", "1").body(r#"{"type": "s3cr3t"}"#),
            "the field `id` of the body is missing",
        ),
        ("stripe", webhook("stripe", "1").body(r#"{"id": 7}"#), "`id` must be a string"),
        ("github", form.clone().body("s3cr3t=1"), "the field `payload` of the form is missing"),
        (
            "github",
            form.clone().body(r#"{"a": "&payload=7&"}"#),
            "the field `payload` of the form is missing",
        ),
        ("github", form.body("payload=s3cr3t"), "not JSON"),
    ] {
        let refused = sent.sent(&service, hook).await;
        refused.says((400, "bad-request"), words);
        assert!(!refused.text.contains("s3cr3t"), "{}", refused.text);
        let stranger = sent.clone().signed_with("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
        assert_eq!(stranger.sent(&service, hook).await.problem().0, 401);
    }
    let large = webhook("github", "1").body(format!("\"{}\"", "x".repeat(300_000)));
    assert_eq!(large.sent(&service, "github").await.problem(), (413, "too-large".into()));
    // What is stored has the limit: a body fits alone, and not into an envelope.
    put(&service, "whole", "github", json!({"value": "envelope"})).await;
    let near = webhook("github", "2").body(format!("\"{}\"", "x".repeat(256 * 1024 - 2)));
    near.sent(&service, "whole").await.says((413, "too-large"), "with its envelope of");
    let (rows, status) = (service.stage.rows().await, near.sent(&service, "github").await.status);
    assert_eq!((rows, status.as_u16(), service.stage.rows().await), (0, 202, 1));
    let query = webhook("github", "1").to(&service, CanvasId::DEFAULT, "github").query(&[("source", "x")]);
    assert_eq!(crate::support::service::Answer::of(query).await.problem(), (400, "bad-request".into()));
    assert_eq!(service.stage.rows().await, 1);
    assert_eq!(webhook("github", "1").sent(&service, "github").await.json()["duplicate"], false);
    service.stop().await;
}
