//! Resolves names to addresses. Does not check or cache them.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};

use async_trait::async_trait;

/// A name resolver. Called only with names, never with an IP address in any notation, once for each
/// connection; concurrent connections that need the same name share the answer.
#[async_trait]
pub trait Resolve: Debug + Send + Sync + 'static {
    /// Returns all addresses of a name, in order of preference.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The operating system's resolver. Each name occupies a thread until the system answers.
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
