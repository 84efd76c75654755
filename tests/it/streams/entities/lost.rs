//! A commit whose answer is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;
use wakeq::testing::MemoryNotifier;
use wakeq::{CanvasId, Timing};
use wakeq_streams::EntityStatus;

use super::{Bank, OTHER, config, deposit, of};
use crate::support::{Stage, Statements, database, wait_while};

/// A proxy in front of Postgres that drops the answer to the commit of the first batch, and with it
/// the connection.
async fn proxy(url: &str) -> (String, Arc<AtomicBool>) {
    let (server, database) = url.rsplit_once('/').unwrap();
    let (credentials, address) = server.rsplit_once('@').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = format!("{credentials}@{}/{database}", listener.local_addr().unwrap());
    let (lost, address) = (Arc::new(AtomicBool::new(false)), address.to_owned());
    let is_lost = Arc::clone(&lost);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&address).await.unwrap();
            tokio::spawn(forward(client, server, Arc::clone(&is_lost)));
        }
    });
    (through, lost)
}

async fn forward(mut client: TcpStream, mut server: TcpStream, lost: Arc<AtomicBool>) {
    let has = |chunk: &[u8], text: &[u8]| chunk.windows(text.len()).any(|window| window == text);
    let (mut request, mut response) = (vec![0; 65_536], vec![0; 65_536]);
    let (mut is_batch, mut loses) = (false, false);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(read @ 1..) = read else { return };
                is_batch |= has(&request[..read], b"insert into wakeq.entity_events as e");
                loses |= is_batch && has(&request[..read], b"COMMIT") && !lost.swap(true, Ordering::SeqCst);
                if server.write_all(&request[..read]).await.is_err() { return }
            }
            read = server.read(&mut response) => {
                let Ok(read @ 1..) = read else { return };
                if loses || client.write_all(&response[..read]).await.is_err() { return }
            }
        }
    }
}

/// Events emitted by a commit that was carried out are announced although its answer was lost: they
/// do not wait for their promise. Nothing is applied twice.
// Shows: ENT-X4
#[tokio::test]
async fn events_of_a_commit_are_announced_though_its_answer_is_lost() {
    let database = database().await;
    let (url, lost) = proxy(database.url()).await;
    let notifier = Arc::new(MemoryNotifier::new());
    let stage = Stage::through(database, &url, notifier.clone(), Timing::default()).await;
    let bank = Bank::on(stage);
    let canvases = [CanvasId::DEFAULT, OTHER];
    let event = |canvas| (of(canvas, "account", "ada"), deposit(5).reply_to("told").unwrap());
    let sent = bank.entities.send_all(canvases.map(event).into()).await.unwrap();
    let processor = bank.owner(config(), 1).await;
    for (sent, canvas) in sent.iter().zip(canvases) {
        assert_eq!(bank.ended_on(canvas, sent.id.0).await.status, EntityStatus::Completed);
    }
    wait_while!(notifier.published().len() < 2, "the answers are announced");
    assert!(lost.load(Ordering::SeqCst));
    let mut published: Vec<Uuid> = notifier.published().iter().map(|sent| sent.id.0).collect();
    published.sort_unstable();
    let answers: Vec<Uuid> = bank.stage.pool.values("select id from wakeq.events_v2 order by id").await;
    assert_eq!(published, answers);
    assert_eq!(bank.deposited("ada", 1).await.result.as_deref(), Some("6"));
    assert_eq!(processor.state(OTHER, "ada").await.map(|(balance, _)| balance.cents), Some(5));
}
