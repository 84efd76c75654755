//! What goes into the image: the binary, the libraries that it is linked to, certificates, and the few files that libc
//! and people expect. It takes nothing that it can't name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::USER;

/// Where systems keep the certificates that programs trust: Debian, then Fedora, Alpine and others.
const CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// A file or folder of the image, by its path from the root, without the slash.
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    Folder,
    File(Vec<u8>),
}

impl Entry {
    pub(crate) fn file(path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.trim_start_matches('/').to_owned(), mode, content: Content::File(content.into()) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        match &self.content {
            Content::Folder => 0,
            Content::File(bytes) => bytes.len() as u64,
        }
    }
}

/// All of it, in the order of the paths, each folder before what is in it.
pub(super) fn collect(binary: &Path) -> Result<Vec<Entry>> {
    let mut entries = vec![
        Entry::file("wakeq", 0o755, read(binary)?),
        Entry::file("etc/passwd", 0o644, format!("wakeq:x:{USER}:{USER}:wakeq:/:/nonexistent\n")),
        Entry::file("etc/group", 0o644, format!("wakeq:x:{USER}:\n")),
        // Without it names of hosts are looked for in other places than /etc/hosts and DNS, by libraries not in here.
        Entry::file("etc/nsswitch.conf", 0o644, "hosts: files dns\n"),
    ];
    let certificates = CERTIFICATES.iter().find(|path| Path::new(path).is_file());
    let certificates = certificates.context("no certificates on this machine: install `ca-certificates`")?;
    // The clients of Google's services trust what the system trusts; this is where they look for it.
    entries.push(Entry::file(CERTIFICATES[0], 0o644, read(Path::new(certificates))?));
    for library in libraries(binary)? {
        entries.push(Entry::file(&library, 0o755, read(Path::new(&library))?));
    }
    Ok(with_folders(entries))
}

/// With the folders that these files are in, and those that every container needs.
pub(crate) fn with_folders(mut entries: Vec<Entry>) -> Vec<Entry> {
    let mut folders: Vec<String> = ["proc", "sys", "dev"].map(str::to_owned).into();
    for entry in &entries {
        folders.extend(entry.path.match_indices('/').map(|(end, _)| entry.path[..end].to_owned()));
    }
    let folder = |path| Entry { path, mode: 0o755, content: Content::Folder };
    entries.extend(folders.into_iter().map(folder));
    entries.push(Entry { path: "tmp".into(), mode: 0o1777, content: Content::Folder });
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    entries.dedup_by(|one, other| one.path == other.path);
    entries
}

/// The libraries that the loader would load, the loader among them, by their paths on this machine.
pub(crate) fn libraries(binary: &Path) -> Result<Vec<String>> {
    libraries_beside(binary, &[])
}

/// The same for one whose program has loaded libraries of these folders before it.
pub(crate) fn libraries_beside(binary: &Path, folders: &[PathBuf]) -> Result<Vec<String>> {
    let mut ask = Command::new("ldd");
    ask.arg(binary);
    if !folders.is_empty() {
        ask.env("LD_LIBRARY_PATH", std::env::join_paths(folders)?);
    }
    let output = ask.output().context("`ldd` can't be started")?;
    ensure!(output.status.success(), "ldd failed:\n{}", String::from_utf8_lossy(&output.stderr));
    libraries_in(&String::from_utf8(output.stdout)?)
}

fn libraries_in(ldd: &str) -> Result<Vec<String>> {
    ensure!(!ldd.contains("not found"), "a library is missing on this machine:\n{ldd}");
    let paths = ldd.lines().filter_map(|line| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path).split_whitespace().next()?;
        path.starts_with('/').then(|| path.to_owned())
    });
    Ok(paths.collect())
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let ldd = "\tlinux-vdso.so.1 (0x00007ff)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0)\n\
                   \t/lib64/ld-linux-x86-64.so.2 (0x00007f1)\n";
        let found = libraries_in(ldd).unwrap();
        assert_eq!(found, ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert_eq!(libraries_in("\tstatically linked\n").unwrap(), Vec::<String>::new());
        assert!(libraries_in("\tlibx.so => not found\n").is_err());
    }
}
