//! The pages that are asked for: those of the product's own navigation, further ones of a large
//! canvas with its samples, and what follows the first part of a list.

use anyhow::{Context, Result};

use super::super::deployment::{NIL, OTHER, Site};

/// Pages below the canvas. A name in braces is the id of a [sample](SAMPLES).
const PAGES: &[&str] = &[
    "?over=24h",
    "?over=14d",
    "/events?state=ready",
    "/events?state=running",
    "/events?state=delayed",
    "/events?state=behind",
    "/events?state=limited",
    "/events?state=halted",
    "/events?state=paused",
    "/events?state=blocked",
    "/events?state=ready,behind,limited,held",
    "/events?state=paused,blocked",
    "/events?name=handler-0001",
    "/events?name=handler-4000",
    "/events?name=nobody",
    "/events?name=handler-0001&state=running",
    "/events?module=WORKER&name=handler-0002&state=limited",
    "/events?tag=customer:3",
    "/events?tag=shop:3",
    "/events?tag=shop:3&state=delayed",
    "/events?tag=nothing",
    "/events?error_text=timeout",
    "/events?error_text=nothing",
    "/events?value_text=nothing",
    "/events?value_text=customer&name=handler-0001",
    "/events?value=$.customer.id%20%3D%207",
    "/events?emitted_since=1%20min",
    "/events?due_before=in%201%20h&due_since=1%20h",
    "/events?worker=worker-1",
    "/events/{event}",
    "/events/{tagged}",
    "/events/{dead}",
    "/events/{kept}",
    "/events/{event}/cancel",
    "/dead-events?order=count",
    "/dead-events?name=handler-0002",
    "/dead-events?known=true",
    "/dead-events/groups/{error_group}",
    "/dead-events/list",
    "/dead-events/list?name=handler-0002",
    "/dead-events/list?tag=customer:3",
    "/dead-events/list?error_text=declined",
    "/dead-events/list?error_text=nothing",
    "/dead-events/list?value_text=nothing",
    "/dead-events/list?died_since=1%20h",
    "/dead-events/list?error_group={error_group}",
    "/ended-events?outcome=failed",
    "/ended-events?outcome=cancelled",
    "/ended-events?module=WORKER&name=handler-0003",
    "/ended-events?module=WORKER&name=nobody",
    "/ended-events?tag=shop:3",
    "/ended-events?tag=shop:3&name=handler-0003",
    "/ended-events?tag=nobody",
    "/ended-events?error_text=declined",
    "/ended-events?error_text=nothing",
    "/ended-events?value_text=nothing",
    "/ended-events?value=$.order%20%3D%20900000",
    "/ended-events?result=$%20%3D%20%22ok%22",
    "/ended-events?result_text=nothing",
    "/ended-events?since=1%20h",
    "/ended-events?before=10%20d&batch=nothing",
    "/handlers?name=handler-0001",
    "/handlers?name=handler-4",
    "/handlers?name=nobody",
    "/handlers/WORKER/handler-0001",
    "/handlers/WORKER/handler-0001?over=14d",
    "/handlers/WORKER/handler-0002",
    "/handlers/WORKER/handler-0101",
    "/handlers/WORKER/handler-4000",
    "/handlers/WORKER/handler-0001/purge",
    "/handlers/WORKER/handler-0001/pause",
    "/handlers/WORKER/handler-0001/block",
    "/handlers/WORKER/handler-0001/targets/_",
    "/targets",
    "/switches",
    "/pause",
    "/cron/nightly-1",
    "/batches/import-1",
    "/pulled-handlers/WORKER/handler-2001",
    "/objects/order:7",
    "/log?category=orders",
    "/workers/worker-1",
    "/limits/customer-1",
    "/limits/customer-1/holders",
    "/quotas/events",
    "/operations/{operation}",
    "/operations/new",
    "/operations/new?kind=redrive&name=handler-0002",
    "/operations/new?kind=cancel&name=handler-0001",
];

