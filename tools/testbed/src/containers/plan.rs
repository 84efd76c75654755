//! What to run: an image, its arguments and variables, and the port that the server listens on.
//!
//! It must never talk to an engine.

use std::hash::{BuildHasher, RandomState};

/// Google's image holds `gcloud` and more, and needs a command; any other image is expected to
/// start an emulator by itself.
const IMAGES_OF_GCLOUD: [&str; 2] = ["google-cloud-cli", "cloud-sdk"];
const POSTGRES_PORT: u16 = 5432;
const PUBSUB_PORT: u16 = 8085;
/// The machine's own network, where a container shares the machine's ports and needs a free one.
const HOST: &str = "host";

/// What is in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    PubSub,
}

/// A container to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) image: String,
    pub(crate) network: Option<String>,
    /// The password of Postgres's superuser.
    pub(crate) password: Option<String>,
}

impl Plan {
    pub(crate) fn postgres(image: String, network: Option<String>) -> Self {
        let random = |salt: u8| RandomState::new().hash_one((salt, std::process::id()));
        let password = Some(format!("{:016x}{:016x}", random(1), random(2)));
        Self { kind: Kind::Postgres, image, network, password }
    }

    pub(crate) fn pubsub(image: String, network: Option<String>) -> Self {
        Self { kind: Kind::PubSub, image, network, password: None }
    }

    /// Whether the container joins the machine's own network, where no port is mapped.
    pub(crate) fn is_on_host(&self) -> bool {
        self.network.as_deref() == Some(HOST)
    }

    /// The port of the server in a container with a network of its own.
    pub(crate) fn usual_port(&self) -> u16 {
        match self.kind {
            Kind::Postgres => POSTGRES_PORT,
            Kind::PubSub => PUBSUB_PORT,
        }
    }

    /// Name and tag: `postgres` and `17-alpine`. A digest is split at its colon too, and is intact
    /// once both are joined again.
    pub(crate) fn name_and_tag(&self) -> (&str, &str) {
        match self.image.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (&self.image, "latest"),
        }
    }

    /// The arguments for the image's entry point.
    pub(crate) fn arguments(&self, port: u16) -> Vec<String> {
        let interface = if self.is_on_host() { "127.0.0.1" } else { "0.0.0.0" };
        match self.kind {
            Kind::Postgres => [
                format!("port={port}"),
                format!("listen_addresses={interface}"),
                "max_connections=200".to_owned(),
                "shared_preload_libraries=pg_stat_statements".to_owned(),
                "pg_stat_statements.track_utility=on".to_owned(),
            ]
            .into_iter()
            .flat_map(|setting| ["-c".to_owned(), setting])
            .collect(),
            Kind::PubSub if self.has_gcloud() => {
                let host_port = format!("--host-port={interface}:{port}");
                let words = ["gcloud", "beta", "emulators", "pubsub", "start", &host_port];
                words.map(str::to_owned).into()
            }
            Kind::PubSub => vec![format!("--host={interface}"), format!("--port={port}")],
        }
    }

    /// The variables of Postgres's official image, which any other image has to support.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let Some(password) = &self.password else { return Vec::new() };
        vec![
            ("POSTGRES_PASSWORD", password.clone()),
            ("POSTGRES_INITDB_ARGS", "--locale=C --encoding=UTF8 --no-sync".to_owned()),
        ]
    }

    fn has_gcloud(&self) -> bool {
        IMAGES_OF_GCLOUD.iter().any(|name| self.image.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_split_where_its_tag_begins() {
        let cases = [
            ("postgres:17", ("postgres", "17")),
            ("host:5000/postgres", ("host:5000/postgres", "latest")),
            ("host:5000/postgres:17", ("host:5000/postgres", "17")),
            ("postgres@sha256:abc", ("postgres@sha256", "abc")),
        ];
        for (image, expected) in cases {
            assert_eq!(Plan::postgres(image.to_owned(), None).name_and_tag(), expected);
        }
    }

    #[test]
    fn on_the_host_network_it_listens_only_on_loopback() {
        let on_host = Plan::pubsub("emulator:1".to_owned(), Some("host".to_owned()));
        assert_eq!(on_host.arguments(9), ["--host=127.0.0.1", "--port=9"]);
        let bridged = Plan::pubsub("emulator:1".to_owned(), None);
        assert_eq!(bridged.arguments(9), ["--host=0.0.0.0", "--port=9"]);
        let google = Plan::pubsub(super::super::PUBSUB_IMAGE.to_owned(), None);
        assert_eq!(google.arguments(9).last().unwrap(), "--host-port=0.0.0.0:9");
        let postgres = Plan::postgres("postgres:17".to_owned(), Some("host".to_owned()));
        assert!(postgres.arguments(9).contains(&"listen_addresses=127.0.0.1".to_owned()));
    }
}
