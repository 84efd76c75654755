//! The OpenID provider whose people sign in to the pages, from flags, environment or a file. The
//! client's secret is never printed.

use std::io::Read;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use super::MissingSetting;
use crate::access::OidcConfig;

/// Maximum size of a file with the secret.
const FILE_MAX_BYTES: u64 = 4096;

/// Where people sign in who have no key.
#[derive(Args, Clone)]
#[command(next_help_heading = "Signing in to the pages with OpenID")]
pub(crate) struct OidcArgs {
    /// Issuer of an OpenID provider, whose people may sign in to the pages: https://login.example
    #[arg(
        long,
        env = "WAKEQ_OIDC_ISSUER",
        hide_short_help = true,
        value_name = "URL",
        default_value = "",
        hide_default_value = true
    )]
    oidc_issuer: String,
    /// Id of the client that is registered there for wakeq
    #[arg(
        long,
        env = "WAKEQ_OIDC_CLIENT_ID",
        hide_short_help = true,
        value_name = "ID",
        default_value = "",
        hide_default_value = true
    )]
    oidc_client_id: String,
    /// Secret of that client, unless it is a public one
    #[arg(
        long,
        env = "WAKEQ_OIDC_CLIENT_SECRET",
        hide_env_values = true,
        hide_short_help = true,
        value_name = "SECRET",
        default_value = "",
        hide_default_value = true
    )]
    oidc_client_secret: String,
    /// File with this secret
    #[arg(long, env = "WAKEQ_OIDC_CLIENT_SECRET_FILE", hide_short_help = true, value_name = "FILE")]
    oidc_client_secret_file: Option<PathBuf>,
    /// Where the provider sends people back to: https://queue.example/sign-in/oidc/callback
    #[arg(
        long,
        env = "WAKEQ_OIDC_REDIRECT_URL",
        hide_short_help = true,
        value_name = "URL",
        default_value = "",
        hide_default_value = true
    )]
    oidc_redirect_url: String,
}

impl OidcArgs {
    /// The provider, if any of this is given. An empty variable counts as unset.
    pub(crate) fn provider(&self) -> anyhow::Result<Option<OidcConfig>> {
        let given =
            [&self.oidc_issuer, &self.oidc_client_id, &self.oidc_redirect_url].map(|text| text.trim());
        let [issuer, client_id, redirect_url] = given;
        let client_secret = self.client_secret()?;
        if given.iter().all(|text| text.is_empty()) && client_secret.is_none() {
            return Ok(None);
        }
        for (text, variable, example) in [
            (issuer, "WAKEQ_OIDC_ISSUER", "it is the URL of the provider, such as https://login.example"),
            (
                client_id,
                "WAKEQ_OIDC_CLIENT_ID",
                "the provider gives it to the client that you register for wakeq",
            ),
            (
                redirect_url,
                "WAKEQ_OIDC_REDIRECT_URL",
                "it is https://queue.example/sign-in/oidc/callback with your host, and registered at the provider",
            ),
        ] {
            if text.is_empty() {
                return Err(MissingSetting { variable, example }.into());
            }
        }
        let text = |text: &str| text.to_owned();
        Ok(Some(OidcConfig {
            issuer: text(issuer),
            client_id: text(client_id),
            client_secret,
            redirect_url: text(redirect_url),
        }))
    }

    fn client_secret(&self) -> anyhow::Result<Option<String>> {
        let file = self.oidc_client_secret_file.as_ref().filter(|file| !file.as_os_str().is_empty());
        match (self.oidc_client_secret.trim(), file) {
            ("", None) => Ok(None),
            (given, None) => Ok(Some(given.to_owned())),
            ("", Some(file)) => {
                let mut text = String::new();
                let read = std::fs::File::open(file)
                    .and_then(|opened| opened.take(FILE_MAX_BYTES).read_to_string(&mut text));
                read.with_context(|| format!("read the secret of the OIDC client from {}", file.display()))?;
                // Some editors write a byte order mark.
                let secret = text.trim_start_matches('\u{feff}').trim();
                anyhow::ensure!(
                    !secret.is_empty(),
                    "{} has no secret of an OIDC client: it is empty",
                    file.display()
                );
                Ok(Some(secret.to_owned()))
            }
            (_, Some(_)) => anyhow::bail!(
                "WAKEQ_OIDC_CLIENT_SECRET and WAKEQ_OIDC_CLIENT_SECRET_FILE (--oidc-client-secret, \
                 --oidc-client-secret-file) are both given: give one"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(issuer: &str, client_id: &str, secret: &str, redirect_url: &str) -> OidcArgs {
        OidcArgs {
            oidc_issuer: issuer.into(),
            oidc_client_id: client_id.into(),
            oidc_client_secret: secret.into(),
            oidc_client_secret_file: None,
            oidc_redirect_url: redirect_url.into(),
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(given("", " ", "", "").provider().unwrap(), None);
        let whole = given("https://login.example", "wakeq", "s", "https://q.example/sign-in/oidc/callback");
        let provider = whole.provider().unwrap().unwrap();
        assert_eq!((provider.client_id.as_str(), provider.client_secret.as_deref()), ("wakeq", Some("s")));
        for (args, variable) in [
            (given("", "wakeq", "", "https://q.example"), "WAKEQ_OIDC_ISSUER"),
            (given("https://login.example", "", "", "https://q.example"), "WAKEQ_OIDC_CLIENT_ID"),
            (given("https://login.example", "wakeq", "", ""), "WAKEQ_OIDC_REDIRECT_URL"),
            (given("", "", "secret", ""), "WAKEQ_OIDC_ISSUER"),
        ] {
            let error = args.provider().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{variable} is not set: ")), "{error}");
        }
    }

    #[test]
    fn the_secret_may_be_in_a_file() {
        let file = std::env::temp_dir().join(format!("wakeq-oidc-secret-{}", std::process::id()));
        let mut args = given("https://login.example", "wakeq", "", "https://q.example/sign-in/oidc/callback");
        args.oidc_client_secret_file = Some(file.clone());
        std::fs::write(&file, "\u{feff}of the client\n").unwrap();
        let provider = args.provider().unwrap().unwrap();
        assert_eq!(provider.client_secret.as_deref(), Some("of the client"));
        std::fs::write(&file, "\n").unwrap();
        let empty = args.provider().unwrap_err().to_string();
        assert!(empty.ends_with("it is empty"), "{empty}");
        args.oidc_client_secret = "another".into();
        let both = args.provider().unwrap_err().to_string();
        assert!(both.contains("both given") && !both.contains("another"), "{both}");
        std::fs::remove_file(&file).unwrap();
        args.oidc_client_secret = String::new();
        assert!(args.provider().is_err());
    }
}
