//! Passes connections on to Postgres, until it is told to pass nothing more: they stay open, and no
//! byte arrives any longer.

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(super) struct Relay {
    pub(super) port: u16,
    frozen: watch::Sender<bool>,
}

impl Relay {
    pub(super) async fn start(to: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (frozen, state) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(pass(near, to, state.clone()));
            }
        });
        Ok(Self { port, frozen })
    }

    pub(super) fn freeze(&self) {
        self.frozen.send_replace(true);
    }
}

async fn pass(near: TcpStream, to: u16, frozen: watch::Receiver<bool>) {
    if *frozen.borrow() {
        return std::future::pending().await;
    }
    let Ok(far) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::join!(copy(near_in, far_out, frozen.clone()), copy(far_in, near_out, frozen));
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut frozen: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 65_536];
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read,
            () = until_frozen(&mut frozen) => return std::future::pending().await,
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) if to.write_all(&bytes[..read]).await.is_err() => return,
            Ok(_) => {}
        }
    }
}

async fn until_frozen(frozen: &mut watch::Receiver<bool>) {
    let _ = frozen.wait_for(|frozen| *frozen).await;
}
