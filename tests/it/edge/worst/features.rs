//! The worst requests of one feature at a time, and what is bounded: what is answered, how many
//! rows there are, the memory of both processes, and what the other tenant sees of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::Value;

use super::attack::costly::KEYS;
use super::attack::{Attack, FEATURES, NO_ANSWER, Outcomes};
use super::neighbour::Round;
use super::{ATTACKER, Deployment, emits, percentile};
use crate::support::TIMEOUT;
use crate::support::service::Answer;

/// How often the other tenant uses the feature.
const ROUND: Duration = Duration::from_secs(1);
/// More events than the other tenant emits beside one feature.
const EMITS: u64 = 1_000_000;

/// Beyond a rate, a share or a quota, and a body that came too slowly, with each of the features.
const ALWAYS: [&str; 2] = ["408", "429"];
/// What a feature's documents say of its worst requests. Of failures it is how they begin.
const DOCUMENTED: [(&str, &[&str]); 7] = [
    ("unique", &["202", "503 others are emitting on this object or with this unique key"]),
    ("search", &["200", "503 no answer within"]),
    ("batches", &["200", "201", "202", "404", "409"]),
    ("operations", &["200", "202", "409"]),
    ("hooks", &["202", "400", "401", "413"]),
    ("leases", &["200", "201", "404", "409", "410"]),
    ("limits", &["200", "201", "202", "409"]),
];

/// How many rows the attacker has at most in the end, by feature.
const ROWS: [(&str, &str, i64); 7] = [
    // One of the key that all use, and one of each of the others.
    (
        "unique",
        "select count(*) from wakeq.events_v2 where canvas_id = $1 and name = 'once'",
        KEYS as i64 + 1,
    ),
    ("batches", "select count(*) from wakeq.batches where canvas_id = $1 and over_at is null", 10_000),
    ("operations", "select count(*) from wakeq.operations where canvas_id = $1 and state = 'open'", 10),
    ("operations", "select count(*) from wakeq.operations where canvas_id = $1", 1_000),
    // All webhooks of that hook have the same id.
    ("hooks", "select count(*) from wakeq.events_v2 where canvas_id = $1 and name = 'hooked'", 1),
    ("leases", "select count(*) from wakeq.pulled_handlers where canvas_id = $1", 1_000),
    ("limits", "select count(*) from wakeq.limits where canvas_id = $1", 1_000),
];

/// Lets the attacker send the worst requests of a feature for a time, while the other tenant emits
/// at its pace and uses the same feature.
pub(super) async fn attack(deployment: &Arc<Deployment>, feature: &str, time: Duration) {
    let key = &deployment.keys[&ATTACKER];
    let attack = Attack::begin(&deployment.guard, &deployment.address, key, &[feature]).await;
    let place = FEATURES.iter().position(|name| *name == feature).unwrap() as u64;
    let (beside, rounds) =
        tokio::join!(emits(deployment, (10 + place) * EMITS, time), use_for(deployment, feature, time));
    let outcomes = attack.counts().remove(feature).unwrap_or_default();
    drop(attack);
    let (serve, work) = deployment.peaks();
    println!("{feature}: {outcomes:?}");
    println!("    serve: at most {serve} KiB; work: {work} KiB; the other tenant used it {rounds} times");
    let [p50, p99] = [500, 990].map(|per_mille| percentile(&beside.delays, per_mille));
    println!("    emit to start: p50 {p50:?} and p99 {p99:?} beside it");
    deployment.check_bounds();
    assert_eq!(beside.refused, [] as [String; 0], "the other tenant is never refused");
    assert_eq!(beside.never, 0, "all of its events start");
    check_outcomes(feature, &outcomes);
    for (_, count, most) in ROWS.iter().filter(|(of, ..)| *of == feature) {
        let rows = sqlx::query_scalar::<_, i64>(*count).bind(ATTACKER.0);
        let rows = rows.fetch_one(&deployment.stage.pool).await.unwrap();
        println!("    {rows} rows, at most {most}");
        assert!(rows <= *most, "{rows} rows: {count}");
    }
    if feature == "search" {
        check_page(deployment).await;
    }
}

/// Uses the feature for the other tenant, for a time and at least once; returns how often.
async fn use_for(deployment: &Deployment, feature: &str, time: Duration) -> u64 {
    let end = Instant::now() + time;
    let mut ticks = tokio::time::interval(ROUND);
    let mut number = 0;
    loop {
        ticks.tick().await;
        Round { deployment, number }.of(feature).await;
        number += 1;
        if Instant::now() >= end {
            return number;
        }
    }
}

/// Something was served, and nothing was answered that the documents do not name.
fn check_outcomes(feature: &str, outcomes: &Outcomes) {
    let (_, documented) = DOCUMENTED.iter().find(|(name, _)| *name == feature).unwrap();
    let is_documented = |outcome: &str| {
        outcome == NO_ANSWER
            || ALWAYS.contains(&outcome)
            || documented.iter().any(|documented| outcome.starts_with(documented))
    };
    let strange: Vec<_> = outcomes.iter().filter(|(outcome, _)| !is_documented(outcome)).collect();
    assert_eq!(strange, [] as [(&String, &u64); 0], "{feature}: nothing but what is documented");
    assert!(outcomes.keys().any(|outcome| outcome.starts_with('2')), "{feature}: nothing was served");
}

/// However much there is, a page looks at 10,000 rows at most, and says that there is more.
async fn check_page(deployment: &Deployment) {
    let began = Instant::now();
    let page: Value = loop {
        let count = deployment.request(ATTACKER, Method::GET, "/events/count?value_text=nowhere");
        let answer = Answer::of(count).await;
        // What the attacker has used up is there again soon.
        if answer.status != 429 || began.elapsed() > TIMEOUT {
            break answer.json();
        }
    };
    assert_eq!(page["count"], 0);
    assert!(page["looked_at"].as_u64().unwrap() <= 10_000 && page["next_cursor"].is_string(), "{page}");
}
