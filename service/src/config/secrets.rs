//! The keys that encrypt the signing secrets of targets, from flags, environment or a file. They
//! are never printed.

use std::io::Read;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use wakeq::targets::SecretKeys;

/// Maximum size of a file with keys.
const FILE_MAX_BYTES: u64 = 4096;

/// The deployment's keys for signing secrets.
#[derive(Args, Clone)]
#[command(next_help_heading = "Signing secrets of HTTP targets")]
pub(crate) struct SecretArgs {
    /// Keys that encrypt signing secrets in the database: 32 bytes in base64 or hex; the first
    /// encrypts, all decrypt
    #[arg(
        long,
        env = "WAKEQ_SECRET_KEY",
        hide_env_values = true,
        global = true,
        default_value = "",
        hide_default_value = true,
        value_name = "KEYS"
    )]
    secret_key: String,
    /// File with these keys
    #[arg(long, env = "WAKEQ_SECRET_KEY_FILE", global = true, value_name = "FILE", hide_short_help = true)]
    secret_key_file: Option<PathBuf>,
    /// Accept signing secrets in plain text, and without a key store them in plain text
    #[arg(long, env = "WAKEQ_ALLOW_PLAIN_SECRETS", global = true, num_args = 0..=1, default_missing_value = "1",
          default_value = "0", value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true,
          hide_possible_values = true, hide_short_help = true)]
    allow_plain_secrets: bool,
}

impl SecretArgs {
    /// The store's keys. An empty variable, or an empty file name, counts as unset.
    pub(crate) fn keys(&self) -> anyhow::Result<SecretKeys> {
        let file = self.secret_key_file.as_ref().filter(|file| !file.as_os_str().is_empty());
        let text = match (self.secret_key.trim(), file) {
            ("", None) => String::new(),
            ("", Some(file)) => {
                let mut text = String::new();
                let read = std::fs::File::open(file)
                    .and_then(|opened| opened.take(FILE_MAX_BYTES).read_to_string(&mut text));
                read.with_context(|| format!("read the key for signing secrets from {}", file.display()))?;
                // Some editors write a byte order mark.
                let text = text.trim_start_matches('\u{feff}').trim().to_owned();
                anyhow::ensure!(
                    !text.is_empty(),
                    "{} has no key for signing secrets: it is empty",
                    file.display()
                );
                text
            }
            (given, None) => given.to_owned(),
            (_, Some(_)) => anyhow::bail!(
                "WAKEQ_SECRET_KEY and WAKEQ_SECRET_KEY_FILE (--secret-key, --secret-key-file) are both given: give one"
            ),
        };
        let keys = match text.trim() {
            "" => SecretKeys::default(),
            text => text.parse().context("WAKEQ_SECRET_KEY")?,
        };
        Ok(if self.allow_plain_secrets { keys.in_clear() } else { keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(key: &str, file: Option<&str>, allow_plain_secrets: bool) -> SecretArgs {
        SecretArgs {
            secret_key: key.to_owned(),
            secret_key_file: file.map(PathBuf::from),
            allow_plain_secrets,
        }
    }

    #[test]
    fn keys_come_from_one_place_and_an_empty_variable_is_none() {
        let key = "ab".repeat(32);
        for none in [arguments("", None, false), arguments(" ", Some(""), false)] {
            assert!(none.keys().unwrap().ids().is_empty());
        }
        assert_eq!(arguments(&key, None, false).keys().unwrap().ids().len(), 1);
        let file = std::env::temp_dir().join(format!("wakeq-secret-key-{}", std::process::id()));
        std::fs::write(&file, format!("{key},{}\n", "cd".repeat(32))).unwrap();
        let path = file.to_str().unwrap();
        let keys = arguments("", Some(path), true).keys().unwrap();
        assert_eq!((keys.ids().len(), keys.allows_clear()), (2, true));
        std::fs::write(&file, format!("\u{feff}{key}\n")).unwrap();
        assert_eq!(arguments("", Some(path), true).keys().unwrap().ids().len(), 1);
        std::fs::write(&file, "\n").unwrap();
        let empty = arguments("", Some(path), false).keys().unwrap_err().to_string();
        assert!(empty.ends_with("it is empty"), "{empty}");
        let both = arguments(&key, Some(path), false).keys().unwrap_err();
        assert!(both.to_string().contains("both given"), "{both}");
        std::fs::remove_file(&file).unwrap();
        assert!(arguments("", Some(path), false).keys().is_err());
        let wrong = format!("{:#}", arguments("abc", None, false).keys().unwrap_err());
        assert!(wrong.contains("WAKEQ_SECRET_KEY") && !wrong.contains("abc"), "{wrong}");
    }
}
