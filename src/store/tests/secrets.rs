//! Secrets at rest: bound to canvas and address or hook, rotated page by page, cleared when no
//! longer valid.

use uuid::Uuid;

use super::{CanvasId, HandlerScope, Table, tester};
use crate::event::{
    HandlerAddress, HookKind, HookSecret, Name, Secret, SecretKeys, TargetHeaders, TargetPolicy,
};
use crate::store::{NewHookRow, NewTargetRow, Retention, SealedHeaders, Store, StoreConfig};

const OLD: &str = "0101010101010101010101010101010101010101010101010101010101010101";
const NEW: &str = "0202020202020202020202020202020202020202020202020202020202020202";
const THEIRS: CanvasId = CanvasId(Uuid::from_u128(7));

fn keys(text: &str) -> SecretKeys {
    text.parse().unwrap()
}

fn address(canvas: CanvasId, name: &str) -> HandlerAddress {
    let scope = HandlerScope { canvas, module: Name::worker(), name: name.parse().unwrap() };
    HandlerAddress { scope, modifier: Name::no_modifier() }
}

/// Another process with these keys.
async fn process(table: &Table, keys: SecretKeys) -> Store {
    table.other_store(StoreConfig { secret_keys: keys, ..StoreConfig::default() }).await
}

async fn put(store: &Store, address: &HandlerAddress) -> Secret {
    put_with(store, address, None).await
}

/// The same, with headers of its own, or those that it has.
async fn put_with(store: &Store, address: &HandlerAddress, headers: Option<&TargetHeaders>) -> Secret {
    let headers = headers.map(|headers| SealedHeaders::new(store.secret_keys(), address, headers).unwrap());
    let (secret, url) = (Secret::generate().unwrap(), "https://a.example/".parse().unwrap());
    let keys = store.secret_keys();
    let row = NewTargetRow {
        address,
        url: &url,
        policy: &TargetPolicy::default(),
        audience: None,
        secret: secret.clone(),
        sealed: keys.seal(address, &secret).unwrap(),
        keys,
        replaces_secret: true,
        headers,
        actor: &tester(),
    };
    store.put_target(&row).await.unwrap().unwrap();
    secret
}

/// The secrets that sign for a handler, by the worker's own lookup: the current one, and the
/// previous one.
async fn signing(store: &Store, address: &HandlerAddress) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let found = store.targets_at(std::slice::from_ref(address)).await.unwrap().pop().unwrap()?;
    let secrets = &found.target.secrets;
    let bytes = |secret: &Secret| secret.as_bytes().to_vec();
    Some((bytes(&secrets.current), secrets.previous.as_ref().map(bytes)))
}

/// The headers that a target adds, by the worker's own lookup.
async fn headers(store: &Store, address: &HandlerAddress) -> Option<TargetHeaders> {
    let found = store.targets_at(std::slice::from_ref(address)).await.unwrap().pop().unwrap()?;
    Some(found.target.headers.clone())
}

/// Puts a hook with this secret.
async fn put_hook(store: &Store, canvas: CanvasId, name: &str, secret: &HookSecret) {
    let (name, address) = (name.parse().unwrap(), address(canvas, "greet"));
    let keys = store.secret_keys();
    let row = NewHookRow {
        name: &name,
        kind: secret.kind(),
        address: &address,
        enveloped: false,
        secret: Some((secret, &keys.seal_hook(canvas, &name, secret).unwrap())),
        keys,
        replaces_secret: true,
        drops_previous: false,
        actor: &tester(),
    };
    store.put_hook(&row).await.unwrap().unwrap();
}

/// The secrets that a hook accepts.
async fn accepted(store: &Store, canvas: CanvasId, name: &str) -> Vec<String> {
    let found = store.hook_to_receive(canvas, &name.parse().unwrap()).await.unwrap().unwrap();
    found.secrets.iter().map(|secret| secret.reveal().to_owned()).collect()
}

