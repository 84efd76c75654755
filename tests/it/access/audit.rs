//! The record: a line for each change that took effect, none for what changed nothing, and refusals
//! as they are reported.

use std::time::Duration;

use wakeq::control::{AuditEntry, AuditOutcome, DeadFilter, Refusal};
use wakeq::database::Retention;
use wakeq::{Actor, AdminError, CanvasId, EventId, Stop, WorkerConfig};
use wakeq_service::access::{Access, AccessConfig, CredentialFilter, NewKey, Reach, Scope};

use crate::support::{OTHER, Stage, Statements, scope, wait_while};

async fn record(stage: &Stage) -> Vec<AuditEntry> {
    stage.admin.for_tenants().audit(CanvasId::DEFAULT, None, 1000).await.unwrap().items
}

/// `action handler outcome xtimes`, oldest first.
async fn lines(stage: &Stage) -> Vec<String> {
    let line = |line: &AuditEntry| {
        let (name, outcome) = (line.name.as_deref().unwrap_or("-"), line.outcome.as_str());
        format!("{} {name} {outcome} x{}", line.action, line.times)
    };
    record(stage).await.iter().rev().map(line).collect()
}

/// Everything that an operator does, repeated where the repetition changes nothing.
#[tokio::test]
async fn every_change_is_recorded_and_nothing_else() {
    let (stage, _) = Stage::memory().await;
    let (ada, h) = (Actor::admin("ada").request("r-1"), scope("h"));
    let stop = Stop { reason: Some("the mail server is down".into()), until: None };
    stage.admin.pause(&h, &ada, &stop).await.unwrap();
    stage.admin.pause(&h, &ada, &stop).await.unwrap();
    stage.admin.block(&h, &ada, &Stop::default()).await.unwrap();
    for _ in 0..2 {
        stage.admin.unpause(&h, &ada).await.unwrap();
        stage.admin.unblock(&h, &ada).await.unwrap();
    }
    let ids = stage.emit_many("h", 1203).await;
    stage.admin.run_now(CanvasId::DEFAULT, ids[0], &ada).await.unwrap();
    stage.admin.cancel(CanvasId::DEFAULT, ids[0], &ada).await.unwrap();
    let gone = stage.admin.cancel(CanvasId::DEFAULT, ids[0], &ada).await;
    assert!(matches!(gone, Err(AdminError::NotFound(_))));
    stage.admin.purge(&h, &ada, true).await.unwrap();
    stage.admin.purge(&h, &ada, false).await.unwrap();
    stage.admin.purge(&h, &ada, false).await.unwrap();
    let sql = "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, cause)
               select lpad(to_hex(n), 32, '0')::uuid, '00000000-0000-0000-0000-000000000000', 'WORKER', 'h', '_', '1', 2, now(), 3, 0, 'retries'
                 from generate_series(1, 3) n";
    stage.execute(sql).await;
    let one = EventId(uuid::Uuid::from_u128(1));
    stage.admin.redrive_one(CanvasId::DEFAULT, one, &ada).await.unwrap();
    stage.admin.delete_dead(&DeadFilter::default(), &ada, true).await.unwrap();
    stage.admin.delete_dead(&DeadFilter::default(), &ada, false).await.unwrap();
    stage.admin.redrive(&DeadFilter::default(), &ada, false).await.unwrap();
    let expected = "pause h done x1, pause h done x1, block h done x1, unpause h done x1, unblock h done x1, \
                    run-now h done x1, cancel h done x1, purge h done x1000, purge h done x202, redrive h done x1, \
                    delete-dead - done x2";
    assert_eq!(lines(&stage).await.join(", "), expected);
    let record = record(&stage).await;
    assert!(record.iter().all(|line| line.actor == "ada" && line.request_id.as_deref() == Some("r-1")));
    let details: Vec<_> = record.iter().rev().take(3).map(|line| line.detail.as_deref()).collect();
    let again = "it stood already; the mail server is down";
    assert_eq!(details, [Some("the mail server is down"), Some(again), Some("")]);
    assert_eq!((record[1].event_id, record[4].event_id), (Some(one), Some(ids[0])));
}

