//! `wakeq queues lease` and related commands: copies of a pulled queue for services, and their
//! leases for operators.

use std::time::Duration;

use clap::Args;

use crate::cli::Context;
use crate::cli::arguments::{ListArgs, event_id};
use crate::cli::client::{Client, Page, Request};
use crate::cli::show::{self, JsonArg, moment};
use crate::cli::table::Table;
use crate::cli::text;
use crate::resources::pulls::wire::{
    self, CompleteRequest, ExtendRequest, Extended, LeaseRequest, Leased, LeasedCopyJson, ReleaseRequest,
    Released,
};
use crate::resources::wire::List;
use wakeq::internals::Spelled;
use wakeq::{EventId, Name};

/// Default duration of a lease.
const DEFAULT_LEASE: &str = "60s";

#[derive(Args)]
pub(crate) struct LeaseCopies {
    /// The queue's name
    name: Name,
    #[command(flatten)]
    leasing: LeasingArgs,
    #[command(flatten)]
    json: JsonArg,
}

/// How much to lease, and for how long.
#[derive(Args)]
pub(crate) struct LeasingArgs {
    /// Maximum number, 1 to 100
    #[arg(long, default_value_t = 1)]
    max: u32,
    #[command(flatten)]
    length: LengthArg,
    /// How long to wait until there is one, at most 20s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = humantime::parse_duration)]
    wait: Duration,
}

#[derive(Args)]
pub(crate) struct LengthArg {
    /// Length of the lease from now, 1s to 1h
    #[arg(long = "for", value_name = "DURATION", default_value = DEFAULT_LEASE, value_parser = humantime::parse_duration)]
    lasts: Duration,
}

/// Why and for how long to release what is leased.
#[derive(Args)]
pub(crate) struct ReleaseArgs {
    /// The error; counts as a failed attempt
    #[arg(long)]
    error: Option<String>,
    /// Least delay before it can be leased again; after an error, at least that of its policy
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    retry: Option<Duration>,
    /// No retry can help: it dies now
    #[arg(long, requires = "error", conflicts_with = "retry")]
    dead: bool,
    #[command(flatten)]
    json: JsonArg,
}

/// A leased copy, and the token of its lease.
#[derive(Args)]
struct LeaseArgs {
    /// The queue's name
    name: Name,
    /// The copy's id
    #[arg(value_parser = event_id)]
    id: EventId,
    /// The token of its lease, as `lease` prints it
    #[arg(value_name = "LEASE")]
    lease_token: String,
}

#[derive(Args)]
pub(crate) struct Extend {
    #[command(flatten)]
    copy: LeaseArgs,
    #[command(flatten)]
    length: LengthArg,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(crate) struct Complete {
    #[command(flatten)]
    copy: LeaseArgs,
}

#[derive(Args)]
pub(crate) struct Release {
    #[command(flatten)]
    copy: LeaseArgs,
    #[command(flatten)]
    release: ReleaseArgs,
}

#[derive(Args)]
pub(crate) struct Leases {
    /// The queue's name
    name: Name,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(crate) struct EndLease {
    /// The queue's name
    name: Name,
    /// The copy's id
    #[arg(value_parser = event_id)]
    id: EventId,
}

impl LeasingArgs {
    pub(crate) fn request(&self) -> LeaseRequest {
        let wait_s = self.wait.as_secs_f64();
        LeaseRequest { max: self.max, lease_s: self.length.seconds(), wait_s }
    }
}

impl LengthArg {
    pub(crate) fn seconds(&self) -> f64 {
        self.lasts.as_secs_f64()
    }
}

impl ReleaseArgs {
    pub(crate) fn request(&self, lease: String) -> ReleaseRequest {
        let retry_s = self.retry.map(|retry| retry.as_secs_f64());
        ReleaseRequest { lease, error: self.error.clone(), retry_s, dead: self.dead }
    }

