//! Tests of the rules for imports, on good and bad samples.

use super::{PACKAGES, complaints};
use crate::tidy::source::Source;

#[cfg(test)]
fn found(name: &str, text: &str) -> Vec<String> {
    let lib = "pub use event::{CanvasId, EventId as Id};\npub use worker::QueueWorker;\npub use crate::store::Store;\npub mod jobs { pub use crate::worker::{Report, Verdict}; pub use crate::event::Due; }";
    complaints(&[Source::new("src/lib.rs", lib), Source::new(name, text)])
}

#[track_caller]
fn check_found(name: &str, text: &str, part: &str) {
    let found = found(name, text);
    assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
}

/// So no two modules can import each other, even by way of others.
#[test]
fn each_table_lists_a_module_after_those_that_it_imports() {
    for (at, package) in PACKAGES.iter().enumerate() {
        for (index, (module, beside, below)) in package.rows.iter().enumerate() {
            let above = &package.rows[..index];
            let is_above = |name: &str| above.iter().any(|(above, ..)| *above == name);
            assert!(!is_above(module), "`{module}` has two rows in the table of `{}`", package.name);
            for name in *beside {
                assert!(is_above(name), "`{module}` may import `{name}`, which comes after it in its table");
            }
            for name in *below {
                let is_below = PACKAGES[..at].iter().any(|package| package.has(name));
                assert!(is_below, "`{module}` may import `{name}`, which is in no package below it");
            }
        }
    }
}

#[test]
fn a_wrong_arrow_is_found_however_it_is_written() {
    check_found("src/notify/memory.rs", "use crate::emit::Queue;", "must not import `emit`");
    check_found(
        "src/store/events/list.rs",
        "use crate::{event::{A, notify}, notify::B};",
        "must not import `notify`",
    );
    check_found(
        "src/machine/run.rs",
        "fn a() {\n    crate::worker::b()\n}",
        "run.rs:2: `machine` must not import `worker`",
    );
    check_found("service/src/http/mod.rs", "use wakeq::QueueWorker;", "must not import `worker` of `wakeq`");
    check_found("src/emit.rs", "mod tests { use wakeq::QueueWorker; }", "must not import `worker`");
    check_found("src/emit.rs", "use crate::Surprise;", "`Surprise` is no module");
    check_found("streams/src/groups.rs", "use wakeq::jobs::{Due, Verdict};", "must not import `worker`");
    check_found("streams/src/groups.rs", "use wakeq::{Id, jobs::Report};", "must not import `worker`");
    check_found("streams/src/groups.rs", "use wakeq::jobs::Surprise;", "`jobs` is no module");
    check_found("src/novelty.rs", "", "add the module `novelty` to the table");
    check_found("src/notify/memory.rs", "use super::super::store;", "instead of `super::super`");
    check_found("src/notify/mod.rs", "use super::store;", "instead of `super::`");
    check_found("src/emit.rs", "use wakeq_streams::Groups;", "`Groups` is no module");
    check_found(
        "src/emit.rs",
        "use wakeq_streams::groups::Groups;",
        "must not import `groups` of `wakeq_streams`",
    );
}

#[test]
fn a_wrong_arrow_between_parts_of_resources_is_found() {
    let wire = "service/src/resources/queues/wire.rs";
    check_found(
        wire,
        "use crate::resources::pulls::routes::A;",
        "`resources::wire` must not import `resources::routes`",
    );
    check_found(
        wire,
        "use crate::{resources::pulls::command::A};",
        "`resources::wire` must not import `resources::command`",
    );
    check_found(wire, "use axum::Json;", "`axum` belongs in");
    check_found(
        "service/src/resources/pulls/routes/leases.rs",
        "use crate::cli::Context;",
        "`resources::routes` must not import `cli`",
    );
    let good = "use crate::resources::wire::List;\nuse crate::resources::objects::wire::Place;";
    assert_eq!(found(wire, good), Vec::<String>::new());
}

