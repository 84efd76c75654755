//! The paths of routes, like `/v1/{topic=projects/*/topics/*}:publish`, in the syntax of
//! `google.api.http`.

use percent_encoding::percent_decode_str;

use crate::proto::Route;

/// A route with its path parsed.
pub(super) struct Template {
    route: &'static Route,
    segments: Vec<Segment>,
    /// The request field that a part of the path is bound to, like `topic.name`.
    field: &'static str,
    /// The segments of that part.
    value: std::ops::Range<usize>,
    /// What follows the last segment's colon.
    verb: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Segment {
    Literal(&'static str),
    /// `*`
    One,
    /// `**`: any number of segments; always the last.
    Rest,
}

/// A request's path, matched to its route.
pub(super) struct Bound<'a> {
    pub(super) route: &'static Route,
    pub(super) field: &'a str,
    pub(super) value: String,
}

impl Template {
    pub(super) fn parse(route: &'static Route) -> Self {
        let (before, rest) = route.template.split_once('{').unwrap_or((route.template, ""));
        let (variable, after) = rest.split_once('}').unwrap_or((rest, ""));
        let (field, pattern) = variable.split_once('=').unwrap_or((variable, "*"));
        let (after, verb) = match after.rsplit_once(':') {
            Some((after, verb)) => (after, Some(verb)),
            None => (after, None),
        };
        let mut segments: Vec<Segment> = split(before).collect();
        let start = segments.len();
        segments.extend(split(pattern));
        let value = start..segments.len();
        segments.extend(split(after));
        Self { route, segments, field, value, verb }
    }

    pub(super) fn has_verb(&self) -> bool {
        self.verb.is_some()
    }

    /// Matches a request to this route, and extracts the field from its path.
    pub(super) fn bind(&self, method: &str, path: &str) -> Option<Bound<'_>> {
        if method != self.route.verb {
            return None;
        }
        let path = match self.verb {
            Some(verb) => path.strip_suffix(verb)?.strip_suffix(':')?,
            None => path,
        };
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let open = self.segments.last() == Some(&Segment::Rest);
        let enough =
            if open { parts.len() >= self.segments.len() } else { parts.len() == self.segments.len() };
        if !enough || !self.segments.iter().zip(&parts).all(|(segment, part)| segment.takes(part)) {
            return None;
        }
        let end = if open { parts.len() } else { self.value.end };
        let value = parts.get(self.value.start..end)?;
        let decoded: Option<Vec<_>> =
            value.iter().map(|part| percent_decode_str(part).decode_utf8().ok()).collect();
        Some(Bound { route: self.route, field: self.field, value: decoded?.join("/") })
    }
}

impl Segment {
    fn takes(self, part: &str) -> bool {
        match self {
            Self::Literal(text) => text == part,
            Self::One | Self::Rest => !part.is_empty(),
        }
    }
}

fn split(text: &'static str) -> impl Iterator<Item = Segment> {
    text.split('/').filter(|part| !part.is_empty()).map(|part| match part {
        "*" => Segment::One,
        "**" => Segment::Rest,
        literal => Segment::Literal(literal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(template: &'static str, path: &str) -> Option<(String, String)> {
        let route = Route { verb: "POST", template, body: "*", method: "" };
        let template = Template::parse(Box::leak(Box::new(route)));
        let bound = template.bind("POST", path)?;
        Some((bound.field.to_owned(), bound.value))
    }

    #[test]
    fn a_path_gives_its_variable() {
        let check = |template, path, field: &str, value: &str| {
            assert_eq!(bind(template, path), Some((field.to_owned(), value.to_owned())), "{path}");
        };
        check(
            "/v1/{topic=projects/*/topics/*}:publish",
            "/v1/projects/p/topics/t:publish",
            "topic",
            "projects/p/topics/t",
        );
        check("/v1/{project=projects/*}/topics", "/v1/projects/p/topics", "project", "projects/p");
        check(
            "/v1/{project=projects/*}/topics",
            "/v1/projects/a.com:p/topics",
            "project",
            "projects/a.com:p",
        );
        check(
            "/v1/{topic.name=projects/*/topics/*}",
            "/v1/projects/p/topics/a%2Bb%25",
            "topic.name",
            "projects/p/topics/a+b%",
        );
        check(
            "/v1/{resource=**}:setIamPolicy",
            "/v1/projects/p/x/y/z:setIamPolicy",
            "resource",
            "projects/p/x/y/z",
        );
    }

    #[test]
    fn other_paths_are_not_taken() {
        let refused = |template, path| assert_eq!(bind(template, path), None, "{path}");
        let publish = "/v1/{topic=projects/*/topics/*}:publish";
        refused(publish, "/v1/projects/p/topics/t");
        refused(publish, "/v1/projects/p/topics/t:pull");
        refused(publish, "/v1/projects/p/topics/:publish");
        refused(publish, "/v1/projects/p/topics/a/b:publish");
        refused(publish, "/v2/projects/p/topics/t:publish");
        refused(publish, "/v1/projects/p/topics/%ff:publish");
        refused("/v1/{resource=**}:setIamPolicy", "/v1/:setIamPolicy");
    }

    #[test]
    fn every_route_of_the_protos_can_be_taken_apart() {
        for route in crate::proto::ROUTES {
            let template = Template::parse(route);
            assert!(!template.field.is_empty() && !template.value.is_empty(), "{}", route.template);
            let last = template.segments.len() - 1;
            let rest = template.segments.iter().position(|segment| *segment == Segment::Rest);
            assert!(rest.is_none_or(|at| at == last), "{}", route.template);
        }
    }
}
