//! A queue with its API, in which tenants stand: alone or beside each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Method;
use serde_json::Value;
use sqlx::Row;
use wakeq::access::Scope;
use wakeq::http::HttpConfig;
use wakeq::testing::MemoryNotifier;
use wakeq::{Actor, NewQueue, StoreConfig, Timing};

use super::answers::Answered;
use super::mutants::Mutant;
use super::program::Request;
use super::proxy::Proxy;
use super::seed::{self, Tenant, Values};
use crate::edge::requests::{Operation, operations};
use crate::service::{Answer, Service};
use crate::support::{Stage, database};

/// What services have registered; what canvases emit for `usage` is copied into it.
pub(super) const QUEUE: &str = "billing";

pub(super) struct World {
    pub(super) service: Service,
    pub(super) document: Value,
    pub(super) operations: Vec<Operation>,
    pub(super) proxy: Option<Proxy>,
    keys: tokio::sync::Mutex<BTreeMap<String, String>>,
}

impl World {
    /// Without tenants. With a mutant, the queue's statements come to the database as that one has them.
    pub(super) async fn start(mutant: Option<&Mutant>) -> Self {
        let database = database().await;
        let mut url = database.url().to_owned();
        let mut proxy = None;
        if let Some(mutant) = mutant {
            let pool = sqlx::PgPool::connect(database.url()).await.unwrap();
            mutant.change_functions(&pool).await;
            pool.close().await;
            let started = Proxy::start(database.url(), mutant).await;
            url = started.url.clone();
            proxy = Some(started);
        }
        let notifier = Arc::new(MemoryNotifier::new());
        let stage = Stage::through(database, &url, notifier.clone(), Timing::default()).await;
        let service = Service::through(stage, &url, notifier, StoreConfig::default(), unhurried()).await;
        let document = Answer::of(service.request(Method::GET, "/openapi.json")).await.json();
        let operations = operations(&service).await;
        let queue = NewQueue { patterns: vec![":usage:".parse().unwrap()], ..NewQueue::default() };
        let by = Actor::user("platform");
        service.stage.admin.put_queue(&QUEUE.parse().unwrap(), &queue, &by).await.unwrap();
        Self { service, document, operations, proxy, keys: tokio::sync::Mutex::default() }
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
        keys.insert(name, key.clone());
        key
    }

    pub(super) async fn ask(&self, tenant: &Tenant, scopes: &[Scope], request: &Request) -> Answered {
        let key = self.key(tenant, scopes).await;
        let mut sent = self.service.request(request.method.clone(), &request.path).bearer_auth(key);
        if let Some(body) = &request.body {
            sent = sent.body(body.to_string());
        }
        for (name, value) in &request.headers {
            sent = sent.header(name.as_str(), value.as_str());
        }
        Answered::of(Answer::of(sent).await)
    }

    /// How far its sequences have come.
    pub(super) async fn sequences(&self) -> BTreeMap<String, i64> {
        let all = "select sequencename::text, last_value from pg_sequences
                    where schemaname = 'wakeq' and last_value is not null";
        let all = sqlx::query(all).fetch_all(&self.service.stage.pool).await.unwrap();
        all.into_iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Moves its sequences to where another's are, so that the numbers of what comes are greater than those of what is there
    /// in both.
    pub(super) async fn advance(&self, sequences: &BTreeMap<String, i64>) {
        for (name, last) in sequences {
            let set = "select setval(('wakeq.' || quote_ident($1))::regclass, $2)";
            sqlx::query(set).bind(name).bind(last).execute(&self.service.stage.pool).await.unwrap();
        }
    }
}

/// A server that never says "too many": what is asked here is asked as fast as it goes.
fn unhurried() -> HttpConfig {
    let most = 1_000_000;
    HttpConfig {
        credential_rate: most,
        canvas_rate: most,
        canvas_byte_rate: u32::MAX,
        stranger_rate: most,
        ..HttpConfig::default()
    }
}
