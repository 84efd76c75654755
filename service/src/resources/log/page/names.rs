//! The categories of the log, and the streams of one, for those who don't know their names.

use maud::html;

use crate::http::problem::Problem;
use crate::page::parts::{empty, number, pager, table};
use crate::page::view::View;
use crate::page::visit::Visit;
use crate::resources::log::wire::{CategoryJson, StreamJson};
use crate::resources::wire::List;

/// The categories of the canvas.
pub(crate) async fn categories(visit: Visit) -> Result<View, Problem> {
    let ask = visit.ask(&["log", "categories"]).query("limit", 100);
    let found: List<CategoryJson> = ask.query("cursor", visit.parameter("cursor")).shared().await?;
    let live = if found.items.is_empty() && found.next_cursor.is_none() {
        let next =
            html! { "Programs append to it, and so do entities and emits with " code { "logged" } "." };
        empty("Nothing was appended to the log yet.", next)
    } else {
        html! {
            (table("Categories", &["Category", "Events"], html! {
                @for CategoryJson { category } in &found.items {
                    tr {
                        td { a href=(visit.link_with(&["log", "streams"], &[("category", category)])) { (category) } }
                        td { a href=(visit.link_with(&["log"], &[("category", category)])) { "Read it" } }
                    }
                }
            }))
            (pager(&visit, found.next_cursor.as_deref()))
        }
    };
    Ok(View::new("Categories of the log").live(live))
}

/// The streams of the category in the address.
pub(crate) async fn streams(visit: Visit) -> Result<View, Problem> {
    let category = visit.parameter("category");
    let ask = visit.ask(&["log", "streams"]).query("category", category.trim()).query("limit", 100);
    let found: List<StreamJson> = ask.query("cursor", visit.parameter("cursor")).shared().await?;
    let live = if found.items.is_empty() && found.next_cursor.is_none() {
        let next = html! { a href=(visit.link(&["log", "categories"])) { "The categories" } " have others." };
        empty("There is no stream of this category, or none further on.", next)
    } else {
        html! {
            (table("Streams", &["Stream", ">Position of the last event", ">Its number"], html! {
                @for StreamJson { stream, position, seq } in &found.items {
                    tr {
                        td {
                            a href=(visit.link_with(&["log"], &[("category", &category), ("stream", stream)])) {
                                (stream)
                            }
                        }
                        td.number { (number(*position)) }
                        td.number { (number(*seq)) }
                    }
                }
            }))
            (pager(&visit, found.next_cursor.as_deref()))
        }
    };
    let above =
        html! { p.actions { a.button href=(visit.link(&["log", "categories"])) { "All categories" } } };
    Ok(View::new(format!("Streams of {category}")).above(above).live(live))
}
