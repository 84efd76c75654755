//! The addresses at which pages can be looked at, as the lists in the program's source have them.

use std::collections::BTreeSet;

use crate::support::repository::root;

/// The lists: the pages of canvases, and those around them.
const LISTS: [&str; 2] = ["service/src/pages.rs", "service/src/page/serve.rs"];

/// Addresses with names in braces, as in `/canvases/{canvas}/events/{id}`.
pub(crate) struct Routes(Vec<String>);

impl Routes {
    pub(crate) fn read() -> Self {
        let source = LISTS.map(|list| std::fs::read_to_string(root().join(list)).unwrap()).concat();
        let routes = source.split(".route(").skip(1).filter_map(|route| {
            // That of the provider's answer is a constant. It leads away at once.
            let (address, methods) = route.trim_start().strip_prefix('"')?.split_once('"')?;
            methods.contains(" get(").then(|| address.to_owned())
        });
        let routes = Self(routes.collect());
        assert!(routes.0.len() > 80, "the lists are written otherwise now: {:?}", routes.0);
        routes
    }

    /// The address of a page, with names for what it is about.
    pub(crate) fn of(&self, path: &str) -> Option<&str> {
        let fitting = self.0.iter().filter(|route| fits(route, path));
        // What is written out comes before a name, and a name before the rest of a path.
        let nearest = fitting.min_by_key(|route| (route.contains("{*"), route.matches('{').count()));
        nearest.map(String::as_str)
    }

    /// Those that are not among these.
    pub(crate) fn beside(&self, met: &BTreeSet<String>) -> BTreeSet<&str> {
        self.0.iter().filter(|route| !met.contains(*route)).map(String::as_str).collect()
    }
}

fn fits(route: &str, path: &str) -> bool {
    let (mut names, mut parts) = (route.split('/'), path.split('/'));
    loop {
        match (names.next(), parts.next()) {
            (Some(name), Some(_)) if name.starts_with("{*") => return true,
            (Some(name), Some(part)) if name == part => {}
            (Some(name), Some(part)) if name.starts_with('{') && !part.is_empty() => {}
            (name, part) => return name.is_none() && part.is_none(),
        }
    }
}

#[test]
fn a_path_is_found_at_the_nearest_address() {
    let routes = Routes::read();
    for (path, route) in [
        ("/canvases/7", Some("/canvases/{canvas}")),
        ("/canvases/7/operations/new", Some("/canvases/{canvas}/operations/new")),
        ("/canvases/7/operations/8", Some("/canvases/{canvas}/operations/{operation}")),
        ("/canvases/7/entities/status/8", Some("/canvases/{canvas}/entities/status/{id}")),
        ("/canvases/7/entities/account/8", Some("/canvases/{canvas}/entities/{type}/{entity}")),
        ("/canvases/7/nowhere/8/9", Some("/canvases/{canvas}/{*rest}")),
        ("/sign-in", Some("/sign-in")),
        ("/v1/canvases", None),
    ] {
        assert_eq!(routes.of(path), route, "{path}");
    }
    // A route that only changes something does not show a page.
    assert!(!routes.0.iter().any(|route| route.ends_with("/run-now") || route == "/sign-out"));
}