/// Keys and accounts: on their canvas, or on none if they are valid on every canvas; what changes
/// nothing has no line.
#[tokio::test]
async fn keys_and_accounts_are_recorded() {
    let (stage, _) = Stage::memory().await;
    let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
    let ada = Actor::admin("cli:ada").request("r-1").credential("with wakeq_0123456789ab");
    let (robot, read) = ("robot@p.iam.gserviceaccount.com", [Scope::Read, Scope::Emit].into_iter().collect());
    let mut ids = Vec::new();
    for reach in [Reach::Canvas(CanvasId::DEFAULT), Reach::EveryCanvas] {
        let new = NewKey { holder: "ci".into(), reach, scopes: read, lifetime: None };
        let id = access.create_key(&new, &ada).await.unwrap().key.id();
        access.create_key(&new, &ada).await.unwrap();
        assert!(access.create_key(&new, &ada).await.is_err(), "a third");
        assert!(access.revoke_key(CredentialFilter::Everything, id, &ada).await.unwrap());
        assert!(!access.revoke_key(CredentialFilter::Everything, id, &ada).await.unwrap());
        for new in [true, false] {
            assert_eq!(access.allow_account(robot, reach, read, &ada).await.unwrap(), new);
        }
        assert!(access.remove_account(robot, reach, &ada).await.unwrap());
        assert!(!access.remove_account(robot, reach, &ada).await.unwrap());
        ids.push(id);
    }
    let sql = "select canvas_id, action, detail, actor, request_id from wakeq.audit_log order by id";
    let lines: Vec<(Option<uuid::Uuid>, String, String, String, String)> = stage.pool.table(sql).await;
    assert_eq!(lines.len(), 12);
    for (lines, (canvas, id)) in lines.chunks(6).zip([Some(CanvasId::DEFAULT.0), None].into_iter().zip(ids)) {
        assert!(lines.iter().all(|line| line.0 == canvas && line.3 == "cli:ada" && line.4 == "r-1"));
        let described: Vec<String> = lines.iter().map(|line| format!("{} {}", line.1, line.2)).collect();
        let with = "with wakeq_0123456789ab;";
        assert_eq!(described[0], format!("create-key {with} {id:?} for ci: emit read"));
        assert!(described[1].starts_with("create-key "));
        let rest = [
            format!("revoke-key {with} {id:?} of ci"),
            format!("allow-account {with} {robot}: emit read"),
            format!("allow-account {with} it was let in already; {robot}: emit read"),
            format!("remove-account {with} {robot}"),
        ];
        assert_eq!(described[2..], rest);
    }
    assert_eq!(record(&stage).await.len(), 6, "the canvas's own");
}

/// Refusals are written as they are reported, and read newest first, page by page.
#[tokio::test]
async fn refusals_are_recorded_in_their_number() {
    let (stage, _) = Stage::memory().await;
    let refusal = |times, canvas| Refusal {
        canvas,
        actor: Actor::user("eve").request("r"),
        action: "unblock".into(),
        scope: Some(scope("h")),
        event: None,
        detail: Some("ä\0".repeat(2000)),
        times,
    };
    let refusals: Vec<_> = (1..=5).map(|times| refusal(times, CanvasId::DEFAULT)).collect();
    stage.admin.refused(&[&refusals[..], &[refusal(9, OTHER)]].concat()).await.unwrap();
    stage.admin.refused(&[]).await.unwrap();
    let (mut times, mut cursor) = (Vec::new(), None);
    loop {
        let page = stage.admin.for_tenants().audit(CanvasId::DEFAULT, cursor.as_ref(), 2).await.unwrap();
        times.extend(page.items.iter().map(|line| line.times));
        let full = Some("ä".repeat(1000));
        assert!(page.items.iter().all(|line| line.outcome == AuditOutcome::Refused && line.detail == full));
        match page.next {
            Some(next) => cursor = Some(next.to_string().parse().unwrap()),
            None => break,
        }
    }
    assert_eq!(times, [5, 4, 3, 2, 1]);
    assert_eq!(stage.admin.audit(OTHER, None, 10).await.unwrap().items[0].times, 9);
    let wrong = Refusal { action: String::new(), ..refusal(1, OTHER) };
    assert!(matches!(stage.admin.refused(&[wrong]).await, Err(AdminError::Invalid(_))));
}

