//! A queue with its API for tenants: alone or side by side.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Method;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use wakeq::queues::NewQueue;
use wakeq::testing::MemoryNotifier;
use wakeq::{Actor, StoreConfig, Timing};
use wakeq_service::access::Scope;
use wakeq_service::server::HttpConfig;

use super::answers::ComparableAnswer;
use super::program::Request;
use super::proxy::{Change, Proxy};
use super::seed::{self, ATTACKER, Tenant, VICTIM, Values};
use crate::edge::requests::{Operation, operations};
use crate::support::service::{Answer, Service};
use crate::support::{Stage, Statements, database};
use wakeq_testbed::TestDatabase;

/// A queue registered by the platform; events that canvases emit for `usage` are copied into it.
pub(super) const QUEUE: &str = "billing";

pub(super) struct World {
    pub(super) service: Service,
    pub(super) document: Value,
    pub(super) operations: Vec<Operation>,
    pub(super) proxy: Option<Proxy>,
    keys: tokio::sync::Mutex<Keys>,
}

/// By tenant and holder.
type Keys = BTreeMap<String, String>;

/// A world that is copied rather than created again.
pub(super) struct Frozen {
    database: TestDatabase,
    keys: Keys,
}

impl Frozen {
    /// A copy in which `first` was run beside what keeps it fresh, and whose queue sends other
    /// statements in place of some.
    pub(super) async fn thaw(&self, first: &[String], changes: &[Change]) -> World {
        let database = self.database.copy().await.unwrap();
        let first: Vec<_> = first.iter().map(String::as_str).chain([seed::FRESH]).collect();
        let mut connection = PgConnection::connect(database.url()).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(first.join(";\n"))).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let proxy = Proxy::start(database.url(), changes).await;
        let url = proxy.url.clone();
        World { proxy: Some(proxy), keys: self.keys.clone().into(), ..World::on(database, &url).await }
    }
}

impl World {
    /// Without tenants.
    pub(super) async fn start() -> Self {
        let database = database().await;
        let url = database.url().to_owned();
        let world = Self::on(database, &url).await;
        let queue = NewQueue { patterns: vec![":usage:".parse().unwrap()], ..NewQueue::default() };
        let by = Actor::user("platform");
        world.service.stage.admin.put_queue(&QUEUE.parse().unwrap(), &queue, &by).await.unwrap();
        world
    }

    /// One with the attacker alone and one with both tenants, from now on with the same numbers;
    /// and the victim's values.
    pub(super) async fn both() -> (Self, Self, Values) {
        let (alone, world) = (Self::start().await, Self::start().await);
        alone.seed(&ATTACKER).await;
        world.seed(&ATTACKER).await;
        let victim = world.seed(&VICTIM).await;
        alone.advance(&world.sequences().await).await;
        (alone, world, victim)
    }

    async fn on(database: TestDatabase, url: &str) -> Self {
        let notifier = Arc::new(MemoryNotifier::new());
        let stage = Stage::through(database, url, notifier.clone(), Timing::default()).await;
        let service = Service::through(stage, url, notifier, StoreConfig::default(), unhurried()).await;
        let document = Answer::of(service.request(Method::GET, "/openapi.json")).await.json();
        let operations = operations(&service).await;
        Self { service, document, operations, proxy: None, keys: tokio::sync::Mutex::default() }
    }

    /// The same world with new processes: what was noted but not yet written gets written.
    pub(super) async fn again(self) -> Self {
        self.freeze().await.thaw(&[], &[]).await
    }

    /// Stops the world, so that it can be copied.
    pub(super) async fn freeze(self) -> Frozen {
        let Stage { database, store, pool, .. } = self.service.stop().await;
        // A holder has two keys at most, and each service creates one.
        pool.run("delete from wakeq.access_keys where holder = 'tests'").await;
        store.close().await;
        pool.close().await;
        Frozen { database, keys: self.keys.into_inner() }
    }

    pub(super) async fn seed(&self, tenant: &Tenant) -> Values {
        for scopes in super::scope_sets() {
            self.key(tenant, &scopes).await;
        }
        seed::plant(self, tenant).await
    }

    /// The key of a tenant with these scopes.
    pub(super) async fn key(&self, tenant: &Tenant, scopes: &[Scope]) -> String {
        let names: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
        let holder = format!("holder-of-{}", names.join("-"));
        let mut keys = self.keys.lock().await;
        let name = format!("{} {holder}", tenant.word);
        if let Some(key) = keys.get(&name) {
            return key.clone();
        }
        let key = self.service.key(&holder, tenant.canvas, scopes).await;
        // Its first use is recorded in the background, sooner or later than it is listed.
        let used = "update wakeq.access_keys set last_used_at = now() where canvas_id = $1 and holder = $2";
        sqlx::query(used)
            .bind(tenant.canvas.0)
            .bind(&holder)
            .execute(&self.service.stage.pool)
            .await
            .unwrap();
        keys.insert(name, key.clone());
        key
    }

    pub(super) async fn ask(&self, tenant: &Tenant, scopes: &[Scope], request: &Request) -> ComparableAnswer {
        let key = self.key(tenant, scopes).await;
        let mut sent = self.service.request(request.method.clone(), &request.path).bearer_auth(key);
        if let Some(body) = &request.body {
            sent = sent.body(body.to_string());
        }
        for (name, value) in &request.headers {
            sent = sent.header(name.as_str(), value.as_str());
        }
        ComparableAnswer::of(Answer::of(sent).await)
    }

    /// The URL by which its queue reaches the database.
    pub(super) fn url(&self) -> &str {
        self.proxy.as_ref().map_or(self.service.stage.database.url(), |proxy| &proxy.url)
    }

    /// Sets the label of the next requests.
    pub(super) fn asked(&self, label: &str) {
        if let Some(proxy) = &self.proxy {
            proxy.asked(label);
        }
    }

    /// Lifts the rules and quotas of both tenants, which requests have left: the requests that lift
    /// them are not among those that are sent without a condition (`Part::With`).
    pub(super) async fn lift_all(&self) {
        let pool = &self.service.stage.pool;
        pool.run("delete from wakeq.scheduling_rules").await;
        pool.run("delete from wakeq.canvas_quotas").await;
    }

    /// The last values of its sequences.
    pub(super) async fn sequences(&self) -> BTreeMap<String, i64> {
        let all = "select sequencename::text, last_value from pg_sequences
                    where schemaname = 'wakeq' and last_value is not null";
        self.service.stage.pool.table(all).await.into_iter().collect()
    }

    /// Moves its sequences to those of another world, so that new numbers are greater than all
    /// existing ones in both.
    pub(super) async fn advance(&self, sequences: &BTreeMap<String, i64>) {
        for (name, last) in sequences {
            let set = "select setval(('wakeq.' || quote_ident($1))::regclass, $2)";
            sqlx::query(set).bind(name).bind(last).execute(&self.service.stage.pool).await.unwrap();
        }
    }
}

/// A server without rate limits: requests are sent as fast as possible.
fn unhurried() -> HttpConfig {
    let most = 1_000_000;
    HttpConfig {
        credential_rate: most,
        canvas_rate: most,
        canvas_event_rate: most,
        canvas_byte_rate: u32::MAX,
        stranger_rate: most,
        ..HttpConfig::default()
    }
}
