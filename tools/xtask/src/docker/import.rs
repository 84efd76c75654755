//! Makes an image of one layer from files of this machine, with `tar` and `docker import`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::{Engine, Files, said};
use crate::root;

/// A user id that no machine uses; Postgres requires a name for it, which `/etc/passwd` gives.
pub(crate) const USER: u32 = 65_532;

/// An image to make.
pub(crate) struct Import<'a> {
    /// The name and tag.
    pub(crate) reference: &'static str,
    /// Files of this machine; links are followed.
    pub(crate) files: &'a Files,
    /// A script for `/entrypoint.sh`.
    pub(crate) script: Option<&'a str>,
    /// Empty folders that every user may write to, besides `/tmp`; without the leading slash.
    pub(crate) writable: &'a [&'static str],
    /// Dockerfile instructions, such as `USER 65532`.
    pub(crate) changes: &'a [String],
}

impl Import<'_> {
    /// Makes the image and prints its size; returns its reference.
    pub(crate) fn make(&self, engine: &Engine) -> Result<&'static str> {
        let began = Instant::now();
        let folder = root().join("target/images").join(self.reference.replace(':', "-"));
        let own = folder.join("own");
        let own_names = self.write_own(&own)?;
        let list = folder.join("list");
        let mut lines = fs::File::create(&list)?;
        for path in self.files.paths().map(|path| format!(".{}", path.display())) {
            // An image takes each path once, and this one is added below.
            if !own_names.contains(&path) {
                writeln!(lines, "{path}")?;
            }
        }
        let mut tar = Command::new("tar");
        tar.args(["--create", "--dereference", "--owner=0", "--group=0", "--mode=a+rX", "--no-recursion"]);
        tar.args(["--directory=/", "--verbatim-files-from", "--files-from"]).arg(&list);
        tar.arg("--directory").arg(&own).args(own_names);
        let mut packing = tar.stdout(Stdio::piped()).spawn().context("`tar` can't be started")?;
        let packed = packing.stdout.take().context("tar has no output")?;
        let mut import = engine.client();
        import.arg("import");
        self.changes.iter().for_each(|change| {
            import.args(["--change", change]);
        });
        said(import.args(["-", self.reference]).stdin(packed))?;
        let status = packing.wait()?;
        ensure!(status.success(), "tar failed ({status})");
        let megabytes = engine.size(self.reference)? as f64 / 1e6;
        println!("{}: {megabytes:.1} MB, made in {:.1} s", self.reference, began.elapsed().as_secs_f64());
        Ok(self.reference)
    }

    /// Writes the files that this machine lacks or has in another form; returns their names.
    fn write_own(&self, folder: &Path) -> Result<Vec<String>> {
        let mut names = vec!["./etc/passwd".to_owned(), "./etc/nsswitch.conf".to_owned()];
        fs::create_dir_all(folder.join("etc"))?;
        for name in ["tmp"].iter().chain(self.writable) {
            fs::create_dir_all(folder.join(name))?;
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o1777))?;
            names.push(format!("./{name}"));
        }
        fs::write(folder.join("etc/passwd"), format!("wakeq:x:{USER}:{USER}:wakeq:/tmp:/bin/sh\n"))?;
        // Without it, libraries that the image lacks would look up host names elsewhere than in
        // /etc/hosts and DNS.
        fs::write(folder.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
        if let Some(script) = self.script {
            fs::write(folder.join("entrypoint.sh"), script)?;
            fs::set_permissions(folder.join("entrypoint.sh"), fs::Permissions::from_mode(0o755))?;
            names.push("./entrypoint.sh".to_owned());
        }
        Ok(names)
    }
}
