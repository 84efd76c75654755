//! How the database is reached: whether others on the network could read or change what is sent.
//!
//! Pure: it inspects the options of a connection and opens none.

use std::net::IpAddr;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::StoreError;

/// The way to the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseRoute {
    /// A Unix socket, or a loopback address.
    Local,
    /// Another host, whose certificate is verified.
    Verified(String),
    /// Another host, whose certificate is not verified, or which may answer in plain text.
    Unverified(String),
}

impl DatabaseRoute {
    /// The route that these options take. `verify-ca` counts only with an `sslrootcert` of the
    /// deployment's own: a public authority issues certificates to anyone.
    pub(crate) fn of(options: &PgConnectOptions) -> Self {
        let host = options.get_host();
        if options.get_socket().is_some() || is_local(host) {
            return Self::Local;
        }
        let has_roots = || options.to_url_lossy().query_pairs().any(|(name, _)| name == "sslrootcert");
        let is_verified = match options.get_ssl_mode() {
            PgSslMode::VerifyFull => true,
            PgSslMode::VerifyCa => has_roots(),
            PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer | PgSslMode::Require => false,
        };
        if is_verified { Self::Verified(host.into()) } else { Self::Unverified(host.into()) }
    }

    /// Refuses an unverified route, unless it is allowed.
    pub(super) fn check(options: &PgConnectOptions, allow_unverified: bool) -> Result<(), StoreError> {
        match Self::of(options) {
            Self::Unverified(_) if !allow_unverified => Err(StoreError::Config(
                "the database is on another host, and its certificate would not be checked, so others could read the \
                 password and every event: add sslmode=verify-full to the URL (and sslrootcert=FILE, if the certificate \
                 is of an authority of your own), or set WAKEQ_ALLOW_UNVERIFIED_DATABASE=1 \
                 (StoreConfig::allow_unverified_database) if the network is to be trusted. If this is not the host that you \
                 meant, percent-encode the password in the URL (@ as %40, / as %2F, # as %23)",
            )),
            Self::Local | Self::Verified(_) | Self::Unverified(_) => Ok(()),
        }
    }
}

fn is_local(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(rest: &str) -> DatabaseRoute {
        DatabaseRoute::of(&format!("postgres://user:secret@{rest}").parse().unwrap())
    }

    #[test]
    fn a_connection_that_stays_on_the_host_needs_no_certificate() {
        for local in [
            "localhost/app",
            "LOCALHOST:5433/app?sslmode=disable",
            "127.0.0.1:5432/app",
            "127.8.0.1/app",
            "[::1]/app",
            "[::ffff:127.0.0.1]/app",
            "localhost/app?host=/cloudsql/project:region:instance",
            "db.example.com/app?host=/run/postgresql",
            "%2Frun%2Fpostgresql/app",
        ] {
            assert_eq!(route(local), DatabaseRoute::Local, "{local}");
        }
    }

    #[test]
    fn a_connection_to_another_host_is_verified_or_refused() {
        for (verified, host) in [
            ("db.example.com/app?sslmode=verify-full", "db.example.com"),
            ("10.0.0.3/app?sslmode=verify-full&sslrootcert=/etc/server-ca.pem", "10.0.0.3"),
            ("10.0.0.3/app?sslmode=verify-ca&sslrootcert=/etc/server-ca.pem", "10.0.0.3"),
        ] {
            assert_eq!(route(verified), DatabaseRoute::Verified(host.into()), "{verified}");
            let options = format!("postgres://user:secret@{verified}").parse().unwrap();
            assert!(DatabaseRoute::check(&options, false).is_ok());
        }
        for unverified in [
            "192.0.2.1/app",
            "192.0.2.1/app?sslmode=prefer",
            "192.0.2.1/app?sslmode=require",
            "192.0.2.1/app?sslmode=require&sslrootcert=/etc/server-ca.pem",
            "192.0.2.1/app?sslmode=verify-ca",
            "localhost/app?host=192.0.2.1",
            "localhost.example.com/app",
            "127.0.0.1.example.com/app?sslmode=disable",
            "[2001:db8::1]/app",
        ] {
            assert!(matches!(route(unverified), DatabaseRoute::Unverified(_)), "{unverified}");
            let options = format!("postgres://user:secret@{unverified}").parse().unwrap();
            let refused = DatabaseRoute::check(&options, false).unwrap_err().to_string();
            assert!(refused.contains("sslmode=verify-full") && !refused.contains("secret"), "{refused}");
            assert!(DatabaseRoute::check(&options, true).is_ok(), "{unverified}");
        }
    }

    /// Refused before any packet is sent: nothing answers at that address, and nothing waits for
    /// it.
    #[tokio::test(start_paused = true)]
    async fn a_host_that_would_not_be_verified_is_not_contacted() {
        use crate::store::kernel::{RoleKind, Store, StoreConfig};
        let url = "postgres://user:secret@192.0.2.1/app";
        let refused = Store::connect(url, StoreConfig::default()).await.unwrap_err();
        assert!(matches!(refused, StoreError::Config(_)), "{refused}");
        let refused = Store::migrate(url, true).await.unwrap_err();
        assert!(matches!(refused, StoreError::Config(_)), "{refused}");
        let granted = Store::grant_rights(url, &StoreConfig::default(), "shop", RoleKind::Api).await;
        assert!(matches!(granted, Err(StoreError::Config(_))), "{granted:?}");
    }
}
