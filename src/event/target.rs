//! HTTP targets: their URL, secrets and policy, validated as far as possible without any
//! configuration. Does not resolve names or send anything; what a deployment refuses beyond this is
//! up to `delivery`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use url::{Host, Url};

use super::{Keep, TargetHeaders};

/// A handler that is reached over HTTP.
#[derive(Clone, Debug)]
pub struct Target {
    /// The URL to which its events are sent.
    pub url: TargetUrl,
    /// Retries, timeouts and concurrency.
    pub policy: TargetPolicy,
    /// The audience of the OIDC token that is sent with each request. Without it no token is sent.
    pub audience: Option<String>,
    /// The secrets that its requests are signed with.
    pub secrets: Secrets,
    /// The headers that it adds to its requests. A token takes the place of an `authorization`.
    pub headers: TargetHeaders,
}

/// The URL of a target: `http` or `https`, with a host, without user, password and fragment.
///
/// It is stored normalized: a host in any notation of IPv4, or any script, has a single spelling.
///
/// ```
/// use wakeq::targets::TargetUrl;
///
/// let url: TargetUrl = "https://Shop.example/events?source=queue".parse().unwrap();
/// assert_eq!(url.as_str(), "https://shop.example/events?source=queue");
/// let hidden: TargetUrl = "http://0x7f.1/".parse().unwrap();
/// assert_eq!(hidden.as_str(), "http://127.0.0.1/");
/// assert!("https://user:password@shop.example/".parse::<TargetUrl>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetUrl(Url);

/// Why a text can't be the URL of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTargetUrl {
    /// Longer than 2,048 bytes, as given or in normalized form.
    #[error("a target's URL must have at most {} bytes", TargetUrl::BYTES_MAX)]
    TooLong,
    /// Contains whitespace, control characters or backslashes, which programs treat differently.
    #[error(
        "a target's URL must not contain whitespace, control characters or backslashes: \
         percent-encode them (%20 and so on)"
    )]
    Character,
    /// Not a URL.
    #[error("not a valid URL ({0}): it should look like https://host/path")]
    Unreadable(url::ParseError),
    /// A scheme other than `http` and `https`.
    #[error("a target's URL must begin with https:// or http://")]
    Scheme,
    /// No host, or a name too long for any resolver.
    #[error("a target's URL must name a host, of at most 253 bytes")]
    Host,
    /// Contains a user or a password.
    #[error(
        "a target's URL must not contain a user or password: verify the signatures of its requests instead"
    )]
    Credentials,
    /// Contains a fragment.
    #[error("a target's URL must not contain a fragment (#…): it would not be sent")]
    Fragment,
}

impl TargetUrl {
    /// Longest URL, in bytes.
    pub const BYTES_MAX: usize = 2048;
    const HOST_BYTES_MAX: usize = 253;

    /// The whole URL.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether requests to it use TLS.
    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The host: a name or an address.
    pub fn host(&self) -> Host<&str> {
        // URLs of these schemes always have a host, and parsing checked it.
        self.0.host().unwrap_or(Host::Domain(""))
    }

    /// The port: the URL's own, or else the scheme's default.
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or_default()
    }

    /// Scheme, host, and the port unless it is the scheme's default: `https://shop.example`.
    pub fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }
}

impl FromStr for TargetUrl {
    type Err = InvalidTargetUrl;

