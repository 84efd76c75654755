//! The worst requests of single features: the largest bodies, the most keys, the filters that cost
//! most, and many at once. What may come of them is stated where they are judged.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::CanvasId;

use super::{Attacker, LARGE, outcome};
use crate::edge::worst::{ATTACKER, VICTIM};
use crate::hooks::signing::{GITHUB_SECRET, webhook};

/// Keys of one request, so long that their events still fit into a body.
pub(in crate::edge::worst) const KEYS: usize = 700;
/// How long an event is put off that nothing shall start, and how long a key is remembered at most.
const LATE_S: u32 = 7_200;
const REMEMBERED_S: u32 = 31_622_400;
/// The most bytes of a body.
const BODY: usize = 256 * 1024;
/// Every state that a filter can name.
const STATES: &str = "ready,behind,halted,held,limited,delayed,running,paused,blocked";
/// A lease that nobody has.
const NO_LEASE: &str = "0000000137ab6c1c3f1d2a0b9e8f7a6b5c4d3e2f";

/// How many callers a feature has. Reads of a canvas take turns, and one that waits for half a
/// minute is answered 503: so few callers read that most get their turn.
pub(super) fn callers(feature: &str) -> usize {
    match feature {
        "unique" => 100,
        "search" => 6,
        "batches" => 40,
        "operations" => 20,
        "hooks" => 64,
        "leases" => 150,
        _ => 60,
    }
}

/// As many tags as an event can have, as long as they can be.
pub(in crate::edge::worst) fn tags(kind: &str) -> Vec<String> {
    (0..10).map(|number| format!("{kind}:{number}:{:x<width$}", "", width = 97 - kind.len())).collect()
}

/// A text that nothing has, as long as a filter takes it.
fn nowhere() -> String {
    "y".repeat(200)
}

/// The longest name of a batch, or the longest key.
fn long(number: usize) -> String {
    format!("k:{number:0>253}")
}

fn batch(events: impl Iterator<Item = Value>) -> Value {
    json!({"events": events.collect::<Vec<_>>()})
}

/// An event of this key that starts late.
fn once(key: &str, on_conflict: &str) -> Value {
    let mut unique = json!({"key": key, "on_conflict": on_conflict});
    if on_conflict == "postpone" {
        unique["postpone_s"] = json!(LATE_S);
        unique["at_most_s"] = json!(10 * LATE_S);
    }
    json!({"name": "once", "value": 1, "delay_s": LATE_S, "unique": unique})
}

impl Attacker {
    /// Creates what the requests of a feature are about.
    pub(super) async fn prepare_feature(&self, feature: &str) {
        match feature {
            "search" => {
                // More than a page looks at, and more bytes of values than it reads.
                let found = json!({"name": "found", "value": {"number": 1}, "delay_s": LATE_S, "options": {"tags": tags("tag")}});
                let page = batch((0..180).map(|_| found.clone()));
                for _ in 0..62 {
                    self.patiently(Method::POST, "/events:batch", &page).await;
                }
                let large = json!({"name": "found", "value": "x".repeat(LARGE), "delay_s": LATE_S});
                for _ in 0..150 {
                    self.patiently(Method::POST, "/events", &large).await;
                }
            }
            "batches" => {
                let open = json!({"on_end": {"name": "flood"}});
                self.patiently(Method::POST, "/batches/import:0", &open).await;
            }
            "operations" => {
                let event = json!({"name": "bulk", "value": 1, "delay_s": LATE_S});
                let page = batch((0..1000).map(|_| event.clone()));
                for _ in 0..10 {
                    self.patiently(Method::POST, "/events:batch", &page).await;
                }
            }
            "hooks" => {
                for number in 0..100 {
                    let handler = if number == 0 { "hooked" } else { "flood" };
                    let hook =
                        json!({"kind": "github", "handler": {"name": handler}, "secret": GITHUB_SECRET});
                    self.patiently(Method::PUT, &format!("/hooks/hook-{number}"), &hook).await;
                }
            }
            "leases" => {
                for name in ["idle", "pulled"] {
                    let path = format!("/handlers/WORKER/{name}/pull");
                    self.patiently(Method::PUT, &path, &json!({"retries": 5})).await;
                }
                let large = json!({"name": "pulled", "value": "x".repeat(LARGE)});
                for _ in 0..100 {
                    self.patiently(Method::POST, "/events", &large).await;
                }
            }
            "limits" => {
                let rate = json!({"count": 60, "period_s": 60, "burst": 1});
                let hot = json!({"concurrency": 1, "rate": rate, "waiting_max": 10_000});
                self.patiently(Method::PUT, "/limits/hot", &hot).await;
            }
            _ => {}
        }
    }