/// Queries for the ids of samples.
const SAMPLES: &[(&str, &str)] = &[
    (
        "{event}",
        "select id::text from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000' and
         module = 'WORKER' and name = 'handler-0001' and delay_until > '-infinity' limit 1",
    ),
    (
        "{tagged}",
        "select event_id::text from wakeq.event_tags
          where canvas_id = '00000000-0000-0000-0000-000000000000' and tag = 'shop:3' limit 1",
    ),
    (
        "{dead}",
        "select event_id::text from wakeq.attempts
          where canvas_id = '00000000-0000-0000-0000-000000000000' limit 1",
    ),
    (
        "{error_group}",
        "select error_group::text from wakeq.dead_events
          where canvas_id = '00000000-0000-0000-0000-000000000000' limit 1",
    ),
    (
        "{kept}",
        "select id::text from wakeq.ended_events
          where canvas_id = '00000000-0000-0000-0000-000000000000' limit 1",
    ),
    (
        "{operation}",
        "select id::text from wakeq.operations
          where canvas_id = '00000000-0000-0000-0000-000000000000' limit 1",
    ),
];

/// Pages that ten people leave open. Each has live numbers.
pub(super) const WATCHED: [&str; 10] = [
    "",
    "/events",
    "/events?state=ready",
    "/dead-events",
    "/operations",
    "/handlers",
    "/handlers/WORKER/handler-0001",
    "/limits",
    "/workers",
    "/halted-objects",
];

/// The address of a page of the large canvas.
pub(super) fn address(page: &str) -> String {
    format!("/canvases/{NIL}{page}")
}

/// The samples: the name of each in braces, and its id.
pub(super) struct Samples(Vec<(&'static str, String)>);

impl Samples {
    pub(super) async fn of(site: &Site) -> Result<Self> {
        let mut samples = Vec::new();
        for (name, query) in SAMPLES {
            let id: String = sqlx::query_scalar(*query).fetch_one(&site.pool).await.context(*name)?;
            samples.push((*name, id));
        }
        Ok(Self(samples))
    }

    /// All addresses of the large canvas, but for the second parts of lists.
    pub(super) fn addresses(&self, overview: &str) -> Vec<String> {
        let mut all = navigation(overview);
        all.extend(PAGES.iter().map(|page| self.filled(page)));
        all
    }

    /// Whether a page is a list of events that are kept after their end, or shows one.
    pub(super) fn is_of_kept(&self, page: &str) -> bool {
        page.starts_with(&address("/ended-events")) || page == self.filled("/events/{kept}")
    }

    /// The address of a page, with the ids of the samples.
    fn filled(&self, page: &str) -> String {
        let id = |page: String, (name, id): &(&str, String)| page.replace(name, id);
        address(&self.0.iter().fold(page.to_owned(), id))
    }
}

/// Pages of a small canvas: while somebody looks at these, too, no canvas may read without end.
pub(super) fn of_neighbour() -> [String; 3] {
    ["", "/events", "/handlers"].map(|page| format!("/canvases/{OTHER}{page}"))
}

/// The links of the navigation: those that have a key.
pub(super) fn navigation(document: &str) -> Vec<String> {
    let links = document.split("<a href=\"").skip(1).filter_map(|link| link.split_once('"'));
    links.filter(|(_, rest)| rest.starts_with(" data-key=")).map(|(address, _)| address.to_owned()).collect()
}

/// What follows a page of a list, if something does.
pub(super) fn next(address: &str, document: &str) -> Option<String> {
    let mut links = document.split("<a href=\"").skip(1).filter_map(|link| link.split_once('"'));
    let (query, _) = links.find(|(_, rest)| rest.starts_with(" rel=\"next\""))?;
    let path = address.split('?').next().unwrap_or_default();
    Some(format!("{path}{}", query.replace("&amp;", "&")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_kept_events_are_told_from_others() {
        let samples = Samples(vec![("{event}", "1".to_owned()), ("{kept}", "2".to_owned())]);
        let is_of_kept = |page: &str| samples.is_of_kept(&address(page));
        for page in ["/ended-events", "/ended-events?outcome=failed&cursor=7", "/events/2"] {
            assert!(is_of_kept(page), "{page}");
        }
        for page in ["/events", "/events/1", "/dead-events"] {
            assert!(!is_of_kept(page), "{page}");
        }
    }

    #[test]
    fn links_are_found_in_a_document() {
        let document = "<a href=\"/x\">x</a><a href=\"/canvases/c/events\" data-key=\"e\">Events</a>\
                        <a href=\"?name=a&amp;cursor=7\" rel=\"next\">Next page</a>";
        assert_eq!(navigation(document), ["/canvases/c/events"]);
        let following = next("/canvases/c/events?name=a", document);
        assert_eq!(following.as_deref(), Some("/canvases/c/events?name=a&cursor=7"));
        assert_eq!(next("/canvases/c/events", "<a href=\"/x\">x</a>"), None);
    }
}