    fn from_str(text: &str) -> Result<Self, InvalidTargetUrl> {
        if text.len() > Self::BYTES_MAX {
            return Err(InvalidTargetUrl::TooLong);
        }
        if text
            .chars()
            .any(|character| character.is_whitespace() || character.is_control() || character == '\\')
        {
            return Err(InvalidTargetUrl::Character);
        }
        let url = Url::parse(text).map_err(InvalidTargetUrl::Unreadable)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(InvalidTargetUrl::Scheme);
        }
        let host_bytes = url.host_str().unwrap_or_default().trim_end_matches('.').len();
        if !(1..=Self::HOST_BYTES_MAX).contains(&host_bytes) {
            return Err(InvalidTargetUrl::Host);
        }
        // The text is searched too: parsing drops an empty user or password, but one was intended.
        let authority = text.split_once("//").map_or(text, |(_, rest)| rest);
        let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
        if !url.username().is_empty() || url.password().is_some() || authority.contains('@') {
            return Err(InvalidTargetUrl::Credentials);
        }
        if url.fragment().is_some() {
            return Err(InvalidTargetUrl::Fragment);
        }
        if url.as_str().len() > Self::BYTES_MAX {
            return Err(InvalidTargetUrl::TooLong);
        }
        Ok(Self(url))
    }
}

displayed_as_text!(TargetUrl);

/// A key for signing requests, in the format of Standard Webhooks: 24 to 64 bytes. Printed only by
/// [`Secret::reveal`].
///
/// ```
/// use wakeq::targets::Secret;
///
/// let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
/// assert_eq!(format!("{secret:?}"), "Secret(24 bytes)");
/// assert_eq!(secret.reveal(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
/// ```
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// A text or row that is not a secret. The error repeats nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret is `whsec_` followed by 24 to 64 bytes in base64: omit it to have one generated")]
pub struct InvalidSecret;

/// The operating system provided no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system provided no random numbers: no secret was generated")]
pub struct NoSecret;

impl Secret {
    const PREFIX: &str = "whsec_";
    const GENERATED_BYTES: usize = 32;

    /// Generates a secret of 256 random bits.
    pub fn generate() -> Result<Self, NoSecret> {
        let mut bytes = vec![0; Self::GENERATED_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| NoSecret)?;
        Ok(Self(bytes))
    }

    /// A secret of these bytes, 24 to 64.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, InvalidSecret> {
        if (24..=64).contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(InvalidSecret) }
    }

    /// The bytes: the key of the signature.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The whole secret as text, `whsec_…`. Only for the party that verifies the signatures.
    pub fn reveal(&self) -> String {
        format!("{}{}", Self::PREFIX, STANDARD.encode(&self.0))
    }
}

impl FromStr for Secret {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let bytes = text.strip_prefix(Self::PREFIX).ok_or(InvalidSecret)?;
        Self::from_bytes(STANDARD.decode(bytes).map_err(|_| InvalidSecret)?)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({} bytes)", self.0.len())
    }
}

/// The secrets that a request is signed with: two while the previous one is still valid.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// The current secret.
    pub current: Secret,
    /// The secret before it, while that is still valid.
    pub previous: Option<Secret>,
}

/// How a target is called and retried.
///
/// ```
/// let policy = wakeq::targets::TargetPolicy::default();
/// assert_eq!((policy.retries, policy.timeout.as_secs(), policy.concurrency), (2, 30, None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPolicy {
    /// Retries after the first failure. Default 2.
    pub retries: u32,
    /// Delay after the first failure. Default 5 min.
    pub delay: Duration,
    /// Factor between consecutive delays. Default 1.
    pub factor: u32,
    /// Longest delay, and longest `Retry-After` that is honoured. Default 24 h.
    pub delay_max: Duration,
    /// How long a request may take before it counts as failed. Default 30 s, 10 min at most.
    pub timeout: Duration,
    /// Maximum number of concurrent requests from one worker, within the canvas's share. Default:
    /// only that share limits them.
    pub concurrency: Option<u32>,
    /// Whether the death of an event halts the later events of its object. Default: no.
    pub halts: bool,
    /// For how long an event is kept after it has ended, in whole seconds. Its result is the body
    /// of the target's answer, if that is JSON of at most 65,536 bytes. Default: not at all.
    pub keep: Keep,
}

