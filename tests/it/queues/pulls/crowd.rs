//! Many pullers, and a server that is killed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use wakeq::Actor;
use wakeq::notify::NoNotifier;
use wakeq::queues::FacetSettings;
use wakeq_service::access::{Access, AccessConfig, Reach, Scope};

use super::{PulledCopy, Puller, QUEUE, canvas, email, pulled};
use crate::processes::work::Process;
use crate::simulation::world::dice::Dice;
use crate::support::crash_scene::size;
use crate::support::service::make_key;
use crate::support::{Stage, Statements, TIMEOUT, connect, quick};

/// Each copy goes to one puller, once.
// Shows: DRV-25
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn eight_pullers_get_a_thousand_copies_each_exactly_once() {
    let puller = Arc::new(Puller::start().await);
    for number in 1..=10 {
        puller.emit(number, 0..100).await;
    }
    let pull = |number: u64| {
        let puller = Arc::clone(&puller);
        async move {
            let mut got = Vec::new();
            loop {
                let copies = puller.lease(json!({"max": 7 + number})).await;
                if copies.is_empty() {
                    return got;
                }
                for copy in copies {
                    puller.complete(&copy).await;
                    got.push((copy.canvas, copy.value));
                }
            }
        }
    };
    let pulls: JoinSet<_> = (0..8).map(pull).collect();
    let mut times: BTreeMap<(u128, u64), usize> = BTreeMap::new();
    for turn in pulls.join_all().await.into_iter().flatten() {
        *times.entry(turn).or_default() += 1;
    }
    assert_eq!((times.len(), times.values().max()), (1000, Some(&1)));
    assert_eq!(puller.stage().rows().await, 0);
}

/// Whatever happens to copies, leasing finds all that may be leased, without a pass of any process.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn no_copy_is_forgotten() {
    for seed in 0..size(2, 8) as u64 {
        let puller = Puller::start().await;
        let mut dice = Dice(seed);
        puller.lets(1, FacetSettings { weight: None, in_flight_max: Some(1) }).await;
        puller.lets(2, FacetSettings { weight: Some(3), in_flight_max: Some(2) }).await;
        let (mut held, mut ended, mut emitted): (Vec<PulledCopy>, usize, usize) = (Vec::new(), 0, 0);
        for step in 0..60 {
            match dice.below(7) {
                0 | 1 => {
                    for _ in 0..=dice.below(4) {
                        let event = email(canvas(1 + dice.below(4) as u128), step);
                        let event = if dice.below(3) == 0 { event.on("work:1").unwrap() } else { event };
                        puller.stage().queue.emit(event).await.unwrap();
                        emitted += 1;
                    }
                }
                2 | 3 => held.extend(puller.lease(json!({"max": 1 + dice.below(5)})).await),
                _ if held.is_empty() => {}
                end => {
                    let copy = held.swap_remove(dice.below(held.len()));
                    ended += usize::from(end_one(&puller, copy, end, &mut dice).await);
                }
            }
        }
        puller.run_out(&held).await;
        loop {
            let copies = puller.lease(json!({"max": 3})).await;
            if copies.is_empty() {
                break;
            }
            for copy in copies {
                puller.complete(&copy).await;
                ended += 1;
            }
        }
        let poisoned = "select count(*) from wakeq.dead_events where cause = 'poison'";
        let poisoned: i64 = puller.stage().pool.value(poisoned).await;
        assert_eq!((puller.stage().rows().await, ended + poisoned as usize), (0, emitted), "seed {seed}");
        puller.stop().await;
    }
}

/// Completes a copy, releases it, or lets its lease run out; returns whether the copy is gone.
async fn end_one(puller: &Puller, copy: PulledCopy, how: usize, dice: &mut Dice) -> bool {
    match how {
        4 => puller.complete(&copy).await,
        5 => {
            let body = if dice.below(2) == 0 { json!({}) } else { json!({"error": "x", "retry_s": 0}) };
            return puller.on(&copy, "release", body).await.json()["died"] == true;
        }
        _ => puller.run_out(&[copy]).await,
    }
    how == 4
}

