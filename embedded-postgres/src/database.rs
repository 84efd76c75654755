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
const TURNS_BETWEEN_MAINTENANCE: u32 = 5_000;

/// A client that has gone is no longer counted after this.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

/// A database of this server.
#[derive(Debug)]
pub(crate) struct Database {
    folder: PathBuf,
    session: Arc<tokio::sync::Mutex<Session>>,
    clients: watch::Sender<usize>,
    /// Messages that free what departed clients left in the session.
    cleanups: Mutex<Vec<Vec<u8>>>,
    /// Cancelled when the database is dropped or the server ends.
    pub(crate) ended: CancellationToken,
}

/// The engine's one session, which the clients share in turns.
#[derive(Debug, Default)]
struct Session {
    engine: Option<Engine>,
    /// How many engines there have been; a client of an earlier one has lost its session.
    generation: u64,
    settings: Settings,
    /// A client has a turn, or had one and did not end it.
    in_use: bool,
    turns_since_maintenance: u32,
}

impl Database {
    pub(crate) fn new(folder: PathBuf, ended: CancellationToken) -> Self {
        let (session, clients, cleanups) = Default::default();
        Self { folder, session, clients, cleanups, ended }
    }

    /// Counts a client for as long as the returned value lives.
    pub(crate) fn enter(self: &Arc<Self>) -> ClientGuard {
        self.clients.send_modify(|count| *count += 1);
        ClientGuard(Arc::clone(self))
    }

    /// Whether no client is connected. Waits up to five seconds for the count to reach zero, as a
    /// client that has just gone may still be counted.
    pub(crate) async fn has_no_clients(&self) -> bool {
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
        let mut session = Arc::clone(&self.session).lock_owned().await;
        if session.engine.is_none() {
            // A client that waited for a database that was dropped meanwhile must not recreate its
            // folder.
            if self.ended.is_cancelled() {
                return Err(EngineError::Ended);
            }
            let engine = Engine::open(self.folder.clone()).await?;
            *session =
                Session { engine: Some(engine), generation: session.generation + 1, ..Session::default() };
            self.cleanups().clear();
        }
        let was_abandoned = std::mem::replace(&mut session.in_use, true);
        let mut turn = Turn { session };
        if was_abandoned {
            turn.exchange(Frame::new(b'S', []).bytes()).await?;
            turn.query("rollback").await?;
            turn.query("select pg_catalog.pg_advisory_unlock_all()").await?;
        }
        let cleanups = std::mem::take(&mut *self.cleanups());
        for cleanup in cleanups {
            turn.exchange(cleanup).await?;
        }
        turn.session.turns_since_maintenance += 1;
        if turn.session.turns_since_maintenance > TURNS_BETWEEN_MAINTENANCE {
            turn.maintain().await?;
        }
        Ok(turn)
    }

    /// Queues messages for the next turn that free what a client had in the session.
    pub(crate) fn leave(&self, cleanup: Vec<u8>) {
        self.cleanups().push(cleanup);
    }

    /// Shuts the engine down gracefully, if there is one. The next turn starts another.
    pub(crate) async fn close(&self) -> Result<(), EngineError> {
        if self.session.lock().await.engine.is_none() {
            return Ok(());
        }
        let mut turn = self.any_turn().await?;
        match turn.session.engine.take() {
            Some(engine) => engine.close().await,
            None => Ok(()),
        }
    }

    fn cleanups(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.cleanups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a connected client until it is dropped.
#[derive(Debug)]
pub(crate) struct ClientGuard(Arc<Database>);

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.0.clients.send_modify(|count| *count -= 1);
    }
}

/// The session, for one client. If it is dropped without [`end`](Self::end), the next turn rolls
/// back what it left.
#[derive(Debug)]
pub(crate) struct Turn {
    session: OwnedMutexGuard<Session>,
}

impl Turn {
    /// Which of the database's engines this is.
    pub(crate) fn generation(&self) -> u64 {
        self.session.generation
    }

    pub(crate) fn parameters(&self) -> &[(String, String)] {
        self.session.engine.as_ref().map_or(&[], Engine::parameters)
    }

    /// Sends messages to the engine. If that fails, the engine is abandoned: the next turn starts
    /// another, which recovers.
    pub(crate) async fn exchange(&mut self, messages: Vec<u8>) -> Result<Vec<u8>, EngineError> {
        let answer = match &self.session.engine {
            Some(engine) => engine.exchange(messages).await,
            None => Err(EngineError::Ended),
        };
        if answer.is_err() {
            self.session.engine = None;
        }
        answer
    }

    async fn query(&mut self, sql: &str) -> Result<Vec<u8>, EngineError> {
        self.exchange(Frame::query(sql).bytes()).await
    }

    async fn maintain(&mut self) -> Result<(), EngineError> {
        self.session.turns_since_maintenance = 0;
        self.apply(&Settings::new()).await?;
        self.query("vacuum (analyze)").await?;
        self.query("checkpoint").await?;
        Ok(())
    }

    /// Applies these settings to the session, if it has others. Returns the engine's error if it
    /// rejects them.
    pub(crate) async fn apply(&mut self, settings: &Settings) -> Result<Option<Frame>, EngineError> {
        if self.session.settings == *settings {
            return Ok(None);
        }
        let answer = self.query(&settings::apply(settings)).await?;
        let refused = crate::frame::frames(&answer).into_iter().find(|frame| frame.tag == b'E');
        // A rejection rolls the whole change back.
        if refused.is_none() {
            self.session.settings.clone_from(settings);
        }
        Ok(refused)
    }

    /// Reads the settings that the client has changed meanwhile; `None` if the engine reports an
    /// error.
    pub(crate) async fn read_session(&mut self) -> Result<Option<settings::SessionState>, EngineError> {
        let answer = self.query(settings::SESSION_QUERY).await?;
        let state = settings::parse_session(&answer);
        if let Some(state) = &state {
            self.session.settings.clone_from(&state.settings);
        }
        Ok(state)
    }

    /// Releases the session; nothing may be open in it.
    pub(crate) fn end(mut self) {
        self.session.in_use = false;
    }
}
