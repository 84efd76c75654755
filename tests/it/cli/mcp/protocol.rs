//! What an agent's client may get wrong, and how the process ends.

use serde_json::json;
use wakeq_service::access::Scope;

use super::agent::Agent;
use super::{Terminal, with_scopes};
use crate::support::service::Service;

/// A message that is none, and one that is too long, end nothing.
#[tokio::test]
async fn the_process_goes_on_after_what_is_malformed() {
    let service = Service::start().await;
    let mut agent = Agent::start(&with_scopes(&service, &[Scope::Read]).await, &[]).await;
    agent.say("hello");
    agent.say("{\"jsonrpc\":");
    agent.say("");
    for wrong in [json!({"jsonrpc": "2.0", "id": 7, "method": 7}), json!([1, 2]), json!({"hello": "there"})] {
        agent.say(&wrong.to_string());
        let refused = agent.hear().await;
        assert_eq!(refused["error"]["code"], -32600, "{wrong}: {refused}");
    }
    let long = json!({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"a": "x".repeat(2_000_000)}});
    agent.say(&long.to_string());
    assert_eq!(agent.ask("ping", json!({})).await["result"], json!({}));
    assert_eq!(agent.ask("nonsense", json!({})).await["error"]["code"], -32601);
    let unknown = agent.ask("tools/call", json!({"name": "delete_dead", "arguments": {}})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("there is no tool delete_dead"));
    for (tool, arguments, words) in [
        ("list_events", json!({"limt": 1}), "unknown field `limt`"),
        ("list_events", json!({"limit": 0}), "`limit` is from 1 to 100"),
        ("list_events", json!({"cursor": "x"}), "The request is not valid: "),
        (
            "list_events",
            json!({"filter": {"died_since": "2030-01-31T08:00:00Z"}}),
            "no condition `died_since`",
        ),
        ("list_events", json!({"filter": {"states": ["asleep"]}}), "unknown variant `asleep`"),
        ("list_events", json!({"filter": {"handler": "a/b/c"}}), "write a/b"),
        ("list_dead_events", json!({"filter": {"worker": "one"}}), "no condition `worker`"),
        ("list_ended_events", json!({"filter": {"states": ["dead"]}}), "no condition `states`"),
        ("list_ended_events", json!({"outcome": "dead"}), "The request is not valid: "),
        ("explain_event", json!({}), "missing field `id`"),
        ("explain_event", json!({"id": "../handlers"}), "an id is a uuid"),
        ("statistics", json!({"step_s": 7}), "The request is not valid: "),
    ] {
        let refused = agent.fails(tool, arguments).await;
        assert!(refused.contains(words), "{tool}: {refused}");
    }
    assert_eq!(agent.shows("list_handlers", json!({})).await["items"], json!([]));
    let logged = agent.ends().await;
    assert!(logged.contains("maximum line length"), "{logged}");
    service.stop().await;
}

#[tokio::test]
async fn the_process_ends_with_its_input_and_on_sigterm() {
    let service = Service::start().await;
    let terminal = with_scopes(&service, &[Scope::Read]).await;
    assert_eq!(Agent::spawn(&terminal, &[]).ends().await, "", "before it was asked anything");
    assert_eq!(Agent::start(&terminal, &[]).await.ends().await, "");
    for signal in ["-TERM", "-INT"] {
        let agent = Agent::start(&terminal, &[]).await;
        agent.signal(signal);
        assert_eq!(agent.has_ended().await, "", "{signal}");
    }
    service.stop().await;
}

/// It says what is missing before it speaks, and answers what the server says while it is away.
#[tokio::test]
async fn an_agent_is_told_that_the_server_is_away() {
    let unset = Terminal::without_variables().complains(1, &["mcp"]).await;
    assert!(unset.starts_with("wakeq: DATABASE_URL is not set"), "{unset}");
    let away = Terminal::without_variables()
        .set("WAKEQ_SERVER", "http://127.0.0.1:1")
        .set("WAKEQ_KEY", "wakeq_5ecre7");
    let mut agent = Agent::start(&away, &[]).await;
    let failed = agent.fails("list_handlers", json!({})).await;
    assert!(failed.starts_with("http://127.0.0.1:1/ is not reachable"), "{failed}");
    assert!(!failed.contains("5ecre7"), "{failed}");
    agent.ends().await;
}
