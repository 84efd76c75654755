//! Handlers of two tenants under the same name: what they have to do, what stops them, and their
//! targets.

use std::time::Duration;

use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_client::{Client, Method, NewEvent, NewTarget, Pause, PullPolicy, Release, Request, TargetPolicy};
use wakeq_service::access::Scope;

use super::{Tenants, later, refused, service};
use crate::support::OTHER;
use crate::support::service::{Service, has};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_event_is_run_now_counted_as_due_and_purged() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    for client in [&mine, &other] {
        client.emit_all(&[later("greet"), later("greet")]).await.unwrap();
    }
    let id = mine.emit(&later("greet")).await.unwrap().id;
    let depth = mine.depth().await.unwrap();
    assert_eq!((depth.depth, depth.capped, depth.oldest_age_s), (0, false, None));
    for stranger in [&other, &intruder] {
        refused(stranger.run_now(id).await, 404, "not-found");
    }
    assert_eq!(mine.run_now(id).await.unwrap(), id);
    for depth in [mine.depth().await, mine.handler_depth("WORKER", "greet").await] {
        assert_eq!(depth.unwrap().depth, 1);
    }
    assert_eq!(mine.handler_depth("CRON", "greet").await.unwrap().depth, 0);
    assert_eq!(other.depth().await.unwrap().depth, 0);
    let shown = mine.handler("WORKER", "greet").await.unwrap();
    assert_eq!((shown.waiting, shown.delayed, shown.halted, shown.rules.len()), (1, 2, 0, 0));
    assert_eq!(other.handler("WORKER", "greet").await.unwrap().delayed, 2);
    refused(intruder.depth().await, 404, "not-found");
    refused(intruder.handler("WORKER", "greet").await, 404, "not-found");

    let key = service.wide_key("wide", &[Scope::Read]).await;
    let wide = Client::new(&format!("http://{}", service.address), &key).unwrap();
    assert_eq!(wide.total_depth().await.unwrap().depth, 1);
    refused(mine.total_depth().await, 403, "forbidden");
    refused(other.total_depth().await, 403, "forbidden");

    assert_eq!(mine.count_purge("WORKER", "greet", None).await.unwrap(), 3);
    refused(intruder.purge("WORKER", "greet", None).await, 404, "not-found");
    let purged = mine.purge("WORKER", "greet", None).await.unwrap();
    assert_eq!((purged.purged, purged.more), (3, false));
    assert_eq!(other.count_purge("WORKER", "greet", purged.before).await.unwrap(), 2);
    refused(mine.run_now(id).await, 404, "not-found");
    assert_eq!(service.stage.rows().await, 2);
    service.stop().await;
}

#[tokio::test]
async fn the_last_attempts_of_a_handler_are_shown_and_the_programs_that_made_them() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    for client in [&mine, &other] {
        client.pull("WORKER", "greet", &PullPolicy::default().delay(Duration::ZERO)).await.unwrap();
    }
    let id = mine.emit(&NewEvent::new("greet", &1).unwrap()).await.unwrap().id;
    for (number, release) in [Release::failed("no route"), Release::dead("no such user")].iter().enumerate() {
        let leased = mine.lease_as("mailer-7", "WORKER", "greet", 1, MINUTE, Duration::ZERO).await.unwrap();
        assert_eq!(mine.release(&leased[0], release).await.unwrap().died, number == 1);
    }
    let last = mine.attempts("WORKER", "greet", 20).await.unwrap();
    let told = last.attempts.iter().map(|attempt| (attempt.number, attempt.outcome.as_str()));
    assert_eq!((told.collect::<Vec<_>>(), last.more), (vec![(2, "dead"), (1, "retried")], false));
    let latest = &last.attempts[0];
    assert_eq!((latest.event, latest.modifier.as_str(), latest.status), (id, "_", None));
    assert_eq!(latest.error.as_deref(), Some("no such user"));
    assert_eq!(latest.worker.as_deref(), Some("mailer-7"));
    assert_eq!(mine.attempts("WORKER", "greet", 1).await.unwrap().attempts.len(), 1);
    assert_eq!(mine.explain(id).await.unwrap().attempts.len(), 2);
    assert!(other.attempts("WORKER", "greet", 20).await.unwrap().attempts.is_empty());
    refused(intruder.attempts("WORKER", "greet", 20).await, 404, "not-found");

    let programs = mine.programs(10, None).await.unwrap().items;
    let programs: Vec<_> = programs.iter().map(|program| (&*program.worker, &*program.name)).collect();
    assert_eq!(programs, [("mailer-7", "greet")]);
    assert!(other.programs(10, None).await.unwrap().items.is_empty());
    refused(intruder.programs(10, None).await, 404, "not-found");
    service.stop().await;
}