impl Default for TargetPolicy {
    fn default() -> Self {
        Self {
            retries: 2,
            delay: Duration::from_secs(300),
            factor: 1,
            delay_max: Duration::from_secs(24 * 3600),
            timeout: Duration::from_secs(30),
            concurrency: None,
            halts: false,
            keep: Keep::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> InvalidTargetUrl {
        text.parse::<TargetUrl>().map(|url| url.to_string()).unwrap_err()
    }

    #[test]
    fn urls_are_normalized() {
        for (text, form, origin) in [
            ("HTTPS://Shop.Example:443/a/../b?x=1", "https://shop.example/b?x=1", "https://shop.example"),
            ("http://h:8080", "http://h:8080/", "http://h:8080"),
            ("https://münchen.example/", "https://xn--mnchen-3ya.example/", "https://xn--mnchen-3ya.example"),
            ("http://0177.0.0.1", "http://127.0.0.1/", "http://127.0.0.1"),
            ("http://①②⑦.⓪.⓪.①/", "http://127.0.0.1/", "http://127.0.0.1"),
            ("http://[::FFFF:127.0.0.1]:81/", "http://[::ffff:7f00:1]:81/", "http://[::ffff:7f00:1]:81"),
            ("https://a.example/?mail=x@y", "https://a.example/?mail=x@y", "https://a.example"),
        ] {
            let url: TargetUrl = text.parse().unwrap();
            assert_eq!((url.as_str(), url.origin().as_str()), (form, origin), "{text}");
            assert_eq!(url.as_str().parse(), Ok(url.clone()), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_target_urls() {
        let long = format!("https://a.example/{}", "x".repeat(2048));
        let long_host = format!("https://{}.example/", vec!["x".repeat(60); 5].join("."));
        for (text, reason) in [
            (long.as_str(), InvalidTargetUrl::TooLong),
            (&long_host, InvalidTargetUrl::Host),
            ("https://a.example/ x", InvalidTargetUrl::Character),
            ("https://a.example/\u{a0}", InvalidTargetUrl::Character),
            ("https://a.example\\@b.example/", InvalidTargetUrl::Character),
            ("ftp://a.example/", InvalidTargetUrl::Scheme),
            ("file:///etc/passwd", InvalidTargetUrl::Scheme),
            ("https://user@a.example/", InvalidTargetUrl::Credentials),
            ("https://@a.example/", InvalidTargetUrl::Credentials),
            ("https://:@a.example/", InvalidTargetUrl::Credentials),
            ("https://a.example/#part", InvalidTargetUrl::Fragment),
            ("https://", InvalidTargetUrl::Unreadable(url::ParseError::EmptyHost)),
            ("a.example", InvalidTargetUrl::Unreadable(url::ParseError::RelativeUrlWithoutBase)),
            ("http://1.2.3.4.5/", InvalidTargetUrl::Unreadable(url::ParseError::InvalidIpv4Address)),
            ("http://[fe80::1%25eth0]/", InvalidTargetUrl::Unreadable(url::ParseError::InvalidIpv6Address)),
        ] {
            assert_eq!(refused(text), reason, "{text}");
        }
    }

    #[test]
    fn secrets_have_a_minimum_length_and_are_hidden_in_debug_output() {
        let made = Secret::generate().unwrap();
        let again: Secret = made.reveal().parse().unwrap();
        assert_eq!((again.as_bytes(), made.as_bytes().len()), (made.as_bytes(), 32));
        let secrets = Secrets { current: made.clone(), previous: Some(again) };
        assert!(!format!("{secrets:?}").contains(&made.reveal()[6..]));
        let of = |length: usize| format!("whsec_{}", STANDARD.encode(vec![7; length]));
        assert!(of(24).parse::<Secret>().is_ok() && of(64).parse::<Secret>().is_ok());
        for text in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!", &of(23), &of(65)] {
            assert_eq!(text.parse::<Secret>().unwrap_err(), InvalidSecret, "{text}");
        }
    }
}
