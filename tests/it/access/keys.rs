//! API keys on a real database: created, used, rotated, revoked, expired, and what happens while
//! the database is unreachable.

use std::time::Duration;

use futures_util::future::join_all;
use uuid::Uuid;
use wakeq::{Actor, CanvasId};
use wakeq_service::access::{
    Access, AccessConfig, AccessError, ApiKey, Clock, CreatedKey, CredentialFilter, Denied, KeyState,
    LIFETIME_MAX, NewKey, Principal, Reach, Refusal, Scope, Scopes, Unauthenticated, VerifierUnavailable,
    authorize,
};

use crate::support::{Stage, Statements, wait_while};

const CANVAS: CanvasId = CanvasId(Uuid::from_u128(0xca9));
const OTHER: CanvasId = CanvasId(Uuid::from_u128(0x07e));

fn by(name: &str) -> Actor {
    Actor::admin(name)
}

fn access_with(stage: &Stage, clock: &Clock) -> Access {
    let config = AccessConfig { clock: clock.clone(), ..AccessConfig::default() };
    Access::new(stage.store.clone(), config).unwrap()
}

fn access(stage: &Stage) -> Access {
    access_with(stage, &Clock::default())
}

async fn start() -> (Stage, Access) {
    let (stage, _) = Stage::memory().await;
    let access = access(&stage);
    (stage, access)
}

async fn start_with_clock() -> (Stage, Clock, Access) {
    let ((stage, _), clock) = (Stage::memory().await, Clock::default());
    let access = access_with(&stage, &clock);
    (stage, clock, access)
}

fn scopes(scopes: &[Scope]) -> Scopes {
    scopes.iter().copied().collect()
}

fn new_key(holder: &str) -> NewKey {
    let reach = Reach::Canvas(CANVAS);
    NewKey { holder: holder.to_owned(), reach, scopes: scopes(&[Scope::Emit, Scope::Read]), lifetime: None }
}

async fn create(access: &Access, new: &NewKey) -> CreatedKey {
    access.create_key(new, &by("cli:ada")).await.unwrap()
}

/// A key of each of these holders.
async fn keys<const N: usize>(access: &Access, holders: [&str; N]) -> [ApiKey; N] {
    let mut keys = Vec::new();
    for holder in holders {
        keys.push(create(access, &new_key(holder)).await.key);
    }
    keys.try_into().unwrap()
}

async fn ask(access: &Access, key: &ApiKey) -> Result<Principal, Unauthenticated> {
    access.authenticate(Some(&format!("Bearer {}", key.reveal()))).await
}

