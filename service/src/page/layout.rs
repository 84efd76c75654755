//! The document around a page: its head, the navigation, and what is said once.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::files;
use super::partial::RESULTS;
use super::sections::{Held, Link};
use super::view::View;
use super::visit::Visit;
use crate::access::Scope;
use crate::http::mounted::Root;

/// Scripts may not be evaluated, and styles not be inserted. The way back loads pages as a whole.
const HTMX: &str = concat!(
    r#"{"allowEval":false,"includeIndicatorStyles":false,"selfRequestsOnly":true,"#,
    r#""historyCacheSize":0,"refreshOnHistoryMiss":true}"#
);

/// The document of a page.
pub(super) fn document(visit: &Visit, view: &View) -> Markup {
    let root = &visit.parts().root;
    let body = html! {
        a.skip href="#main" { "Skip to the page" }
        header.top {
            a.brand href=(root.home()) { (mark()) span { "wakeq" } }
            (find(visit))
            (canvas(visit))
            button.plain type="button" data-menu aria-expanded="false" aria-controls="nav" { "Menu" }
        }
        nav #nav aria-label="Pages" { (navigation(visit)) (person(visit)) }
        main #main tabindex="-1" {
            h1 { (view.title) }
            @if let Some(said) = &visit.parts().said { p.said role="status" { (said) } }
            (view.filter)
            div id=(RESULTS) { (results(view)) }
        }
        (help(visit))
    };
    whole(root, &titled(view), &body)
}

/// What a filter decides about on a page, with the title that goes with it.
pub(super) fn part(view: &View) -> Markup {
    html! { title { (titled(view)) } (results(view)) }
}

fn titled(view: &View) -> String {
    format!("{} · wakeq", view.title)
}

fn results(view: &View) -> Markup {
    html! {
        (view.above)
        @if let Some(live) = &view.live {
            p.watching { span data-watching { "Live" } " " button.plain type="button" data-pause { "Pause" } }
            div #live { (live) }
        }
        (view.below)
    }
}

/// A document without navigation: for those who are not signed in.
pub(super) fn bare(root: &Root, title: &str, contents: &Markup) -> Markup {
    let body = html! {
        main #main.bare { p.brand { (mark()) span { "wakeq" } } (contents) }
    };
    whole(root, &format!("{title} · wakeq"), &body)
}

fn whole(root: &Root, title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="htmx-config" content=(HTMX);
                title { (title) }
                link rel="icon" type="image/svg+xml" href=(root.path(&files::address("mark.svg")));
                link rel="stylesheet" href=(root.path(&files::address("style.css")));
                script src=(root.path(&files::address("theme.js"))) {}
                script src=(root.path(&files::address("htmx.min.js"))) defer {}
                script src=(root.path(&files::address("page.js"))) defer {}
            }
            body { (body) }
        }
    }
}

/// The mark: a sun on the horizon.
fn mark() -> Markup {
    html! { span.mark aria-hidden="true" { (PreEscaped(include_str!("assets/mark.svg"))) } }
}

/// The way to an event, for those who may list them.
fn find(visit: &Visit) -> Markup {
    html! {
        @if visit.may(Scope::Read) {
            form.find method="get" action=(visit.link(&["find"])) role="search" aria-label="Find an event" {
                label for="find" { "Find" }
                input #find name="q" size="24" placeholder="an event's id, or a tag" spellcheck="false"
                    autocomplete="off";
                button.plain type="submit" { "Find" }
            }
        }
    }
}

/// Where the person is, and a way to another canvas.
fn canvas(visit: &Visit) -> Markup {
    let id = visit.canvas().0.to_string();
    html! {
        form.canvas method="get" action=(visit.at_root("/go")) role="search" aria-label="Canvas" {
            label for="canvas" { "Canvas" }
            input #canvas name="canvas" value=(id) size="36" spellcheck="false" autocomplete="off";
            button.plain type="submit" { "Go" }
        }
    }
}

fn may_see(visit: &Visit, link: &Link) -> bool {
    match link.held {
        Held::OnCanvas => visit.may(link.scope),
        Held::OnSome => visit.may_on_some(link.scope),
        Held::Everywhere => visit.may_everywhere(link.scope),
        Held::Nowhere => true,
    }
}

fn navigation(visit: &Visit) -> Markup {
    let path = &visit.parts().path;
    let here = path.strip_prefix("/canvases/").map(|path| path.split('/').nth(1).unwrap_or_default());
    html! {
        @for group in visit.parts().page.sections {
            @if group.links.iter().any(|link| may_see(visit, link)) {
                section {
                    h2 { (group.heading) }
                    ul {
                        @for link in group.links.iter().filter(|link| may_see(visit, link)) {
                            @let target = if link.path.is_empty() { visit.link(&[]) } else { visit.link(&[link.path]) };
                            li {
                                a href=(target) data-key=(link.key)
                                    aria-current=[(Some(link.path) == here).then_some("page")] { (link.label) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Who is signed in, and the way out.
fn person(visit: &Visit) -> Markup {
    html! {
        section.person {
            p.quiet { "Signed in as " strong { (visit.name()) } }
            p { a href=(visit.at_root("/sessions")) { "Sessions" } }
            button.plain type="button" data-theme-switch { "Dark or light" }
            form method="post" action=(visit.at_root("/sign-out")) {
                button.plain type="submit" { "Sign out" }
            }
        }
    }
}

/// What the keys do; `?` opens it.
fn help(visit: &Visit) -> Markup {
    let links = visit.parts().page.sections.iter().flat_map(|group| group.links);
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keys" }
            dl.facts {
                dt { kbd { "/" } } dd { "search" }
                dt { kbd { "?" } } dd { "this list" }
                dt { kbd { "p" } } dd { "pause the numbers, or go on" }
                @for link in links.filter(|link| may_see(visit, link)) {
                    dt { kbd { "g" } " " kbd { (link.key) } } dd { (link.label) }
                }
            }
            form method="dialog" { button type="submit" { "Close" } }
        }
    }
}
