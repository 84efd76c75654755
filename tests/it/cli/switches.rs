//! `wakeq pause`, `block` and their opposites on a whole canvas and on everything, on the database
//! and against a server: the same output.

use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::OTHER;
use crate::support::service::Service;

/// What is typed, and what is printed.
const SESSION: &str = "\
$ switches
nothing stops the whole canvas
$ pause --canvas-wide --reason fire
canvas <id> paused
$ handlers pause --canvas-wide --for 2h
canvas <id> was paused already: reason and end replaced
$ block --canvas-wide
canvas <id> blocked
canvas <id> is paused as well
$ handlers block --all-canvases --reason fire
everything blocked
$ switches
RULE   STOPS             BY       SINCE                 UNTIL                 REASON
block  everything        cli:ada  <time>  -                     fire
block  the whole canvas  cli:ada  <time>  -                     -
pause  the whole canvas  cli:ada  <time>  <time>  -
$ unpause --canvas-wide
canvas <id>: pause lifted, 0 waiting events woken
canvas <id> is still blocked: only `wakeq unblock` lifts that
canvas <id> still waits under a block of everything by cli:ada: fire
$ unpause greet
WORKER/greet: there was no pause
WORKER/greet still waits under a block of everything by cli:ada: fire
$ handlers unblock --canvas-wide
canvas <id>: block lifted, 0 waiting events woken
canvas <id> still waits under a block of everything by cli:ada: fire
$ unblock --all-canvases
everything: block lifted, 0 waiting events woken
$ unblock --all-canvases
everything: there was no block
$ switches
nothing stops the whole canvas
";

async fn plays(terminal: &Terminal) {
    for (line, expected) in super::session(SESSION) {
        let printed = terminal.prints(&line.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(printed.replace("key:ada", "cli:ada"), expected, "{line}");
    }
    let refused = [
        ("pause", 2, "required"),
        ("pause greet --canvas-wide", 2, "cannot be used with"),
        ("pause --all-canvases", 2, "unexpected argument"),
        ("block greet --all-canvases", 2, "cannot be used with"),
        ("unblock --canvas-wide --all-canvases", 2, "cannot be used with"),
        ("pause CANVAS/_", 2, "whole canvas"),
    ];
    terminal.refuses(&refused).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn canvases_are_stopped_on_the_database() {
    let service = Service::start().await;
    plays(&Terminal::beside(&service)).await;
    service.stop().await;
}

/// A key of one canvas stops that one, and not everything.
#[tokio::test]
async fn canvases_are_stopped_by_a_server() {
    let service = Service::start().await;
    plays(&Terminal::wide(&service).await).await;
    let of_one = Terminal::with_key(&service, &service.key("ada", CanvasId::DEFAULT, &Scope::ALL).await);
    of_one.prints(&["pause", "--canvas-wide"]).await;
    of_one.refuses(&[("block --all-canvases", 4, "reaches every canvas")]).await;
    let other = Terminal::with_key(&service, &service.key("bo", OTHER, &Scope::ALL).await);
    let canvas = OTHER.to_string();
    let listed = other.prints(&["switches", "--canvas", &canvas]).await;
    assert_eq!(listed, "nothing stops the whole canvas\n");
    service.stop().await;
}