/// A client of the service with the scope to block, on this canvas.
async fn admin(service: &Service, canvas: CanvasId) -> Client {
    let key = service.key("admin", canvas, &[Scope::Admin]).await;
    Client::new(&format!("http://{}", service.address), &key).unwrap().canvas(canvas.0)
}

#[tokio::test]
async fn an_admin_blocks_a_handler_or_a_canvas_and_users_do_not_lift_that() {
    let service = service().await;
    let Tenants { mine, other, .. } = Tenants::of(&service).await;
    let (admin, theirs) = (admin(&service, CanvasId::DEFAULT).await, admin(&service, OTHER).await);
    let pause = Pause::default().reason("wrong prices").lasting(Duration::from_secs(600));
    mine.pause("WORKER", "greet", &Pause::default()).await.unwrap();
    let blocked = admin.block("WORKER", "greet", &pause).await.unwrap();
    assert_eq!((blocked.new, blocked.rule.kind.as_str()), (true, "block"));
    assert_eq!(blocked.also.as_deref(), Some("pause"));
    let lifted = mine.unpause("WORKER", "greet").await.unwrap();
    assert_eq!((lifted.lifted, lifted.still.as_deref()), (true, Some("block")));
    let rules = mine.handler("WORKER", "greet").await.unwrap().rules;
    assert_eq!(rules[0].reason.as_deref(), Some("wrong prices"));
    assert!(other.handler("WORKER", "greet").await.unwrap().rules.is_empty());

    assert_eq!(admin.block_canvas(&pause).await.unwrap().rule.stops, "canvas");
    assert_eq!(mine.switches().await.unwrap()[0].kind, "block");
    assert!(other.switches().await.unwrap().is_empty());
    let lifted = admin.unblock("WORKER", "greet").await.unwrap();
    assert_eq!(lifted.under.map(|rule| rule.stops).as_deref(), Some("canvas"));
    let strange = theirs.clone().canvas(CanvasId::DEFAULT.0);
    for (client, status, code) in [(&strange, 404, "not-found"), (&mine, 403, "forbidden")] {
        refused(client.block("WORKER", "greet", &pause).await, status, code);
        refused(client.unblock("WORKER", "greet").await, status, code);
        refused(client.block_canvas(&pause).await, status, code);
        refused(client.unblock_canvas().await, status, code);
    }
    assert!(!theirs.unblock_canvas().await.unwrap().lifted);
    assert!(admin.unblock_canvas().await.unwrap().lifted);
    service.stop().await;
}

#[tokio::test]
async fn everything_is_blocked_by_an_admin_of_every_canvas_only() {
    let service = service().await;
    let Tenants { mine, other, .. } = Tenants::of(&service).await;
    let key = service.wide_key("wide", &[Scope::Admin]).await;
    let wide = Client::new(&format!("http://{}", service.address), &key).unwrap();
    for narrow in [mine.clone(), admin(&service, OTHER).await] {
        refused(narrow.block_all(&Pause::default()).await, 403, "forbidden");
        refused(narrow.unblock_all().await, 403, "forbidden");
    }
    let blocked = wide.block_all(&Pause::default().reason("the database moves")).await.unwrap();
    assert_eq!((blocked.new, blocked.rule.stops.as_str()), (true, "everything"));
    for client in [&mine, &other] {
        let switches = client.switches().await.unwrap();
        assert_eq!(switches[0].reason.as_deref(), Some("the database moves"));
    }
    assert!(wide.unblock_all().await.unwrap().lifted);
    assert!(!wide.unblock_all().await.unwrap().lifted);
    assert!(mine.switches().await.unwrap().is_empty());
    service.stop().await;
}

