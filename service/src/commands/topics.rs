//! `wakeq topics create` and `wakeq topics check`.

use clap::{Args, Subcommand};

use crate::cli::failure::Failure;
use crate::cli::{Context, show};
use wakeq::notify::{PubSubConfig, PushSettings, TopicState, TopicsReport, create_topics, describe_topics};

#[derive(Args)]
pub(crate) struct Topics {
    #[command(subcommand)]
    verb: TopicsVerb,
}

#[derive(Subcommand)]
enum TopicsVerb {
    /// Create what is missing; compare what exists, without changing it
    Create(Push),
    /// Compare what exists with the required settings
    Check(Push),
}

/// The options that make it a push subscription.
#[derive(Args)]
#[command(next_help_heading = "Push mode")]
struct Push {
    /// URL of the service's /v1/push; makes it a push subscription
    #[arg(long, requires_all = ["push_audience", "push_account"], value_name = "URL")]
    push_endpoint: Option<String>,
    /// Audience of the push tokens, as in WAKEQ_PUSH_AUDIENCE
    #[arg(long, requires = "push_endpoint", value_name = "AUDIENCE")]
    push_audience: Option<String>,
    /// Service account of the push tokens, one of WAKEQ_PUSH_ACCOUNTS
    #[arg(long, requires = "push_endpoint", value_name = "ACCOUNT")]
    push_account: Option<String>,
}

impl Push {
    fn settings(self) -> Option<PushSettings> {
        let Self { push_endpoint, push_audience, push_account } = self;
        Some(PushSettings { endpoint: push_endpoint?, audience: push_audience?, account: push_account? })
    }
}

impl Topics {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        context.without_server()?;
        if context.notifier.is_without_topics() {
            let words = format!(
                "--notifier {} (WAKEQ_NOTIFIER) does without topics: there is nothing to create or check",
                context.notifier.name()
            );
            return Err(Failure::Usage(words).into());
        }
        let config = context.notifier.pubsub().config()?;
        let pushing = |push: Push| PubSubConfig { push: push.settings(), ..config };
        let report = match self.verb {
            TopicsVerb::Create(push) => create_topics(&pushing(push)).await?,
            TopicsVerb::Check(push) => describe_topics(&pushing(push)).await?,
        };
        show_report(&report)
    }
}

fn show_report(report: &TopicsReport) -> anyhow::Result<()> {
    show::line(format_args!("{:13} {}", state(report.topic_state), report.topic))?;
    show::line(format_args!("{:13} {}", state(report.subscription_state), report.subscription))?;
    if let Some(urgent) = &report.urgent {
        show::line(format_args!("{:13} {}", state(urgent.state), urgent.name))?;
    }
    if let Some((topic, found)) = &report.broadcast_topic {
        show::line(format_args!("{:13} {topic}", state(*found)))?;
    }
    let urgent = report.urgent.as_ref();
    let endpoints =
        report.push_endpoint.iter().chain(urgent.and_then(|urgent| urgent.push_endpoint.as_ref()));
    for endpoint in endpoints {
        show::line(format_args!("pushes to     {endpoint}"))?;
    }
    let of_urgent = urgent.map(|urgent| urgent.differences.as_slice()).unwrap_or_default();
    for difference in report.differences.iter().chain(of_urgent) {
        show::line(format_args!("differs       {difference}"))?;
    }
    let broadcasts = report.broadcast_topic.as_ref().map(|(_, state)| *state);
    let states = [report.topic_state, report.subscription_state].into_iter();
    let states = states.chain(urgent.map(|urgent| urgent.state)).chain(broadcasts);
    let missing = states.into_iter().any(|state| state == TopicState::Missing);
    anyhow::ensure!(!missing, "something is missing: run `wakeq topics create`");
    let is_as_needed = report.differences.is_empty() && of_urgent.is_empty();
    anyhow::ensure!(is_as_needed, "a subscription is not set up as the queue needs it");
    Ok(())
}

fn state(state: TopicState) -> &'static str {
    match state {
        TopicState::Created => "created",
        TopicState::AlreadyThere => "already there",
        TopicState::Missing => "missing",
        TopicState::Unknown => "not known",
    }
}