    /// One request of a feature.
    pub(super) async fn costly(&self, feature: &str, task: usize) -> String {
        let number = self.number(feature);
        match feature {
            "unique" => self.keyed(number).await,
            "search" => self.searching(task).await,
            "batches" => self.batched(task, number).await,
            "operations" => self.operating(task, number).await,
            "hooks" => self.sending(task, number).await,
            "leases" => self.leasing(task, number).await,
            _ => self.limiting(task, number).await,
        }
    }

    async fn post(&self, path: &str, body: &Value) -> String {
        self.call(Method::POST, path, Some(body)).await
    }

    async fn read(&self, path: &str) -> String {
        self.call(Method::GET, path, None).await
    }

    /// The same key with the largest value, a thousand times in a request, among many in opposite
    /// orders, and remembered for as long as possible.
    async fn keyed(&self, number: usize) -> String {
        match number % 5 {
            0 => {
                let mut event = once("k", "replace");
                event["value"] = json!("x".repeat(LARGE));
                self.post("/events", &event).await
            }
            1 => {
                let same = batch((0..1000).map(|_| once("k", "postpone")));
                self.post("/events:batch", &same).await
            }
            2 => {
                let forth = batch((0..KEYS).map(|key| once(&long(key), "replace")));
                self.post("/events:batch", &forth).await
            }
            3 => {
                let back = batch((0..KEYS).rev().map(|key| once(&long(key), "replace")));
                self.post("/events:batch", &back).await
            }
            _ => {
                let unique = json!({"key": long(number), "remember_s": REMEMBERED_S});
                self.post("/events", &json!({"name": "flood", "unique": unique})).await
            }
        }
    }

    /// Texts in values and errors that nothing has, the deepest place in a value, and all tags.
    async fn searching(&self, task: usize) -> String {
        let nowhere = nowhere();
        match task % 4 {
            0 => {
                let of_tags = format!("tag={}&limit=1000", tags("tag").join(","));
                self.read(&format!("/events?{of_tags}&value_text={nowhere}&state={STATES}")).await
            }
            1 => self.read(&format!("/events/count?value_text={nowhere}&state={STATES}")).await,
            2 => {
                let deep = format!("%24{}%20%3D%20%22{}%22", ".a".repeat(16), "x".repeat(900));
                self.read(&format!("/events?value={deep}&limit=1000")).await
            }
            _ => self.read(&format!("/events?value_text={nowhere}&error_text={nowhere}&limit=1000")).await,
        }
    }

    /// Batches with the longest names and large values at their ends, a thousand members at once,
    /// closes, and lists.
    async fn batched(&self, task: usize, number: usize) -> String {
        match task {
            0 => self.read("/batches?limit=1000").await,
            1 => self.read("/batches/import:0").await,
            _ if task.is_multiple_of(3) => {
                let member = json!({"name": "flood", "batch": "import:0"});
                self.post("/events:batch", &batch((0..1000).map(|_| member.clone()))).await
            }
            _ if task % 3 == 1 => {
                let value = if number.is_multiple_of(20) { "x".repeat(LARGE) } else { String::new() };
                let open = json!({"on_end": {"name": "flood", "value": value}});
                self.post(&format!("/batches/{}", long(number)), &open).await
            }
            _ => {
                let path = format!("/batches/{}/close", long(number / 2));
                self.call(Method::POST, &path, None).await
            }
        }
    }

