//! Circles in a graph of arrows: its strongly connected components of more than one node, by
//! Tarjan's algorithm.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Of each node, those that its arrows lead to; none to itself.
pub(super) type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The circles, each with all of its nodes. A node is in one at most.
pub(super) fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let mut search = Search { arrows, met: BTreeMap::new(), open: Vec::new(), circles: Vec::new() };
    for node in arrows.keys() {
        if !search.met.contains_key(node.as_str()) {
            search.visit(node);
        }
    }
    search.circles
}

/// The shortest way along the arrows from a node back to it, in one line.
pub(super) fn way(arrows: &Arrows, node: &str) -> String {
    let mut ways = VecDeque::from([vec![node]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let last = way.last().copied().unwrap_or(node);
        for next in arrows.get(last).into_iter().flatten() {
            let mut longer = way.clone();
            longer.push(next);
            if next == node {
                return longer.join(" -> ");
            }
            if seen.insert(next) {
                ways.push_back(longer);
            }
        }
    }
    String::new()
}

struct Search<'a> {
    arrows: &'a Arrows,
    /// The nodes that were met, each with its number.
    met: BTreeMap<&'a str, usize>,
    /// Those of them whose circle is not known yet, in the order in which they were met.
    open: Vec<&'a str>,
    circles: Vec<BTreeSet<String>>,
}

impl<'a> Search<'a> {
    /// Returns the lowest number of an open node that can be reached.
    fn visit(&mut self, node: &'a str) -> usize {
        let arrows = self.arrows;
        let number = self.met.len();
        self.met.insert(node, number);
        self.open.push(node);
        let mut lowest = number;
        for next in arrows.get(node).into_iter().flatten() {
            let next = next.as_str();
            match self.met.get(next).copied() {
                None => lowest = lowest.min(self.visit(next)),
                Some(met) if self.open.contains(&next) => lowest = lowest.min(met),
                Some(_) => {}
            }
        }
        if lowest == number {
            let first = self.open.iter().position(|open| *open == node).unwrap_or_default();
            let circle = self.open.split_off(first);
            if circle.len() > 1 {
                self.circles.push(circle.into_iter().map(str::to_owned).collect());
            }
        }
        lowest
    }
}

#[cfg(test)]
fn arrows(pairs: &[(&str, &str)]) -> Arrows {
    let mut arrows = Arrows::new();
    for (from, to) in pairs {
        arrows.entry((*from).to_owned()).or_default().insert((*to).to_owned());
    }
    arrows
}

#[track_caller]
fn check(pairs: &[(&str, &str)], expected: &[&[&str]]) {
    let mut found: Vec<Vec<String>> =
        circles(&arrows(pairs)).into_iter().map(|circle| circle.into_iter().collect()).collect();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_graph_without_a_circle_has_none() {
    check(&[], &[]);
    check(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")], &[]);
}

#[test]
fn circles_are_found_however_long_and_connected() {
    check(&[("a", "b"), ("b", "a")], &[&["a", "b"]]);
    check(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("d", "e")], &[&["b", "c", "d"]]);
    check(&[("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c")], &[&["a", "b"], &["c", "d"]]);
    check(&[("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"), ("d", "a")], &[&["a", "b", "c"]]);
    check(&[("a", "c"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "b")], &[&["b", "c", "d", "e"]]);
}

#[test]
fn the_way_around_is_the_shortest() {
    let arrows = arrows(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "b"), ("a", "d"), ("d", "a")]);
    assert_eq!(way(&arrows, "a"), "a -> d -> a");
    assert_eq!(way(&arrows, "c"), "c -> b -> c");
    assert_eq!(way(&arrows, "e"), "");
}
