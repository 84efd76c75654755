//! The API without a listener: its parts, and the router that serves them. A server of this package
//! or any other axum server has the connections.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tokio_util::sync::CancellationToken;

use super::config::HttpConfig;
use super::error::HttpError;
use crate::access::{Access, AccessConfig};
use crate::checkup::Checkup;
use crate::delivery::Deliverer;
use crate::http::client::{self, Proxies};
use crate::http::inside::Inside;
use crate::http::listeners::Listeners;
use crate::http::pull_state::PullState;
use crate::http::push_state::Push;
use crate::http::record::AuditBuffer;
use crate::http::shares::Shares;
use crate::http::{Api, ApiParts};
use crate::page::Page;
use crate::pages::{SECTIONS, pages};
use crate::routes;
use wakeq::internals::Hub;
use wakeq::log::Log;
use wakeq::notify::Notifier;
use wakeq::targets::OwnDeployment;
use wakeq::{Admin, Queue, QueueConfig, Store};
use wakeq_streams::{Entities, Groups};

/// How long the answer to lifting a rule waits for events to be woken; the remaining ones follow in
/// the background.
const WAKING: Duration = Duration::from_secs(2);
/// How long the end waits for broadcasts of what was emitted here.
const BROADCASTING: Duration = Duration::from_secs(1);
/// How long it waits until what was counted here is written.
const STATISTICS_WAIT: Duration = Duration::from_secs(1);

/// The API for an axum server of your own, with all of its routes: those that emit and operate,
/// pushes, health checks and the documentation.
///
/// ```no_run
/// use std::net::SocketAddr;
/// use std::sync::Arc;
///
/// use axum::Router;
/// use axum::routing::get;
/// use wakeq::{Store, notify::Notifier};
/// use wakeq_service::server::{HttpApi, HttpConfig};
///
/// # async fn example(store: Store, notifier: Arc<dyn Notifier>) -> Result<(), Box<dyn std::error::Error>> {
/// let api = HttpApi::new(store, notifier, HttpConfig::default()).await?.mount();
/// let app = Router::new().route("/", get(async || "a shop")).nest("/queue", api.router());
///
/// let listener = tokio::net::TcpListener::bind("0.0.0.0:8080").await?;
/// let (signal, stop) = (wakeq::shutdown_signal()?, api.stop_token());
/// // The addresses of clients are known, and so their limits.
/// axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
///     .with_graceful_shutdown(async move {
///         signal.await;
///         stop.cancel(); // ends the requests that wait
///     })
///     .await?;
/// api.finish().await;
/// # Ok(())
/// # }
/// ```
pub struct HttpApi {
    parts: ApiParts,
    own: Arc<OwnDeployment>,
    config: HttpConfig,
    stop: CancellationToken,
}

impl HttpApi {
    /// The API of a database. Of the configuration, what concerns a listener and its connections is
    /// not used: `address`, `max_connections` (apart from its share of delayed refusals),
    /// `header_timeout`, `idle_timeout` and `shutdown_grace`.
    pub async fn new(
        store: Store,
        notifier: Arc<dyn Notifier>,
        config: HttpConfig,
    ) -> Result<Self, HttpError> {
        config.check()?;
        let queue_config =
            QueueConfig { payload_limit_bytes: config.body_limit_bytes, ..QueueConfig::default() };
        let admin = Admin::new(store.clone(), Arc::clone(&notifier))
            .patience(WAKING)
            .canvas_event_rate(config.canvas_event_rate);
        let stop = CancellationToken::new();
        let log = Log::new(store.clone(), notifier.as_ref()).with_payload_limit(config.body_limit_bytes);
        let queue = Queue::new(store.clone(), notifier, queue_config);
        let hub = queue.broadcasts().cloned().map(Hub::new);
        let access = Access::new(store.clone(), config.access.clone())?;
        access.prepare().await?;
        let own = own_deployment(&store, &config).await?;
        let parts = ApiParts {
            log,
            groups: Groups::new(store.clone()),
            entities: Entities::new(queue.clone()),
            queue,
            access,
            deliverer: Some(Deliverer::new(config.delivery.clone())?),
            limits: config.limits(),
            shares: Shares::new(config.share_limits()),
            recent_canvases: Arc::default(),
            audit: AuditBuffer::start(&admin),
            readiness: Arc::default(),
            checkup: Checkup::new(store),
            push: Push::new(config.retention),
            pulls: PullState::new(stop.clone()),
            listeners: Listeners::new(config.listener_limits(), hub, stop.clone()),
            webhooks: Default::default(),
            admin,
        };
        Ok(Self { parts, own, config, stop })
    }

