//! Statistics over HTTP: columns for a chart, of a handler and of a canvas; and what is refused,
//! with which message.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq::control::StatisticsRange;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{NONE, Service};

/// Adds what happened in a minute: of four attempts each waited 3 ms, and two took half a
/// millisecond together. Another handler counts for the canvas alone, and another canvas has more.
/// Returns the minute.
async fn count(service: &Service) -> DateTime<Utc> {
    let add = "with minute as (select date_trunc('minute', now()) - interval '10 minutes' as at)
               insert into wakeq.minute_statistics
               select at, canvas, module, name, emitted, 4, 2, 1, 1, 12000, 1000, '{0,0,4}', '{2}'
                 from minute, (values ($1::uuid, 'WORKER', 'greet', 5), ($1, '', '', 7), ($2::uuid, 'WORKER', 'greet', 50),
                                      ($2, '', '', 70)) as counted (canvas, module, name, emitted)
               returning at";
    let adding = sqlx::query_scalar(add).bind(CanvasId::DEFAULT.0).bind(OTHER.0);
    adding.fetch_one(&service.stage.pool).await.unwrap()
}

fn text(moment: DateTime<Utc>) -> String {
    moment.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// The chart of three minutes, of which the second is this one.
async fn chart(service: &Service, key: &str, of: &str, minute: DateTime<Utc>) -> Value {
    let (from, to) = (text(minute - TimeDelta::minutes(1)), text(minute + TimeDelta::minutes(2)));
    service.ask(key, Method::GET, &format!("{of}/statistics?from={from}&to={to}"), NONE).await.json()
}

#[tokio::test]
async fn a_chart_is_in_columns() {
    let service = Service::start().await;
    let minute = count(&service).await;
    let canvas = format!("/canvases/{}", CanvasId::DEFAULT);
    let handler = format!("{canvas}/handlers/WORKER/greet");
    let at = [-1, 0, 1].map(|minutes| text(minute + TimeDelta::minutes(minutes)));
    let shown = chart(&service, &service.key, &handler, minute).await;
    let expected = json!({
        "step_s": 60,
        "at": at,
        "emitted": [0, 5, 0],
        "completed": [0, 4, 0],
        "failed": [0, 2, 0],
        "retried": [0, 1, 0],
        "dead": [0, 1, 0],
        "wait": {
            "count": [0, 4, 0],
            "mean_s": [null, 0.003, null],
            "p50_s": [null, 0.003, null],
            "p95_s": [null, 0.0039, null],
            "p99_s": [null, 0.00398, null],
        },
        "run": {
            "count": [0, 2, 0],
            "mean_s": [null, 0.0005, null],
            "p50_s": [null, 0.0005, null],
            "p95_s": [null, 0.00095, null],
            "p99_s": [null, 0.00099, null],
        },
        "bins": {"below_ms": [1, 2, 4], "wait": [0, 0, 4], "run": [2, 0, 0]},
    });
    assert_eq!(shown, expected);
    assert_eq!(chart(&service, &service.key, &canvas, minute).await["emitted"], json!([0, 7, 0]));
    let unknown = chart(&service, &service.key, &format!("{canvas}/handlers/WORKER/mail"), minute).await;
    assert_eq!(unknown["completed"], json!([0, 0, 0]));
    assert_eq!(unknown["bins"], json!({"below_ms": [], "wait": [], "run": []}));
    service.stop().await;
}

/// A canvas has its own numbers, which the scope `read` suffices for.
#[tokio::test]
async fn another_canvas_has_its_own_chart() {
    let service = Service::start().await;
    let minute = count(&service).await;
    let reader = service.key("reader", OTHER, &[Scope::Read]).await;
    for (of, emitted) in [("/handlers/WORKER/greet", 50), ("", 70)] {
        let own = chart(&service, &reader, &format!("/canvases/{OTHER}{of}"), minute).await;
        assert_eq!(own["emitted"], json!([0, emitted, 0]));
        let path = format!("/canvases/{}{of}/statistics", CanvasId::DEFAULT);
        let foreign = service.ask(&reader, Method::GET, &path, NONE).await;
        assert_eq!(foreign.problem(), (404, "not-found".into()));
    }
    let emitter = service.key("emitter", CanvasId::DEFAULT, &[Scope::Emit]).await;
    let path = format!("/canvases/{}/statistics", CanvasId::DEFAULT);
    assert_eq!(service.ask(&emitter, Method::GET, &path, NONE).await.problem().0, 403);
    service.stop().await;
}

#[tokio::test]
async fn rejects_times_and_steps_with_advice() {
    let service = Service::start().await;
    let now = service.stage.admin.clock().await.unwrap();
    let later = format!("from={}", text(now + TimeDelta::hours(1)));
    let long = format!("from={}&to={}&step_s=60", text(now), text(now + TimeDelta::days(2)));
    for (query, words) in [
        ("unit=s", "a query parameter is unknown"),
        ("from=yesterday", "of the wrong type"),
        ("step_s=1.5", "of the wrong type"),
        ("step_s=60&step_s=120", "repeated"),
        ("step_s=0", "a step has whole minutes"),
        ("step_s=90", "a step has whole minutes"),
        ("step_s=1296000", "a step has at most 14 days"),
        (&later, "let `from` be before `to`"),
        ("from=2020-05-20T12:00:00Z&step_s=60", "let the step be whole hours"),
        ("from=2020-05-20T12:00:00Z", "at most 1,500 steps"),
        (&long, "at most 1,500 steps"),
    ] {
        for of in ["", "/handlers/WORKER/greet"] {
            service.get(&format!("{of}/statistics?{query}")).await.says((400, "bad-request"), words);
        }
    }
    service.get("/handlers/WORKER/a%20b/statistics").await.says((400, "bad-request"), "not a valid name");
    let day = service.get("/statistics").await.json();
    assert_eq!((&day["step_s"], day["at"].as_array().unwrap().len()), (&json!(60), 1_441));
    let days = service.get(&format!("/statistics?from={}", text(now - TimeDelta::days(14)))).await.json();
    assert_eq!((&days["step_s"], days["at"].as_array().unwrap().len()), (&json!(3_600), 337));
    service.stop().await;
}

/// A server that ends writes what it has counted.
#[tokio::test]
async fn what_a_server_emits_is_counted() {
    let service = Service::start().await;
    for name in ["greet", "greet", "mail"] {
        service.post("/events", json!({"name": name})).await.json();
    }
    let stage = service.stop().await;
    let chart = stage.admin.statistics(CanvasId::DEFAULT, None, &StatisticsRange::default()).await.unwrap();
    assert_eq!(chart.points.iter().map(|point| point.counts.emitted).sum::<u64>(), 3);
}
