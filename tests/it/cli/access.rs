//! `wakeq keys` and `wakeq accounts`, as a process against a real database.

use wakeq::{CanvasId, Timing};
use wakeq_service::access::{Access, AccessConfig, ApiKey, Scope, authorize};

use super::Terminal;
use crate::support::{OTHER, connect, database, wait_while};

/// The key is alone on standard output, so that `KEY=$(wakeq keys create …)` works.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_key_is_made_listed_and_revoked() {
    let database = database().await;
    let terminal = Terminal::on(&database);
    assert_eq!(terminal.prints(&["keys", "list"]).await, "no keys\n");
    let printed = terminal.run(&["keys", "create", "ci", "--scope", "read", "--scope", "emit"]).await;
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    let text = printed.out.strip_suffix('\n').unwrap();
    let id = ApiKey::parse(text).unwrap().id();
    let year = printed.err.split(" until ").nth(1).unwrap().get(..4).unwrap().to_owned();
    let made = format!("{id:?} for ci, on canvas {}: emit,read, until {year}-", CanvasId::DEFAULT);
    assert!(printed.err.starts_with(&made), "{}", printed.err);
    assert!(!printed.err.contains(&text[20..40]), "{}", printed.err);

    let access =
        Access::new(connect(database.url(), Timing::default()).await, AccessConfig::default()).unwrap();
    let principal = access.authenticate(Some(&format!("Bearer {text}"))).await.unwrap();
    assert_eq!(authorize(&principal, CanvasId::DEFAULT, Scope::Read), Ok(()));
    assert!(authorize(&principal, OTHER, Scope::Read).is_err());

    // Its use is recorded in the background.
    let key = async || access.keys(CanvasId::DEFAULT.into(), None, 1).await.unwrap().remove(0);
    wait_while!(key().await.last_used_at.is_none(), "nothing was noted");
    let listed = terminal.prints(&["keys", "list"]).await;
    let mut lines = listed.lines();
    let head =
        "PREFIX              NAME  SCOPES     STATE  EXPIRES               LAST USED             CANVAS";
    assert_eq!(lines.next(), Some(head));
    let line = lines.next().unwrap();
    assert!(line.starts_with(&format!("{id:?}  ci    emit,read  live   <time>")), "{line}");
    assert!(!listed.contains(&text[20..40]), "{listed}");

    let prefix = format!("{id:?}");
    let shown = terminal.prints(&["keys", "show", &prefix]).await;
    let expected =
        format!("key       {prefix} of ci\nscopes    emit,read\nstate     live\nmade      <time> by ");
    assert!(shown.starts_with(&expected), "{shown}");
    assert!(!shown.contains(&text[20..40]), "{shown}");
    assert!(terminal.complains(3, &["keys", "show", "wakeq_000000000000"]).await.contains("no key wakeq_"));
    let revoke = ["keys", "revoke", &prefix];
    let expected = format!("{prefix} revoked; it is refused everywhere within a minute\n");
    assert_eq!(terminal.prints(&revoke).await, expected);
    let words = "or it was revoked before; `wakeq keys list --all-canvases` shows them";
    assert_eq!(terminal.complains(3, &revoke).await, format!("wakeq: no key {prefix}, {words}\n"));
    assert!(terminal.prints(&["keys", "list"]).await.contains("  revoked  <time>"));
}

#[tokio::test]
async fn a_key_for_every_canvas_needs_the_explicit_option() {
    let database = database().await;
    let terminal = Terminal::on(&database);
    let create = ["keys", "create", "root", "--scope", "admin", "--all-canvases", "--expires", "1h"];
    let printed = terminal.run(&create).await;
    assert!(printed.err.contains(" for root, on every canvas: admin, until "), "{}", printed.err);
    assert_eq!(terminal.prints(&["keys", "list"]).await, "no keys\n", "on the canvas itself");
    let listed = terminal.prints(&["keys", "list", "--all-canvases"]).await;
    assert!(listed.lines().nth(1).unwrap().ends_with("  every"), "{listed}");
    terminal.run(&create).await;
    let expected = "wakeq: root has two live keys there already: revoke one first\n";
    assert_eq!(terminal.complains(5, &create).await, expected);
    for (arguments, expected) in [
        (&["keys", "create", "a"][..], "error: the following required arguments were not provided:"),
        (
            &["keys", "create", "a", "--scope", "all"],
            "error: invalid value 'all' for '--scope <SCOPE>': a scope is one of emit, read, values, operate, admin; the first four may be limited to handlers: emit:WORKER/*, operate:WORKER/resize",
        ),
        (
            &["keys", "revoke", "x"],
            "error: invalid value 'x' for '<PREFIX>': a key is named by its first part: `wakeq_` and 12 digits of 0-9 a-f",
        ),
    ] {
        assert_eq!(terminal.complains(2, arguments).await.lines().next(), Some(expected));
    }
    let ages = ["keys", "create", "a", "--scope", "emit", "--expires", "11years"];
    let expected = "wakeq: a key lives for at least a second and at most ten years\n";
    assert_eq!(terminal.complains(2, &ages).await, expected);
}

#[tokio::test]
async fn service_accounts_are_allowed_and_removed() {
    let database = database().await;
    let terminal = Terminal::on(&database);
    let robot = "robot@project.iam.gserviceaccount.com";
    assert_eq!(terminal.prints(&["accounts", "list"]).await, "no accounts\n");
    let allow = ["accounts", "allow", robot, "--scope", "emit", "--all-canvases"];
    assert_eq!(terminal.prints(&allow).await, format!("{robot} is allowed, on every canvas: emit\n"));
    let expected = format!("{robot} was already allowed: scopes replaced, on every canvas: emit\n");
    assert_eq!(terminal.prints(&allow).await, expected);
    assert_eq!(terminal.prints(&["accounts", "list"]).await, "no accounts\n", "on the canvas itself");
    let expected =
        format!("{:37}  SCOPES  {:20}  CANVAS\n{robot}  emit    <time>  every\n", "ACCOUNT", "SINCE");
    assert_eq!(terminal.prints(&["accounts", "list", "--all-canvases"]).await, expected);
    let remove = ["accounts", "remove", robot, "--all-canvases"];
    let expected =
        format!("{robot} is no longer allowed on every canvas; it is refused everywhere within a minute\n");
    assert_eq!(terminal.prints(&remove).await, expected);
    let expected =
        format!("wakeq: {robot} was not allowed on every canvas; see `wakeq accounts list --all-canvases`\n");
    assert_eq!(terminal.complains(3, &remove).await, expected);
    let person = ["accounts", "allow", "Ada@queue.example", "--scope", "read"];
    let expected = "Ada@queue.example is allowed, on canvas <id>: read\n";
    assert_eq!(terminal.prints(&person).await, expected);
    let expected = "wakeq: an account has an address like name@project.iam.gserviceaccount.com or, for the pages, \
                    that of a person; of at most 190 characters\n";
    assert_eq!(
        terminal.complains(2, &["accounts", "allow", "ada@localhost", "--scope", "emit"]).await,
        expected
    );
}
