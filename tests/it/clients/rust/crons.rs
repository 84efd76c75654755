//! Crons of two tenants under the same name.

use serde_json::json;
use wakeq_client::{MissedTicks, NewCron};

use super::{Tenants, refused, service};

#[tokio::test]
async fn a_cron_is_set_listed_run_now_paused_and_removed() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let report = NewCron::new("30 8 1 1 *").zone("Europe/Berlin").value(&json!({"to": "Ada"})).unwrap();
    let set = mine.set_cron("report", &report).await.unwrap();
    assert_eq!((set.zone.as_str(), set.missed, set.next.len()), ("Europe/Berlin", MissedTicks::Skip, 5));
    assert_eq!((set.next[0].local.to_utc(), set.ticks), (set.next[0].at, 0));
    let yearly = NewCron::new("@yearly").modifier("loud").missed(MissedTicks::Once);
    mine.set_cron("stock", &yearly).await.unwrap();
    other.set_cron("report", &NewCron::new("@yearly").value("theirs").unwrap()).await.unwrap();
    let first = mine.crons(1, None).await.unwrap();
    let cursor = first.next_cursor.as_deref();
    let second = mine.crons(1, cursor).await.unwrap();
    assert_eq!([&first, &second].map(|page| page.items[0].name.as_str()), ["report", "stock"]);
    let stock = &second.items[0];
    assert_eq!((stock.modifier.as_str(), stock.missed, stock.next.len()), ("loud", MissedTicks::Once, 1));
    assert!(other.crons(10, cursor).await.unwrap().items.is_empty());

    let id = mine.run_cron("report").await.unwrap();
    let event = mine.event(id).await.unwrap();
    assert_eq!((event.module.as_deref(), event.name.as_deref()), (Some("CRON"), Some("report")));
    assert_eq!(event.value.unwrap().get(), r#"{"to":"Ada"}"#);
    refused(other.event(id).await, 404, "not-found");

    let paused = mine.pause_cron("report", Some("the warehouse moves")).await.unwrap();
    let pause = paused.paused.unwrap();
    assert_eq!((pause.reason.as_deref(), pause.by.as_str()), (Some("the warehouse moves"), "key:client"));
    assert!(paused.next.is_empty() && other.cron("report").await.unwrap().paused.is_none());
    assert!(mine.unpause_cron("report").await.unwrap().paused.is_none());
    for stranger in [&other, &intruder] {
        refused(stranger.cron("stock").await, 404, "not-found");
        refused(stranger.run_cron("stock").await, 404, "not-found");
        refused(stranger.pause_cron("stock", None).await, 404, "not-found");
        refused(stranger.unpause_cron("stock").await, 404, "not-found");
        refused(stranger.remove_cron("stock").await, 404, "not-found");
    }
    refused(intruder.crons(10, None).await, 404, "not-found");
    refused(intruder.set_cron("stock", &yearly).await, 404, "not-found");
    refused(mine.set_cron("stock", &NewCron::new("every day")).await, 400, "bad-request");
    mine.remove_cron("report").await.unwrap();
    refused(mine.cron("report").await, 404, "not-found");
    assert_eq!(other.cron("report").await.unwrap().value.unwrap().get(), r#""theirs""#);
    service.stop().await;
}