#[tokio::test]
async fn a_target_is_registered_with_its_policy() {
    let service = service().await;
    let Tenants { mine, .. } = Tenants::of(&service).await;
    let policy = TargetPolicy::default().retries(5).delay(Duration::from_secs(1)).factor(2);
    let policy = policy.timeout(MINUTE).concurrency(3).delay_max(MINUTE).halts().keep(MINUTE);
    let target = NewTarget::new("http://127.0.0.1:8099/mine").policy(policy).header("X-Api-Key", "5ecre7");
    assert!(!format!("{target:?}").contains("5ecre7"));
    let set = mine.set_target("WORKER", "greet", &target).await.unwrap();
    let secret = set.secret.clone().unwrap();
    assert!(set.new && secret.starts_with("whsec_") && !format!("{set:?}").contains(&secret));
    assert_eq!(set.target.url, "http://127.0.0.1:8099/mine");
    assert_eq!(set.target.header_names, ["x-api-key"]);
    let shown = Request::new(Method::GET, "/v1/canvases/{canvas}/handlers/WORKER/greet/_");
    let shown: Value = mine.request(&shown).await.unwrap();
    let policy = json!({"retries": 5, "delay_s": 1.0, "factor": 2, "delay_max_s": 60.0, "timeout_s": 60.0,
                        "concurrency": 3, "on_death": "halt", "keep_s": 60});
    has(&shown, json!({"policy": policy}));

    let again = mine.set_target("WORKER", "greet", &target).await.unwrap();
    assert_eq!((again.new, again.secret), (false, None));
    let rotated = mine.set_target("WORKER", "greet", &target.clone().rotate_secret()).await.unwrap();
    assert!(rotated.target.previous_secret_until.is_some());
    assert!(rotated.secret.is_some_and(|another| another != secret));
    let given = mine.set_target("WORKER", "greet", &target.rotate_secret().secret(&secret)).await.unwrap();
    assert_eq!(given.secret, None, "it is known");
    service.stop().await;
}

#[tokio::test]
async fn targets_are_listed_and_removed_on_their_canvas() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let at = |path: &str| NewTarget::new(&format!("http://127.0.0.1:8099/{path}"));
    for (client, name, path) in [(&mine, "greet", "a"), (&mine, "mail", "b"), (&other, "greet", "theirs")] {
        assert!(client.set_target("WORKER", name, &at(path)).await.unwrap().new);
    }
    let first = mine.targets(1, None).await.unwrap();
    let cursor = first.next_cursor.as_deref();
    let second = mine.targets(1, cursor).await.unwrap();
    assert_eq!([&first, &second].map(|page| page.items[0].name.as_str()), ["greet", "mail"]);
    assert!(other.targets(10, cursor).await.unwrap().items.is_empty());
    let theirs = other.targets(10, None).await.unwrap().items;
    assert_eq!((theirs.len(), theirs[0].url.as_str()), (1, "http://127.0.0.1:8099/theirs"));
    let shown = mine.handler("WORKER", "greet").await.unwrap();
    assert_eq!((shown.targets.len(), shown.targets[0].url.as_str()), (1, "http://127.0.0.1:8099/a"));
    refused(intruder.targets(10, None).await, 404, "not-found");
    refused(intruder.set_target("WORKER", "greet", &at("c")).await, 404, "not-found");
    for stranger in [&other, &intruder] {
        refused(stranger.remove_target("WORKER", "mail").await, 404, "not-found");
    }
    mine.remove_target("WORKER", "greet").await.unwrap();
    refused(mine.remove_target("WORKER", "greet").await, 404, "not-found");
    assert_eq!(other.targets(10, None).await.unwrap().items.len(), 1);
    service.stop().await;
}