    /// Previews of all there is, retags of everything, and a thousand ids in each request.
    async fn operating(&self, task: usize, number: usize) -> String {
        match task {
            0 => {
                let filter = json!({"value_text": nowhere(), "error_text": nowhere()});
                let preview = json!({"kind": "cancel", "filter": filter, "look_up_to": 1_000_000});
                self.post("/operations/preview", &preview).await
            }
            1 => self.read("/operations?limit=1000").await,
            _ if task.is_multiple_of(2) => {
                let (add, remove) = if number.is_multiple_of(2) { ("on", "off") } else { ("off", "on") };
                let retag = json!({"kind": "retag", "filter": {"name": "bulk"}, "add_tags": tags(add), "remove_tags": tags(remove)});
                self.post("/operations", &retag).await
            }
            _ => {
                let ids: Vec<_> = (0..1000).map(|_| Uuid::new_v4()).collect();
                self.post("/operations", &json!({"kind": "cancel", "ids": ids})).await
            }
        }
    }

    /// The largest bodies: with the wrong secret for the other tenant's hook, again and again under
    /// one id, deeply nested, and larger than is allowed for a hook that is nowhere.
    async fn sending(&self, task: usize, number: usize) -> String {
        let largest = format!("\"{}\"", "x".repeat(BODY - 2));
        let request = match task % 4 {
            0 => self.webhook(VICTIM, "pushes", &format!("forged-{number}"), largest, "no_secret_of_theirs"),
            1 => self.webhook(ATTACKER, "hook-0", "delivery-0", largest, GITHUB_SECRET),
            2 => {
                let nested = format!("{}{}", "[".repeat(BODY / 2), "]".repeat(BODY / 2));
                self.webhook(ATTACKER, "hook-1", &format!("nested-{number}"), nested, GITHUB_SECRET)
            }
            _ => {
                let (nowhere, id) = (CanvasId(Uuid::new_v4()), format!("large-{number}"));
                self.webhook(nowhere, "pushes", &id, format!("{largest} "), GITHUB_SECRET)
            }
        };
        outcome(request).await
    }

    fn webhook(&self, canvas: CanvasId, hook: &str, id: &str, body: String, secret: &str) -> RequestBuilder {
        let webhook = webhook("github", id).body(body).signed_with(secret);
        let url = format!("http://{}/v1/canvases/{canvas}/hooks/{hook}", self.address);
        let request = self.client.post(url).header("content-type", webhook.content_type);
        let request =
            webhook.headers().into_iter().fold(request, |request, (name, value)| request.header(name, value));
        request.body(webhook.body)
    }

    /// More waiting requests than there is room for, the largest answers, wrong tokens with the
    /// largest results, and more pulled handlers than there may be.
    async fn leasing(&self, task: usize, number: usize) -> String {
        let of_pulled = "/handlers/WORKER/pulled/leases";
        match task {
            0..110 => self.post("/handlers/WORKER/idle/leases", &json!({"max": 100, "wait_s": 20})).await,
            110..130 => self.post(of_pulled, &json!({"max": 100, "lease_s": 1})).await,
            130..140 => {
                let path = format!("{of_pulled}/{}/complete", Uuid::new_v4());
                self.post(&path, &json!({"lease": NO_LEASE, "result": "x".repeat(60_000)})).await
            }
            _ => {
                let path = format!("/handlers/WORKER/pulled-{number}/pull");
                self.call(Method::PUT, &path, Some(&json!({"retries": 1_000}))).await
            }
        }
    }

    /// Events of three of the longest keys each, of which one is the same for all, more limits than
    /// there may be, and what is in use of a family of thousands.
    async fn limiting(&self, task: usize, number: usize) -> String {
        match task {
            0..4 => self.read("/limits/hot/uses?limit=1000").await,
            _ if task.is_multiple_of(2) => {
                let key = |key: usize| format!("hot:{key:0>196}");
                let keys =
                    |index: usize| [key(0), key(1 + (number * 250 + index) % 5_000), key(6_000 + index)];
                let event = |index| json!({"name": "flood", "options": {"limits": keys(index)}});
                self.post("/events:batch", &batch((0..250).map(event))).await
            }
            _ => {
                let limit = json!({"concurrency": 1, "on_full": "replace", "waiting_max": 10_000});
                self.call(Method::PUT, &format!("/limits/l-{number}"), Some(&limit)).await
            }
        }
    }
}