    /// Accepts Pub/Sub's pushes, as [`HttpServer::on_push`](super::HttpServer::on_push) does. The
    /// push subscription's endpoint is then below the path at which the API is mounted, such as
    /// `https://shop.example/queue/v1/push`.
    pub fn on_push<F, R, E>(mut self, run: F) -> Result<Self, HttpError>
    where
        F: Fn(Vec<u8>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        if !self.parts.access.takes_pushes() {
            return Err(HttpError::Config(
                "no account may push: set the audience and the accounts in AccessConfig::push",
            ));
        }
        self.parts.push.set_runner(run);
        Ok(self)
    }

    /// The API, ready to be served.
    pub fn mount(self) -> MountedApi {
        let Self { parts, own, config, stop } = self;
        let api = Api::new(parts);
        let pages = config.page.then(|| {
            let (inside, _) = routes::routes(&api).split_for_parts();
            let inside = Inside::new(inside.with_state(api.clone()));
            let page = Page::new(api.clone(), inside, stop.clone(), SECTIONS, config.trace_url.clone());
            page.serve(pages())
        });
        let router = routes::router(&api, own, config.docs, pages);
        MountedApi { api, router, proxies: Proxies::new(&config.trusted_proxies), stop }
    }

    pub(super) fn config(&self) -> &HttpConfig {
        &self.config
    }

    /// Cancelling this token ends the requests that wait, such as those of listeners.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }
}

/// The API in a server: see [`HttpApi`].
pub struct MountedApi {
    api: Api,
    router: Router,
    proxies: Proxies,
    stop: CancellationToken,
}

impl MountedApi {
    /// The routes, for [`Router::nest`] or [`Router::nest_service`] below any path without
    /// parameters, or as the whole server. They do not merge into a router that has a fallback,
    /// since they have one.
    ///
    /// A client is known by its [`ConnectInfo<SocketAddr>`](axum::extract::ConnectInfo), or behind
    /// [`HttpConfig::trusted_proxies`] by what these report. Without it, all callers without a
    /// valid credential are one client, and share [`HttpConfig::stranger_rate`].
    pub fn router<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        let known = from_fn_with_state(self.proxies.clone(), client::known);
        self.router.clone().layer(known).with_state(())
    }

    /// The routes for connections that say who their client is.
    pub(super) fn bare_router(&self) -> Router {
        self.router.clone()
    }

    /// Cancelling this token ends the requests that wait, such as those of listeners. A graceful
    /// shutdown of the server would otherwise wait for them.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Writes what is still to be recorded and broadcast, once the server has ended.
    pub async fn finish(self) {
        let Self { api, stop, .. } = self;
        stop.cancel();
        api.listeners.finish().await;
        if let Some(broadcasts) = api.queue.broadcasts() {
            broadcasts.flush(BROADCASTING).await;
        }
        api.audit.finish().await;
        api.queue.store().write_statistics_within(STATISTICS_WAIT).await;
    }
}

/// Registers the names under which this deployment is served, so that no process delivers to them;
/// returns the deployment with all its names.
async fn own_deployment(store: &Store, config: &HttpConfig) -> Result<Arc<OwnDeployment>, HttpError> {
    let AccessConfig { audiences, push, .. } = &config.access;
    let names: Vec<String> =
        [&config.own_origins, audiences, &push.audiences].into_iter().flatten().cloned().collect();
    if names.iter().any(|name| name.len() > OwnDeployment::NAME_BYTES_MAX) {
        return Err(HttpError::Config("an own origin or audience must have at most 2,048 bytes"));
    }
    if !store.add_own_names(&names).await? {
        tracing::warn!("the deployment has 100 own names already: remove old ones from wakeq.deployment");
    }
    Ok(Arc::new(store.own_deployment().await?))
}
