//! `wakeq queues`: registered queues and their facets. They concern every canvas.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};

use crate::cli::Context;
use crate::cli::arguments::TableArgs;
use crate::cli::client::Request;
use crate::cli::failure::Failure;
use crate::cli::show::{self, JsonArg, field, moment};
use crate::cli::text;
use crate::config::DeliveryArgs;
use crate::resources::pulls::command as pulls;
use crate::resources::pulls::wire::Pull;
use crate::resources::queues::wire::{
    DeletedQueueJson, FacetJson, FacetSet, PutQueue, PutQueueAnswer, QueueJson, SetFacet,
};
use crate::resources::targets::command as targets;
use crate::resources::targets::command::{HeaderArgs, PolicyArgs, read_secret};
use crate::resources::targets::wire::{Policy, PutTarget};
use crate::resources::wire::List;
use wakeq::Name;

#[derive(Args)]
pub(crate) struct Queues {
    #[command(subcommand)]
    verb: QueueVerb,
}

#[derive(Subcommand)]
enum QueueVerb {
    /// Register or replace a queue; it receives a copy of every matching event from now on
    Put(Box<PutQueueArgs>),
    /// List the queues
    List(TableArgs),
    /// Show a queue, and the canvases with settings of their own
    Show(ShowQueue),
    /// Unregister a queue; it receives no more copies
    Delete(DeleteQueue),
    /// List the canvases with copies in a queue
    Facets(Facets),
    /// Show the copies and the settings of the canvas (--canvas) in a queue
    ShowFacet(ShowQueueFacet),
    /// Set the weight and limit of the canvas (--canvas) in a queue
    SetFacet(Set),
    /// Lease copies of a pulled queue, exclusively until the leases end
    Lease(pulls::LeaseCopies),
    /// Change when a lease ends
    Extend(pulls::Extend),
    /// Complete a leased copy, which deletes it
    Complete(pulls::Complete),
    /// Return a leased copy to the queue
    Release(pulls::Release),
    /// List the leased copies of a queue
    Leases(pulls::Leases),
    /// End a lease whose token is lost; the copy can be leased again at once
    EndLease(pulls::EndLease),
}

#[derive(Args)]
struct PutQueueArgs {
    /// The queue's name
    name: Name,
    /// Regular expressions over canvas:module:name, such as '.*:email_event:.*'; an event is copied
    /// if any of them matches
    #[arg(required = true, value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Events per canvas and round; 0 pauses
    #[arg(long, default_value_t = 1)]
    weight: u32,
    /// Maximum events of a canvas that run at once on all workers
    #[arg(long)]
    in_flight_max: Option<u32>,
    /// Let canvases see, cancel, redrive, delete and pause their copies
    #[arg(long)]
    tenant_visible: bool,
    /// Services pull the copies over HTTP instead of workers
    ///
    /// --retries and the other retry options apply to copies that are released with an error.
    #[arg(long, conflicts_with_all = ["url", "timeout", "concurrency"])]
    pull: bool,
    /// Send the events to this URL, instead of to functions of workers
    ///
    /// It is https, or http if the deployment allows it.
    #[arg(long)]
    url: Option<String>,
    /// Send a Google OIDC token for this audience, the service at the URL
    #[arg(long, requires = "url")]
    audience: Option<String>,
    /// Sign with the secret in this file (whsec_…) instead of a generated one
    #[arg(long, value_name = "FILE", conflicts_with = "rotate_secret", requires = "url")]
    secret_file: Option<PathBuf>,
    /// Generate a new secret; the old one also signs for 24 more hours
    #[arg(long, requires = "url")]
    rotate_secret: bool,
    #[command(flatten)]
    headers: HeaderArgs,
    #[command(flatten)]
    json: JsonArg,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    delivery: DeliveryArgs,
}

