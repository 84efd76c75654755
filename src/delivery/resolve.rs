//! From names to addresses. Checks none of them, and remembers nothing.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};

use async_trait::async_trait;

/// A resolver of names. It is asked for names only, never for an address in whatever notation, once for each connection;
/// connections that need the same name meanwhile share the answer.
#[async_trait]
pub trait Resolve: Debug + Send + Sync + 'static {
    /// All addresses of a name, the best ones first.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system. It takes a thread for each name, until the system answers.
#[derive(Clone, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let name = name.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
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
        let addresses = SystemResolver.resolve("localhost").await.unwrap();
        assert!(!addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
    }
}
