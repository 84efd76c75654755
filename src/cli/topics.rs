//! `wakeq topics create` and `wakeq topics check`.

use clap::{Args, Subcommand};

use super::failure::Failure;
use super::{Context, show};
use crate::notify::{TopicState, TopicsReport, create_topics, describe_topics};

#[derive(Args)]
pub(crate) struct Topics {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Create what is missing; what exists is compared and left as it is
    Create,
    /// Compare what exists with what the queue wants
    Check,
}

impl Topics {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        context.without_server()?;
        if context.notifier.is_local() {
            let words =
                "--notifier local (WAKEQ_NOTIFIER) does without topics: there is nothing to create or check";
            return Err(Failure::Usage(words.to_owned()).into());
        }
        let config = context.notifier.pubsub().config()?;
        let report = match self.verb {
            Verb::Create => create_topics(&config).await?,
            Verb::Check => describe_topics(&config).await?,
        };
        show_report(&report)
    }
}

fn show_report(report: &TopicsReport) -> anyhow::Result<()> {
    show::line(format_args!("{:13} {}", state(report.topic_state), report.topic))?;
    show::line(format_args!("{:13} {}", state(report.subscription_state), report.subscription))?;
    for difference in &report.differences {
        show::line(format_args!("differs       {difference}"))?;
    }
    let missing = [report.topic_state, report.subscription_state].contains(&TopicState::Missing);
    anyhow::ensure!(!missing, "something is missing: run `wakeq topics create`");
    anyhow::ensure!(report.differences.is_empty(), "the subscription is not set up as the queue needs it");
    Ok(())
}

fn state(state: TopicState) -> &'static str {
    match state {
        TopicState::Created => "created",
        TopicState::AlreadyThere => "already there",
        TopicState::Missing => "missing",
    }
}
