//! A wire between a queue and its server that fails like a network: without a sign, or with one.

use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use wakeq_testbed::TestDatabase;

/// What the wire carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All that was connected since it was last frozen, which is counted.
    Carries { since: u32 },
    /// Nothing, without a sign: connections stay open, and new ones are accepted.
    Silent,
    /// Nothing: connections are closed.
    Cut,
}

/// A proxy before a server. It ends with the test.
pub(crate) struct Wire {
    /// The database behind it.
    pub(crate) url: String,
    state: Arc<watch::Sender<State>>,
    _accepting: AbortOnDropHandle<()>,
}

impl Wire {
    pub(crate) async fn to(database: &TestDatabase) -> Self {
        Self::to_url(database.url()).await
    }

    pub(crate) async fn to_url(url: &str) -> Self {
        let (server, name) = url.rsplit_once('/').unwrap();
        let (credentials, address) = server.rsplit_once('@').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{credentials}@{}/{name}", listener.local_addr().unwrap());
        let state = Arc::new(watch::Sender::new(State::Carries { since: 0 }));
        let accepting = accept(listener, address.to_owned(), Arc::clone(&state));
        Self { url, state, _accepting: AbortOnDropHandle::new(tokio::spawn(accepting)) }
    }

    /// Everything that is connected is dead from now on, without a sign. New connections work.
    pub(crate) fn freeze(&self) {
        self.state.send_modify(|state| {
            *state = match *state {
                State::Carries { since } => State::Carries { since: since + 1 },
                State::Silent | State::Cut => State::Carries { since: 1 },
            }
        });
    }

    /// Nothing is carried any more, without a sign.
    pub(crate) fn silence(&self) {
        self.state.send_replace(State::Silent);
    }

    /// All connections are closed, and new ones too.
    pub(crate) fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// New connections work again.
    pub(crate) fn mend(&self) {
        self.state.send_replace(State::Carries { since: 0 });
    }
}

async fn accept(listener: TcpListener, address: String, state: Arc<watch::Sender<State>>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(carry(client, address.clone(), state.subscribe()));
    }
}

async fn carry(mut client: TcpStream, address: String, mut state: watch::Receiver<State>) {
    let begun = *state.borrow_and_update();
    match begun {
        State::Carries { .. } => {}
        State::Silent => return hold(client, state).await,
        State::Cut => return,
    }
    let Ok(mut server) = TcpStream::connect(&address).await else { return };
    let dies = tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => false,
        _ = state.wait_for(|now| *now != begun) => true,
    };
    if dies {
        hold((client, server), state).await;
    }
}

/// Keeps connections open until they are cut.
async fn hold(connections: impl Sized, mut state: watch::Receiver<State>) {
    let _ = state.wait_for(|now| *now == State::Cut).await;
    drop(connections);
}
