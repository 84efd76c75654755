//! One client: reads its messages, takes a turn for each transaction, and returns the answers.
//!
//! It must never hold a turn that the client does not need: it neither writes to nor reads from the
//! client while holding the session, unless its transaction or a lock of its session is still open.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use crate::database::{Database, Turn};
use crate::databases::Databases;
use crate::engine::EngineError;
use crate::frame::{Frame, Inbox, LONGEST_BYTES};
use crate::settings::Settings;
use crate::sql::{self, DatabaseCommand};
use crate::startup::{self, Key, SessionRequest};
use crate::statements::Statements;

/// Why a client is no longer served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("the connection")]
    Connection(#[from] std::io::Error),
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The client has been told the reason.
    #[error("refused")]
    Refused,
}

/// Why a group of messages is not passed to the engine.
enum Refusal {
    /// The client receives this error and continues.
    Error(Frame),
    /// The client has gone.
    Gone,
}

/// A client that seems to have a session of its own.
#[derive(Debug)]
pub(crate) struct Client {
    inbox: Inbox<OwnedReadHalf>,
    outbox: OwnedWriteHalf,
    databases: Arc<Databases>,
    database: Arc<Database>,
    settings: Settings,
    statements: Statements,
    /// The engine that holds its session.
    generation: u64,
    /// Held while a transaction is open.
    turn: Option<Turn>,
    cancelled: Arc<Notify>,
    longest_wait: Duration,
}

/// What a client needs besides its connection.
#[derive(Debug)]
pub(crate) struct ClientContext {
    pub(crate) databases: Arc<Databases>,
    pub(crate) key: Key,
    pub(crate) cancelled: Arc<Notify>,
    pub(crate) longest_wait: Duration,
}

/// Serves a client until it disconnects or is refused, or its database ends.
pub(crate) async fn serve(
    mut inbox: Inbox<OwnedReadHalf>,
    mut outbox: OwnedWriteHalf,
    request: SessionRequest,
    context: ClientContext,
) -> Result<(), ClientError> {
    let ClientContext { databases, key, cancelled, longest_wait } = context;
    let (database, _guard) = match databases.enter(&request.database).await {
        Ok(entered) => entered,
        Err(error) => return Err(fatal(&mut outbox, error.code(), &error.to_string()).await),
    };
    let turn = tokio::select! {
        biased;
        () = inbox.gone() => return Ok(()),
        turn = tokio::time::timeout(longest_wait, database.turn()) => turn,
    };
    let mut turn = match turn {
        Ok(Ok(turn)) => turn,
        Ok(Err(error)) => {
            fatal(&mut outbox, "XX000", &error.to_string()).await;
            return Err(error.into());
        }
        Err(_) => return Err(fatal(&mut outbox, "57P03", "another connection has a transaction open").await),
    };
    if let Some(refused) = turn.apply(&request.settings).await? {
        turn.end();
        outbox.write_all(&refused.bytes()).await?;
        return Err(ClientError::Refused);
    }
    let (generation, welcome) = (turn.generation(), startup::welcome(turn.parameters(), key));
    turn.end();
    outbox.write_all(&welcome).await?;
    let statements = Statements::of(key.process);
    let (settings, turn) = (request.settings, None);
    let mut client = Client {
        inbox,
        outbox,
        databases,
        database,
        settings,
        statements,
        generation,
        turn,
        cancelled,
        longest_wait,
    };
    let result = client.run().await;
    if let Some(cleanup) = client.statements.cleanup() {
        client.database.leave(cleanup);
    }
    result
}

impl Client {
    async fn run(&mut self) -> Result<(), ClientError> {
        let mut group = Vec::new();
        let mut bytes = 0;
        // After an error, everything up to the next Sync is ignored.
        let mut skipping = false;
        let ended = self.database.ended.clone();
        loop {
            let frame = tokio::select! {
                frame = self.inbox.frame() => frame?,
                () = ended.cancelled() => return Err(self.shut_down().await),
            };
            let Some(frame) = frame else { return Ok(()) };
            match frame.tag {
                b'X' => return Ok(()),
                // Rows for a COPY that was refused, or never begun.
                b'd' | b'c' | b'f' => continue,
                b'S' => skipping = false,
                _ if skipping => continue,
                _ => {}
            }
            let is_end = matches!(frame.tag, b'Q' | b'S' | b'H' | b'F');
            bytes += frame.body.len();
            group.push(frame);
            if bytes > LONGEST_BYTES {
                return Err(fatal(&mut self.outbox, "54000", "too many messages without a Sync").await);
            }
            if is_end {
                bytes = 0;
                skipping = !self.answer(std::mem::take(&mut group)).await?;
            }
        }
    }

    /// Answers a group of messages; false if the messages up to the next Sync have to be ignored.
    async fn answer(&mut self, group: Vec<Frame>) -> Result<bool, ClientError> {
        let is_flush = group.last().is_some_and(|frame| frame.tag == b'H');
        let refusal = match self.own_answer(&group).await {
            Some(Ok(tag)) => {
                let done = [Frame::new(b'C', crate::frame::terminated(tag)), Frame::ready(b'I')];
                self.outbox.write_all(&done.iter().flat_map(Frame::bytes).collect::<Vec<_>>()).await?;
                return Ok(true);
            }
            Some(Err(error)) => Refusal::Error(error),
            None => match self.acquire_turn().await? {
                Some(refusal) => refusal,
                None => return self.exchange(group).await.map(|()| true),
            },
        };
        let Refusal::Error(error) = refusal else { return Err(ClientError::Refused) };
        let mut bytes = error.bytes();
        if !is_flush {
            Frame::ready(b'I').append_to(&mut bytes);
        }
        self.outbox.write_all(&bytes).await?;
        Ok(!is_flush)
    }

