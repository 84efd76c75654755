//! Headers of their own on HTTP targets: names and values that a receiver asks for, such as a key
//! of its own. Plain data, whose values are never printed.

use std::fmt;

/// Names that are refused: what wakeq sends itself, what concerns the connection or the message,
/// and what proxies, metadata services and frameworks obey instead of the application.
const RESERVED: [&str; 25] = [
    "cf-connecting-ip",
    "connection",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "metadata",
    "metadata-flavor",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "user-agent",
    "via",
    "x-client-ip",
    "x-host",
    "x-http-method",
    "x-method-override",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
];
/// Beginnings of names that are refused for the same reasons.
const RESERVED_PREFIXES: [&str; 10] = [
    "ce-",
    "content-",
    "proxy-",
    "wakeq-",
    "webhook-",
    "x-aws-ec2-metadata-",
    "x-forwarded-",
    "x-google-metadata-",
    "x-http-method-",
    "x-real-",
];
/// Where a token goes, if the target has an audience.
const AUTHORIZATION: &str = "authorization";

/// The headers that a target adds to its requests, besides those that wakeq sends: up to 20, of up
/// to 8 KiB together. Names are in lower case. Values are printed only by
/// [`TargetHeaders::iter`].
///
/// ```
/// use wakeq::targets::TargetHeaders;
///
/// let headers = TargetHeaders::new([("X-Api-Key", "s3cr3t")]).unwrap();
/// assert_eq!(headers.names().collect::<Vec<_>>(), ["x-api-key"]);
/// assert_eq!(format!("{headers:?}"), "TargetHeaders(x-api-key)");
/// assert!(TargetHeaders::new([("Host", "a.example")]).is_err());
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TargetHeaders(Vec<(String, String)>);

/// Why headers can't be those of a target. The error repeats no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHeaders {
    /// More than 20.
    #[error("a target has at most {} headers of its own: leave some out", TargetHeaders::COUNT_MAX)]
    TooMany,
    /// More than 8 KiB together.
    #[error("the headers of a target have at most {} bytes together: shorten them", TargetHeaders::BYTES_MAX)]
    TooLong,
    /// A text that can't be the name of a header.
    #[error(
        "a header's name has 1 to {} of the characters A-Z a-z 0-9 ! # $ % & ' * + - . ^ _ ` | ~",
        TargetHeaders::NAME_BYTES_MAX
    )]
    Name,
    /// The same name twice, in whatever case.
    #[error("the header {0} is given twice: a target sends each once")]
    Twice(String),
    /// A name that a target may not set.
    #[error(
        "the header {0} can't be set: wakeq sends it itself, or it is for connections, proxies or metadata services"
    )]
    Reserved(String),
    /// A value that can't be sent.
    #[error(
        "the value of the header {0} must have 1 to {max} visible ASCII characters, and blanks only between them",
        max = TargetHeaders::VALUE_BYTES_MAX
    )]
    Value(String),
}

impl TargetHeaders {
    /// Maximum number of headers.
    pub const COUNT_MAX: usize = 20;
    /// Longest name, in bytes.
    pub const NAME_BYTES_MAX: usize = 128;
    /// Longest value, in bytes.
    pub const VALUE_BYTES_MAX: usize = 4096;
    /// Maximum size of all names and values together, in bytes.
    pub const BYTES_MAX: usize = 8192;

    /// Checks names and values. A name may be given once, in any case.
    pub fn new<N: AsRef<str>, V: Into<String>>(
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidHeaders> {
        let mut checked: Vec<(String, String)> = Vec::new();
        let mut size_bytes = 0;
        for (name, value) in headers {
            if checked.len() == Self::COUNT_MAX {
                return Err(InvalidHeaders::TooMany);
            }
            let name = checked_name(name.as_ref())?;
            if checked.iter().any(|(earlier, _)| *earlier == name) {
                return Err(InvalidHeaders::Twice(name));
            }
            let value = value.into();
            if !is_value(&value) {
                return Err(InvalidHeaders::Value(name));
            }
            size_bytes += name.len() + value.len();
            checked.push((name, value));
        }
        if size_bytes > Self::BYTES_MAX { Err(InvalidHeaders::TooLong) } else { Ok(Self(checked)) }
    }

    /// The names, in lower case and in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Names and values. Only for sending them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them is where the token of a target with an audience goes.
    pub(crate) fn has_authorization(&self) -> bool {
        self.names().any(|name| name == AUTHORIZATION)
    }

    /// As they are encrypted: a line for each header. No name has a colon, and no value a line
    /// break.
    pub(crate) fn encoded(&self) -> Vec<u8> {
        let lines: Vec<String> = self.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        lines.join("\n").into_bytes()
    }

    /// Reads what was encrypted; `None` if wakeq did not write it.
    pub(crate) fn decoded(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let headers: Option<Vec<_>> = text.lines().map(|line| line.split_once(':')).collect();
        Self::new(headers?).ok()
    }
}

impl fmt::Debug for TargetHeaders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TargetHeaders({})", self.names().collect::<Vec<_>>().join(", "))
    }
}

