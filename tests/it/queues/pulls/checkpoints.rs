//! Services that leave to the next lease of a copy how far they have come.

use reqwest::Method;
use serde_json::{Value, json};

use super::{PulledCopy, Puller, canvas};
use crate::support::service::Answer;

impl Puller {
    async fn leaves(&self, copy: &PulledCopy, value: Value) -> Answer {
        let path = format!("/canvases/{}/events/{}/checkpoint", canvas(copy.canvas), copy.id);
        let body = json!({"claim": copy.lease, "value": value});
        self.service.ask(&self.key, Method::PUT, &path, body).await
    }
}

/// Copies keep the order of their turns, and each has its own.
#[tokio::test]
async fn the_next_lease_has_what_the_last_one_left() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let first = puller.lease(json!({"max": 10})).await;
    assert!(first.iter().all(|copy| copy.json.get("checkpoint").is_none()), "{first:?}");
    let of_one = first.iter().find(|copy| copy.canvas == 1).unwrap();
    assert_eq!(puller.leaves(of_one, json!({"page": 7})).await.status.as_u16(), 204);
    puller.run_out(&first).await;
    let second = puller.lease(json!({"max": 10})).await;
    assert_eq!(second.len(), 2, "{second:?}");
    for copy in &second {
        let expected = if copy.canvas == 1 { json!({"page": 7}) } else { Value::Null };
        assert_eq!(copy.json["checkpoint"]["value"], expected, "{copy:?}");
    }
    let late = puller.leaves(of_one, json!({"page": 8})).await;
    assert_eq!(late.problem(), (410, "lease-over".into()), "another lease has begun");
    for copy in &second {
        assert_eq!(puller.leaves(copy, json!(copy.id)).await.status.as_u16(), 204);
        assert_eq!(puller.fails(copy, 0.0).await["died"], false);
    }
    let third = puller.lease(json!({"max": 10})).await;
    for copy in &third {
        assert_eq!(copy.json["checkpoint"]["value"], json!(copy.id), "{copy:?}");
        puller.complete(copy).await;
    }
    assert_eq!(third.len(), 2);
    puller.stop().await;
}
