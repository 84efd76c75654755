//! Links of a built site: whether each leads to a file in it, and to an anchor there.
//!
//! It knows what mdBook writes, and is not a parser of HTML. It must never follow a link out of the
//! site.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::links;

/// What a page says of itself.
#[derive(Debug, Default, PartialEq)]
struct Page {
    links: BTreeSet<String>,
    anchors: BTreeSet<String>,
}

/// Fails with every link of the site in a folder that leads nowhere.
pub(crate) fn check(folder: &Path) -> Result<()> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(path) = folders.pop() {
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let name = path.strip_prefix(folder)?.to_string_lossy().into_owned();
                pages.insert(name, Page::of(&fs::read_to_string(&path)?));
            }
        }
    }
    let complaints = complaints(&pages, |file| folder.join(file).is_file());
    ensure!(complaints.is_empty(), "links that lead nowhere:\n{}", complaints.join("\n"));
    let links: usize = pages.values().map(|page| page.links.len()).sum();
    ensure!(links > 0, "{} has no links", folder.display());
    println!("{links} links on {} pages lead to a file and an anchor, or out of the site", pages.len());
    Ok(())
}

impl Page {
    fn of(html: &str) -> Self {
        let mut page = Self::default();
        let mut rest = html;
        while let Some((_, after)) = rest.split_once('<') {
            let (tag, after) = after.split_once('>').unwrap_or((after, ""));
            // Text of scripts and comments is not of the page.
            let end = if tag.starts_with("!--") { "-->" } else { "</script>" };
            let is_skipped = tag.starts_with("!--") && !tag.ends_with("--") || tag.starts_with("script");
            rest = if is_skipped { after.split_once(end).map_or("", |(_, after)| after) } else { after };
            if tag.starts_with("!--") || tag.starts_with("base ") {
                continue;
            }
            let tag = tag.replace(['\n', '\t'], " ");
            for name in [" href=\"", " src=\""] {
                page.links.extend(attribute(&tag, name));
            }
            page.anchors.extend(attribute(&tag, " id=\""));
        }
        page
    }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, value) = tag.split_once(name)?;
    value.split('"').next().map(|value| value.replace("&amp;", "&"))
}

fn complaints(pages: &BTreeMap<String, Page>, is_file: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, page) in pages {
        let inside = page.links.iter().filter(|link| !link.contains(':') && !link.starts_with("//"));
        for link in inside {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = path.split('?').next().unwrap_or_default();
            let file = if path.is_empty() { name.clone() } else { links::resolve(name, path) };
            if !is_file(&file) {
                complaints.push(format!("{name}: nothing is at {link}"));
            } else if !anchor.is_empty()
                && !pages.get(&file).is_some_and(|page| page.anchors.contains(anchor))
            {
                complaints.push(format!("{name}: {file} has no anchor for {link}"));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_anchors_are_those_of_tags() {
        let html = "<base href=\"/x/\"><h2 id=\"a\"><a class=\"b\" href=\"#a\">href=\"c\"</a></h2>\n\
                    <!-- <a href=\"d\"> --><!----><script src=\"e.js\">f('<a href=\"g\">')</script>\
                    <a\nid=\"h\" href=\"i.html?j&amp;k\">";
        let page = Page::of(html);
        assert_eq!(page.links, BTreeSet::from(["#a", "e.js", "i.html?j&k"].map(str::to_owned)));
        assert_eq!(page.anchors, BTreeSet::from(["a", "h"].map(str::to_owned)));
    }

    #[test]
    fn links_to_no_file_and_to_no_anchor_are_found() {
        let pages = [
            (
                "a.html",
                "<a id=\"b\" href=\"#b\"><a href=\"docs/c.html?q#d\"><a href=\"#e\"><a href=\"docs/f.md\">",
            ),
            (
                "docs/c.html",
                "<i id=\"d\"><a href=\"../a.html#b\"><a href=\"../g.css#b\"><a href=\"https://x.example/#y\">",
            ),
        ];
        let pages = pages.map(|(name, html)| (name.to_owned(), Page::of(html))).into();
        let found = complaints(&pages, |file| ["a.html", "docs/c.html", "g.css"].contains(&file));
        assert_eq!(
            found,
            [
                "a.html: a.html has no anchor for #e",
                "a.html: nothing is at docs/f.md",
                "docs/c.html: g.css has no anchor for ../g.css#b",
            ]
        );
    }
}
