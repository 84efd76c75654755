//! One database: a folder, its engine while somebody needs it, and whose turn it is.
//!
//! A turn is handed out first come, first served, and finds a clean session: whatever the one before left undone is
//! rolled back first. It must never hand out two turns at a time.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, EngineError};
use crate::frame::Frame;
use crate::settings::{self, Settings};

/// Nobody else tidies up behind a Postgres of one process: after so many turns it is vacuumed and its log cut off.
const TURNS_BETWEEN_CHORES: u32 = 5_000;

/// A client that has gone is counted no more after this.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

/// A database of this server.
#[derive(Debug)]
pub(crate) struct Database {
    folder: PathBuf,
    seat: Arc<tokio::sync::Mutex<Seat>>,
    clients: watch::Sender<usize>,
    /// What clients that have gone left in the session, as messages that free it.
    farewells: Mutex<Vec<Vec<u8>>>,
    /// It was dropped, or the server ends.
    pub(crate) ended: CancellationToken,
}

#[derive(Debug, Default)]
struct Seat {
    engine: Option<Engine>,
    /// How many engines there have been: a client of an earlier one has lost its session.
    age: u64,
    settings: Settings,
    /// Somebody has a turn, or had one and did not end it.
    taken: bool,
    turns_since_chores: u32,
}

impl Database {
    pub(crate) fn new(folder: PathBuf, ended: CancellationToken) -> Self {
        let (seat, clients, farewells) = Default::default();
        Self { folder, seat, clients, farewells, ended }
    }

    /// Counts a client, for as long as the value lives.
    pub(crate) fn enter(self: &Arc<Self>) -> Visit {
        self.clients.send_modify(|count| *count += 1);
        Visit(Arc::clone(self))
    }

    /// Whether nobody is connected, or soon is no more: a client that has just gone may still be counted.
    pub(crate) async fn is_left(&self) -> bool {
        let mut clients = self.clients.subscribe();
        let none_left = clients.wait_for(|count| *count == 0);
        tokio::time::timeout(LEAVES_WITHIN, none_left).await.is_ok()
    }

    /// Waits for the engine, and starts it if need be.
    pub(crate) async fn turn(&self) -> Result<Turn, EngineError> {
        if self.ended.is_cancelled() {
            return Err(EngineError::Ended);
        }
        self.any_turn().await
    }

    async fn any_turn(&self) -> Result<Turn, EngineError> {
        let mut seat = Arc::clone(&self.seat).lock_owned().await;
        if seat.engine.is_none() {
            // Whoever waited for a database that was dropped meanwhile must not bring its folder back.
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

    /// Leaves messages for the next turn that free what a client had in the session.
    pub(crate) fn leave(&self, farewell: Vec<u8>) {
        self.farewells().push(farewell);
    }

    /// Ends the engine in good order, if there is one. The next turn starts another.
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

/// A client is connected.
#[derive(Debug)]
pub(crate) struct Visit(Arc<Database>);

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.clients.send_modify(|count| *count -= 1);
    }
}

/// The session, for one client. Whoever drops it without [`end`](Self::end) leaves it to the next to roll back.
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

    /// An engine that fails is done with: the next turn starts another, which recovers.
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

    /// Gives the session these settings, if it has others. The answer is the engine's error, if it refuses.
    pub(crate) async fn wear(&mut self, settings: &Settings) -> Result<Option<Frame>, EngineError> {
        if self.seat.settings == *settings {
            return Ok(None);
        }
        let answer = self.query(&settings::apply(settings)).await?;
        let refused = crate::frame::frames(&answer).into_iter().find(|frame| frame.tag == b'E');
        // A refusal takes the whole change back.
        if refused.is_none() {
            self.seat.settings.clone_from(settings);
        }
        Ok(refused)
    }

    /// Looks at the settings that the client has made meanwhile; none, if the engine does not say.
    pub(crate) async fn look(&mut self) -> Result<Option<settings::Look>, EngineError> {
        let answer = self.query(settings::LOOK).await?;
        let look = settings::look(&answer);
        if let Some(look) = &look {
            self.seat.settings.clone_from(&look.settings);
        }
        Ok(look)
    }

    /// Hands the session on; nothing may be open in it.
    pub(crate) fn end(mut self) {
        self.seat.taken = false;
    }
}