    /// Prints what became of it, which is a `copy` or an `event`.
    pub(crate) fn print(&self, released: &Released, what: &str, id: EventId) -> anyhow::Result<()> {
        self.json.print(released, |Released { died: _, retry_s }| match retry_s {
            None => show::line(format_args!("{what} {id} is now a dead event")),
            Some(0.0) => show::line(format_args!("{what} {id} can be leased again at once")),
            Some(seconds) => {
                let delay = Spelled(Duration::from_secs_f64(*seconds));
                show::line(format_args!("{what} {id} can be leased again in {delay}"))
            }
        })
    }
}

impl LeaseCopies {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let leased = context.client().await?.lease(&self.name, self.leasing.request()).await?;
        self.json.print(&leased, |leased| {
            let mut table = Table::new(["COPY", "LEASE", "UNTIL", ">ATTEMPT", "CANVAS", "EVENT", "VALUE"]);
            leased.copies.iter().for_each(|copy| table.row(row(copy)));
            table.print("no copies to lease")
        })
    }
}

fn row(copy: &LeasedCopyJson) -> [String; 7] {
    [
        copy.id.to_string(),
        copy.lease.clone(),
        moment(copy.lease_until),
        copy.attempt.to_string(),
        copy.canvas.to_string(),
        format!("{}/{}/{}", copy.module, copy.name, copy.modifier),
        text::clean(copy.value.get()),
    ]
}

impl Extend {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let LeaseArgs { name, id, lease_token: lease } = self.copy;
        let request = ExtendRequest { lease, lease_s: self.length.seconds() };
        let extended = context.client().await?.extend(&name, id, request).await?;
        self.json.print(&extended, |extended| {
            show::line(format_args!("copy {id} is leased until {}", moment(extended.lease_until)))
        })
    }
}

impl Complete {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let LeaseArgs { name, id, lease_token: lease } = self.copy;
        context.client().await?.complete(&name, id, CompleteRequest { lease }).await?;
        show::line(format_args!("copy {id} is complete"))
    }
}

impl Release {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let LeaseArgs { name, id, lease_token: lease } = self.copy;
        let request = self.release.request(lease);
        let released = context.client().await?.release(&name, id, request).await?;
        self.release.print(&released, "copy", id)
    }
}

impl Leases {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (client, name) = (context.client().await?, self.name);
        let list = self.list.gather(async |page| client.leases(&name, page).await).await?;
        self.json.print_list(&list, |leases| {
            let mut table = Table::new(["COPY", "UNTIL", ">ATTEMPT", "CANVAS", "EVENT"]);
            leases.iter().for_each(|lease| table.row(lease_row(lease)));
            table.print("no leased copies")
        })
    }
}

fn lease_row(lease: &wire::LeaseJson) -> [String; 5] {
    [
        lease.id.to_string(),
        moment(lease.lease_until),
        lease.attempt.to_string(),
        lease.canvas.to_string(),
        format!("{}/{}/{}", lease.module, lease.name, lease.modifier),
    ]
}

impl EndLease {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let Self { name, id } = self;
        context.client().await?.end_lease(&name, id).await?;
        show::line(format_args!("the lease of copy {id} was ended, and the copy can be leased again"))
    }
}

impl Client {
    pub(crate) async fn lease(&self, queue: &Name, request: LeaseRequest) -> anyhow::Result<Leased> {
        let lease = Request::post(&["queues", queue.as_str(), "copies", "lease"]).everywhere().silent();
        self.call(lease.body(&request)?).await
    }

    pub(crate) async fn extend(
        &self,
        queue: &Name,
        id: EventId,
        request: ExtendRequest,
    ) -> anyhow::Result<Extended> {
        self.call(of_copy(queue, id, "extend").body(&request)?).await
    }

    pub(crate) async fn complete(
        &self,
        queue: &Name,
        id: EventId,
        request: CompleteRequest,
    ) -> anyhow::Result<()> {
        self.send(of_copy(queue, id, "complete").body(&request)?).await.map(drop)
    }

    pub(crate) async fn release(
        &self,
        queue: &Name,
        id: EventId,
        request: ReleaseRequest,
    ) -> anyhow::Result<Released> {
        self.call(of_copy(queue, id, "release").body(&request)?).await
    }

    pub(crate) async fn leases(&self, queue: &Name, page: Page) -> anyhow::Result<List<wire::LeaseJson>> {
        self.call(Request::get(&["queues", queue.as_str(), "leases"]).everywhere().page(page)).await
    }

    pub(crate) async fn end_lease(&self, queue: &Name, id: EventId) -> anyhow::Result<()> {
        let end = Request::delete(&["queues", queue.as_str(), "leases", &id.to_string()]);
        self.send(end.everywhere().silent()).await.map(drop)
    }
}

/// A request about a leased copy.
fn of_copy(queue: &Name, id: EventId, verb: &str) -> Request {
    Request::post(&["queues", queue.as_str(), "copies", &id.to_string(), verb]).everywhere().silent()
}
