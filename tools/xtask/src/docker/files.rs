//! Files of this machine for an image: programs with their libraries, packages, folders. They have
//! the same paths in the image as here.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::said;

/// Where systems keep the trusted certificates: Debian, then Fedora, Alpine and others.
const CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Parts of packages that no program needs.
const NOT_OF_PACKAGES: [&str; 4] =
    ["/usr/share/doc/", "/usr/share/info/", "/usr/share/locale/", "/usr/share/man/"];

/// Absolute paths of files and of their folders.
#[derive(Default)]
pub(crate) struct Files(BTreeSet<PathBuf>);

impl Files {
    /// Adds a file by its absolute path, normalised: the loader's paths may contain `..`, and an
    /// image takes each path once.
    pub(crate) fn add(&mut self, file: &Path) {
        let mut normalised = PathBuf::new();
        for part in file.components() {
            if part == Component::ParentDir {
                normalised.pop();
            } else {
                normalised.push(part);
            }
        }
        self.0.extend(normalised.ancestors().filter(|path| path.parent().is_some()).map(Path::to_owned));
    }

    /// Adds a program or library with the libraries that the loader would load.
    pub(crate) fn program(&mut self, file: &Path) -> Result<()> {
        self.add(file);
        self.libraries(file)
    }

    /// Adds only those libraries, and the loader.
    pub(crate) fn libraries(&mut self, of: &Path) -> Result<()> {
        self.libraries_beside(of, &[])
    }

    /// Adds the libraries of a library whose program has already loaded others from these folders.
    pub(crate) fn libraries_beside(&mut self, of: &Path, folders: &[PathBuf]) -> Result<()> {
        let mut ask = Command::new("ldd");
        ask.arg(of);
        if !folders.is_empty() {
            ask.env("LD_LIBRARY_PATH", std::env::join_paths(folders)?);
        }
        for library in libraries_in(&said(&mut ask)?)? {
            self.add(Path::new(&library));
        }
        Ok(())
    }

    /// Adds everything in a folder, except for entries with one of these names and their contents.
    pub(crate) fn folder(&mut self, folder: &Path, without: &[&str]) -> Result<()> {
        let is_wanted = |file: &&PathBuf| {
            let parts = file.strip_prefix(folder).unwrap_or(file).components();
            !parts.into_iter().any(|part| without.iter().any(|name| part.as_os_str() == OsStr::new(name)))
        };
        files_under(folder)?.iter().filter(is_wanted).for_each(|file| self.add(file));
        Ok(())
    }

    /// Adds installed Debian packages and their dependencies, without documentation.
    pub(crate) fn packages(&mut self, names: &[&str]) -> Result<()> {
        let mut ask = Command::new("apt-cache");
        ask.args(["depends", "--recurse", "--installed", "--important"]).args(names);
        let words = said(&mut ask).context("can't list packages: this needs Debian or Ubuntu")?;
        let packages =
            words.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_alphanumeric()));
        let files = said(Command::new("dpkg-query").arg("--listfiles").args(packages))?;
        let is_wanted = |file: &&str| {
            !NOT_OF_PACKAGES.iter().any(|folder| file.starts_with(folder)) && Path::new(file).is_file()
        };
        files.lines().filter(is_wanted).for_each(|file| self.add(Path::new(file)));
        Ok(())
    }

    /// Adds the system's trusted certificates.
    pub(crate) fn certificates(&mut self) -> Result<()> {
        let found = CERTIFICATES.iter().find(|path| Path::new(path).is_file());
        self.add(Path::new(found.context("no certificates on this machine: install `ca-certificates`")?));
        Ok(())
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }
}

/// The files and folders in a folder, without dangling links.
pub(crate) fn files_under(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("can't read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn libraries_in(ldd: &str) -> Result<Vec<String>> {
    ensure!(!ldd.contains("not found"), "a library is missing on this machine:\n{ldd}");
    let paths = ldd.lines().filter_map(|line| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path).split_whitespace().next()?;
        path.starts_with('/').then(|| path.to_owned())
    });
    Ok(paths.collect())
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

    #[test]
    fn a_file_brings_its_folders() {
        let mut files = Files::default();
        files.add(Path::new("/etc/ssl/cert.pem"));
        files.add(Path::new("/etc/ssl/certs/../cert.pem"));
        let paths: Vec<_> = files.paths().collect();
        assert_eq!(paths, [Path::new("/etc"), Path::new("/etc/ssl"), Path::new("/etc/ssl/cert.pem")]);
    }
}
