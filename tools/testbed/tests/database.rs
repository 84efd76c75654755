//! Databases for tests: equal, isolated, and dropped afterwards.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use sqlx::{Connection, PgConnection};
use wakeq_testbed::{DatabaseError, TestDatabase, wait_while};

static MIGRATIONS: AtomicUsize = AtomicUsize::new(0);

async fn migrate(url: String) -> Result<(), sqlx::Error> {
    MIGRATIONS.fetch_add(1, Ordering::SeqCst);
    let mut connection = PgConnection::connect(&url).await?;
    sqlx::query("create table words (word text)").execute(&mut connection).await?;
    connection.close().await
}

async fn words(database: &TestDatabase, word: &str) -> Vec<String> {
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    sqlx::query("insert into words values ($1)").bind(word).execute(&mut connection).await.unwrap();
    sqlx::query_scalar("select word from words").fetch_all(&mut connection).await.unwrap()
}

/// Each thread has a runtime of its own, like a test.
#[test]
fn many_at_once_are_isolated_and_share_one_template() {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                    let database = TestDatabase::create(b"words", migrate).await.unwrap();
                    let word = format!("word {number}");
                    assert_eq!(words(&database, &word).await, [word]);
                });
            });
        }
    });
    eprintln!("8 databases in {} ms, the cluster included", begin.elapsed().as_millis());
    assert_eq!(MIGRATIONS.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_test_database_is_dropped_despite_open_connections() {
    let one = TestDatabase::create(b"nothing", async |_| Ok::<_, sqlx::Error>(())).await.unwrap();
    let _still_connected = PgConnection::connect(one.url()).await.unwrap();
    let (name, url) = (one.name().to_owned(), one.url().to_owned());
    drop(one);
    wait_while!(PgConnection::connect(&url).await.is_ok(), "the database is still there");
    let begin = Instant::now();
    let other = TestDatabase::create(b"nothing", async |_| Ok::<_, sqlx::Error>(())).await.unwrap();
    eprintln!("another one created in {} ms", begin.elapsed().as_millis());
    assert_ne!(other.name(), name);
}

#[tokio::test]
async fn failed_migrations_are_an_error_of_this_test_only() {
    let failing = TestDatabase::create(b"wrong", async |_| Err("no such table")).await.unwrap_err();
    assert!(
        matches!(&failing, DatabaseError::Migrate(cause) if cause.to_string() == "no such table"),
        "{failing}"
    );
    TestDatabase::create(b"wrong", async |_| Ok::<_, sqlx::Error>(())).await.unwrap();
}
