//! The doctor's findings over HTTP, for admins of every canvas.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{NONE, Service, has};

const PATH: &str = "/admin/doctor";

/// The only finding of a check.
fn finding<'r>(report: &'r Value, what: &str) -> &'r Value {
    let findings = report["findings"].as_array().unwrap().iter();
    let found: Vec<_> = findings.filter(|finding| finding["what"] == what).collect();
    assert_eq!(found.len(), 1, "{what}: {report:#}");
    found[0]
}

/// They are those of the command, without the ones that need its settings, and a process looks once
/// a minute.
#[tokio::test]
async fn an_operator_is_shown_what_is_wrong() {
    let service = Service::start().await;
    let wrong = "insert into wakeq.unknown_handlers (canvas_id, module, name, modifier)
                 values ('00000000-0000-0000-0000-000000000007', 'WORKER', 'mail', '_')";
    service.stage.execute(wrong).await;
    let wide = service.wide_key("operator", &[Scope::Admin]).await;
    let get = async |path: &str| service.ask(&wide, Method::GET, path, NONE).await;
    let report = get(PATH).await.json();
    has(finding(&report, "database"), json!({"level": "ok", "mend": NONE}));
    let handlers = finding(&report, "handlers");
    has(handlers, json!({"level": "warn"}));
    assert!(handlers["found"].as_str().unwrap().contains("WORKER/mail/_"), "{handlers}");
    assert!(handlers["mend"].as_str().unwrap().contains("the same handlers"), "{handlers}");
    let findings = report["findings"].as_array().unwrap();
    for what in ["minute's pass", "migrations", "rights", "signing secrets", "limits", "locks"] {
        finding(&report, what);
    }
    for left_out in ["connections", "pooler", "Pub/Sub", "notifier", "topic"] {
        assert!(findings.iter().all(|finding| finding["what"] != left_out), "{left_out}");
    }
    let count = |level: &str| findings.iter().filter(|finding| finding["level"] == level).count();
    has(&report, json!({"failed": count("fail"), "warned": count("warn")}));

    service.stage.execute("delete from wakeq.unknown_handlers").await;
    assert_eq!(get(PATH).await.json(), report, "nobody has looked again");
    get("/admin/doctor?all=true").await.says((400, "bad-request"), "no query parameters");
}

#[tokio::test]
async fn nobody_else_is() {
    let service = Service::start().await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let tenant = service.key("tenant", canvas, &Scope::ALL).await;
        let refused = service.ask(&tenant, Method::GET, PATH, NONE).await;
        refused.says((403, "forbidden"), "it needs a key or an account that reaches every canvas");
    }
    let reader = service.wide_key("reader", &[Scope::Read, Scope::Operate, Scope::Emit]).await;
    assert_eq!(service.ask(&reader, Method::GET, PATH, NONE).await.problem().0, 403);
}