#[derive(Args)]
struct ShowQueue {
    /// The queue's name
    name: Name,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum WaitingArg {
    /// Process them as before; the queue is removed after the last one
    Drain,
    /// Delete them, except running ones
    Drop,
}

#[derive(Args)]
struct DeleteQueue {
    /// The queue's name
    name: Name,
    /// What to do with the waiting copies
    #[arg(long, value_enum, default_value_t = WaitingArg::Drain)]
    waiting: WaitingArg,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Facets {
    /// The queue's name
    name: Name,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Args)]
struct ShowQueueFacet {
    /// The queue's name
    name: Name,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Set {
    /// The queue's name
    name: Name,
    /// Events of the canvas per round; 0 pauses it [default: the queue's]
    #[arg(long)]
    weight: Option<u32>,
    /// Maximum events of the canvas that run at once on all workers [default: the queue's]
    #[arg(long)]
    in_flight_max: Option<u32>,
    #[command(flatten)]
    json: JsonArg,
}

impl Queues {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            QueueVerb::Put(command) => command.run(context).await,
            QueueVerb::List(table) => {
                let head = ["QUEUE", ">WEIGHT", ">IN FLIGHT", "PROCESSED BY", "PATTERNS"];
                let request = Request::get(&["queues"]).everywhere();
                table.print(context, request, head, "no queues", row).await
            }
            QueueVerb::Show(command) => command.run(context).await,
            QueueVerb::Delete(command) => command.run(context).await,
            QueueVerb::Facets(Facets { name, table }) => {
                let head = ["CANVAS", ">WAITING", ">RUNNING", ">TURN", "DUE SINCE", ">WEIGHT", ">IN FLIGHT"];
                let request = at(Request::get, &name, &["facets"]);
                table.print(context, request, head, "no canvas has copies in it", facet_row).await
            }
            QueueVerb::ShowFacet(command) => command.run(context).await,
            QueueVerb::SetFacet(command) => command.run(context).await,
            QueueVerb::Lease(command) => command.run(context).await,
            QueueVerb::Extend(command) => command.run(context).await,
            QueueVerb::Complete(command) => command.run(context).await,
            QueueVerb::Release(command) => command.run(context).await,
            QueueVerb::Leases(command) => command.run(context).await,
            QueueVerb::EndLease(command) => command.run(context).await,
        }
    }
}

impl PutQueueArgs {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let secret = self.secret_file.as_deref().map(read_secret).transpose()?;
        let policy = self.policy.over_default();
        let pull = self.pull.then_some(Pull {
            retries: policy.retries,
            delay_s: policy.delay_s,
            factor: policy.factor,
            delay_max_s: policy.delay_max_s,
            on_death: policy.on_death,
            ..Pull::default()
        });
        let target = match self.url {
            Some(url) => {
                let (audience, rotate_secret) = (self.audience, self.rotate_secret);
                let headers = self.headers.read()?;
                Some(PutTarget { url, policy, audience, secret, rotate_secret, headers })
            }
            None if self.headers.are_given() => {
                return Err(Failure::Usage("headers need a target: also give --url".to_owned()).into());
            }
            None if self.pull || policy == Policy::default() => None,
            None => {
                let words = "retry and delivery options need a target or a pull: also give --url or --pull";
                return Err(Failure::Usage(words.to_owned()).into());
            }
        };
        let Self { patterns, weight, in_flight_max, tenant_visible, .. } = self;
        let new = PutQueue { patterns, weight, in_flight_max, tenant_visible, pull, target };
        let request = at(Request::put, &self.name, &[]).body(&new)?;
        let answer: PutQueueAnswer = context.client_to_targets(&self.delivery).await?.call(request).await?;
        self.json.print(&answer, print_put)?;
        targets::note_about(answer.secret.as_ref());
        Ok(())
    }
}

fn print_put(answer: &PutQueueAnswer) -> anyhow::Result<()> {
    let what = match (answer.new, answer.changed) {
        (true, _) => "is registered",
        (false, true) => "is registered, replacing the previous registration",
        (false, false) => "was already registered like this",
    };
    show::line(format_args!("queue {} {what}", answer.queue.name))?;
    targets::print_woken(answer.woken, answer.waking)?;
    targets::print_secret(answer.secret.as_ref())
}

fn row(queue: &QueueJson) -> [String; 5] {
    let draining = if queue.draining { " (draining)" } else { "" };
    let visible = if queue.tenant_visible { " (tenant-visible)" } else { "" };
    [
        format!("{}{draining}{visible}", queue.name),
        queue.weight.to_string(),
        show::or_dash(queue.in_flight_max),
        match (&queue.target, &queue.pull) {
            (Some(target), _) => text::clean(&target.url),
            (None, Some(_)) => "pulls".to_owned(),
            (None, None) => "functions".to_owned(),
        },
        text::clean(&queue.patterns.join("  ")),
    ]
}

impl ShowQueue {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let Self { name, table } = self;
        let client = context.client().await?;
        let mut shown = None;
        let page = async |page| {
            let mut queue: QueueJson = client.call(at(Request::get, &name, &[]).page(page)).await?;
            let (items, next_cursor) = (queue.settings.take().unwrap_or_default(), queue.next_cursor.take());
            shown = Some(queue);
            Ok(List { items, next_cursor, looked_at: None })
        };
        let List { items, next_cursor, .. } = table.list.gather(page).await?;
        let queue = shown.context("no page of the queue was requested")?;
        table.json.print(&QueueJson { settings: Some(items), next_cursor, ..queue }, print_queue)
    }
}

