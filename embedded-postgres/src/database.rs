//! One database: a folder, its engine while it is in use, and the turns of its clients.
//!
//! Turns are granted in order of arrival, and each finds a clean session: what the previous one
//! left open is rolled back first. There must never be two turns at a time.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, EngineError};
use crate::frame::Frame;
use crate::settings::{self, Settings};

/// A Postgres of one process has no autovacuum: after this many turns it is vacuumed and
/// checkpointed.
const TURNS_BETWEEN_CHORES: u32 = 5_000;

/// A client that has gone is no longer counted after this.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

/// A database of this server.
#[derive(Debug)]
pub(crate) struct Database {
    folder: PathBuf,
    seat: Arc<tokio::sync::Mutex<Seat>>,
    clients: watch::Sender<usize>,
    /// Messages that free what departed clients left in the session.
    farewells: Mutex<Vec<Vec<u8>>>,
    /// Cancelled when the database is dropped or the server ends.
    pub(crate) ended: CancellationToken,
}

#[derive(Debug, Default)]
struct Seat {
    engine: Option<Engine>,
    /// How many engines there have been; a client of an earlier one has lost its session.
    age: u64,
    settings: Settings,
    /// A client has a turn, or had one and did not end it.
    taken: bool,
    turns_since_chores: u32,
}

impl Database {
    pub(crate) fn new(folder: PathBuf, ended: CancellationToken) -> Self {
        let (seat, clients, farewells) = Default::default();
        Self { folder, seat, clients, farewells, ended }
    }

    /// Counts a client for as long as the returned value lives.
    pub(crate) fn enter(self: &Arc<Self>) -> Visit {
        self.clients.send_modify(|count| *count += 1);
        Visit(Arc::clone(self))
    }

    /// Whether no client is connected. Waits up to five seconds for the count to reach zero, as a
    /// client that has just gone may still be counted.
    pub(crate) async fn is_left(&self) -> bool {
        let mut clients = self.clients.subscribe();
        let none_left = clients.wait_for(|count| *count == 0);
        tokio::time::timeout(LEAVES_WITHIN, none_left).await.is_ok()
    }

    /// Waits for the engine, and starts it if necessary.
    pub(crate) async fn turn(&self) -> Result<Turn, EngineError> {
        if self.ended.is_cancelled() {
            return Err(EngineError::Ended);
        }
        self.any_turn().await
    }

    async fn any_turn(&self) -> Result<Turn, EngineError> {
        let mut seat = Arc::clone(&self.seat).lock_owned().await;
        if seat.engine.is_none() {
            // A client that waited for a database that was dropped meanwhile must not recreate its
            // folder.
            if self.ended.is_cancelled() {
                return Err(EngineError::Ended);
            }
            let engine = Engine::open(self.folder.clone()).await?;
            *seat = Seat { engine: Some(engine), age: seat.age + 1, ..Seat::default() };
            self.farewells().clear();
        }
        let undone = std::mem::replace(&mut seat.taken, true);
        let mut turn = Turn { seat };
        if undone {
            turn.exchange(Frame::new(b'S', []).bytes()).await?;
            turn.query("rollback").await?;
            turn.query("select pg_catalog.pg_advisory_unlock_all()").await?;
        }
        let farewells = std::mem::take(&mut *self.farewells());
        for farewell in farewells {
            turn.exchange(farewell).await?;
        }
        turn.seat.turns_since_chores += 1;
        if turn.seat.turns_since_chores > TURNS_BETWEEN_CHORES {
            turn.do_chores().await?;
        }
        Ok(turn)
    }

    /// Queues messages for the next turn that free what a client had in the session.
    pub(crate) fn leave(&self, farewell: Vec<u8>) {
        self.farewells().push(farewell);
    }

    /// Shuts the engine down gracefully, if there is one. The next turn starts another.
    pub(crate) async fn close(&self) -> Result<(), EngineError> {
        if self.seat.lock().await.engine.is_none() {
            return Ok(());
        }
        let mut turn = self.any_turn().await?;
        match turn.seat.engine.take() {
            Some(engine) => engine.close().await,
            None => Ok(()),
        }
    }

    fn farewells(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.farewells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connected client.
#[derive(Debug)]
pub(crate) struct Visit(Arc<Database>);

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.clients.send_modify(|count| *count -= 1);
    }
}

/// The session, for one client. If it is dropped without [`end`](Self::end), the next turn rolls
/// back what it left.
#[derive(Debug)]
pub(crate) struct Turn {
    seat: OwnedMutexGuard<Seat>,
}

impl Turn {
    /// Which of the database's engines this is.
    pub(crate) fn age(&self) -> u64 {
        self.seat.age
    }

    pub(crate) fn parameters(&self) -> &[(String, String)] {
        self.seat.engine.as_ref().map_or(&[], Engine::parameters)
    }

    /// Sends messages to the engine. If that fails, the engine is abandoned: the next turn starts
    /// another, which recovers.
    pub(crate) async fn exchange(&mut self, messages: Vec<u8>) -> Result<Vec<u8>, EngineError> {
        let answer = match &self.seat.engine {
            Some(engine) => engine.exchange(messages).await,
            None => Err(EngineError::Ended),
        };
        if answer.is_err() {
            self.seat.engine = None;
        }
        answer
    }

    async fn query(&mut self, sql: &str) -> Result<Vec<u8>, EngineError> {
        self.exchange(Frame::query(sql).bytes()).await
    }

    async fn do_chores(&mut self) -> Result<(), EngineError> {
        self.seat.turns_since_chores = 0;
        self.wear(&Settings::new()).await?;
        self.query("vacuum (analyze)").await?;
        self.query("checkpoint").await?;
        Ok(())
    }

    /// Applies these settings to the session, if it has others. Returns the engine's error if it
    /// rejects them.
    pub(crate) async fn wear(&mut self, settings: &Settings) -> Result<Option<Frame>, EngineError> {
        if self.seat.settings == *settings {
            return Ok(None);
        }
        let answer = self.query(&settings::apply(settings)).await?;
        let refused = crate::frame::frames(&answer).into_iter().find(|frame| frame.tag == b'E');
        // A rejection rolls the whole change back.
        if refused.is_none() {
            self.seat.settings.clone_from(settings);
        }
        Ok(refused)
    }

    /// Reads the settings that the client has changed meanwhile; `None` if the engine reports an
    /// error.
    pub(crate) async fn look(&mut self) -> Result<Option<settings::Look>, EngineError> {
        let answer = self.query(settings::LOOK).await?;
        let look = settings::look(&answer);
        if let Some(look) = &look {
            self.seat.settings.clone_from(&look.settings);
        }
        Ok(look)
    }

    /// Releases the session; nothing may be open in it.
    pub(crate) fn end(mut self) {
        self.seat.taken = false;
    }
}
