//! The headers of a target, as they are given to commands: in the argument, in a file, or on
//! standard input, so that a secret need not be in an argument, which other users of a machine see.

use std::fs::File;
use std::io::Read;

use anyhow::Context as _;
use clap::Args;

use crate::cli::failure::Failure;
use crate::resources::targets::wire::headers::HeadersText;

/// Maximum size of a file with headers, which is more than a target may have.
const FILE_MAX_BYTES: u64 = 64 * 1024;

/// The headers that a target adds to its requests.
#[derive(Args)]
pub(crate) struct HeaderArgs {
    /// Send this header ('X-Api-Key: …'); @FILE or - has lines of them
    ///
    /// All headers that are given take the place of all that the target had. --no-headers removes
    /// these.
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Remove the headers that the target had
    #[arg(long, conflicts_with = "headers", hide_short_help = true)]
    no_headers: bool,
}

impl HeaderArgs {
    /// Whether any option about headers is given.
    pub(crate) fn are_given(&self) -> bool {
        self.no_headers || !self.headers.is_empty()
    }

    /// The headers that replace those of the target; `None` to keep these.
    pub(crate) fn read(self) -> anyhow::Result<Option<HeadersText>> {
        if !self.are_given() {
            return Ok(None);
        }
        let mut headers = Vec::new();
        for given in &self.headers {
            match (given.as_str(), given.strip_prefix('@')) {
                ("-", _) => add_lines(&mut headers, std::io::stdin().lock(), "standard input")?,
                (_, Some(path)) => {
                    let file = File::open(path).with_context(|| format!("open the file {path}"))?;
                    add_lines(&mut headers, file, &format!("the file {path}"))?;
                }
                (header, None) => headers.push(header_of(header)?),
            }
        }
        Ok(Some(HeadersText(headers)))
    }
}

/// Adds the headers of a file, one in each line that is not empty.
fn add_lines(headers: &mut Vec<(String, String)>, from: impl Read, place: &str) -> anyhow::Result<()> {
    let mut text = String::new();
    from.take(FILE_MAX_BYTES)
        .read_to_string(&mut text)
        .with_context(|| format!("read headers from {place}"))?;
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return Err(Failure::Usage(format!("there is no header in {place}")).into());
    }
    for line in lines {
        headers.push(header_of(line)?);
    }
    Ok(())
}

/// Splits `Name: value`. The error repeats neither, since either may be a secret.
fn header_of(text: &str) -> Result<(String, String), Failure> {
    let (name, value) = text.split_once(':').ok_or_else(|| {
        let words = "a header is written 'Name: value'; @FILE has lines of them, and - is standard input";
        Failure::Usage(words.to_owned())
    })?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[&str]) -> anyhow::Result<Option<HeadersText>> {
        let headers = headers.iter().map(|header| (*header).to_owned()).collect();
        HeaderArgs { headers, no_headers: false }.read()
    }

    #[test]
    fn headers_are_in_arguments_or_in_a_file() {
        assert!(read(&[]).unwrap().is_none(), "those of the target stay");
        let removed = HeaderArgs { headers: Vec::new(), no_headers: true }.read().unwrap();
        assert!(removed.unwrap().0.is_empty());
        let path = std::env::temp_dir().join(format!("wakeq-headers-{}", std::process::id()));
        std::fs::write(&path, "X-Api-Key: s3cr3t: 7\r\n\nx-b:2\n").unwrap();
        let at = format!("@{}", path.display());
        let given = read(&["X-A: 1", &at]).unwrap().unwrap().0;
        let expected = [("X-A", "1"), ("X-Api-Key", "s3cr3t: 7"), ("x-b", "2")];
        assert_eq!(given, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        std::fs::write(&path, "s3cr3t\n").unwrap();
        for wrong in [at.as_str(), "s3cr3t"] {
            let refused = format!("{:#}", read(&[wrong]).unwrap_err());
            assert!(refused.contains("'Name: value'") && !refused.contains("s3cr3t"), "{refused}");
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(read(&[&at]).unwrap_err().to_string().contains("no header in the file"));
        std::fs::remove_file(&path).unwrap();
        assert!(read(&[&at]).is_err());
    }
}