async fn rotate_hooks(store: &Store) -> (u64, Vec<String>) {
    let (mut changed, mut unopened, mut after) = (0, Vec::new(), None);
    loop {
        let page = store.reseal_hooks(after.as_ref(), &tester()).await.unwrap().unwrap();
        changed += page.changed;
        unopened.extend(page.unopened);
        match page.last {
            Some(last) => after = Some(last),
            None => return (changed, unopened),
        }
    }
}

async fn rotate(store: &Store) -> (u64, Vec<String>) {
    let (mut changed, mut unopened, mut after) = (0, Vec::new(), None);
    loop {
        let page = store.reseal(after.as_ref(), &tester()).await.unwrap().unwrap();
        changed += page.changed;
        unopened.extend(page.unopened);
        match page.last {
            Some(last) => after = Some(last),
            None => return (changed, unopened),
        }
    }
}

/// Neither reading the table nor copying a row of it lets anyone get something signed.
#[tokio::test]
async fn a_copied_secret_row_is_useless_on_another_canvas_or_address() {
    let table = Table::new().await;
    let store = process(&table, keys(OLD)).await;
    let ours = address(CanvasId::DEFAULT, "greet");
    let secret = put(&store, &ours).await;
    put(&store, &address(THEIRS, "greet")).await;
    let rows: Vec<Vec<u8>> =
        sqlx::query_scalar("select secret from wakeq.http_targets").fetch_all(&table.pool).await.unwrap();
    assert!(rows.iter().all(|row| !row.windows(8).any(|part| secret.as_bytes().starts_with(part))));
    assert_eq!(signing(&store, &ours).await, Some((secret.as_bytes().to_vec(), None)));

    let copied = "update wakeq.http_targets t set secret = o.secret, secret_key = o.secret_key from wakeq.http_targets o
                   where o.canvas_id = '00000000-0000-0000-0000-000000000000' and o.name = 'greet' and t.ctid <> o.ctid";
    put(&store, &address(CanvasId::DEFAULT, "other")).await;
    assert_eq!(table.run(copied).await, 2);
    for forged in [address(THEIRS, "greet"), address(CanvasId::DEFAULT, "other")] {
        assert_eq!(signing(&store, &forged).await, None, "{forged}");
    }
    let without = process(&table, keys(NEW)).await;
    assert_eq!(signing(&without, &ours).await, None, "a process with another key signs nothing");
    assert!(signing(&store, &ours).await.is_some());
}

/// Each moment of a rotation finds every target's own secrets: with the old key alone, with both,
/// with the new one alone.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_rotation_leaves_every_target_its_secrets() {
    let table = Table::new().await;
    let (before, both) =
        (process(&table, keys(OLD)).await, process(&table, keys(&format!("{NEW},{OLD}"))).await);
    let mut secrets = Vec::new();
    for index in 0..210 {
        let canvas = if index % 2 == 0 { CanvasId::DEFAULT } else { THEIRS };
        let address = address(canvas, &format!("h{}", index / 2));
        let former = (index < 2).then_some(put(&before, &address).await);
        let current = if index < 2 { Some(put(&before, &address).await) } else { None };
        secrets.push((address, current, former));
    }
    let page = both.reseal(None, &tester()).await.unwrap().unwrap();
    assert_eq!((page.changed, page.unopened.len()), (100, 0), "a page at a time");
    let (address, current, former) = &secrets[0];
    let bytes = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.as_bytes().to_vec());
    let expected = bytes(current).map(|current| (current, bytes(former)));
    assert_eq!(signing(&both, address).await, expected, "half way, with both keys");
    assert_eq!(rotate(&both).await, (110, Vec::new()));
    assert_eq!(rotate(&both).await, (0, Vec::new()), "nothing is left");

    let after = process(&table, keys(NEW)).await;
    assert_eq!(signing(&after, address).await, expected, "the one before signs, too");
    for (address, ..) in &secrets {
        assert!(signing(&after, address).await.is_some(), "{address}");
    }
    let counts = after.secret_counts().await.unwrap();
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(Some(keys(NEW).ids()[0].to_owned()), 212)]);
    let recorded = "select sum(times) from wakeq.audit_log where action = 'rotate-secrets' and canvas_id = ";
    let ours = sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(format!("{recorded} '{}'", THEIRS.0)));
    assert_eq!(ours.fetch_one(&table.pool).await.unwrap(), 105, "each canvas has its line");
}

