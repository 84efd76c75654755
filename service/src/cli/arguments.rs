//! Arguments that several commands share, parsed into their types.

use std::str::FromStr;

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Context;
use super::client::{Page, Request};
use super::show::JsonArg;
use crate::resources::wire::List;
use wakeq::events::InvalidName;
use wakeq::{EventId, Name, Timestamp};

/// Maximum number of items requested per page.
const PAGE: u32 = 500;
/// Maximum number of pages requested per list: pages may be short.
const PAGES: u32 = 1000;

/// Parses an event's id.
pub(crate) fn event_id(text: &str) -> Result<EventId, &'static str> {
    text.parse().map_err(|_| "an event's id is a uuid, as `wakeq emit` prints it")
}

/// Parses a time.
pub(crate) fn timestamp(text: &str) -> Result<Timestamp, &'static str> {
    text.parse().map_err(|_| "a moment looks like 2030-01-31T08:00:00Z")
}

/// A handler, with all its modifiers.
#[derive(Args, Clone)]
pub(crate) struct HandlerArg {
    /// The handler: its name, or MODULE/name when the module is not WORKER
    pub(crate) handler: HandlerName,
}

/// A handler on the command's canvas: `name`, or `MODULE/name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandlerName {
    pub(crate) module: Name,
    pub(crate) name: Name,
}

/// The text is not a handler.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidHandler {
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error("this applies to a handler with all its modifiers: write {0}")]
    Modifier(HandlerName),
}

impl std::fmt::Display for HandlerName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.module, self.name)
    }
}

impl FromStr for HandlerName {
    type Err = InvalidHandler;

    fn from_str(text: &str) -> Result<Self, InvalidHandler> {
        let HandlerAddressArg { handler, modifier } = text.parse()?;
        if modifier.is_some() { Err(InvalidHandler::Modifier(handler)) } else { Ok(handler) }
    }
}

/// The handler for an event: `name`, `MODULE/name` or `MODULE/name/modifier`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandlerAddressArg {
    pub(crate) handler: HandlerName,
    pub(crate) modifier: Option<Name>,
}

impl std::fmt::Display for HandlerAddressArg {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.handler, self.modifier.as_ref().map_or("_", Name::as_str))
    }
}

impl FromStr for HandlerAddressArg {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let mut parts = text.splitn(3, '/');
        let (module, name, modifier) = match (parts.next(), parts.next(), parts.next()) {
            (Some(module), Some(name), modifier) => (module.parse()?, name, modifier),
            _ => (Name::worker(), text, None),
        };
        let handler = HandlerName { module, name: name.parse()? };
        Ok(Self { handler, modifier: modifier.map(str::parse).transpose()? })
    }
}

/// How much of a list, and from where.
#[derive(Args, Clone)]
pub(crate) struct ListArgs {
    /// Maximum number of entries
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Continue at the cursor that an earlier list printed
    #[arg(long)]
    cursor: Option<String>,
}

/// A list to be printed as a table, or as JSON.
#[derive(Args)]
pub(crate) struct TableArgs {
    #[command(flatten)]
    pub(crate) list: ListArgs,
    #[command(flatten)]
    pub(crate) json: JsonArg,
}

impl TableArgs {
    /// Requests the list, and prints it; without items, prints `nothing` for people.
    pub(crate) async fn print<T: DeserializeOwned + Serialize, const COLUMNS: usize>(
        self,
        context: &Context,
        request: Request,
        head: [&'static str; COLUMNS],
        nothing: &str,
        row: impl FnMut(&T) -> [String; COLUMNS],
    ) -> anyhow::Result<()> {
        let client = context.client().await?;
        let page = async |page| client.call(request.clone().page(page)).await;
        self.json.print_table(&self.list.gather(page).await?, head, nothing, row)
    }
}

impl ListArgs {
    /// Requests pages until the list ends or the limit is reached.
    pub(crate) async fn gather<T>(
        self,
        mut page: impl AsyncFnMut(Page) -> anyhow::Result<List<T>>,
    ) -> anyhow::Result<List<T>> {
        let mut list = List { items: Vec::new(), next_cursor: self.cursor, looked_at: None };
        let mut looked = 0;
        for _ in 0..PAGES {
            let room = self.limit.saturating_sub(u32::try_from(list.items.len()).unwrap_or(u32::MAX));
            if room == 0 {
                break;
            }
            let asked = Page { limit: room.min(PAGE), cursor: list.next_cursor.take() };
            let answered = page(asked).await?;
            let looked_at = answered.looked_at.unwrap_or(answered.items.len() as u64);
            looked += looked_at;
            list.items.extend(answered.items);
            list.next_cursor = answered.next_cursor;
            if list.next_cursor.is_none() {
                break;
            }
        }
        list.looked_at = Some(looked).filter(|looked| *looked > list.items.len() as u64);
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_is_named_with_or_without_its_module() {
        let named = |text: &str| text.parse::<HandlerName>().map(|handler| handler.to_string());
        assert_eq!(named("greet").unwrap(), "WORKER/greet");
        assert_eq!(named("REPORTS/weekly").unwrap(), "REPORTS/weekly");
        let refused = named("REPORTS/weekly/big").unwrap_err().to_string();
        assert_eq!(refused, "this applies to a handler with all its modifiers: write REPORTS/weekly");
        for text in ["", "/", "a/", "/b", "a/b/", "a/b/c/d", "a b"] {
            assert!(matches!(named(text), Err(InvalidHandler::Name(_))), "{text}");
        }
        let target: HandlerAddressArg = "REPORTS/weekly/big".parse().unwrap();
        assert_eq!(target.modifier.unwrap().as_str(), "big");
    }

    #[tokio::test]
    async fn a_list_is_gathered_up_to_its_limit() {
        let asked = |limit| ListArgs { limit, cursor: None };
        // Pages of at most three items, of which the second is empty.
        let pages = async |page: Page| {
            let from: u32 = page.cursor.map_or(0, |cursor| cursor.parse().unwrap());
            let items =
                if from == 3 { Vec::new() } else { (from..(from + page.limit.min(3)).min(10)).collect() };
            let next = if from == 3 { 4 } else { from + u32::try_from(items.len()).unwrap() };
            anyhow::Ok(List { items, next_cursor: (next < 10).then(|| next.to_string()), looked_at: None })
        };
        let all = asked(100).gather(pages).await.unwrap();
        assert_eq!((all.items, all.next_cursor), (vec![0, 1, 2, 4, 5, 6, 7, 8, 9], None));
        let some = asked(4).gather(pages).await.unwrap();
        assert_eq!((some.items, some.next_cursor.as_deref()), (vec![0, 1, 2, 4], Some("5")));
    }
}
