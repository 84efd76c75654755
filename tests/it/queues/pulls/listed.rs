//! Leases as operators see them: listed page by page, and ended without a token.

use reqwest::Method;
use serde_json::json;

use super::{NONE, Puller, QUEUE, canvas, pulled};
use crate::support::Statements;

/// A second queue, whose leases must not appear.
const OTHER: &str = "others";

/// Leased copies of all canvases are listed, without tokens and values. Those that were completed,
/// ran out, or are leased from another queue are not.
// Shows: DRV-26
#[tokio::test]
async fn leases_are_listed_page_by_page() {
    let puller = Puller::start().await;
    puller.register(OTHER, &pulled()).await;
    for of in 1..=3 {
        puller.emit(of, 0..4).await;
    }
    let copies = puller.lease(json!({"max": 9, "lease_s": 600})).await;
    puller.complete(&copies[0]).await;
    puller.run_out(&copies[1..2]).await;
    let path = format!("/admin/queues/{QUEUE}/leases?limit=2");
    let (mut listed, mut pages, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let answer = puller.service.ask(&puller.key, Method::GET, &format!("{path}{cursor}"), NONE).await;
        let page = answer.json();
        for item in page["items"].as_array().unwrap() {
            assert!(item.get("lease").is_none() && item.get("value").is_none(), "{item}");
            assert_eq!((&item["attempt"], &item["name"]), (&json!(1), &json!("opened")));
            listed.push((item["canvas"].clone(), item["id"].clone(), item["lease_until"].clone()));
        }
        pages += 1;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let leased = copies[2..].iter().map(|copy| {
        let of = canvas(copy.canvas).to_string();
        (json!(of), json!(copy.id), copy.json["lease_until"].clone())
    });
    let mut expected: Vec<_> = leased.collect();
    expected.sort_by_key(|(of, id, _)| (of.to_string(), id.to_string()));
    assert_eq!((listed, pages), (expected, 4));
    let ask = async |path: &str| puller.service.ask(&puller.key, Method::GET, path, NONE).await;
    let others = ask(&format!("/admin/queues/{OTHER}/leases")).await.json();
    assert_eq!(others, json!({"items": [], "next_cursor": null}));
    assert_eq!(ask("/admin/queues/unknown/leases").await.status.as_u16(), 404);
    let wrong = ask(&format!("/admin/queues/{QUEUE}/leases?cursor=a~1")).await;
    assert_eq!(wrong.status.as_u16(), 400, "the cursor of another list");
    puller.stop().await;
}

/// A lease whose token is lost can be ended by its copy's id: only in its queue, with a record, and
/// as if it had been released.
// Shows: DRV-26
#[tokio::test]
async fn a_lease_is_ended_without_its_token() {
    let puller = Puller::start().await;
    puller.register(OTHER, &pulled()).await;
    puller.emit(7, [42]).await;
    let copy = puller.one().await;
    let end = async |queue: &str| {
        let path = format!("/admin/queues/{queue}/leases/{}", copy.id);
        puller.service.ask(&puller.key, Method::DELETE, &path, NONE).await.status.as_u16()
    };
    assert_eq!((end(OTHER).await, end("unknown").await), (404, 404));
    assert_eq!(puller.on(&copy, "extend", json!({})).await.status.as_u16(), 200, "the lease stands");
    assert_eq!((end(QUEUE).await, end(QUEUE).await), (204, 404));
    assert_eq!(puller.on(&copy, "complete", json!({})).await.status.as_u16(), 410);
    let again = puller.one().await;
    assert_eq!((&again.id, again.attempt, again.value), (&copy.id, 1, 42));
    puller.complete(&again).await;
    let record = "select canvas_id, actor, outcome, detail from wakeq.audit_log where action = 'end-lease'";
    let record: Vec<(uuid::Uuid, String, String, String)> = puller.stage().pool.table(record).await;
    let [(of, actor, outcome, detail)] = &record[..] else { panic!("one change: {record:?}") };
    assert_eq!((*of, actor.as_str(), outcome.as_str()), (canvas(7).0, "key:puller", "done"));
    assert!(detail.ends_with(&format!("queue {QUEUE}")), "{detail}");
    puller.stop().await;
}
