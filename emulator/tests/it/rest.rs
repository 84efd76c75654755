//! The cases over REST: JSON at the paths in the protos.

use serde_json::{Value, json};

use crate::stage::Stage;

async fn ask(stage: &Stage, verb: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let url = format!("http://{}/v1/{path}", stage.host);
    let mut request = reqwest::Client::new().request(verb.parse().unwrap(), url);
    if let Some(body) = body {
        request = request.json(&body);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

cases! {
    async fn over_rest_a_message_is_published_pulled_and_acknowledged(stage) {
        let (topic, subscription) = (stage.topic_name("a-topic"), stage.subscription_name("a-subscription"));
        let (status, created) = ask(&stage, "PUT", &topic, Some(json!({ "labels": { "team": "shop" } }))).await;
        assert_eq!((status, &created["name"], &created["labels"]["team"]), (200, &json!(topic), &json!("shop")));
        let body = json!({ "topic": topic, "ackDeadlineSeconds": 42 });
        let (status, created) = ask(&stage, "PUT", &subscription, Some(body)).await;
        assert_eq!((status, &created["ackDeadlineSeconds"]), (200, &json!(42)));
        let messages = json!({ "messages": [{ "data": "aGVsbG8=", "attributes": { "colour": "red" } }] });
        let (status, published) = ask(&stage, "POST", &format!("{topic}:publish"), Some(messages)).await;
        assert_eq!(status, 200, "{published}");
        let pull = format!("{subscription}:pull");
        let (status, pulled) = ask(&stage, "POST", &pull, Some(json!({ "maxMessages": 10 }))).await;
        let received = &pulled["receivedMessages"][0];
        assert_eq!(status, 200);
        assert_eq!(received["message"]["data"], "aGVsbG8=");
        assert_eq!(received["message"]["attributes"]["colour"], "red");
        assert_eq!(received["message"]["messageId"], published["messageIds"][0]);
        assert!(received["message"]["publishTime"].as_str().unwrap().ends_with('Z'), "{received}");
        let ack = json!({ "ackIds": [received["ackId"]] });
        let answer = ask(&stage, "POST", &format!("{subscription}:acknowledge"), Some(ack)).await;
        assert_eq!(answer, (200, json!({})));
    }

    async fn over_rest_a_refusal_has_the_services_shape(stage) {
        let (status, answer) = ask(&stage, "GET", &stage.topic_name("nowhere"), None).await;
        assert_eq!((status, &answer["error"]["code"]), (404, &json!(404)));
        assert_eq!(answer["error"]["status"], "NOT_FOUND");
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
        stage.topic("a-topic").await;
        let (status, answer) = ask(&stage, "PUT", &stage.topic_name("a-topic"), Some(json!({}))).await;
        assert_eq!((status, &answer["error"]["status"]), (409, &json!("ALREADY_EXISTS")));
        let (status, answer) = ask(&stage, "PUT", &stage.topic_name("ab"), Some(json!({}))).await;
        assert_eq!((status, &answer["error"]["status"]), (400, &json!("INVALID_ARGUMENT")));
    }

    async fn over_rest_lists_have_pages(stage) {
        for id in ["one", "two", "three"] {
            stage.topic(id).await;
        }
        let path = format!("projects/{}/topics", stage.project);
        let (status, page) = ask(&stage, "GET", &format!("{path}?pageSize=2"), None).await;
        assert_eq!((status, page["topics"].as_array().unwrap().len()), (200, 2));
        let token = page["nextPageToken"].as_str().unwrap();
        let (_, rest) = ask(&stage, "GET", &format!("{path}?pageSize=2&pageToken={token}"), None).await;
        assert_eq!(rest["topics"].as_array().unwrap().len(), 1);
        assert!(rest.get("nextPageToken").is_none_or(|token| token == ""), "{rest}");
    }

    async fn over_rest_an_update_has_its_mask_beside_the_resource(stage) {
        let (topic, subscription) = stage.pair().await;
        let body = json!({ "subscription": { "ackDeadlineSeconds": 99, "topic": topic },
            "updateMask": "ackDeadlineSeconds" });
        let (status, updated) = ask(&stage, "PATCH", &subscription, Some(body)).await;
        assert_eq!((status, &updated["ackDeadlineSeconds"]), (200, &json!(99)), "{updated}");
    }

    async fn over_rest_what_is_deleted_is_gone(stage) {
        let topic = stage.topic("a-topic").await;
        assert_eq!(ask(&stage, "DELETE", &topic, None).await, (200, json!({})));
        assert_eq!(ask(&stage, "GET", &topic, None).await.0, 404);
    }
}