    /// Answers what is not for the engine: operations on databases, and COPY, whose rows it would
    /// wait for in vain. `None` if the group is for the engine.
    async fn own_answer(&mut self, group: &[Frame]) -> Option<Result<&'static str, Frame>> {
        // Inside a transaction, the engine itself reports the error.
        if self.turn.is_some() {
            return None;
        }
        let refused = |code, message: &str| Some(Err(Frame::error("ERROR", code, message)));
        let texts: Vec<&str> = group
            .iter()
            .filter_map(|frame| match frame.tag {
                b'Q' => frame.text(0),
                b'P' => frame.text(frame.text(0)?.len() + 1),
                _ => None,
            })
            .collect();
        if texts.iter().any(|text| sql::copies_in(text)) {
            return refused(
                "0A000",
                "COPY ... FROM STDIN is not supported by the embedded Postgres: use INSERT",
            );
        }
        if !texts.iter().any(|text| sql::is_about_databases(text)) {
            return None;
        }
        let what = match (group, texts.as_slice()) {
            ([Frame { tag: b'Q', .. }], [text]) => DatabaseCommand::of(text),
            _ => None,
        };
        let Some(what) = what else {
            return refused(
                "0A000",
                "the embedded Postgres takes CREATE DATABASE name [TEMPLATE name], ALTER DATABASE name RENAME TO name, ALTER \
                 DATABASE name ALLOW_CONNECTIONS true or false, and DROP DATABASE [IF EXISTS] name [WITH (FORCE)], each as \
                 a simple query of its own",
            );
        };
        let tag = what.tag();
        match self.databases.execute(what).await {
            Ok(()) => Some(Ok(tag)),
            Err(error) => refused(error.code(), &error.to_string()),
        }
    }

    /// Waits for the session, but no longer than a statement may take.
    async fn acquire_turn(&mut self) -> Result<Option<Refusal>, ClientError> {
        if self.turn.is_some() {
            return Ok(None);
        }
        let limit = self.wait_limit();
        let ended = self.database.ended.clone();
        let error = |code, message: &str| Ok(Some(Refusal::Error(Frame::error("ERROR", code, message))));
        let mut turn = tokio::select! {
            biased;
            () = self.inbox.gone() => return Ok(Some(Refusal::Gone)),
            () = ended.cancelled() => return Err(self.shut_down().await),
            () = self.cancelled.notified() => return error("57014", "canceling statement due to user request"),
            () = tokio::time::sleep(limit) => {
                return error("57014", "canceling statement due to statement timeout: another connection has a transaction open");
            }
            turn = self.database.turn() => turn?,
        };
        if turn.generation() != self.generation {
            return Err(self.shut_down().await);
        }
        let settings = std::mem::take(&mut self.settings);
        let refused = turn.apply(&settings).await?;
        self.settings = settings;
        if let Some(frame) = refused {
            turn.end();
            return Ok(Some(Refusal::Error(frame)));
        }
        self.turn = Some(turn);
        Ok(None)
    }

    /// Passes a group to the engine and its answer to the client, and releases the turn if nothing
    /// is open.
    async fn exchange(&mut self, group: Vec<Frame>) -> Result<(), ClientError> {
        let Some(mut turn) = self.turn.take() else { return Err(EngineError::Ended.into()) };
        let mut messages = Vec::new();
        for frame in group {
            self.statements.send(frame, &mut messages);
        }
        let answer = match turn.exchange(messages).await {
            Ok(answer) => self.statements.receive(&answer),
            Err(error) => {
                fatal(&mut self.outbox, "XX000", &error.to_string()).await;
                return Err(error.into());
            }
        };
        let mut is_open = answer.status != Some(b'I');
        if !is_open
            && self.statements.take_may_have_changed()
            && let Some(state) = turn.read_session().await?
        {
            self.settings = state.settings;
            is_open = state.holds_locks;
        }
        if is_open {
            self.turn = Some(turn);
        } else {
            turn.end();
        }
        self.outbox.write_all(&answer.bytes).await?;
        Ok(())
    }

    fn wait_limit(&self) -> Duration {
        let own = self.settings.get("statement_timeout").and_then(|limit| limit.parse().ok());
        own.filter(|limit| *limit > 0).map_or(self.longest_wait, Duration::from_millis)
    }

    async fn shut_down(&mut self) -> ClientError {
        fatal(&mut self.outbox, "57P01", "terminating connection due to administrator command").await
    }
}

/// Tells a client why its connection ends. Gives up after a second if the client does not read.
pub(crate) async fn fatal(outbox: &mut (impl AsyncWrite + Unpin), code: &str, message: &str) -> ClientError {
    let words = Frame::error("FATAL", code, message).bytes();
    match tokio::time::timeout(Duration::from_secs(1), outbox.write_all(&words)).await {
        Ok(Err(error)) => error.into(),
        Ok(Ok(())) | Err(_) => ClientError::Refused,
    }
}
