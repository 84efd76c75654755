//! The official CloudEvents SDK for Python emits: what it sends, in each of its modes, becomes the
//! right row.

use std::collections::BTreeMap;
use std::process::Stdio;

use serde_json::{Value, json};
use sqlx::Row;
use tokio::process::Command;
use wakeq::CanvasId;

use crate::support::service::Service;

/// What the script reported of one request.
struct ScriptReport {
    status: u64,
    body: Value,
}

#[tokio::test]
#[ignore = "needs the SDK: `cargo xtask sdk` installs it and runs this"]
async fn the_official_sdk_emits() {
    let service = Service::start().await;
    let sent = run_script(&service).await;
    for (case, expected) in [
        ("structured", "[WORKER/greet/eu] {\"name\":\"Ada\",\"é\":[1,2.5,null]}"),
        ("binary json", "[WORKER/greet/_] {\"name\":\"Bo\"}"),
        ("binary text", "[WORKER/greet/_] \"héllo\""),
        ("binary bytes", "[WORKER/greet/_] {\"a\":1}"),
        ("binary nothing", "[WORKER/greet/_] null"),
        ("binary delayed", "[WORKER/greet/_] {}"),
    ] {
        let first = &sent[case];
        assert_eq!((first.status, &first.body["duplicate"]), (202, &json!(false)), "{case}: {}", first.body);
        let (address, value, _) = row(&service, &first.body["id"]).await;
        assert_eq!(format!("[{address}] {value}"), expected, "{case}");
    }
    for (again, first) in [
        ("structured again", "structured"),
        ("the same in binary", "structured"),
        ("structured json", "binary json"),
        ("structured text", "binary text"),
        ("structured bytes", "binary bytes"),
        ("structured nothing", "binary nothing"),
        ("structured delayed", "binary delayed"),
    ] {
        let expected = json!({"id": sent[first].body["id"], "duplicate": true});
        assert_eq!((sent[again].status, &sent[again].body), (202, &expected), "{again}");
    }
    let (_, _, delayed) = row(&service, &sent["binary delayed"].body["id"]).await;
    assert_eq!(delayed, "2096-01-31 08:00:00");

    let image = &sent["image"];
    assert_eq!(
        (image.status, &image.body["type"]),
        (415, &json!("urn:wakeq:problem:unsupported-media-type"))
    );
    let (_, envelope, _) = row(&service, &sent["enveloped image"].body["id"]).await;
    assert_eq!(
        envelope,
        json!({"specversion": "1.0", "id": "7", "source": "https://shop.example/orders?region=eu", "type": "greet",
               "time": "2026-01-31T08:00:00.250000Z", "datacontenttype": "image/png", "subject": "Euro € 😀 \"100%\"", "data_base64": "AP8="})
    );
    let batch = &sent["batch"];
    let duplicates: Vec<_> = (0..3).map(|at| batch.body["events"][at]["duplicate"].clone()).collect();
    assert_eq!((batch.status, duplicates), (202, vec![json!(false), json!(false), json!(true)]));
    assert_eq!(batch.body["events"][2]["id"], sent["structured"].body["id"]);
    assert_eq!(service.stop().await.rows().await, 9);
}

async fn run_script(service: &Service) -> BTreeMap<String, ScriptReport> {
    let python = std::env::var("WAKEQ_SDK_PYTHON").expect("WAKEQ_SDK_PYTHON: the Python that has the SDK");
    let script = crate::support::repository::root().join("tests/sdk/cloudevents_emit.py");
    let output = Command::new(python)
        .arg(script)
        .env("WAKEQ_ADDRESS", service.address.to_string())
        .env("WAKEQ_CANVAS", CanvasId::DEFAULT.to_string())
        .env("WAKEQ_KEY", &service.key)
        .stderr(Stdio::inherit())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "the script failed");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| {
            println!("{line}");
            let sent = ScriptReport { status: line["status"].as_u64().unwrap(), body: line["body"].clone() };
            (line["case"].as_str().unwrap().to_owned(), sent)
        })
        .collect()
}

/// Address, value and due time of an event.
async fn row(service: &Service, id: &Value) -> (String, Value, String) {
    let sql = "select module || '/' || name || '/' || modifier, value::text,
                      to_char(delay_until at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS')
                 from wakeq.events_v2 where id = $1";
    let id: uuid::Uuid = id.as_str().unwrap().parse().unwrap();
    let row = sqlx::query(sql).bind(id).fetch_one(&service.stage.pool).await.unwrap();
    (row.get(0), serde_json::from_str(row.get(1)).unwrap(), row.get(2))
}
