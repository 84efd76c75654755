//! Finds Google's Pub/Sub emulator on this machine, and the Java to run it with.
//!
//! It must never start anything: it only looks at the environment and the file system.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::process::program_on_path;

const JAR_VARIABLE: &str = "PUBSUB_EMULATOR_JAR";
const JAR_FOLDER: &str = "platform/pubsub-emulator/lib";
const JAR_PREFIX: &str = "cloud-pubsub-emulator-";

/// An installation of Google's emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The Java executable to run it with.
    pub java: PathBuf,
    /// The emulator's jar.
    pub jar: PathBuf,
    /// The version, from the jar's name, like `0.8.20`.
    pub version: String,
}

/// Why Google's emulator cannot be started here, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotInstalled {
    /// `PUBSUB_EMULATOR_JAR` does not name a file.
    #[error("{JAR_VARIABLE} is {}, which is not a file", .0.display())]
    JarVariable(PathBuf),
    /// There is no jar in any of the folders where the Google Cloud SDK puts it; the searched
    /// folders.
    #[error(
        "Google's Pub/Sub emulator is not installed: run `gcloud components install pubsub-emulator` (or install the \
         package google-cloud-cli-pubsub-emulator), or set {JAR_VARIABLE} to its jar, or set PUBSUB_EMULATOR_HOST to one \
         that runs (looked in {})", list(.0)
    )]
    Jar(Vec<PathBuf>),
    /// The jar is there, but no Java to run it with.
    #[error("Google's Pub/Sub emulator needs Java 17 or later: install a JRE, or set JAVA_HOME")]
    Java,
}

/// Finds the emulator: the jar of `PUBSUB_EMULATOR_JAR`, else the highest version in this machine's
/// Google Cloud SDKs.
///
/// ```
/// match wakeq_testbed::find() {
///     Ok(found) => println!("version {} in {}", found.version, found.jar.display()),
///     Err(missing) => println!("{missing}"),
/// }
/// ```
pub fn find() -> Result<Installation, NotInstalled> {
    let jar = match env::var_os(JAR_VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) if Path::new(&value).is_file() => value.into(),
        Some(value) => return Err(NotInstalled::JarVariable(value.into())),
        None => {
            let folders: Vec<_> = sdk_folders().iter().map(|sdk| sdk.join(JAR_FOLDER)).collect();
            newest(folders.iter().flat_map(|folder| jars_in(folder))).ok_or(NotInstalled::Jar(folders))?
        }
    };
    let java = java().ok_or(NotInstalled::Java)?;
    let version = version_in(&jar).unwrap_or_else(|| "of unknown version".to_owned());
    Ok(Installation { java, jar, version })
}

fn sdk_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    folders.extend(env::var_os("CLOUDSDK_ROOT").filter(|root| !root.is_empty()).map(PathBuf::from));
    if let Some(gcloud) = program_on_path("gcloud").and_then(|gcloud| gcloud.canonicalize().ok()) {
        folders.extend(gcloud.ancestors().nth(2).map(Path::to_path_buf));
    }
    for known in [
        "/usr/lib/google-cloud-sdk",
        "/usr/share/google-cloud-sdk",
        "/opt/google-cloud-sdk",
        "/opt/homebrew/share/google-cloud-sdk",
        "/usr/local/share/google-cloud-sdk",
    ] {
        folders.push(known.into());
    }
    folders.extend(env::home_dir().map(|home| home.join("google-cloud-sdk")));
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

fn jars_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| version_in(path).is_some()).collect()
}

fn newest(jars: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    jars.max_by_key(|jar| version_in(jar).map(|version| numbers(&version)))
}

/// Extracts `0.8.20` from `cloud-pubsub-emulator-0.8.20-all.jar`.
fn version_in(jar: &Path) -> Option<String> {
    let name = jar.file_name().and_then(OsStr::to_str)?.strip_prefix(JAR_PREFIX)?.strip_suffix(".jar")?;
    Some(name.strip_suffix("-all").unwrap_or(name).to_owned())
}

fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-']).map(|part| part.parse().unwrap_or(0)).collect()
}

fn java() -> Option<PathBuf> {
    let at_home = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    at_home.filter(|java| java.is_file()).or_else(|| program_on_path("java"))
}

fn list(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jar(version: &str) -> PathBuf {
        format!("/somewhere/{JAR_PREFIX}{version}-all.jar").into()
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let jars = ["0.8.9", "0.8.20", "0.7.99"].map(jar);
        assert_eq!(newest(jars.into_iter()), Some(jar("0.8.20")));
    }

    #[test]
    fn recognizes_only_the_emulators_jar() {
        assert_eq!(version_in(Path::new("/lib/guava-31.1.jar")), None);
        assert_eq!(version_in(&jar("0.8.20")), Some("0.8.20".to_owned()));
    }
}
