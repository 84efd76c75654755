//! The messages and services of `google.pubsub.v1` and `google.iam.v1`, generated; the well-known
//! types that they have; their JSON forms; and the REST routes that the protos state.
//!
//! `emulator/codegen` writes `generated/`. Nothing here knows what any method does. It is a crate
//! of its own so that who works on the emulator does not compile it again with every change.

pub mod protobuf;

/// One REST form of a method, as its `google.api.http` annotation states it.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// `GET`, `POST`, …
    pub verb: &'static str,
    /// `/v1/{topic.name=projects/*/topics/*}`.
    pub template: &'static str,
    /// The field of the request that the body is: `*` the whole request, empty none.
    pub body: &'static str,
    /// `google.pubsub.v1.Publisher/CreateTopic`.
    pub method: &'static str,
}

#[rustfmt::skip]
#[path = "generated/routes.rs"]
mod routes;
pub use routes::ROUTES;

pub use google::{iam::v1 as iam, pubsub::v1 as pubsub};

/// The packages as the protos nest them: their code names one another by these paths.
// Comments of the services come with the protos, whose markup is not that of Rust.
#[allow(rustdoc::bare_urls, rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::too_many_lines, clippy::wildcard_enum_match_arm)]
#[rustfmt::skip]
pub mod google {
    pub mod pubsub {
        pub mod v1 {
            include!("generated/google.pubsub.v1.rs");
            include!("generated/google.pubsub.v1.serde.rs");
        }
    }
    pub mod iam {
        pub mod v1 {
            include!("generated/google.iam.v1.rs");
            include!("generated/google.iam.v1.serde.rs");
        }
    }
    pub mod r#type {
        include!("generated/google.r#type.rs");
        include!("generated/google.r#type.serde.rs");
    }
}