fn print_queue(queue: &QueueJson) -> anyhow::Result<()> {
    field("queue", &queue.name)?;
    for pattern in &queue.patterns {
        field("pattern", text::clean(pattern))?;
    }
    let in_flight = queue.in_flight_max.map(|most| format!("; {most} in flight")).unwrap_or_default();
    field(
        "canvases",
        format_args!("{} in each round{in_flight}", show::count(queue.weight.into(), "event")),
    )?;
    if queue.tenant_visible {
        field("copies", "shown to their canvases, and held by their rules")?;
    }
    if queue.draining {
        field("draining", "it receives no more copies, and is removed after the last one")?;
    }
    match (&queue.target, &queue.pull) {
        (Some(target), _) => targets::print(target)?,
        (None, Some(pull)) => field(
            "pulled",
            format_args!("over HTTP; {} after an error", show::count(pull.retries.into(), "retry")),
        )?,
        (None, None) => field("target", "none: functions of workers process it")?,
    }
    field("made", format_args!("{} by {}", moment(queue.created_at), queue.created_by))?;
    field("changed", format_args!("{} by {}", moment(queue.updated_at), queue.updated_by))?;
    for own in queue.settings.iter().flatten() {
        field("canvas", format_args!("{}: {}", own.canvas, settings(own.weight, own.in_flight_max)))?;
    }
    show::note_of_more(queue.next_cursor.as_deref());
    Ok(())
}

fn settings(weight: Option<u32>, in_flight_max: Option<u32>) -> String {
    let weight = match weight {
        Some(0) => "paused".to_owned(),
        Some(weight) => format!("{} in each round", show::count(weight.into(), "event")),
        None => "the queue's weight".to_owned(),
    };
    let most = in_flight_max.map(|most| format!(", {most} in flight")).unwrap_or_default();
    format!("{weight}{most}")
}

impl DeleteQueue {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let waiting = match self.waiting {
            WaitingArg::Drain => "drain",
            WaitingArg::Drop => "drop",
        };
        let request = at(Request::delete, &self.name, &[]).silent().query("waiting", Some(waiting));
        self.json.print(&context.call(request).await?, |deleted: &DeletedQueueJson| {
            let what = if deleted.gone {
                "is removed"
            } else {
                "receives no more copies, and is removed after the last one"
            };
            show::line(format_args!("queue {} {what}", self.name))
        })
    }
}

impl ShowQueueFacet {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let canvas = context.canvas.canvas.to_string();
        let facet = context.call(at(Request::get, &self.name, &["facets", &canvas])).await?;
        self.json.print(&facet, |facet: &FacetJson| {
            field("canvas", facet.canvas)?;
            let more = if facet.capped { " or more" } else { "" };
            let FacetJson { waiting, running, .. } = facet;
            field("copies", format_args!("{waiting}{more} waiting, {running} running"))?;
            field("oldest", show::or_dash(facet.oldest_due.map(moment)))?;
            field("in turn", show::or_dash(facet.position))?;
            field("settings", settings(facet.weight, facet.in_flight_max))
        })
    }
}

fn facet_row(facet: &FacetJson) -> [String; 7] {
    let more = if facet.capped { "+" } else { "" };
    [
        facet.canvas.to_string(),
        format!("{}{more}", facet.waiting),
        facet.running.to_string(),
        show::or_dash(facet.position),
        show::or_dash(facet.oldest_due.map(moment)),
        show::or_dash(facet.weight),
        show::or_dash(facet.in_flight_max),
    ]
}

impl Set {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let new = SetFacet { weight: self.weight, in_flight_max: self.in_flight_max };
        let canvas = context.canvas.canvas.to_string();
        let request = at(Request::put, &self.name, &["facets", &canvas]).body(&new)?;
        self.json.print(&context.call(request).await?, |FacetSet { settings: own, woken, waking }| {
            let words = settings(own.weight, own.in_flight_max);
            show::line(format_args!("canvas {} in queue {}: {words}", own.canvas, self.name))?;
            targets::print_woken(*woken, *waking)
        })
    }
}

/// The request about a queue.
fn at(verb: fn(&[&str]) -> Request, name: &Name, part: &[&str]) -> Request {
    verb(&[&["queues", name.as_str()][..], part].concat()).everywhere()
}
