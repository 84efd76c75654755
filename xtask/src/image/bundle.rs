//! An image, unpacked into what a container runtime takes: a file system, and a configuration for each run, made of the
//! image's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::USER;
use crate::succeed;

/// An unpacked image; dropping it removes its folder.
pub(super) struct Bundle {
    folder: PathBuf,
    image: Value,
}

impl Bundle {
    pub(super) fn unpack(archive: &Path) -> Result<Self> {
        let made = Command::new("mktemp").args(["-d", "-t", "wakeq-image.XXXXXX"]).output()?;
        ensure!(made.status.success(), "mktemp failed");
        let folder = PathBuf::from(String::from_utf8(made.stdout)?.trim());
        let mut bundle = Self { folder, image: Value::Null };
        // The container's user has to pass through it.
        succeed(Command::new("chmod").arg("755").arg(&bundle.folder))?;
        let (parts, file_system) = (bundle.folder.join("parts"), bundle.folder.join("rootfs"));
        untar(archive, &parts)?;
        let read =
            |name: &str| -> Result<Value> { Ok(serde_json::from_slice(&fs::read(parts.join(name))?)?) };
        let manifest = read("manifest.json")?;
        let part = |value: &Value| value.as_str().map(str::to_owned).context("the manifest names a part");
        bundle.image = read(&part(&manifest[0]["Config"])?)?;
        untar(&parts.join(part(&manifest[0]["Layers"][0])?), &file_system)?;
        Ok(bundle)
    }

    /// A folder that a runtime can run: the image's command, or `arguments` in its place, with these variables too.
    pub(super) fn configure(
        &self,
        name: &str,
        arguments: &[&str],
        variables: &[(&str, String)],
    ) -> Result<PathBuf> {
        let image = &self.image["config"];
        ensure!(image["User"] == format!("{USER}:{USER}"), "the image runs as {}", image["User"]);
        let words = |value: &Value| -> Vec<String> {
            value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|word| word.as_str().map(str::to_owned))
                .collect()
        };
        let mut command = words(&image["Entrypoint"]);
        match arguments {
            [] => command.extend(words(&image["Cmd"])),
            arguments => command.extend(arguments.iter().map(|argument| (*argument).to_owned())),
        }
        let mut environment = words(&image["Env"]);
        environment.extend(variables.iter().map(|(name, value)| format!("{name}={value}")));
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder)?;
        let configuration = configuration(&self.folder.join("rootfs"), &command, &environment);
        fs::write(folder.join("config.json"), serde_json::to_vec(&configuration)?)?;
        Ok(folder)
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("{} is left behind: {error}", self.folder.display());
        }
    }
}

/// Nothing is allowed that is not needed; the network is the one that the runtime is started in.
fn configuration(file_system: &Path, command: &[String], environment: &[String]) -> Value {
    let none: [&str; 0] = [];
    let capabilities = json!({ "bounding": none, "effective": none, "permitted": none });
    let namespaces = ["pid", "mount", "ipc", "uts"].map(|kind| json!({ "type": kind }));
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": USER, "gid": USER },
            "args": command,
            "env": environment,
            "cwd": "/",
            "noNewPrivileges": true,
            "capabilities": capabilities,
        },
        "root": { "path": file_system, "readonly": true },
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
              "options": ["nosuid", "strictatime", "mode=755", "size=64k"] },
        ],
        "linux": { "namespaces": namespaces },
    })
}

fn untar(archive: &Path, folder: &Path) -> Result<()> {
    fs::create_dir(folder)?;
    succeed(Command::new("tar").arg("-xpf").arg(archive).arg("-C").arg(folder))
}