/// Headers are bound and rotated as signing secrets are, also where only they are under the old
/// key.
#[tokio::test]
async fn a_rotation_leaves_every_target_its_headers() {
    let table = Table::new().await;
    let (before, both) =
        (process(&table, keys(OLD)).await, process(&table, keys(&format!("{NEW},{OLD}"))).await);
    let ours = TargetHeaders::new([("x-api-key", "ours"), ("x-b", "2")]).unwrap();
    let theirs = TargetHeaders::new([("x-api-key", "theirs")]).unwrap();
    let (mine, other) = (address(CanvasId::DEFAULT, "greet"), address(THEIRS, "greet"));
    put_with(&before, &mine, Some(&ours)).await;
    put_with(&before, &other, Some(&theirs)).await;
    put(&before, &address(CanvasId::DEFAULT, "none")).await;
    assert_eq!(headers(&before, &mine).await, Some(ours.clone()));
    // A new secret is under the new key, and the headers that it keeps are not.
    put(&both, &mine).await;
    assert_eq!(headers(&both, &mine).await, Some(ours.clone()));
    let page = both.reseal(None, &tester()).await.unwrap().unwrap();
    assert_eq!((page.changed, page.unopened), (3, Vec::new()));
    let after = process(&table, keys(NEW)).await;
    assert_eq!(headers(&after, &mine).await, Some(ours));
    assert_eq!(headers(&after, &other).await, Some(theirs));
    assert_eq!(headers(&after, &address(CanvasId::DEFAULT, "none")).await, Some(TargetHeaders::default()));
    let counts: Vec<_> = after.secret_counts().await.unwrap().into_values().collect();
    assert_eq!(counts, [6], "three secrets, a previous one, and two with headers");

    let copied = "update wakeq.http_targets t set headers = o.headers, headers_key = o.headers_key from wakeq.http_targets o
                   where o.canvas_id = '00000000-0000-0000-0000-000000000000' and o.name = 'greet' and t.ctid <> o.ctid
                     and t.headers is not null";
    assert_eq!(table.run(copied).await, 1);
    assert_eq!(headers(&after, &other).await, None, "it waits for a target that can be used");
}

/// The same for the secrets of hooks, two of which are accepted during a rotation of theirs.
#[tokio::test]
async fn a_rotation_leaves_every_hook_its_secrets() {
    let table = Table::new().await;
    let (before, both) =
        (process(&table, keys(OLD)).await, process(&table, keys(&format!("{NEW},{OLD}"))).await);
    let secret = |text: &str| HookSecret::new(HookKind::GitHub, text).unwrap();
    for index in 0..105 {
        let canvas = if index % 2 == 0 { CanvasId::DEFAULT } else { THEIRS };
        put_hook(&before, canvas, &format!("h{index}"), &secret(&format!("the_secret_of_h{index}"))).await;
    }
    put_hook(&before, CanvasId::DEFAULT, "h0", &secret("another_secret_0")).await;
    let page = both.reseal_hooks(None, &tester()).await.unwrap().unwrap();
    assert_eq!((page.changed, page.unopened.len()), (100, 0), "a page at a time");
    assert_eq!(rotate_hooks(&both).await, (5, Vec::new()));
    assert_eq!(rotate_hooks(&both).await, (0, Vec::new()), "nothing is left");
    let after = process(&table, keys(NEW)).await;
    assert_eq!(accepted(&after, CanvasId::DEFAULT, "h0").await, ["another_secret_0", "the_secret_of_h0"]);
    assert_eq!(accepted(&after, THEIRS, "h1").await, ["the_secret_of_h1"]);
    assert!(accepted(&before, THEIRS, "h1").await.is_empty(), "a process with another key accepts nothing");
    let counts: Vec<_> = after.secret_counts().await.unwrap().into_values().collect();
    assert_eq!(counts, [106]);

    let copied = "update wakeq.hooks h set secret = o.secret, secret_key = o.secret_key from wakeq.hooks o
                   where o.name = 'h1' and h.name in ('h2', 'h3')";
    assert_eq!(table.run(copied).await, 2);
    for (canvas, name) in [(CanvasId::DEFAULT, "h2"), (THEIRS, "h3")] {
        assert!(accepted(&after, canvas, name).await.is_empty(), "{name}: a secret of another hook");
    }
    let past =
        "update wakeq.hooks set previous_until = now() - interval '1 s' where previous_until is not null";
    assert_eq!(table.run(past).await, 1);
    assert_eq!(accepted(&after, CanvasId::DEFAULT, "h0").await, ["another_secret_0"]);
    table.expire(Retention::default()).await;
    assert_eq!(table.number("select count(*) from wakeq.hooks where previous_secret is not null").await, 0);
}