#[track_caller]
fn refusal(answer: Result<Principal, Unauthenticated>) -> Refusal {
    match answer {
        Err(Unauthenticated::Unknown(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Changes the row of a key directly in the database.
async fn change(stage: &Stage, key: &ApiKey, change: &str) {
    let statement = format!("update wakeq.access_keys set {change} where id = '{}'", key.id());
    let changed = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&stage.pool).await.unwrap();
    assert_eq!(changed.rows_affected(), 1);
}

const EXPIRED: &str = "created_at = now() - interval '2 days', expires_at = now() - interval '1 day'";

#[tokio::test]
async fn a_key_is_recognized_and_allows_what_it_was_made_for() {
    let (_stage, access) = start().await;
    let created = create(&access, &new_key("billing")).await;
    let principal = ask(&access, &created.key).await.unwrap();
    assert_eq!((principal.name(), principal.key()), ("key:billing", Some(created.key.id())));
    let asked = |canvas, scope| authorize(&principal, canvas, scope);
    assert_eq!(asked(CANVAS, Scope::Emit), Ok(()));
    assert_eq!(asked(CANVAS, Scope::Read), Ok(()));
    assert_eq!(asked(CANVAS, Scope::Operate), Err(Denied::Forbidden { needed: Scope::Operate }));
    assert_eq!(asked(CANVAS, Scope::Admin), Err(Denied::Forbidden { needed: Scope::Admin }));
    assert_eq!(asked(OTHER, Scope::Emit), Err(Denied::NotFound));

    let everywhere = NewKey { reach: Reach::EveryCanvas, ..new_key("billing") };
    let everywhere = create(&access, &everywhere).await;
    let principal = ask(&access, &everywhere.key).await.unwrap();
    assert_eq!(authorize(&principal, OTHER, Scope::Emit), Ok(()));
    assert_eq!(authorize(&principal, OTHER, Scope::Admin), Err(Denied::Forbidden { needed: Scope::Admin }));
}

#[tokio::test]
async fn only_a_hash_is_kept() {
    let (stage, _) = Stage::memory().await;
    let created = create(&access(&stage), &new_key("billing")).await;
    let row: String = stage.pool.value("select k::text from wakeq.access_keys k").await;
    let text = created.key.reveal();
    let secret = text.rsplit('_').next().unwrap();
    assert!(row.contains(&created.key.id().to_string()) && !row.contains(&secret[..12]), "{row}");
    assert_eq!(created.expires_at - created.created_at, chrono::TimeDelta::days(365));
}

#[tokio::test]
async fn wrong_keys_are_distinguished_only_in_the_log() {
    let (stage, access) = start().await;
    let [mine, other, swapped, nobody] = keys(&access, ["mine", "other", "swapped", "gone"]).await;
    let secret_of = |key: &ApiKey| key.reveal().rsplit('_').next().unwrap().to_owned();
    let mixed = ApiKey::parse(&format!("{:?}_{}", mine.id(), secret_of(&other))).unwrap();
    change(&stage, &swapped, "secret_sha256 = sha256('another')").await;
    change(&stage, &nobody, "id = 'ffffffffffff'").await;
    for _ in 0..2 {
        assert_eq!(refusal(ask(&access, &mixed).await), Refusal::WrongCheck(mine.id()));
        assert_eq!(refusal(ask(&access, &swapped).await), Refusal::WrongSecret(swapped.id()));
        assert_eq!(refusal(ask(&access, &nobody).await), Refusal::NoSuchKey(nobody.id()));
    }
    ask(&access, &mine).await.unwrap();
    for (key, secret) in [(&mixed, secret_of(&other)), (&nobody, secret_of(&nobody))] {
        let error = ask(&access, key).await.unwrap_err();
        assert!(!format!("{error:?} {error}").contains(&secret[..8]), "{error:?}");
    }
    for text in [mine.reveal().to_uppercase(), format!("{}0", mine.reveal()), mine.reveal()[..98].to_owned()]
    {
        let answer = access.authenticate(Some(&format!("Bearer {text}"))).await;
        assert!(matches!(answer, Err(Unauthenticated::Malformed)), "{answer:?}");
    }
}

#[tokio::test]
async fn two_keys_of_a_holder_live_at_once_and_never_three() {
    let (stage, access) = start().await;
    let [old, new] = keys(&access, ["ci", "ci"]).await;
    ask(&access, &old).await.unwrap();
    ask(&access, &new).await.unwrap();
    let third = access.create_key(&new_key("ci"), &by("cli:ada")).await;
    assert!(matches!(third, Err(AccessError::TwoLive { ref holder }) if holder == "ci"), "{third:?}");
    // Another holder, another canvas, and every canvas have limits of their own.
    create(&access, &new_key("cd")).await;
    create(&access, &NewKey { reach: Reach::Canvas(OTHER), ..new_key("ci") }).await;
    create(&access, &NewKey { reach: Reach::EveryCanvas, ..new_key("ci") }).await;

    assert!(access.revoke_key(CANVAS.into(), old.id(), &by("cli:ada")).await.unwrap());
    create(&access, &new_key("ci")).await;
    change(&stage, &new, EXPIRED).await;
    create(&access, &new_key("ci")).await;
    assert!(access.create_key(&new_key("ci"), &by("cli:ada")).await.is_err());
}

#[tokio::test]
async fn only_two_of_many_concurrent_key_creations_succeed() {
    let (stage, access) = start().await;
    for expired in [0, 1, 2] {
        let new = new_key(&format!("holder {expired}"));
        for _ in 0..expired {
            change(&stage, &create(&access, &new).await.key, EXPIRED).await;
        }
        let ada = by("cli:ada");
        let made = join_all((0..8).map(|_| access.create_key(&new, &ada))).await;
        let refused = made.iter().filter(|made| matches!(made, Err(AccessError::TwoLive { .. }))).count();
        assert_eq!((made.iter().filter(|made| made.is_ok()).count(), refused), (2, 6), "{made:?}");
    }
}

#[tokio::test]
async fn a_revocation_counts_at_once_here_and_within_the_caches_time_elsewhere() {
    let (stage, _) = Stage::memory().await;
    let clock = Clock::default();
    let (here, elsewhere) = (access(&stage), access_with(&stage, &clock));
    let key = create(&here, &new_key("billing")).await.key;
    ask(&here, &key).await.unwrap();
    ask(&elsewhere, &key).await.unwrap();
    let revoked = async |filter, name| here.revoke_key(filter, key.id(), &by(name)).await.unwrap();
    assert!(!revoked(OTHER.into(), "cli:ada").await, "another canvas's admin");
    assert!(!revoked(CredentialFilter::Reach(Reach::EveryCanvas), "cli:ada").await);
    assert!(revoked(CANVAS.into(), "cli:ada").await);
    assert!(!revoked(CANVAS.into(), "cli:bo").await, "twice");
    assert_eq!(refusal(ask(&here, &key).await), Refusal::Revoked(key.id()));
    ask(&elsewhere, &key).await.unwrap();
    clock.advance(Duration::from_secs(30));
    assert_eq!(refusal(ask(&elsewhere, &key).await), Refusal::Revoked(key.id()));
    let listed = here.keys(CANVAS.into(), None, 10).await.unwrap();
    assert_eq!((listed[0].id, listed[0].state), (key.id(), KeyState::Revoked));
}

#[tokio::test]
async fn a_key_expires_though_it_is_remembered() {
    let (stage, clock, access) = start_with_clock().await;
    let short = NewKey { lifetime: Some(Duration::from_secs(20)), ..new_key("short") };
    let short = create(&access, &short).await.key;
    ask(&access, &short).await.unwrap();
    clock.advance(Duration::from_secs(20));
    assert_eq!(refusal(ask(&access, &short).await), Refusal::Expired(short.id()));

    let long = create(&access, &new_key("long")).await.key;
    change(&stage, &long, EXPIRED).await;
    assert_eq!(refusal(ask(&access, &long).await), Refusal::Expired(long.id()));
    let listed = access.keys(CANVAS.into(), None, 1).await.unwrap();
    let states: Vec<_> = listed.iter().map(|key| key.state).collect();
    // The older one is on the next page, and lives by the database's clock.
    assert_eq!(states, [KeyState::Live]);
    change(&stage, &short, EXPIRED).await;
    let ask_for = |within| access.keys(within, None, 10);
    assert!(ask_for(CANVAS.into()).await.unwrap().iter().all(|key| key.state == KeyState::Expired));
}

#[tokio::test]
async fn missing_keys_are_cached_too() {
    let (stage, _) = Stage::memory().await;
    let clock = Clock::default();
    let (asker, maker) = (access_with(&stage, &clock), access(&stage));
    let key = create(&maker, &new_key("late")).await.key;
    let hidden = "ffffffffffff";
    change(&stage, &key, &format!("id = '{hidden}'")).await;
    assert_eq!(refusal(ask(&asker, &key).await), Refusal::NoSuchKey(key.id()));
    let back = format!("update wakeq.access_keys set id = '{}'", key.id());
    sqlx::raw_sql(sqlx::AssertSqlSafe(back)).execute(&stage.pool).await.unwrap();
    assert_eq!(refusal(ask(&asker, &key).await), Refusal::NoSuchKey(key.id()));
    clock.advance(Duration::from_secs(30));
    ask(&asker, &key).await.unwrap();
}

#[tokio::test]
async fn without_the_database_what_is_remembered_counts_for_a_while() {
    let (stage, clock, access) = start_with_clock().await;
    let [known, unknown] = keys(&access, ["a", "b"]).await;
    ask(&access, &known).await.unwrap();
    stage.store.close().await;
    let away = |answer| matches!(answer, Err(Unauthenticated::Unavailable(VerifierUnavailable::Store(_))));
    assert!(away(ask(&access, &unknown).await));
    clock.advance(Duration::from_secs(40));
    ask(&access, &known).await.unwrap();
    clock.advance(Duration::from_secs(10));
    assert!(away(ask(&access, &known).await));
}

#[tokio::test]
async fn the_use_of_a_key_is_noted() {
    let (_stage, access) = start().await;
    let key = create(&access, &new_key("billing")).await.key;
    let listed = || async { access.keys(CANVAS.into(), None, 1).await.unwrap().remove(0) };
    assert_eq!(listed().await.last_used_at, None);
    ask(&access, &key).await.unwrap();
    wait_while!(listed().await.last_used_at.is_none(), "nothing was noted");
}

#[tokio::test]
async fn keys_are_listed_newest_first_and_page_by_page() {
    let (_stage, access) = start().await;
    let mut made = Vec::new();
    for index in 0..5 {
        made.push(create(&access, &new_key(&format!("holder {index}"))).await.key.id());
    }
    create(&access, &NewKey { reach: Reach::EveryCanvas, ..new_key("everywhere") }).await;
    create(&access, &NewKey { reach: Reach::Canvas(OTHER), ..new_key("other") }).await;
    made.reverse();
    let mut listed = Vec::new();
    loop {
        let page = access.keys(CANVAS.into(), listed.last().copied(), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        listed.extend(page.iter().map(|key| key.id));
    }
    assert_eq!(listed, made);
    assert_eq!(access.keys(CredentialFilter::Everything, None, 1000).await.unwrap().len(), 7);
    let every = access.keys(CredentialFilter::Reach(Reach::EveryCanvas), None, 1000).await.unwrap();
    assert_eq!(every.iter().map(|key| key.holder.as_str()).collect::<Vec<_>>(), ["everywhere"]);
}

#[tokio::test]
async fn rejects_invalid_arguments() {
    let (stage, access) = start().await;
    let lives = |lifetime| NewKey { lifetime: Some(lifetime), ..new_key("a") };
    for new in [
        new_key(""),
        new_key("a\nb"),
        new_key(&"x".repeat(191)),
        NewKey { scopes: scopes(&[]), ..new_key("a") },
        lives(Duration::ZERO),
        lives(LIFETIME_MAX + Duration::from_secs(1)),
        lives(Duration::MAX),
    ] {
        let refused = access.create_key(&new, &by("cli:ada")).await;
        assert!(matches!(refused, Err(AccessError::Invalid(_))), "{new:?}");
    }
    for name in ["", "a\0", &"x".repeat(201)] {
        assert!(matches!(access.create_key(&new_key("a"), &by(name)).await, Err(AccessError::Invalid(_))));
    }
    assert_eq!(access.keys(CredentialFilter::Everything, None, 10).await.unwrap(), []);
    create(&access, &lives(LIFETIME_MAX)).await;
    create(&access, &new_key(&"山".repeat(190))).await;

    let too_long = AccessConfig { cache: Duration::from_secs(31), ..AccessConfig::default() };
    assert!(matches!(Access::new(stage.store.clone(), too_long), Err(AccessError::Config(_))));
}

/// The tables enforce the limits, whatever writes to them.
#[tokio::test]
async fn the_tables_reject_invalid_rows() {
    let (stage, _) = Stage::memory().await;
    let key = create(&access(&stage), &new_key("a")).await.key;
    let accounts = "insert into wakeq.service_accounts (email, scopes, created_by) values";
    for (statement, constraint) in [
        ("update wakeq.access_keys set id = 'A123456789AB'", "access_keys_id_check"),
        ("update wakeq.access_keys set secret_sha256 = 'short'", "access_keys_secret_sha256_check"),
        ("update wakeq.access_keys set scopes = '{}'", "access_keys_scopes_check"),
        ("update wakeq.access_keys set scopes = '{emit,all}'", "access_keys_scopes_check"),
        ("update wakeq.access_keys set scopes = '{emit,null}'", "access_keys_scopes_check"),
        ("update wakeq.access_keys set slot = 3", "access_keys_slot_check"),
        ("update wakeq.access_keys set expires_at = created_at", "access_keys_lifetime"),
        ("update wakeq.access_keys set expires_at = 'infinity'", "access_keys_lifetime"),
        (
            "update wakeq.access_keys set revoked_at = now(), revoked_by = 'a'",
            "access_keys_revoked_without_place",
        ),
        ("update wakeq.access_keys set revoked_at = now(), slot = null", "access_keys_revoked_by_somebody"),
        (&format!("{accounts} ('A@b', '{{emit}}', 'a')"), "service_accounts_email_check"),
        (
            &format!("{accounts} ('a@b', '{{emit}}', 'a'), ('a@b', '{{read}}', 'a')"),
            "service_accounts_one_per_canvas",
        ),
    ] {
        let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(&stage.pool).await;
        let refused = refused.expect_err(statement).to_string();
        assert!(refused.contains(constraint), "{statement}: {refused}");
    }
    ask(&access(&stage), &key).await.unwrap();
}
