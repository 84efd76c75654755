//! The other tenant, which uses the feature that is under attack: with the same names, keys and
//! tags as the attacker, and its answers are right.

use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};

use super::attack::costly::tags;
use super::{Deployment, PACE, VICTIM};
use crate::hooks::signing::{GITHUB_SECRET, webhook};
use crate::support::TIMEOUT;
use crate::support::service::{Answer, NONE, has};

/// Added to the number of a round: the value of an event whose start is awaited.
const LIMITED: u64 = 1_000_000_000;

/// One use of a feature by the other tenant.
pub(super) struct Round<'a> {
    pub(super) deployment: &'a Deployment,
    /// From 0. What later ones use again is made in the first.
    pub(super) number: u64,
}

impl Round<'_> {
    /// Uses a feature, and asserts what is answered.
    pub(super) async fn of(&self, feature: &str) {
        match feature {
            "unique" => self.keyed().await,
            "search" => self.searching().await,
            "batches" => self.batched().await,
            "operations" => self.operating().await,
            "hooks" => self.received().await,
            "leases" => self.leasing().await,
            _ => self.limited().await,
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Answer {
        let request = self.deployment.request(VICTIM, method, path);
        let answer = Answer::of(if body.is_null() { request } else { request.json(&body) }).await;
        assert!(answer.status.is_success(), "{path}: {} {}", answer.status, answer.text);
        answer
    }

    async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, NONE).await.json()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.ask(Method::POST, path, body).await.json()
    }

    /// The key is free for it, taken then, and free again.
    async fn keyed(&self) {
        let event = json!({"name": "once", "value": self.number, "delay_s": 3600, "unique": {"key": "k"}});
        let first = self.post("/events", event.clone()).await;
        let again = self.post("/events", event).await;
        assert_eq!((&first["outcome"], &again["outcome"]), (&json!("inserted"), &json!("kept")));
        assert_eq!(first["id"], again["id"]);
        let id = first["id"].as_str().unwrap();
        self.post(&format!("/events/{id}/cancel"), json!({})).await;
    }

    /// Exactly its own events have the tags, and the text.
    async fn searching(&self) {
        if self.number == 0 {
            for number in 0..3 {
                let options = json!({"tags": tags("tag")});
                let event = json!({"name": "found", "value": {"number": number}, "delay_s": 7200, "options": options});
                self.post("/events", event).await;
            }
        }
        let of_tags = format!("tag={}", tags("tag").join(","));
        let list = self.get(&format!("/events?{of_tags}&limit=1000")).await;
        assert_eq!((list["items"].as_array().unwrap().len(), &list["next_cursor"]), (3, &NONE));
        let count = self.get(&format!("/events/count?{of_tags}&value_text=number")).await;
        has(&count, json!({"count": 3, "looked_at": 3, "next_cursor": null}));
    }

    /// A batch ends, with the counts of its own members.
    async fn batched(&self) {
        let (name, path) = (format!("import:{}", self.number), format!("/batches/import:{}", self.number));
        self.post(&path, json!({"on_end": {"name": "flood"}})).await;
        let member = json!({"name": "flood", "batch": name});
        self.post("/events:batch", json!({"events": [member, member]})).await;
        self.post(&format!("{path}/close"), NONE).await;
        until("its batch ends", async || self.get(&path).await["state"] == "ended").await;
        let counts = json!({"completed": 2, "dead": 0, "cancelled": 0, "total": 2});
        assert_eq!(self.get(&path).await["counts"], counts);
    }

    /// An operation ends, and has changed what it was about.
    async fn operating(&self) {
        let tag = format!("round:{}", self.number);
        let event = json!({"name": "bulk", "delay_s": 3600, "options": {"tags": [tag]}});
        self.post("/events:batch", json!({"events": [event, event, event]})).await;
        let delete = json!({"kind": "delete", "filter": {"name": "bulk", "tags": [tag]}});
        let begun = self.post("/operations", delete).await;
        let path = format!("/operations/{}", begun["id"].as_str().unwrap());
        until("its operation ends", async || self.get(&path).await["state"] != "open").await;
        has(&self.get(&path).await, json!({"state": "done", "matched": 3, "changed": 3, "skipped": 0}));
        assert_eq!(self.get(&format!("/events/count?tag={tag}")).await["count"], 0);
    }

    /// A signed webhook is an event, and the same again is none.
    async fn received(&self) {
        if self.number == 0 {
            let hook = json!({"kind": "github", "handler": {"name": "flood"}, "secret": GITHUB_SECRET});
            self.ask(Method::PUT, "/hooks/pushes", hook).await;
        }
        let webhook = webhook("github", &format!("delivery-{}", self.number));
        let url = format!("http://{}/v1/canvases/{VICTIM}/hooks/pushes", self.deployment.address);
        for is_duplicate in [false, true] {
            let request = self.deployment.client.post(&url).header("content-type", webhook.content_type);
            let headers = webhook.headers().into_iter();
            let request = headers.fold(request, |request, (name, value)| request.header(name, value));
            let answer = Answer::of(request.body(webhook.body.clone())).await;
            assert_eq!(answer.status, 202, "{}", answer.text);
            assert_eq!(answer.json()["duplicate"], is_duplicate);
        }
    }

    /// It leases its own event, and completes it.
    async fn leasing(&self) {
        let of_pulled = "/handlers/WORKER/pulled";
        if self.number == 0 {
            self.ask(Method::PUT, &format!("{of_pulled}/pull"), json!({"retries": 1})).await;
        }
        self.post("/events", json!({"name": "pulled", "value": self.number})).await;
        let mut leased = Vec::new();
        until("its event is leased", async || {
            let lease = json!({"max": 10, "wait_s": 20});
            leased =
                self.post(&format!("{of_pulled}/leases"), lease).await["events"].as_array().unwrap().clone();
            !leased.is_empty()
        })
        .await;
        assert_eq!((leased.len(), &leased[0]["value"]), (1, &json!(self.number)));
        let path = format!("{of_pulled}/leases/{}/complete", leased[0]["id"].as_str().unwrap());
        let completed = self.ask(Method::POST, &path, json!({"lease": leased[0]["lease"]})).await;
        assert_eq!(completed.status, 204);
    }

    /// A limited event starts, and what is in use of the limit names its own keys alone.
    async fn limited(&self) {
        if self.number == 0 {
            self.ask(Method::PUT, "/limits/hot", json!({"concurrency": 5})).await;
        }
        let number = LIMITED + self.number;
        let event = json!({"name": "start", "value": number, "options": {"limits": ["hot:victim"]}});
        self.post("/events", event).await;
        let starts = &self.deployment.starts;
        until("its event starts", async || starts.lock().unwrap().contains_key(&number)).await;
        has(&self.get("/limits/hot").await, json!({"concurrency": 5, "rate": null}));
        let uses = self.get("/limits/hot/uses?limit=1000").await;
        let names: Vec<_> = uses["items"].as_array().unwrap().iter().map(|item| &item["name"]).collect();
        assert!(names.iter().all(|name| *name == "hot" || *name == "hot:victim"), "{names:?}");
    }
}

/// Asks at a pace until it is so. What hangs fails.
async fn until(expected: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut ticks = tokio::time::interval(PACE);
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {expected}");
        ticks.tick().await;
    }
}
