//! `wakeq stats --history` on the database and against a server: the same output.

use serde_json::Value;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::OTHER;
use crate::support::service::Service;

/// What is typed, and what is printed.
const SESSION: &str = "\
$ stats greet --history 1h
AT                    EMITTED  COMPLETED  FAILED  RETRIED  DEAD  WAIT p50  WAIT p99  RUN p50  RUN p99
<time>        5          4       2        1     1       3ms       4ms      1ms  1ms
$ stats greet --history
AT                    EMITTED  COMPLETED  FAILED  RETRIED  DEAD  WAIT p50  WAIT p99  RUN p50  RUN p99
<time>        5          4       2        1     1       3ms       4ms      1ms  1ms
$ stats --history 7d --step 14d
AT                    EMITTED  COMPLETED  FAILED  RETRIED  DEAD  WAIT p50  WAIT p99  RUN p50  RUN p99
<time>        7          4       2        1     1       3ms       4ms      1ms  1ms
$ stats mail --history 14d
nothing happened in that time
";

/// Adds what happened ten minutes ago, and more on another canvas.
async fn count(service: &Service) {
    let add = "insert into wakeq.minute_statistics
               select date_trunc('minute', now()) - interval '10 minutes', canvas, module, name, emitted, 4, 2, 1, 1, 12000, 1000,
                      '{0,0,4}', '{2}'
                 from (values ($1::uuid, 'WORKER', 'greet', 5), ($1, '', '', 7), ($2::uuid, 'WORKER', 'greet', 50),
                              ($2, '', '', 70)) as counted (canvas, module, name, emitted)";
    let adding = sqlx::query(add).bind(CanvasId::DEFAULT.0).bind(OTHER.0);
    adding.execute(&service.stage.pool).await.unwrap();
}

async fn plays(terminal: &Terminal) {
    terminal.plays(SESSION).await;
    let refused = [
        ("stats --step 1m", 2, "--history"),
        ("stats --history 1h --watch", 2, "cannot be used with"),
        ("stats --history soon", 2, "invalid value 'soon'"),
        ("stats --history 1h --step 90s", 2, "whole minutes"),
        ("stats --history 3d --step 5m", 2, "let the step be whole hours"),
        ("stats --history 14d --step 15d", 2, "at most 14 days"),
    ];
    terminal.refuses(&refused).await;
    assert_eq!(emitted(terminal, &["stats", "greet", "--history", "1h", "--step", "1m", "--json"]).await, 5);
}

/// How many events were emitted, by a history as JSON.
async fn emitted(terminal: &Terminal, arguments: &[&str]) -> u64 {
    let history: Value = serde_json::from_str(&terminal.prints(arguments).await).unwrap();
    let emitted: Vec<_> = history["emitted"].as_array().unwrap().iter().map(Value::as_u64).collect();
    assert_eq!(history["at"].as_array().unwrap().len(), emitted.len());
    emitted.into_iter().map(Option::unwrap).sum()
}

/// What a command emits is written before it ends.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_history_of_the_database() {
    let service = Service::start().await;
    count(&service).await;
    let terminal = Terminal::beside(&service);
    plays(&terminal).await;
    terminal.prints(&["emit", "greet"]).await;
    assert_eq!(emitted(&terminal, &["stats", "greet", "--history", "--json"]).await, 6);
    let other = OTHER.to_string();
    let arguments = ["stats", "--history", "1h", "--json", "--canvas", &other];
    assert_eq!(emitted(&terminal, &arguments).await, 70);
    service.stop().await;
}

#[tokio::test]
async fn a_history_of_a_server() {
    let service = Service::start().await;
    count(&service).await;
    plays(&Terminal::with_key(&service, &service.key)).await;
    let other = service.key("other", OTHER, &[Scope::Read]).await;
    let arguments = ["stats", "greet", "--history", "1h", "--json", "--canvas", &OTHER.to_string()];
    assert_eq!(emitted(&Terminal::with_key(&service, &other), &arguments).await, 50);
    service.stop().await;
}
