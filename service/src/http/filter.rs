//! The query parameters by which events are selected: which there are, and how they are read.

use std::fmt::Display;
use std::str::FromStr;

use super::problem::Problem;

/// Parameters of which several may be given: after commas, or by repeating the parameter.
const SEVERAL: [&str; 2] = ["state", "tag"];

/// The filter of a query with the parameters that all of them have.
macro_rules! common_filter {
    ($query:ident) => {
        wakeq::control::EventFilter {
            modifier: $crate::http::filter::one($query.modifier.as_deref())?,
            tags: $crate::http::filter::several($query.tag.as_deref())?,
            emitted_since: $query.emitted_since,
            emitted_before: $query.emitted_before,
            error_text: $crate::http::filter::one($query.error_text.as_deref())?,
            value_text: $crate::http::filter::one($query.value_text.as_deref())?,
            value: $crate::http::filter::one($query.value.as_deref())?,
            ..wakeq::control::EventFilter::default()
        }
    };
}
pub(crate) use common_filter;

/// What a parameter says, if it is given.
pub(crate) fn one<T: FromStr<Err: Display>>(given: Option<&str>) -> Result<Option<T>, Problem> {
    given.map(str::parse).transpose().map_err(Problem::invalid)
}

/// What a parameter says of which several may be given.
pub(crate) fn several<T: FromStr<Err: Display>>(given: Option<&str>) -> Result<Vec<T>, Problem> {
    let values = given.into_iter().flat_map(|given| given.split(',')).map(str::parse);
    values.collect::<Result<_, _>>().map_err(Problem::invalid)
}

/// The query with such parameters given once, if any of them is repeated.
pub(super) fn gathered(query: &str) -> Option<String> {
    let pairs = || url::form_urlencoded::parse(query.as_bytes());
    if !SEVERAL.iter().any(|name| pairs().filter(|(given, _)| given == name).count() > 1) {
        return None;
    }
    let mut gathered = url::form_urlencoded::Serializer::new(String::new());
    gathered.extend_pairs(pairs().filter(|(given, _)| !SEVERAL.contains(&&**given)));
    for name in SEVERAL {
        let values: Vec<_> = pairs().filter(|(given, _)| given == name).map(|(_, value)| value).collect();
        if !values.is_empty() {
            gathered.append_pair(name, &values.join(","));
        }
    }
    Some(gathered.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeq::events::Tag;

    #[test]
    fn a_repeated_parameter_is_gathered() {
        assert_eq!(gathered("tag=a&limit=1&state=ready"), None);
        let query = gathered("tag=a&limit=1&tag=b%2Bc&cursor=x%26y").unwrap();
        assert_eq!(query, "limit=1&cursor=x%26y&tag=a%2Cb%2Bc");
        assert_eq!(gathered("limit=1&limit=2"), None, "what may be given once is refused later");
    }

    #[test]
    fn several_are_separated_by_commas() {
        let tags =
            |text| several::<Tag>(text).map(|tags| tags.iter().map(Tag::to_string).collect::<Vec<_>>());
        assert_eq!(tags(None).ok(), Some(Vec::new()));
        assert_eq!(tags(Some("a,b c")).ok(), Some(vec!["a".to_owned(), "b c".to_owned()]));
        assert!(tags(Some("a,,b")).is_err() && tags(Some("")).is_err());
    }
}
