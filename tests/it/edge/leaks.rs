//! What must be in no log and no error: payloads, keys, the database's password, and anything else
//! from a request. Each is a text that occurs nowhere else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;
use wakeq::CanvasId;

use super::process::Process;
use crate::hooks::signing::{Webhook, webhook};
use crate::support::service::Answer;
use crate::support::wait_while;

/// The error tells the sender which of them is wrong; they must be nowhere else.
const FIELD: &str = "the name of a field";
const NAME: &str = "the name of a handler";

/// The texts, and the errors that were returned.
struct Secrets {
    texts: Vec<(&'static str, String)>,
    errors: Vec<String>,
}

impl Secrets {
    fn new() -> Self {
        Self { texts: Vec::new(), errors: Vec::new() }
    }

    /// A text that must be found nowhere.
    fn make(&mut self, what: &'static str) -> String {
        let text = format!("s3cr3t{}", Uuid::new_v4().simple());
        self.texts.push((what, text.clone()));
        text
    }

    async fn send(&mut self, request: RequestBuilder) -> u16 {
        let answer = Answer::of(request).await;
        let headers = format!("{:?}", answer.headers);
        if !answer.status.is_success() {
            answer.problem();
            self.errors.push(format!("{headers}{}", answer.text));
        }
        answer.status.as_u16()
    }

