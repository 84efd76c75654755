//! `cargo xtask pubsub-python`: the official Python client's own system tests, and a script of ours
//! that uses that client, against our emulator or Google's.
//!
//! Versions are pinned in `emulator/tests/python/requirements.txt`; everything is installed only
//! into `target/pubsub-python`. The system tests are those of the client's source distribution,
//! unmodified; those over REST are left out, as the client's REST transport does not support
//! emulators.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::{install_python, root, succeed};

const CLIENT: &str = "google-cloud-pubsub==2.44.0";
const SOURCE: &str = "google_cloud_pubsub-2.44.0";
/// The number of system tests that run: all over gRPC, except for one that its authors always skip.
const SYSTEM_TESTS: u32 = 20;
const SCRIPT_TESTS: u32 = 13;

/// Runs everything against our emulator, or against Google's to see what passes there.
pub(crate) fn run(google: bool) -> Result<()> {
    let python = Python::install()?;
    let passed = super::with_emulator(google, |host| python.test(host))?;
    let expected = [SYSTEM_TESTS, SCRIPT_TESTS];
    println!(
        "system tests: {} of {} passed; own script: {} of {}",
        passed[0], expected[0], passed[1], expected[1]
    );
    ensure!(google || passed == expected, "not all tests passed");
    Ok(())
}

/// The client, in a virtual environment of its own.
struct Python {
    program: PathBuf,
    folder: PathBuf,
}

impl Python {
    fn install() -> Result<Self> {
        let folder = root().join("target/pubsub-python");
        let python = Self { program: install_python(&folder, &tests().join("requirements.txt"))?, folder };
        if !python.source().is_dir() {
            let quiet = ["-m", "pip", "--quiet", "--disable-pip-version-check"];
            let download = ["download", "--no-deps", "--no-binary", "google-cloud-pubsub", CLIENT, "--dest"];
            succeed(python.run().args(quiet).args(download).arg(&python.folder))?;
            let archive = python.folder.join(format!("{SOURCE}.tar.gz"));
            succeed(python.run().args(["-m", "tarfile", "-e"]).arg(archive).arg(&python.folder))?;
        }
        succeed(python.run().arg(tests().join("credentials.py")).arg(python.credentials()))?;
        Ok(python)
    }

    fn run(&self) -> Command {
        Command::new(&self.program)
    }

    fn source(&self) -> PathBuf {
        self.folder.join(SOURCE)
    }

    fn credentials(&self) -> PathBuf {
        self.folder.join("credentials")
    }

    /// Returns how many of the system tests and of the script's tests passed.
    fn test(&self, host: &str) -> Result<[u32; 2]> {
        let system = self.source().join("tests/system.py");
        let own = tests().join("test_official_client.py");
        // The filter is not used for the script, where it would leave out tests with the word in
        // their names.
        Ok([
            self.pytest(host, &system, "system", &["-k", "not rest"])?,
            self.pytest(host, &own, "script", &[])?,
        ])
    }

    fn pytest(&self, host: &str, file: &Path, name: &str, selection: &[&str]) -> Result<u32> {
        let report = self.folder.join(format!("{name}.txt"));
        let status = self
            .run()
            .args(["-m", "pytest", "-q", "-rfEs", "--tb=short", "-p", "no:cacheprovider"])
            .args(selection)
            .arg("--rootdir")
            .arg(&self.folder)
            .arg(file)
            .current_dir(&self.folder)
            .env("PUBSUB_EMULATOR_HOST", host)
            .env("GOOGLE_CLOUD_PROJECT", "conformance")
            .env("GOOGLE_APPLICATION_CREDENTIALS", self.credentials().join("user.json"))
            .env("KOKORO_GFILE_DIR", self.credentials())
            .stdout(File::create(&report)?)
            .status()?;
        let said = std::fs::read_to_string(&report)?;
        print!("{said}");
        // 0: all passed; 1: some failed.
        match status.code() {
            Some(0 | 1) => Ok(passed(&said)),
            _ => bail!("pytest itself failed ({status})"),
        }
    }
}

/// Reads the last line: `2 failed, 18 passed, 1 skipped, 59 deselected in 177.27s`.
fn passed(said: &str) -> u32 {
    let words: Vec<_> = said.lines().last().unwrap_or_default().split_whitespace().collect();
    let found = words.windows(2).find(|pair| pair[1].trim_end_matches(',') == "passed");
    found.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

fn tests() -> PathBuf {
    root().join("emulator/tests/python")
}

#[cfg(test)]
mod tests {
    use super::passed;

    #[test]
    fn the_passed_ones_are_counted() {
        assert_eq!(passed("...\n2 failed, 18 passed, 1 skipped in 177.27s (0:02:57)\n"), 18);
        assert_eq!(passed("...\n6 passed in 7.27s"), 6);
        assert_eq!(passed("1 failed in 1s"), 0);
    }
}
