//! Judges whether the signing secrets of targets are encrypted under keys that this process has.

use super::{Finding, list};
use wakeq::internals::SecretCounts;
use wakeq::targets::SecretKeys;

/// Whether this process can register targets and sign deliveries to them.
pub(crate) fn secrets(keys: &SecretKeys, counts: &SecretCounts) -> Finding {
    const WHAT: &str = "signing secrets";
    let ids = keys.ids();
    let total: i64 = counts.values().sum();
    let in_clear = counts.get(&None).copied().unwrap_or(0);
    let known = |id: &String| ids.contains(&id.as_str());
    let missing: Vec<String> = counts
        .iter()
        .filter_map(|(key, count)| {
            key.as_ref().filter(|id| !known(id)).map(|id| format!("{count} under {id}"))
        })
        .collect();
    if !missing.is_empty() {
        let found = format!("{}: this process lacks the key, so it signs nothing with them", list(&missing));
        return Finding::fail(WHAT, found, "give the key in WAKEQ_SECRET_KEY, behind the one that encrypts");
    }
    let Some(first) = ids.first() else {
        let advice = "set WAKEQ_SECRET_KEY for every process (`wakeq secrets new-key` makes one), then `wakeq secrets rotate`";
        return match (in_clear, keys.allows_clear()) {
            (0, false) => Finding::warn(
                WHAT,
                "no key is set here, so neither targets nor hooks can be registered",
                advice,
            ),
            (0, true) => {
                Finding::warn(WHAT, "no key is set here, so secrets will be stored in plain text", advice)
            }
            (count, true) => Finding::warn(WHAT, format!("{count} in plain text in the database"), advice),
            (count, false) => {
                let found = format!("{count} in plain text in the database, and not used in that form");
                Finding::fail(WHAT, found, advice)
            }
        };
    };
    if in_clear > 0 {
        let found = format!("{in_clear} in plain text in the database");
        return if keys.allows_clear() {
            Finding::warn(WHAT, found, "run `wakeq secrets rotate`, then unset WAKEQ_ALLOW_PLAIN_SECRETS")
        } else {
            Finding::fail(WHAT, format!("{found}, and not used in that form"), "run `wakeq secrets rotate`")
        };
    }
    let old = total - counts.get(&Some((*first).to_owned())).copied().unwrap_or(0);
    if old > 0 {
        let found = format!("{old} of {total} under a key that is not the first");
        return Finding::warn(WHAT, found, "run `wakeq secrets rotate`, then remove the old key");
    }
    if keys.allows_clear() {
        let advice = "unset WAKEQ_ALLOW_PLAIN_SECRETS: no secret is in plain text";
        return Finding::warn(
            WHAT,
            format!("{total} under the key {first}; those in plain text would be accepted"),
            advice,
        );
    }
    Finding::ok(WHAT, format!("{total} under the key {first}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn reports_unencrypted_secrets_and_other_keys() {
        let (new, old) = ("01".repeat(32), "02".repeat(32));
        let keys = |text: &str| text.parse::<SecretKeys>().unwrap();
        let id = |text: &str| Some(keys(text).ids()[0].to_owned());
        let (none, both) = (SecretKeys::default(), keys(&format!("{new},{old}")));
        let under = |counts: &[(Option<String>, i64)]| counts.iter().cloned().collect::<SecretCounts>();
        let level = |keys: &SecretKeys, counts: &[(Option<String>, i64)]| secrets(keys, &under(counts)).level;
        assert_eq!(level(&keys(&new), &[(id(&new), 3)]), Level::Ok);
        assert_eq!(level(&keys(&new), &[]), Level::Ok);
        assert_eq!(level(&both, &[(id(&new), 3), (id(&old), 1)]), Level::Warn);
        assert_eq!(level(&keys(&new), &[(id(&new), 3), (id(&old), 1)]), Level::Fail);
        assert_eq!(level(&keys(&new), &[(None, 1)]), Level::Fail);
        assert_eq!(level(&keys(&new).in_clear(), &[(None, 1)]), Level::Warn);
        assert_eq!(level(&keys(&new).in_clear(), &[(id(&new), 1)]), Level::Warn);
        assert_eq!((level(&none, &[]), level(&none, &[(None, 1)])), (Level::Warn, Level::Fail));
        assert_eq!(level(&none.clone().in_clear(), &[(None, 1)]), Level::Warn);
        let lacking = secrets(&none, &under(&[(id(&old), 2)])).to_string();
        assert!(lacking.contains(&format!("2 under {}", id(&old).unwrap())), "{lacking}");
    }
}
