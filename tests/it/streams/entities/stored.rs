//! Only what is stored counts: nothing is visible before it is, and nothing else is needed to
//! rebuild a state.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};

use wakeq::CanvasId;
use wakeq::log::EventSource;
use wakeq_streams::{Entity, EntityEvent};

use super::{Account, Balance, Bank, Change, account, config};
use crate::support::{TIMEOUT, wait_while};

/// The variable that names the file with the stored events, one per line.
const STORED: &str = "WAKEQ_TEST_STORED";

/// Until an event is stored its effect is visible nowhere, not even in memory; a batch that could
/// not be stored is processed again, and applied once.
// Shows: ENT-13
#[tokio::test]
async fn nothing_is_seen_before_it_is_stored() {
    let bank = Bank::open().await;
    let processor = bank.owner(config(), 1).await;
    bank.deposited("ada", 1).await;
    bank.deposited("bob", 1).await;
    let before = processor.state(CanvasId::DEFAULT, "ada").await;
    let mut lock = bank.stage.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table wakeq.entities in share mode").execute(&mut *lock).await.unwrap();
    let sent = bank.deposit("ada", 2).await;
    let batches = "select count(*) from pg_locks where not granted and relation = 'wakeq.entities'::regclass
                      and database = (select oid from pg_database where datname = current_database())";
    let tried = async {
        // Twice: the batch that was given up, and the next one.
        for waiting in [1, 0, 1] {
            wait_while!(bank.count(batches).await != waiting, "no batch is tried");
            assert_eq!(processor.state(CanvasId::DEFAULT, "ada").await, before);
            assert_eq!(bank.shown("ada").await, before);
        }
    };
    tokio::time::timeout(TIMEOUT, tried).await.expect("it tries to store it");
    lock.rollback().await.unwrap();
    assert_eq!(bank.ended(sent.id.0).await.result.as_deref(), Some("3"));
    let after = Some((Balance { cents: 3, changes: 2, note: String::new() }, 2));
    assert_eq!(processor.state(CanvasId::DEFAULT, "ada").await, after);
    assert_eq!(bank.shown("ada").await, after);
    assert_eq!(bank.shown("bob").await.unwrap().0.cents, 1);
}

/// A process without any network builds the same state from the stored events.
// Shows: ENT-17
#[tokio::test]
async fn stored_events_are_applied_without_a_network() {
    let cut_off = ["unshare", "--user", "--map-root-user", "--net"];
    let can = Command::new(cut_off[0]).args(&cut_off[1..]).arg("true").stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "SKIPPED: needs a process without a network, by unshare");
        return;
    }
    let (bank, processor) = Bank::owned().await;
    for cents in 1..20 {
        bank.deposited("ada", cents).await;
    }
    for cents in [1000, 50] {
        bank.sent_to(&account("ada"), EntityEvent::of(&Change::Withdraw { cents }).unwrap()).await;
    }
    let source = EventSource::category("entities:account").unwrap();
    let stored = bank.log.read(&source, 0, 100).await.unwrap().events;
    let lines = stored.iter().map(|event| format!("{{\"{}\":{}}}\n", event.name, event.payload));
    let file = std::env::temp_dir().join(format!("wakeq-stored-{}", uuid::Uuid::new_v4()));
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    let replay = Command::new(cut_off[0])
        .args(&cut_off[1..])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "streams::entities::stored::replay", "--ignored", "--nocapture"])
        .env(STORED, &file)
        .output();
    std::fs::remove_file(&file).unwrap();
    let printed = String::from_utf8(replay.unwrap().stdout).unwrap();
    let (state, _) = processor.state(CanvasId::DEFAULT, "ada").await.unwrap();
    assert_eq!((state.cents, state.changes), (140, 20));
    let expected = format!("0 ways out; {}", serde_json::to_string(&state).unwrap());
    assert!(printed.lines().any(|line| line.ends_with(&expected)), "{printed}");
}

#[test]
#[ignore = "a role in the test above, which starts it itself"]
fn replay() -> ExitCode {
    let file = std::env::var(STORED).expect("only the test above starts this");
    let mut balance = Balance::default();
    for line in std::fs::read_to_string(file).unwrap().lines() {
        let change: Change = serde_json::from_str(line).unwrap();
        Account::validate(&balance, &change).unwrap();
        balance = Account::apply(balance, &change).state().clone();
    }
    // The first line is a header.
    let ways_out = std::fs::read_to_string("/proc/net/route").unwrap().lines().count().saturating_sub(1);
    println!("\n{ways_out} ways out; {}", serde_json::to_string(&balance).unwrap());
    ExitCode::SUCCESS
}
