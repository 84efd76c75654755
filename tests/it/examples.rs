//! The programs in `examples/` do what they say.

use wakeq_services::{Guard, Launch};

use crate::support::{TIMEOUT, database, is_skipped};

macro_rules! examples {
    ($($program:ident, $name:ident, $path:literal says [$($words:literal),*];)*) => {$(
        #[path = $path]
        mod $program;

        mod $name {
            #[test]
            #[ignore = "a program, which the test below starts"]
            fn run() {
                super::$program::main().unwrap();
            }

            #[tokio::test]
            async fn does_what_it_says() {
                super::says(concat!("examples::", stringify!($name), "::run"), &[$($words),*]).await;
            }
        }
    )*};
}

examples! {
    hello, the_first, "../../examples/hello.rs" says ["Hello, Ada!"];
    retries, that_of_retries, "../../examples/retries.rs"
        says ["flaky, attempt 3", "Some(\"flaky\") completed", "no such column", "Some(\"broken\") completed"];
    order, that_of_order, "../../examples/order.rs" says ["work:1 \"deleted\"", "work:2 \"deleted\""];
    cron, that_of_crons, "../../examples/cron.rs" says ["tick at Some("];
    queue, that_of_queues, "../../examples/queue.rs" says ["number Some(2) of 21"];
}

/// The program ends by itself, and its last lines contain all these words.
async fn says(program: &str, words: &[&str]) {
    if is_skipped("a server that waits for the disk, and sessions beside each other") {
        return;
    }
    let database = database().await;
    let guard = Guard::new(None).unwrap();
    let launch = Launch::new(std::env::current_exe().unwrap())
        .arguments(["--exact", program, "--ignored", "--nocapture"])
        .environment("DATABASE_URL", database.url());
    let child = guard.start(launch).unwrap();
    let status = tokio::time::timeout(TIMEOUT, child.ended()).await.expect("it ends");
    let lines = child.last_lines();
    assert!(status.success() && words.iter().all(|words| lines.contains(words)), "{status}: {lines}");
}
