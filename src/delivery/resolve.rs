//! From names to addresses. Checks none of them, and remembers nothing.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;

/// A resolver of names. It is asked for names only, never for an address in whatever notation, and once for each
/// connection.
#[async_trait]
pub trait Resolve: Debug + Send + Sync + 'static {
    /// All addresses of a name, the best ones first.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// How many names are resolved at a time: each takes a thread until the system answers.
const LOOKUPS_MAX: usize = 32;

/// The resolver of the operating system.
#[derive(Clone, Debug)]
pub struct SystemResolver {
    room: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }
}

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)?;
        let name = name.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
            // Held by the thread: it goes on when the one who asked has left.
            let _room = room;
            let addresses = (name.as_str(), 0).to_socket_addrs()?;
            Ok(addresses.map(|address| address.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_knows_its_own_name() {
        let addresses = SystemResolver::default().resolve("localhost").await.unwrap();
        assert!(!addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
    }
}
