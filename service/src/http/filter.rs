//! The query parameters by which events are selected: which there are, and how they are read.

use std::fmt::Display;
use std::str::FromStr;

use super::problem::Problem;

/// Parameters of which several may be given: after commas, or by repeating the parameter.
const SEVERAL: [&str; 2] = ["state", "tag"];

/// A query with the parameters by which every list of events is filtered. Those that it has before
/// and after them are given. The caller has `DateTime` and `Utc` in scope.
macro_rules! event_query {
    ($(#[$about:meta])* $name:ident { $($before:tt)* } .. { $($after:tt)* }) => {
        $(#[$about])*
        #[derive(serde::Deserialize, utoipa::IntoParams)]
        #[into_params(parameter_in = Query)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($before)*
            /// Only events of handlers with this modifier.
            #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
            modifier: Option<String>,
            /// Only events that have this tag. Of several, separated by commas or in repeated
            /// parameters, all of them.
            #[param(max_length = 1009, example = "customer:7")]
            tag: Option<String>,
            /// Only events on this object, in their order on it.
            #[param(max_length = 200, example = "work:1")]
            object: Option<String>,
            /// Only members of this batch.
            #[param(max_length = 255, example = "import:42")]
            batch: Option<String>,
            /// Only events that were emitted at or after this time.
            emitted_since: Option<DateTime<Utc>>,
            /// Only events that were emitted before this time.
            emitted_before: Option<DateTime<Utc>>,
            /// Only events whose last error contains this text.
            #[param(max_length = 200)]
            error_text: Option<String>,
            /// Only events whose value contains this text, as it was emitted.
            #[param(max_length = 200)]
            value_text: Option<String>,
            /// Only events whose value has a scalar at a path: `$.customer.id = "7"`.
            #[param(max_length = 4000)]
            value: Option<String>,
            $($after)*
        }
    };
}
pub(crate) use event_query;

/// The filter of such a query, as far as its common parameters go.
macro_rules! common_filter {
    ($query:ident) => {
        wakeq::control::EventFilter {
            modifier: $crate::http::filter::one($query.modifier.as_deref())?,
            tags: $crate::http::filter::several($query.tag.as_deref())?,
            object: $crate::http::filter::one($query.object.as_deref())?,
            batch: $crate::http::filter::one($query.batch.as_deref())?,
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