#[test]
fn a_wrong_arrow_between_rooms_of_the_store_is_found() {
    let up = "use crate::store::events::InsertOutcome;";
    for (name, text, part) in [
        ("src/store/kernel/session.rs", up, "`store::kernel` must not import `store::events`"),
        ("src/store/targets/lookup.rs", up, "`store::targets` must not import `store::events`"),
        (
            "src/store/log/read.rs",
            "fn a() {\n    crate::store::minute::b()\n}",
            "read.rs:2: `store::log` must not",
        ),
        ("src/store/queues/turns.rs", "use crate::store::Store;", "`store::queues` must not import `store`"),
        ("src/store/queues/turns.rs", "use crate::store::{Store, StoreError};", "must not import `store`"),
        ("src/store/order/mod.rs", "use super::kernel::Store;", "instead of `super::`"),
        (
            "src/store/memory/dead.rs",
            "use crate::store::seam::a;",
            "`store::memory` must not import `store::seam`",
        ),
        ("src/store/novelty/mod.rs", "", "add the module `store::novelty` to the table"),
        (
            "src/notify/local.rs",
            "use crate::store::events::InsertOutcome;",
            "must not import `store::events`",
        ),
    ] {
        check_found(name, text, part);
    }
    let down = "pub(in crate::store) use crate::store::kernel::Store;\nuse super::claims::fences;";
    for (name, text) in [
        ("src/store/events/claims.rs", down),
        ("src/store/kernel/usage/mod.rs", "use crate::store::kernel::Store;"),
        ("src/store/tests/log.rs", "use crate::store::{LogBatch, Store};"),
        ("src/store/mod.rs", "pub use events::Rule;"),
    ] {
        assert_eq!(found(name, text), Vec::<String>::new());
    }
}

#[test]
fn few_rooms_know_the_test_kit() {
    let code = "fn a() {\n    #[cfg(feature = \"testing\")]\n    b();\n    c(\"testing them\")\n}";
    check_found("src/store/events/load.rs", code, "load.rs:2: `store::events` must not know `testing`");
    for name in ["src/store/kernel/session.rs", "src/store/seam/runs.rs", "src/store/tests/log.rs"] {
        assert_eq!(found(name, code), Vec::<String>::new());
    }
}

#[test]
fn a_crate_in_the_wrong_module_is_found() {
    check_found("src/admin.rs", "fn a(pool: &sqlx::PgPool) {}", "`sqlx` belongs in");
    check_found(
        "src/worker/run.rs",
        "use google_cloud_pubsub::client::Subscriber;",
        "`google_cloud_pubsub` belongs in",
    );
    check_found("src/machine/run.rs", "use tokio::time;", "must not know `tokio`");
    check_found("src/machine/run.rs", "fn a() -> chrono::Utc { b() }", "must not know `chrono`");
}

#[test]
fn sql_outside_the_store_is_found() {
    check_found("src/admin.rs", "const A: &str = \"\n  SELECT id\n  from b\";", "admin.rs:1: SQL lives in");
    check_found("src/emit.rs", "fn a() { sqlx::query_scalar!(A) }", "SQL lives in");
    check_found("src/emit.rs", "const A: &str = r#\"with a as (select 1) select 2\"#;", "SQL lives in");
}

#[test]
fn what_the_arrows_allow_passes() {
    let good = [
        (
            "src/worker/run.rs",
            "use crate::{wake, machine::{State, store}, store::Store, CanvasId};\nuse super::intake;",
        ),
        (
            "src/machine/mod.rs",
            "mod run;\nuse std::fmt;\nuse crate::event::Id;\npub use run::State;\nfn a() { u32::from(State::A) }\nmod tests { use super::*; use proptest::prelude::*; }",
        ),
        ("src/store/events/list.rs", "fn a() { sqlx::query!(\"select 1 from b\") }"),
        (
            "src/emit.rs",
            "/// Uses `crate::worker::A` and sqlx.\nfn a(c: &mut sqlx::PgConnection) { say(\"update your settings; select one\") }",
        ),
        ("src/notify/pubsub/mod.rs", "use super::Delivery;"),
        ("service/src/main.rs", "use wakeq::QueueWorker;"),
    ];
    for (name, text) in good {
        assert_eq!(found(name, text), Vec::<String>::new());
    }
}