/// Unencrypted secrets are used only where that is allowed, and encrypted by the first rotation;
/// what no key opens is left.
#[tokio::test]
async fn plain_secrets_are_encrypted_and_unreadable_ones_are_left() {
    let table = Table::new().await;
    let (plain, old) = (process(&table, keys(OLD)).await, address(THEIRS, "old"));
    put(&plain, &old).await;
    let clear = "insert into wakeq.http_targets (canvas_id, module, name, modifier, url, retries, delay_ms, factor, delay_max_ms,
                     timeout_ms, secret, created_by, updated_by)
                 values ('00000000-0000-0000-0000-000000000000', 'WORKER', 'clear', '_', 'https://a.example/', 2, 0, 1, 0, 1000,
                     decode(repeat('ab', 32), 'hex'), 'a', 'a')";
    assert_eq!(table.run(clear).await, 1);
    let clear = address(CanvasId::DEFAULT, "clear");
    let (strict, lenient) = (process(&table, keys(NEW)).await, process(&table, keys(NEW).in_clear()).await);
    assert_eq!(signing(&strict, &clear).await, None);
    assert_eq!(signing(&lenient, &clear).await, Some((vec![0xab; 32], None)));
    let (changed, unopened) = rotate(&strict).await;
    assert_eq!(changed, 1);
    assert!(unopened.len() == 1 && unopened[0].contains(keys(OLD).ids()[0]), "{unopened:?}");
    assert_eq!(signing(&strict, &clear).await, Some((vec![0xab; 32], None)));
    assert!(signing(&plain, &old).await.is_some());
}

/// The previous secret is cleared once it no longer signs, and not before.
#[tokio::test]
async fn former_secrets_are_cleared_within_the_hour() {
    let table = Table::new().await;
    let store = process(&table, keys(OLD)).await;
    for canvas in [CanvasId::DEFAULT, THEIRS] {
        put(&store, &address(canvas, "greet")).await;
        put(&store, &address(canvas, "greet")).await;
    }
    const FORMER: &str = "select count(*) from wakeq.http_targets where num_nonnulls(previous_secret, previous_key, previous_until) = 3";
    const NONE: &str = "select count(*) from wakeq.http_targets where num_nonnulls(previous_secret, previous_key, previous_until) = 0";
    assert_eq!(table.number(FORMER).await, 2);
    let day = "update wakeq.http_targets set previous_until = now() - interval '1 s'
                where canvas_id = '00000000-0000-0000-0000-000000000000'";
    assert_eq!(table.run(day).await, 1);
    table.expire(Retention::default()).await;
    assert_eq!(
        (table.number(FORMER).await, table.number(NONE).await),
        (1, 1),
        "that of the other canvas still signs"
    );
}
