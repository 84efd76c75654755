//! The options by which commands select events.

use clap::Args;

use crate::cli::arguments;
use crate::cli::client::Request;
use crate::resources::limits::command::limit_name;
use crate::resources::operations::wire::OperationFilter;
use wakeq::control::{SearchText, ValueCondition};
use wakeq::events::{BatchName, Tag};
use wakeq::limits::LimitName;
use wakeq::order::ObjectKey;
use wakeq::{Name, Timestamp};

/// What every command that selects events has.
#[derive(Args)]
#[command(next_help_heading = "Only events")]
pub(crate) struct EventFilterArgs {
    /// Of handlers with this modifier
    #[arg(long)]
    modifier: Option<Name>,
    /// With this tag; repeatable, for all of them
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<Tag>,
    /// On this object, in their order on it
    #[arg(long, value_name = "OBJECT")]
    object: Option<ObjectKey>,
    /// Of this batch
    #[arg(long, value_name = "NAME")]
    batch: Option<BatchName>,
    /// Emitted at or after this time
    #[arg(long, value_name = "TIME", value_parser = arguments::timestamp)]
    emitted_since: Option<Timestamp>,
    /// Emitted before this time
    #[arg(long, value_name = "TIME", value_parser = arguments::timestamp)]
    emitted_before: Option<Timestamp>,
    /// Whose last error contains this text
    #[arg(long, value_name = "TEXT")]
    error_text: Option<SearchText>,
    /// Whose value contains this text
    #[arg(long, value_name = "TEXT")]
    value_text: Option<SearchText>,
    /// Whose value has it: '$.customer.id = "7"'
    #[arg(long, value_name = "PATH=JSON")]
    value: Option<ValueCondition>,
}

/// When events are due, and for which limit they wait, for those that have not ended.
#[derive(Args)]
#[command(next_help_heading = "Only events")]
pub(crate) struct DueArgs {
    /// Due at or after this time
    #[arg(long, value_name = "TIME", value_parser = arguments::timestamp)]
    due_since: Option<Timestamp>,
    /// Due before this time
    #[arg(long, value_name = "TIME", value_parser = arguments::timestamp)]
    due_before: Option<Timestamp>,
    /// Waiting for this limit: canvas, handler:NAME, or a key such as customer:7
    #[arg(long, value_name = "LIMIT", value_parser = limit_name)]
    waits_for: Option<LimitName>,
}

impl EventFilterArgs {
    pub(crate) fn add_to(&self, request: Request) -> Request {
        let tags: Vec<&str> = self.tags.iter().map(Tag::as_str).collect();
        request
            .query("modifier", self.modifier.as_ref())
            .query("tag", Some(tags.join(",")).filter(|tags| !tags.is_empty()))
            .query("object", self.object.as_ref())
            .query("batch", self.batch.as_ref())
            .query("emitted_since", text(self.emitted_since))
            .query("emitted_before", text(self.emitted_before))
            .query("error_text", self.error_text.as_ref())
            .query("value_text", self.value_text.as_ref())
            .query("value", self.value.as_ref())
    }
}

impl EventFilterArgs {
    /// As the filter of an operation.
    pub(crate) fn of_operation(&self, due: &DueArgs) -> OperationFilter {
        OperationFilter {
            modifier: self.modifier.as_ref().map(ToString::to_string),
            tags: self.tags.iter().map(ToString::to_string).collect(),
            object: self.object.as_ref().map(ToString::to_string),
            batch: self.batch.as_ref().map(ToString::to_string),
            emitted_since: self.emitted_since,
            emitted_before: self.emitted_before,
            due_since: due.due_since,
            due_before: due.due_before,
            waits_for: due.waits_for.as_ref().map(ToString::to_string),
            error_text: self.error_text.as_ref().map(ToString::to_string),
            value_text: self.value_text.as_ref().map(ToString::to_string),
            value: self.value.as_ref().map(ToString::to_string),
            ..OperationFilter::default()
        }
    }
}

impl DueArgs {
    pub(crate) fn add_to(&self, request: Request) -> Request {
        request
            .query("due_since", text(self.due_since))
            .query("due_before", text(self.due_before))
            .query("waits_for", self.waits_for.as_ref())
    }
}

/// A moment as a parameter.
pub(crate) fn text(moment: Option<Timestamp>) -> Option<String> {
    moment.map(|moment| moment.to_rfc3339())
}
