//! The embedded Postgres as its users see it: several connections to one session, over the wire.
//!
//! These tests run only on request (`TEST_POSTGRES=embedded`), because building it takes minutes.

#![allow(clippy::unwrap_used)]

use std::io::Write;

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wakeq_services::{EmbeddedPostgres, Folder};

async fn start() -> Option<EmbeddedPostgres> {
    start_in(&Folder::Temporary).await
}

async fn start_in(folder: &Folder) -> Option<EmbeddedPostgres> {
    if std::env::var("TEST_POSTGRES").is_ok_and(|asked| asked == "embedded") {
        return Some(EmbeddedPostgres::start(folder).await.unwrap());
    }
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: TEST_POSTGRES=embedded asks for it");
    None
}

async fn connect(server: &EmbeddedPostgres, database: &str) -> PgConnection {
    PgConnection::connect(&server.url(database)).await.unwrap()
}

async fn run(connection: &mut PgConnection, sql: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.map(drop)
}

async fn text(connection: &mut PgConnection, sql: &str) -> String {
    let row = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_one(connection).await.unwrap();
    row.get(0)
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code().map(|code| code.into_owned()))
}

// Shows: DEV-01
#[tokio::test]
async fn connections_share_the_session_transaction_by_transaction() {
    let Some(server) = start().await else { return };
    let (mut one, mut other) = (connect(&server, "postgres").await, connect(&server, "postgres").await);
    run(&mut one, "create table numbers (number int)").await.unwrap();
    let mut transaction = one.begin().await.unwrap();
    sqlx::query("insert into numbers values (1)").execute(&mut *transaction).await.unwrap();
    let waiting = tokio::spawn(async move { text(&mut other, "select count(*)::text from numbers").await });
    sqlx::query("insert into numbers values (2)").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(waiting.await.unwrap(), "2", "it waited for the commit, or came after it");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_disconnect_rolls_back_the_open_transaction() {
    let Some(server) = start().await else { return };
    let (mut one, mut other) = (connect(&server, "postgres").await, connect(&server, "postgres").await);
    run(&mut one, "create table numbers (number int)").await.unwrap();
    run(&mut one, "begin; insert into numbers values (1); select pg_advisory_lock(1)").await.unwrap();
    drop(one);
    assert_eq!(text(&mut other, "select count(*)::text from numbers").await, "0");
    let locks = "select count(*)::text from pg_locks where locktype = 'advisory'";
    assert_eq!(text(&mut other, locks).await, "0");
}

#[tokio::test]
async fn prepared_statements_are_each_clients_own() {
    let Some(server) = start().await else { return };
    let (mut one, mut other) = (connect(&server, "postgres").await, connect(&server, "postgres").await);
    for _ in 0..2 {
        // The driver gives the first statement of every connection the same name.
        let ours: String = sqlx::query_scalar("select 'one'").fetch_one(&mut one).await.unwrap();
        let theirs = sqlx::query_scalar("select 'other' || $1").bind("!").fetch_one(&mut other).await;
        assert_eq!((ours.as_str(), theirs.unwrap()), ("one", "other!".to_owned()));
        let unnamed: Result<i32, _> =
            sqlx::query_scalar("select $1 + 1").bind(1).persistent(false).fetch_one(&mut one).await;
        assert_eq!(unnamed.unwrap(), 2);
        let wrong = sqlx::query("select nonsense").execute(&mut one).await.unwrap_err();
        assert_eq!(code(&wrong).as_deref(), Some("42703"));
    }
}

// Shows: DEV-01
#[tokio::test]
async fn settings_are_each_clients_own() {
    let Some(server) = start().await else { return };
    let (mut one, mut other) = (connect(&server, "postgres").await, connect(&server, "postgres").await);
    let with_option = format!("{}?options=-c%20lock_timeout%3D7s", server.url("postgres"));
    let mut third = PgConnection::connect(&with_option).await.unwrap();
    run(&mut one, "set lock_timeout = '5s'; set search_path = elsewhere, public").await.unwrap();
    let set = sqlx::query("select set_config('lock_timeout', $1, false)").bind("6s");
    set.execute(&mut other).await.unwrap();
    run(&mut other, "begin; set local work_mem = '1MB'; set statement_timeout = '9s'; rollback")
        .await
        .unwrap();
    let both = "select current_setting('lock_timeout') || ' ' || current_setting('search_path')";
    for _ in 0..2 {
        assert_eq!(text(&mut one, both).await, "5s elsewhere, public");
        assert_eq!(text(&mut other, both).await, "6s \"$user\", public");
        assert_eq!(text(&mut third, both).await, "7s \"$user\", public");
    }
    assert_eq!(text(&mut other, "select current_setting('statement_timeout')").await, "0");
    run(&mut one, "reset lock_timeout").await.unwrap();
    assert_eq!(text(&mut one, "select current_setting('lock_timeout')").await, "0");
}

#[tokio::test]
async fn users_are_each_clients_own() {
    let Some(server) = start().await else { return };
    let mut one = connect(&server, "postgres").await;
    run(&mut one, "create role app login").await.unwrap();
    let mut app = PgConnection::connect(&server.url("postgres").replace("postgres@", "app@")).await.unwrap();
    let who = "select session_user::text || ' ' || current_user::text";
    for _ in 0..2 {
        assert_eq!(text(&mut app, who).await, "app app");
        assert_eq!(text(&mut one, who).await, "postgres postgres");
    }
    assert_eq!(code(&run(&mut app, "create role another").await.unwrap_err()).as_deref(), Some("42501"));
}

#[tokio::test]
async fn a_lock_of_the_session_keeps_the_others_out() {
    let Some(server) = start().await else { return };
    let (mut one, mut other) = (connect(&server, "postgres").await, connect(&server, "postgres").await);
    sqlx::query("select pg_advisory_lock(1)").execute(&mut one).await.unwrap();
    run(&mut one, "set statement_timeout = 0").await.unwrap();
    let waiting = tokio::spawn(async move { run(&mut other, "select pg_advisory_lock(1)").await });
    let locks = "select count(*)::text from pg_locks where locktype = 'advisory'";
    assert_eq!(text(&mut one, locks).await, "1");
    sqlx::query("select pg_advisory_unlock(1)").execute(&mut one).await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_waiting_statement_ends_with_its_timeout() {
    let Some(server) = start().await else { return };
    let (mut one, mut other) = (connect(&server, "postgres").await, connect(&server, "postgres").await);
    run(&mut other, "set statement_timeout = '200ms'").await.unwrap();
    run(&mut one, "begin").await.unwrap();
    assert_eq!(code(&run(&mut other, "select 1").await.unwrap_err()).as_deref(), Some("57014"));
    run(&mut one, "commit").await.unwrap();
    run(&mut other, "select 1").await.unwrap();
}

#[tokio::test]
async fn databases_are_made_copied_renamed_and_dropped() {
    let Some(server) = start().await else { return };
    let mut admin = connect(&server, "postgres").await;
    run(&mut admin, "create database shop").await.unwrap();
    let mut shop = connect(&server, "shop").await;
    run(&mut shop, "create table goods (name text); insert into goods values ('tea')").await.unwrap();
    shop.close().await.unwrap();
    for (sql, expected) in [
        ("create database shop", "42P04"),
        ("create database copy template missing", "3D000"),
        ("create database \"../copy\"", "42602"),
        ("create database copy owner app", "0A000"),
        ("copy pg_class from stdin", "0A000"),
    ] {
        assert_eq!(code(&run(&mut admin, sql).await.unwrap_err()).as_deref(), Some(expected), "{sql}");
    }
    run(&mut admin, "create database copy template shop").await.unwrap();
    run(&mut admin, "alter database shop rename to store").await.unwrap();
    assert!(PgConnection::connect(&server.url("shop")).await.is_err());
    let (mut store, mut copy) = (connect(&server, "store").await, connect(&server, "copy").await);
    run(&mut copy, "delete from goods").await.unwrap();
    assert_eq!(text(&mut store, "select name from goods").await, "tea", "a copy is another database");
    run(&mut admin, "alter database store allow_connections false").await.unwrap();
    assert!(run(&mut store, "select 1").await.is_err(), "its connection has ended");
    let closed = PgConnection::connect(&server.url("store")).await.unwrap_err();
    assert_eq!(code(&closed).as_deref(), Some("55000"));
    run(&mut admin, "alter database store allow_connections true").await.unwrap();
    let mut store = connect(&server, "store").await;
    assert_eq!(text(&mut store, "select name from goods").await, "tea");
    run(&mut admin, "drop database copy with (force)").await.unwrap();
    assert!(run(&mut copy, "select 1").await.is_err(), "its connection has ended");
    run(&mut admin, "drop database if exists copy").await.unwrap();
    assert_eq!(code(&run(&mut admin, "drop database copy").await.unwrap_err()).as_deref(), Some("3D000"));
}

// Shows: DEV-01
#[tokio::test]
async fn data_outlives_the_end_of_its_server() {
    let folder = std::env::temp_dir().join(format!("wakeq-embedded-kept-{}", std::process::id()));
    let kept = Folder::Persistent(folder.clone());
    let Some(server) = start_in(&kept).await else { return };
    let mut one = connect(&server, "postgres").await;
    run(&mut one, "create table numbers as select generate_series(1, 1000) as number").await.unwrap();
    server.stop().await.unwrap();
    let server = start_in(&kept).await.unwrap();
    let mut one = connect(&server, "postgres").await;
    run(&mut one, "insert into numbers values (1001)").await.unwrap();
    server.kill_9().await.unwrap();
    let server = start_in(&kept).await.unwrap();
    let mut one = connect(&server, "postgres").await;
    assert_eq!(text(&mut one, "select count(*)::text from numbers").await, "1001");
    server.stop().await.unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

/// A peer that is not a Postgres client is answered or dropped, and takes no client's slot.
#[tokio::test]
async fn peers_that_do_not_speak_postgres_do_no_harm() {
    let Some(server) = start().await else { return };
    let url = server.url("postgres");
    let address = url.split('@').nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let mut stranger = tokio::net::TcpStream::connect(address).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stranger.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"");
    let half = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut one = connect(&server, "postgres").await;
    assert_eq!(text(&mut one, "select 'here'").await, "here");
    drop(half);
}