    fn assert_unseen(&self, lines: &[String]) {
        for (what, text) in &self.texts {
            let errors = self.errors.iter().filter(|_| ![FIELD, NAME].contains(what));
            for line in lines.iter().chain(errors) {
                assert!(!line.contains(text), "{what} is in: {line}");
            }
        }
    }
}

/// Good and bad requests, with a secret wherever one fits.
async fn knock(process: &Process, secrets: &mut Secrets) {
    let value = secrets.make("a value");
    let good = process.events().json(&json!({"name": "greet", "value": value}));
    let idempotency = secrets.make("an idempotency key");
    let good = good.header("idempotency-key", &idempotency).header("x-other", secrets.make("a header"));
    assert_eq!(secrets.send(good).await, 202);
    let field = secrets.make(FIELD);
    for body in [
        json!({"name": "greet", "value": secrets.make("a value beside"), &field: 1}),
        json!({"name": secrets.make(NAME) + " ", "value": 1}),
        json!({"name": "greet", "value": format!("{}\0", secrets.make("a value with NUL"))}),
        json!({"name": "greet", "id": secrets.make("an id")}),
        json!({"name": "greet", "delay_until": secrets.make("a moment")}),
        json!([secrets.make("a list")]),
    ] {
        assert_eq!(secrets.send(process.events().json(&body)).await, 400);
    }
    let broken = format!("{{\"name\": \"greet\", \"value\": \"{}", secrets.make("a value cut off"));
    let request = process.events().header("content-type", "application/json").body(broken);
    assert_eq!(secrets.send(request).await, 400);
    let media = secrets.make("a content type");
    let request = process.events().header("content-type", media).body("x");
    assert_eq!(secrets.send(request).await, 415);
    let source = secrets.make("a source");
    let event = json!({"specversion": "1.0", "id": "1", "source": source, "type": "a b", "data": secrets.make("data")});
    let request = process.events().header("content-type", "application/cloudevents+json");
    assert_eq!(secrets.send(request.body(event.to_string())).await, 400);
    let (secret, url) = (secrets.make("a target's secret"), "https://target.example/events");
    let encoded = STANDARD.encode(&secret);
    secrets.texts.push(("a target's secret, as it is sent", encoded.clone()));
    let put = |body: serde_json::Value| process.on_canvas(Method::PUT, "/handlers/WORKER/greet").json(&body);
    let secret = format!("whsec_{encoded}");
    assert_eq!(secrets.send(put(json!({"url": url, "secret": secret}))).await, 201);
    for body in [
        json!({"url": url, "secret": secret, "rotate_secret": true}),
        json!({"url": url, "secret": secrets.make("what is no secret")}),
        json!({"url": format!("https://{}:x@target.example", secrets.make("a user of a target"))}),
        json!({"url": format!("https://target.example/#{}", secrets.make("a fragment"))}),
        json!({"url": url, "audience": format!("{} ", secrets.make("an audience"))}),
    ] {
        assert_eq!(secrets.send(put(body)).await, 400);
    }

    let query = format!("/events?cursor={}", secrets.make("a query"));
    assert_eq!(secrets.send(process.on_canvas(Method::GET, &query)).await, 400);
    let path = format!("/events/{}", secrets.make("a path"));
    assert_eq!(secrets.send(process.on_canvas(Method::GET, &path)).await, 400);

    let list = format!("/v1/canvases/{}/handlers", CanvasId::DEFAULT);
    let stranger =
        |credential: String| process.request(Method::GET, &list).header("authorization", credential);
    let secret = secrets.make("a key's secret");
    for credential in [
        format!("Bearer {}", secrets.make("a credential")),
        format!("Basic {}", secrets.make("a password")),
        format!("Bearer wakeq_{}_{secret}", "0".repeat(12)),
        format!("Bearer e30.{}.x", secrets.make("a token")),
    ] {
        assert_eq!(secrets.send(stranger(credential)).await, 401);
    }
}

/// Headers of a target, and secrets and bodies of a hook.
async fn knock_with_hooks(process: &Process, secrets: &mut Secrets) {
    let put = |path: &str, body: serde_json::Value| process.on_canvas(Method::PUT, path).json(&body);
    let (target, url) = ("/handlers/WORKER/keyed", "https://target.example/events");
    let headers = json!({"x-api-key": secrets.make("a header of a target")});
    assert_eq!(secrets.send(put(target, json!({"url": url, "headers": headers}))).await, 201);
    for headers in [
        json!({"host": secrets.make("a reserved header")}),
        json!({"x-api-key": format!("{}\n", secrets.make("a header of two lines"))}),
        json!({format!("{}:", secrets.make("a header in the place of its name")): "x"}),
    ] {
        assert_eq!(secrets.send(put(target, json!({"url": url, "headers": headers}))).await, 400);
    }
    let (secret, handler) = (secrets.make("a hook's secret"), json!({"name": "receive"}));
    let hook = json!({"kind": "github", "handler": handler, "secret": secret});
    assert_eq!(secrets.send(put("/hooks/incoming", hook)).await, 201);
    let hook =
        json!({"kind": "stripe", "handler": handler, "secret": secrets.make("a secret of another form")});
    assert_eq!(secrets.send(put("/hooks/other", hook)).await, 400);
    let path = format!("/v1/canvases/{}/hooks/incoming", CanvasId::DEFAULT);
    let sent = |webhook: Webhook| {
        let request = process.request(Method::POST, &path).body(webhook.body.clone());
        webhook.headers().into_iter().fold(request, |request, (name, value)| request.header(name, value))
    };
    let body = json!({"a": secrets.make("a webhook")}).to_string();
    assert_eq!(secrets.send(sent(webhook("github", "1").body(body.clone()).signed_with(&secret))).await, 202);
    let wrong = secrets.make("a wrong secret of a hook");
    assert_eq!(secrets.send(sent(webhook("github", "2").body(body).signed_with(&wrong))).await, 401);
    let body = format!("{{\"a\": \"{}", secrets.make("a webhook cut off"));
    assert_eq!(secrets.send(sent(webhook("github", "3").body(body).signed_with(&secret))).await, 400);
}

/// Secrets that look like the parser's own messages, which are partly passed on.
async fn knock_with_crons(process: &Process, secrets: &mut Secrets) {
    let cron = |body: serde_json::Value| process.on_canvas(Method::PUT, "/cron/nightly").json(&body);
    for body in [
        json!({"expression": "* * * * *", "missed": format!("x`, expected `{}", secrets.make("what to do about ticks"))}),
        json!({"expression": "* * * * *", format!("x`, expected `{}", secrets.make("an unknown field")): 1}),
        json!({"expression": [format!("x, expected {}", secrets.make("an expression"))]}),
        json!({"zone": secrets.make("a zone without an expression")}),
    ] {
        assert_eq!(secrets.send(cron(body)).await, 400);
    }
}

/// Well-formed keys, good and bad: their second half is hexadecimal, so it is generated and
/// searched for separately.
async fn knock_with_keys(process: &Process, secrets: &mut Secrets) {
    let list = format!("/v1/canvases/{}/handlers", CanvasId::DEFAULT);
    let secret = format!("{}{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple(), "0".repeat(16));
    let (public, own) = process.key.rsplit_once('_').unwrap();
    secrets.texts.push(("the own key", own.to_owned()));
    secrets.texts.push(("a wrong secret", secret.clone()));
    for key in [format!("{public}_{secret}"), format!("wakeq_{}_{secret}", "0".repeat(12))] {
        assert_eq!(secrets.send(process.request(Method::GET, &list).bearer_auth(key)).await, 401);
    }
    let holder = json!({"holder": "new", "scopes": ["read"]});
    let path = format!("/v1/admin/canvases/{}/keys", CanvasId::DEFAULT);
    let made = Answer::of(process.request(Method::POST, &path).bearer_auth(&process.key).json(&holder)).await;
    let made = made.json()["key"].as_str().unwrap().to_owned();
    secrets.texts.push(("a new key", made.rsplit_once('_').unwrap().1.to_owned()));
    assert_eq!(secrets.send(process.request(Method::GET, &list).bearer_auth(made)).await, 200);
}

/// Statements that the database refuses, and then an unreachable database: its errors contain rows
/// and parameters.
async fn break_the_database(process: &Process, secrets: &mut Secrets) {
    let sql = async |statement: &str| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(&process.stage.pool).await.unwrap();
    };
    sql("alter table wakeq.events_v2 add constraint refuse_all check (name <> 'refused')").await;
    let value = secrets.make("a value that the database refuses");
    let refused = json!({"name": "refused", "value": value});
    assert_eq!(secrets.send(process.events().json(&refused)).await, 500);
    sql("alter table wakeq.events_v2 rename column last_error to last_errors").await;
    let value = secrets.make("a value without a column");
    let request = process.events().json(&json!({"name": "greet", "value": value}));
    secrets.send(request).await;
    sql("alter table wakeq.events_v2 rename column last_errors to last_error").await;

    let name = process.stage.database.name();
    let outside = process.stage.database.url().replace(&format!("/{name}"), "/postgres");
    let mut outside = PgConnection::connect(&outside).await.unwrap();
    let away = format!(
        "alter database \"{name}\" allow_connections false;
         select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
    );
    // As separate statements: the first can't be in a transaction with others.
    for statement in away.split(';') {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut outside).await.unwrap();
    }
    for _ in 0..3 {
        let value = secrets.make("a value without a database");
        let request = process.events().json(&json!({"name": "greet", "value": value}));
        assert_eq!(secrets.send(request).await, 503);
    }
    let back = format!("alter database \"{name}\" allow_connections true");
    sqlx::raw_sql(sqlx::AssertSqlSafe(back)).execute(&mut outside).await.unwrap();
    let emit = || process.events().json(&json!({"name": "greet"}));
    wait_while!(secrets.send(emit()).await != 202, "the service does not come back");
}