/// A process of the API and a client of it.
struct Server {
    process: Process,
    base: String,
    key: String,
    http: reqwest::Client,
}

impl Server {
    async fn start(stage: &Stage) -> Self {
        let variables = [
            ("WAKEQ_NOTIFIER", "local"),
            ("PORT", "0"),
            ("WAKEQ_LEASE", "2s"),
            ("WAKEQ_HORIZON", "60s"),
            ("WAKEQ_GRACE", "1s"),
            ("WAKEQ_PROBE_PERIOD", "1s"),
            ("WAKEQ_UNKNOWN_HANDLER_WAIT", "2s"),
            ("WAKEQ_PROBE_BACKOFF", "1s"),
            ("WAKEQ_PROBE_BACKOFF_MAX", "4s"),
        ];
        let mut process = Process::stock("serve", stage.database.url(), None, &variables);
        let line = process.says("serving the API").await;
        let port = line.trim().rsplit(':').next().unwrap().to_owned();
        let access =
            Access::new(connect(stage.database.url(), quick()).await, AccessConfig::default()).unwrap();
        let scopes = [Scope::Operate, Scope::Read, Scope::Values];
        let key = make_key(&access, &port, Reach::EveryCanvas, &scopes).await;
        let base = format!("http://127.0.0.1:{port}/v1/admin/queues/{QUEUE}/copies");
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap();
        Self { process, base, key, http }
    }

    async fn ask(&self, path: &str, body: Value) -> reqwest::Response {
        let request = self.http.post(format!("{}/{path}", self.base)).bearer_auth(&self.key);
        request.json(&body).send().await.unwrap()
    }

    async fn lease(&self, body: Value) -> Vec<Value> {
        let answer: Value = self.ask("lease", body).await.json().await.unwrap();
        answer["copies"].as_array().unwrap().clone()
    }
}

/// Copies leased through a server that is then killed come back through another one, and nothing is
/// lost.
// Shows: DRV-25
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_killed_server_loses_nothing() {
    let stage = Stage::with(Arc::new(NoNotifier), quick()).await;
    stage.admin.put_queue(&QUEUE.parse().unwrap(), &pulled(), &Actor::user("tests")).await.unwrap();
    let events = (0..60).map(|value| email(canvas(1 + u128::from(value % 3)), value)).collect();
    stage.queue.emit_all(events).await.unwrap();
    let server = Server::start(&stage).await;
    let first = server.lease(json!({"max": 20, "lease_s": 2})).await;
    assert_eq!(first.len(), 20);
    for copy in &first[..5] {
        let path = format!("{}/complete", copy["id"].as_str().unwrap());
        assert_eq!(server.ask(&path, json!({"lease": copy["lease"]})).await.status(), 204);
    }
    let busy = server.lease(json!({"max": 20, "lease_s": 2}));
    drop(tokio::time::timeout(std::time::Duration::from_millis(3), busy).await);
    server.process.child.kill_9().await.unwrap();
    let _ = server.process.ends("").await;

    let server = Server::start(&stage).await;
    // A lease from the killed server is valid at any server while it stands; if it ran out, the
    // answer is 410.
    let path = format!("{}/complete", first[5]["id"].as_str().unwrap());
    let status = server.ask(&path, json!({"lease": first[5]["lease"]})).await.status().as_u16();
    assert!([204, 410].contains(&status), "{status}");
    let mut completed = 5 + usize::from(status == 204);
    while completed < 60 {
        let copies = server.lease(json!({"max": 20, "lease_s": 30, "wait_s": 10})).await;
        assert!(!copies.is_empty(), "{completed} were completed");
        for copy in copies {
            let path = format!("{}/complete", copy["id"].as_str().unwrap());
            assert_eq!(server.ask(&path, json!({"lease": copy["lease"]})).await.status(), 204);
            completed += 1;
        }
    }
    assert_eq!(stage.rows().await, 0);
    let dead: i64 = stage.pool.value("select count(*) from wakeq.dead_events").await;
    assert_eq!(dead, 0);
    assert_eq!(server.process.stop().await, Some(0));
}
