//! A request's query: the parameters of every Google API, and the fields of the request.

use percent_encoding::percent_decode_str;

/// The parameters of every Google API; each is either handled elsewhere or has no effect here.
const SYSTEM: &[&str] = &[
    "access_token",
    "alt",
    "callback",
    "fields",
    "key",
    "oauth_token",
    "prettyPrint",
    "quotaUser",
    "uploadType",
    "upload_protocol",
    "userProject",
    ".xgafv",
];

/// The parameters in their original order.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let parameters = text.split('&').filter(|part| !part.is_empty()).map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(name), decode(value))
        });
        Self(parameters.collect())
    }

    /// A system parameter; its name may be prefixed with a dollar sign.
    pub(super) fn system(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(given, _)| plain(given) == name)?;
        Some(value)
    }

    /// The parameters that are fields of the request.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.0.iter().filter(|(name, _)| !SYSTEM.contains(&plain(name)));
        fields.map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

fn plain(name: &str) -> &str {
    name.strip_prefix('$').unwrap_or(name)
}

fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_parameters_are_not_read_as_fields() {
        let query =
            Query::parse("$alt=json%3Benum-encoding%3Dint&pageSize=3&&$.xgafv=2&page_token=a+b%2B&key=k");
        assert_eq!(query.system("alt"), Some("json;enum-encoding=int"));
        assert_eq!(query.system("prettyPrint"), None);
        let fields: Vec<_> = query.fields().collect();
        assert_eq!(fields, [("pageSize", "3"), ("page_token", "a b+")]);
    }
}
