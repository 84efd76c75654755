//! `cargo dev --demo`: what there is to see in its shop.

use std::collections::BTreeSet;

use serde_json::Value;
use wakeq::{Admin, CanvasId};

use crate::running::{Api, Home};

/// The shop opens, and what goes wrong in it goes wrong. After a restart it is the same shop. Its
/// branch is another tenant, of which the shop's key sees nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_demo_is_a_shop_that_stays_the_same() {
    let Some(home) = Home::new("demo") else { return };
    let dev = home.start(&["--demo"]).await;
    dev.prints("The demo's shop has opened").await;
    let api = dev.api().await;
    dev.prints("resize-image  waits for a limit").await;
    let uses = api.list("/limits/customer/uses");
    assert!(uses.iter().any(|used| used["name"] == "customer:atelier-nord"), "{uses:?}");
    for line in [
        "charge-card  done in",
        "import-article  the rate of a limit lets it start in",
        "count them, then redrive or skip this), and no retry can help: dead",
        "was declined: insufficient funds",
        "sync-crm   POST of {",
        "ms), the last one: dead",
    ] {
        dev.prints(line).await;
    }
    check_handlers(&api);
    check_order(&api);
    check_what_operators_have_set(&api);
    let (store, pubsub) = dev.join().await;
    let admin = Admin::new(store, pubsub);
    let queue = admin.queue(&"analytics".parse().unwrap()).await.unwrap();
    assert!(queue.tenant_visible && queue.target.is_none(), "{queue:?}");
    let facets = admin.facet_settings(&queue.name, None, 10).await.unwrap();
    assert_eq!(facets.iter().map(|(canvas, _)| *canvas).collect::<Vec<_>>(), [CanvasId::DEFAULT]);
    let workers = admin.workers(None, 10).await.unwrap().items;
    assert_eq!(workers.iter().map(|worker| worker.name.as_str()).collect::<Vec<_>>(), ["shop-1", "shop-2"]);
    for words in ["not emitted", "NO HANDLER", "another worker has joined", "without a valid signature"] {
        assert!(!dev.has_printed(words), "{words}");
    }
    dev.stop().await;

    let dev = home.start(&["--demo", "--no-trickle"]).await;
    dev.prints("The demo's shop is open again").await;
    let api = dev.api().await;
    check_order(&api);
    check_what_operators_have_set(&api);
    dev.stop().await;
}

fn texts<'a>(items: &'a [Value], field: &str) -> BTreeSet<&'a str> {
    items.iter().map(|item| item[field].as_str().unwrap()).collect()
}

/// Those that have something to show, whatever has ended by now.
fn check_handlers(api: &Api) {
    let handlers = api.list("/handlers");
    let names = texts(&handlers, "name");
    for name in ["book-stock", "charge-card", "import-article", "remind-cart", "resize-image", "send-mail"] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    let crm = api.get("/handlers/WORKER/sync-crm");
    assert_eq!(crm["targets"].as_array().unwrap().len(), 1, "{crm}");
    let kept = api.list("/ended-events?name=charge-card");
    assert_eq!(texts(&kept, "outcome"), BTreeSet::from(["completed"]));
    let dead = api.list("/dead-events?name=charge-card");
    assert_eq!(texts(&dead, "cause"), BTreeSet::from(["rejected", "retries"]));
    let declined = |event: &&Value| event["last_error"].as_str().unwrap().contains("declined");
    let errors: BTreeSet<_> =
        dead.iter().filter(declined).map(|event| event["last_error"].to_string()).collect();
    assert!(errors.len() > 1, "errors of one kind that differ: {errors:?}");
}

/// A halted object, whose later events wait; and the batch, which has begun.
fn check_order(api: &Api) {
    let halted = api.list("/halted-objects");
    assert_eq!(texts(&halted, "object"), BTreeSet::from(["article:2077"]));
    let booked = api.list("/events?name=book-stock");
    let waiting = booked.iter().filter(|event| event["place"]["object"] == "article:2077");
    assert_eq!(waiting.count(), 3, "{booked:?}");
    assert_eq!(api.get("/objects/shop:door")["state"]["open"], true);
    assert_eq!(texts(&api.list("/batches"), "name"), BTreeSet::from(["import:spring-catalogue"]));
    let batch = api.get("/batches/import:spring-catalogue");
    assert_eq!(batch["state"], "closed", "{batch}");
    assert!(batch["left"].as_u64().unwrap() > 0, "{batch}");
}

fn check_what_operators_have_set(api: &Api) {
    let paused = api.get("/handlers/WORKER/remind-cart");
    let rule = &paused["rules"][0];
    assert_eq!(texts(std::slice::from_ref(rule), "created_by"), BTreeSet::from(["mia"]));
    assert!(rule["reason"].as_str().unwrap().contains("SHOP-812") && rule["until"].is_string(), "{rule}");
    let crons = api.list("/cron");
    let zones = BTreeSet::from(["America/New_York", "Asia/Tokyo", "Europe/Berlin", "UTC"]);
    assert_eq!(texts(&crons, "zone"), zones);
    let limits = api.list("/limits");
    let names = ["customer", "handler:WORKER/import-article", "handler:WORKER/send-mail"];
    assert_eq!(texts(&limits, "name"), BTreeSet::from(names));
    let branch = "/v1/canvases/b5a0c4e1-5e0d-4c1f-9a37-000000000002/handlers";
    assert_eq!(api.ask(branch).0, 404, "the branch is another tenant");
}