/// A change whose record can't be written is not made.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_change_fails_if_its_audit_line_fails() {
    let (stage, _) = Stage::memory().await;
    let id = stage.emit("h").await;
    stage.admin.pause(&scope("h"), &Actor::user("ada"), &Stop::default()).await.unwrap();
    let sql = "alter table wakeq.audit_log add constraint full_disk check (actor <> 'eve') not valid";
    stage.execute(sql).await;
    let eve = Actor::admin("eve");
    assert!(stage.admin.cancel(CanvasId::DEFAULT, id, &eve).await.is_err());
    assert!(stage.admin.run_now(CanvasId::DEFAULT, id, &eve).await.is_err());
    // The server reports the failure before it releases the row, which a purge would skip: this
    // waits for it.
    stage.execute("select from wakeq.events_v2 for update").await;
    assert!(stage.admin.purge(&scope("h"), &eve, false).await.is_err());
    assert!(stage.admin.unpause(&scope("h"), &eve).await.is_err());
    assert!(stage.admin.block(&scope("h"), &eve, &Stop::default()).await.is_err());
    assert_eq!((stage.rows().await, stage.admin.rules(None, 100).await.unwrap().items.len()), (1, 1));
    let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
    let (reach, scopes) = (Reach::EveryCanvas, [Scope::Read].into_iter().collect());
    let new = NewKey { holder: "eve".into(), reach, scopes, lifetime: None };
    assert!(access.create_key(&new, &eve).await.is_err());
    let kept = access.create_key(&new, &Actor::admin("ada")).await.unwrap().key.id();
    assert!(access.revoke_key(CredentialFilter::Everything, kept, &eve).await.is_err());
    assert!(access.allow_account("r@p.iam.gserviceaccount.com", reach, scopes, &eve).await.is_err());
    let keys = access.keys(CredentialFilter::Everything, None, 10).await.unwrap();
    assert_eq!((keys.len(), keys[0].revoked_at), (1, None));
    assert_eq!(access.accounts(CredentialFilter::Everything, None, 100).await.unwrap(), []);
    let wrong = Actor::user("");
    assert!(matches!(stage.admin.cancel(CanvasId::DEFAULT, id, &wrong).await, Err(AdminError::Invalid(_))));
    assert_eq!(lines(&stage).await, ["pause h done x1"]);
}

/// The record is kept for 90 days, answers to idempotent emits for one.
#[tokio::test]
async fn the_record_is_kept_for_its_time() {
    let (stage, _) = Stage::memory().await;
    let ada = Actor::user("ada");
    stage.admin.pause(&scope("old"), &ada, &Stop::default()).await.unwrap();
    stage.admin.pause(&scope("new"), &ada, &Stop::default()).await.unwrap();
    for sql in [
        "update wakeq.audit_log set at = now() - case name when 'old' then interval '91 days' else '89 days' end",
        "insert into wakeq.idempotency_keys (canvas_id, holder, key, fingerprint, answer, created_at)
         select gen_random_uuid(), 'ada', hours::text, 'x', '', now() - hours * interval '1 h' from unnest(array[23, 25]) hours",
        "update wakeq.chores set next_at = now()",
    ] {
        stage.execute(sql).await;
    }
    assert_eq!(Retention::default().audit, Duration::from_secs(90 * 24 * 3600));
    let worker = stage.worker_with(wakeq::Handlers::new(), WorkerConfig::default());
    let keys = async || -> Vec<String> { stage.pool.values("select key from wakeq.idempotency_keys").await };
    // The keys are deleted after the record.
    wait_while!(keys().await.len() > 1, "it was not expired");
    assert_eq!(keys().await, ["23"]);
    assert_eq!(lines(&stage).await, ["pause new done x1"]);
    worker.stop().await;
}