fn checked_name(text: &str) -> Result<String, InvalidHeaders> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !(1..=TargetHeaders::NAME_BYTES_MAX).contains(&text.len()) || !text.bytes().all(is_token) {
        return Err(InvalidHeaders::Name);
    }
    let name = text.to_ascii_lowercase();
    // Servers that pass headers on in variables take these characters for the same.
    let alike = name.replace(['_', '.'], "-");
    let is_reserved = RESERVED.contains(&alike.as_str())
        || RESERVED_PREFIXES.iter().any(|prefix| alike.starts_with(prefix));
    if is_reserved { Err(InvalidHeaders::Reserved(name)) } else { Ok(name) }
}

fn is_value(text: &str) -> bool {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~');
    (1..=TargetHeaders::VALUE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(is_plain)
        && text.trim_matches(' ').len() == text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(headers: &[(&str, &str)]) -> InvalidHeaders {
        TargetHeaders::new(headers.iter().copied()).unwrap_err()
    }

    #[test]
    fn headers_are_read_back_as_they_were_encrypted() {
        let long = "x".repeat(4096);
        for headers in [
            vec![],
            vec![("Authorization", "Basic YTpi")],
            vec![("X-A", "a: b"), ("x.b", "1 2 3"), ("Cookie", long.as_str())],
        ] {
            let headers = TargetHeaders::new(headers).unwrap();
            assert_eq!(TargetHeaders::decoded(&headers.encoded()), Some(headers.clone()));
        }
        for foreign in [&b"\xff"[..], b"no colon", b"host:a", b"x-a:1\nx-a:2"] {
            assert_eq!(TargetHeaders::decoded(foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn names_that_are_not_the_applications_are_reserved() {
        let names = "Host content-length Content-Type TRANSFER-ENCODING connection Keep-Alive Upgrade TE \
                     Proxy-Authorization webhook-signature ce-type wakeq-attempt traceparent X-Forwarded-For \
                     Forwarded Metadata-Flavor X-aws-ec2-metadata-token X-HTTP-Method-Override User-Agent \
                     X_Forwarded_For x.forwarded.host Content_Length wakeq_attempt x-real_ip True-Client-IP \
                     X-Client-IP CF-Connecting-IP X-Original-Host X-Host";
        for name in names.split_whitespace() {
            let expected = InvalidHeaders::Reserved(name.to_ascii_lowercase());
            assert_eq!(refused(&[(name, "1")]), expected, "{name}");
        }
        assert!(TargetHeaders::new([("x-hostname", "1"), ("cettes", "1"), ("Authorization", "x")]).is_ok());
    }

    #[test]
    fn rejects_what_can_not_be_sent_without_repeating_a_value() {
        let (long, name) = ("s".repeat(4097), "n".repeat(129));
        for (headers, words) in [
            (vec![("", "s3cr3t")], "name has 1 to 128"),
            (vec![("x y", "s3cr3t")], "name has 1 to 128"),
            (vec![("x-a: s3cr3t", "s3cr3t")], "name has 1 to 128"),
            (vec![(&*name, "s3cr3t")], "name has 1 to 128"),
            (vec![("x-a", "")], "the value of the header x-a"),
            (vec![("x-a", " s3cr3t")], "the value of the header x-a"),
            (vec![("x-a", "s3cr3t\r\nhost: a")], "the value of the header x-a"),
            (vec![("x-a", "s3cr3té")], "the value of the header x-a"),
            (vec![("x-a", &*long)], "1 to 4096 visible"),
            (vec![("x-a", "s3cr3t"), ("X-A", "s3cr3t")], "x-a is given twice"),
        ] {
            let refused = refused(&headers).to_string();
            assert!(refused.contains(words) && !refused.contains("s3cr3t"), "{refused}");
        }
        let many: Vec<_> = (0..21).map(|number| (format!("x-{number}"), "1")).collect();
        assert!(TargetHeaders::new(many[..20].to_vec()).is_ok());
        assert_eq!(TargetHeaders::new(many), Err(InvalidHeaders::TooMany));
        let full = "s".repeat(4093);
        let two = [("x-a", full.as_str()), ("x-b", full.as_str())];
        assert!(TargetHeaders::new(two).is_ok());
        assert_eq!(TargetHeaders::new(two.into_iter().chain([("x", "1")])), Err(InvalidHeaders::TooLong));
    }
}
