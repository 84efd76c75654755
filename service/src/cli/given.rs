//! JSON values as they are given to commands: in the argument itself, in a file (`@FILE`), or on
//! standard input (`-`). Neither of these two is JSON, so no value is taken for another.

use std::fs::File;
use std::io::Read;

use crate::resources::targets::wire::keep::KeepJson;
use wakeq::Event;
use wakeq::events::Keep;

/// Maximum bytes read from a file, which is more than any value may have.
const BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Reads a value, and checks that it is JSON, which it often no longer is after the shell has
/// processed it.
pub(crate) fn json(text: &str) -> Result<String, String> {
    let value = match (text, text.strip_prefix('@')) {
        ("-", _) => read(std::io::stdin().lock(), "standard input")?,
        (_, Some(path)) => {
            let file = File::open(path).map_err(|error| format!("can't open the file {path}: {error}"))?;
            read(file, &format!("the file {path}"))?
        }
        (_, None) => text.to_owned(),
    };
    match Event::from_json("any", &value) {
        Ok(_) => Ok(value),
        Err(error) => {
            let detail =
                std::error::Error::source(&error).map(|cause| format!(" ({cause})")).unwrap_or_default();
            Err(format!(
                "{error}{detail}; examples: '\"text\"' or '{{\"a\":1}}', @FILE, or - for standard input"
            ))
        }
    }
}

/// For how long something is kept: `7days`, or a time for each outcome.
pub(crate) fn keep_for(text: &str) -> Result<Keep, String> {
    let time = |text: &str| Some(humantime::parse_duration(text).ok()?.as_secs_f64());
    let keep = KeepJson::parse(text, time).and_then(KeepJson::read);
    let words = "give a time such as 7days, or completed=7days,failed=30days,cancelled=1day";
    keep.ok_or_else(|| words.to_owned())
}

fn read(from: impl Read, place: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = from.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("can't read {place}: {error}"))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("{place} has more than {BYTES_MAX} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("{place} is not UTF-8"))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_argument_or_in_a_file() {
        let path = std::env::temp_dir().join(format!("wakeq-given-{}.json", std::process::id()));
        let at = format!("@{}", path.display());
        std::fs::write(&path, "{\"a\": [1,\n2]}\n").unwrap();
        assert_eq!(json(&at).unwrap(), "{\"a\": [1,\n2]}");
        let large = format!("\"{}\"", "x".repeat(200_000));
        std::fs::write(&path, &large).unwrap();
        assert_eq!(json(&at).unwrap(), large, "longer than an argument may be");
        assert_eq!(json("\"@file\"").unwrap(), "\"@file\"");
        for (content, words) in [(&b"{"[..], "JSON"), (&b"\xff"[..], "is not UTF-8")] {
            std::fs::write(&path, content).unwrap();
            let refused = json(&at).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(json(&at).unwrap_err().starts_with("can't open the file "));
        assert!(json("text").unwrap_err().contains("@FILE"));
    }
}