async fn nothing_leaks(levels: &str) {
    let mut secrets = Secrets::new();
    let password = secrets.make("the database's password");
    // A server that asks for passwords has one in its URL; the others take any.
    let with_password = |url: &str| {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (user, place) = rest.split_once('@').unwrap_or(("postgres", rest));
        if user.contains(':') { url.to_owned() } else { format!("{scheme}://{user}:{password}@{place}") }
    };
    let process = Process::start(&[("RUST_LOG", levels)], with_password).await;
    let user = process.stage.database.url().split_once('@').map_or("", |(user, _)| user);
    if let Some((_, password)) = user.rsplit_once(':').filter(|(scheme, _)| scheme.contains("://")) {
        secrets.texts.push(("the server's password", password.to_owned()));
    }
    knock(&process, &mut secrets).await;
    knock_with_hooks(&process, &mut secrets).await;
    knock_with_crons(&process, &mut secrets).await;
    knock_with_keys(&process, &mut secrets).await;
    break_the_database(&process, &mut secrets).await;
    let lines = process.stop().await;
    assert!(secrets.texts.len() > 20 && secrets.errors.len() > 15);
    assert!(lines.iter().any(|line| line.contains("refused")), "it says nothing at all");
    let (errors, texts) = (secrets.errors.len(), secrets.texts.len());
    println!("{levels}: {} lines, {errors} errors, {texts} secrets, none seen", lines.len());
    secrets.assert_unseen(&lines);
}

// Shows: TARGET-06
#[tokio::test]
async fn no_secret_is_logged_or_repeated() {
    nothing_leaks("debug,wakeq=trace").await;
}

/// With everything that every crate logs.
#[tokio::test]
async fn no_secret_is_logged_even_at_trace_level() {
    nothing_leaks("trace").await;
}

/// The error about an invalid connection URL does not contain its password.
#[test]
#[ignore = "long: `cargo xtask long` runs it"]
fn a_wrong_url_is_not_repeated() {
    let secret = format!("s3cr3t{}", Uuid::new_v4().simple());
    for url in [
        format!("postgres://user:{secret}@host:port/database"),
        format!("postgres://user:{secret}@[::1/database"),
        secret.clone(),
        format!("mysql://user:{secret}@host/database"),
        format!("postgres://user:{secret}@127.0.0.1:1/database"),
        format!("postgres://user@127.0.0.1:1/database?password={secret}&sslmode=nonsense"),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_wakeq"))
            .args(["stats"])
            .env("DATABASE_URL", &url)
            .env("RUST_LOG", "trace")
            .output()
            .unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!output.status.success() && !said.is_empty(), "{url}");
        assert!(!said.contains(&secret), "{said}");
    }
}
