//! The images of the emulators.

use anyhow::{Context, Result};
use wakeq_testbed::find;

use crate::docker::{Engine, Files, Import, USER, files_under};
use crate::{cargo, succeed};

const OWN_EMULATOR: &str = "wakeq-test-pubsub:own";
const GOOGLE_EMULATOR: &str = "wakeq-test-pubsub:google";

/// Parts of a Java installation that an emulator does not need.
const NOT_OF_JAVA: [&str; 4] = ["jmods", "man", "demo", "src.zip"];

/// Makes the image of our own emulator; returns its reference.
pub(super) fn own_emulator(engine: &Engine) -> Result<&'static str> {
    succeed(cargo().args(["build", "--bin", "pubsub-emulator"]))?;
    let binary = std::env::current_exe()?.with_file_name("pubsub-emulator");
    let mut files = Files::default();
    files.program(&binary)?;
    make(engine, OWN_EMULATOR, &files, &[&binary.display().to_string()])
}

/// Makes the image of Google's emulator with the installed Java; returns its reference.
pub(super) fn google_emulator(engine: &Engine) -> Result<&'static str> {
    let found = find()?;
    let java = found.java.canonicalize().context("can't resolve the installed Java")?;
    let home = java.ancestors().nth(2).context("the installed Java has no home")?;
    let mut files = Files::default();
    files.program(&java)?;
    let of_java = [home.join("lib"), home.join("lib/server")];
    for library in files_under(home)? {
        if library.extension().is_some_and(|extension| extension == "so") {
            files.libraries_beside(&library, &of_java)?;
        }
    }
    files.folder(home, &NOT_OF_JAVA)?;
    files.add(&found.jar);
    let (java, jar) = (java.display().to_string(), found.jar.display().to_string());
    make(engine, GOOGLE_EMULATOR, &files, &[&java, "-Xmx512m", "-jar", &jar])
}

fn make(engine: &Engine, reference: &'static str, files: &Files, command: &[&str]) -> Result<&'static str> {
    let entry_point = format!("ENTRYPOINT {}", serde_json::to_string(command)?);
    let changes = [format!("USER {USER}:{USER}"), entry_point];
    Import { reference, files, script: None, writable: &[], changes: &changes }.make(engine)
}
