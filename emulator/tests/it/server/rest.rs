//! REST, where it differs from gRPC.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use wakeq_emulator::Emulator;

use super::{PROJECT, SUBSCRIPTION, Stage, TOPIC, soon, texts};

async fn ask(emulator: &Emulator, verb: &str, path: &str, body: &str) -> (u16, Value) {
    let url = format!("http://{}{path}", emulator.host());
    let request = reqwest::Client::new().request(verb.parse().unwrap(), url).body(body.to_owned());
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// The status, and the message.
async fn refused(emulator: &Emulator, verb: &str, path: &str, body: &str) -> (u16, String) {
    let (status, answer) = ask(emulator, verb, path, body).await;
    assert_eq!(answer["error"]["code"], json!(status), "{answer}");
    (status, format!("{} {}", answer["error"]["status"].as_str().unwrap(), answer["error"]["message"]))
}

#[tokio::test]
async fn enums_are_words_or_numbers_as_asked() {
    let stage = Stage::new().await;
    let path = format!("/v1/{SUBSCRIPTION}");
    let (_, words) = ask(&stage.emulator, "GET", &path, "").await;
    assert_eq!(words["state"], "ACTIVE");
    let (_, numbers) = ask(&stage.emulator, "GET", &format!("{path}?$alt=json;enum-encoding=int"), "").await;
    assert_eq!(numbers["state"], 1);
}

#[tokio::test]
async fn a_health_check_may_list_the_schemas_of_a_project() {
    let stage = Stage::new().await;
    let schemas = "/v1/projects/a-project/schemas";
    assert_eq!(ask(&stage.emulator, "GET", &format!("{schemas}?view=1"), "").await, (200, json!({})));
    let (status, words) = refused(&stage.emulator, "GET", &format!("{schemas}/orders"), "").await;
    assert!(status == 404 && words.starts_with("NOT_FOUND"), "{words}");
}

#[tokio::test]
async fn a_mask_names_parts_of_fields_in_either_spelling() {
    let stage = Stage::new().await;
    for mask in ["expirationPolicy.ttl", "expiration_policy.ttl"] {
        let body = json!({
            "subscription": { "name": SUBSCRIPTION, "expirationPolicy": { "ttl": "1728000s" } },
            "updateMask": mask,
        });
        let (status, updated) =
            ask(&stage.emulator, "PATCH", &format!("/v1/{SUBSCRIPTION}"), &body.to_string()).await;
        assert_eq!((status, &updated["expirationPolicy"]["ttl"]), (200, &json!("1728000s")), "{updated}");
    }
}

#[tokio::test]
async fn an_unknown_field_is_named() {
    let stage = Stage::new().await;
    let path = "/v1/projects/a-project/topics/another";
    let (status, words) = refused(&stage.emulator, "PUT", path, r#"{"lables":{}}"#).await;
    assert!(status == 400 && words.starts_with("INVALID_ARGUMENT") && words.contains("`lables`"), "{words}");
    let (status, words) = refused(&stage.emulator, "GET", "/v1/projects/p/topics?size=3", "").await;
    assert!(status == 400 && words.contains("`size`"), "{words}");
}

#[tokio::test]
async fn refusals_have_the_form_of_google_s_apis() {
    let stage = Stage::new().await;
    let emulator = &stage.emulator;
    let (status, words) = refused(emulator, "GET", "/v1/projects/a-project/topics/missing", "").await;
    assert!(status == 404 && words.starts_with("NOT_FOUND"), "{words}");
    let (status, words) = refused(emulator, "PUT", &format!("/v1/{TOPIC}"), "{}").await;
    assert!(status == 409 && words.starts_with("ALREADY_EXISTS"), "{words}");
    let kms = r#"{"kmsKeyName":"projects/p/locations/l/keyRings/r/cryptoKeys/k"}"#;
    let (status, words) = refused(emulator, "PUT", "/v1/projects/a-project/topics/secret", kms).await;
    assert!(status == 501 && words.starts_with("UNIMPLEMENTED") && words.contains("kms_key_name"), "{words}");
    let (status, words) = refused(emulator, "GET", "/v1/nothing", "").await;
    assert!(status == 404 && words.contains("GET /v1/nothing"), "{words}");
    let (status, words) = refused(emulator, "POST", &format!("/v1/{TOPIC}:publish"), "{").await;
    assert!(status == 400 && words.contains("JSON"), "{words}");
}

#[tokio::test]
async fn a_name_that_breaks_the_rule_is_refused_with_the_rule() {
    let stage = Stage::new().await;
    for (collection, kind, body) in [
        ("topics", "A topic", json!({})),
        ("subscriptions", "A subscription", json!({ "topic": TOPIC })),
        ("snapshots", "A snapshot", json!({ "subscription": SUBSCRIPTION })),
    ] {
        let path = format!("/v1/{PROJECT}/{collection}/w");
        let (status, words) = refused(&stage.emulator, "PUT", &path, &body.to_string()).await;
        let rule =
            format!("{kind} is named projects/PROJECT/{collection}/ID, where ID has 3 to 255 characters");
        assert!(status == 400 && words.contains(&rule), "{words}");
    }
}

#[tokio::test]
async fn both_spellings_of_fields_and_queries_are_read() {
    let stage = Stage::new().await;
    let path = "/v1/projects/a-project/subscriptions/another";
    let body =
        json!({ "topic": TOPIC, "ack_deadline_seconds": 33, "enableMessageOrdering": true }).to_string();
    let (status, created) = ask(&stage.emulator, "PUT", path, &body).await;
    assert_eq!(
        (status, &created["ackDeadlineSeconds"], &created["enableMessageOrdering"]),
        (200, &json!(33), &json!(true))
    );
    for query in ["pageSize=1", "page_size=1"] {
        let path = format!("/v1/projects/a-project/subscriptions?{query}");
        let (_, page) = ask(&stage.emulator, "GET", &path, "").await;
        assert_eq!(page["subscriptions"].as_array().unwrap().len(), 1, "{page}");
        assert!(page["nextPageToken"].is_string(), "{page}");
    }
}

#[tokio::test]
async fn policies_are_read_with_get_as_well() {
    let stage = Stage::new().await;
    let path = format!("/v1/{TOPIC}:setIamPolicy");
    let body =
        json!({ "policy": { "bindings": [{ "role": "roles/pubsub.viewer", "members": ["allUsers"] }] } });
    let (status, _) = ask(&stage.emulator, "POST", &path, &body.to_string()).await;
    assert_eq!(status, 200);
    let path = format!("/v1/{TOPIC}:getIamPolicy?options.requestedPolicyVersion=3");
    let (status, policy) = ask(&stage.emulator, "GET", &path, "").await;
    assert_eq!((status, &policy["bindings"][0]["members"][0]), (200, &json!("allUsers")));
}

#[tokio::test]
async fn what_was_pulled_and_not_answered_comes_back_by_its_lease_only() {
    let stage = Stage::new().await;
    stage.publish(&["one"]).await;
    let path = format!("/v1/{SUBSCRIPTION}:pull");
    let (status, answer) = ask(&stage.emulator, "POST", &path, r#"{"maxMessages":"1"}"#).await;
    assert_eq!((status, &answer["receivedMessages"][0]["message"]["data"]), (200, &json!("b25l")));
    assert_eq!(stage.leased(), 1, "an answer that was written is not put back");
}

#[tokio::test]
async fn a_body_may_be_gzipped() {
    let stage = Stage::new().await;
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(br#"{"messages":[{"data":"b25l"}]}"#).unwrap();
    let body = packed.finish().unwrap();
    let publish = async |encoding: &str| {
        let url = format!("http://{}/v1/{TOPIC}:publish", stage.emulator.host());
        let request = reqwest::Client::new().post(url).header("content-encoding", encoding);
        request.body(body.clone()).send().await.unwrap().status().as_u16()
    };
    assert_eq!([publish("gzip").await, publish("br").await], [200, 400]);
    assert_eq!(texts(&soon(stage.pull()).await.unwrap()), ["one"]);
}
