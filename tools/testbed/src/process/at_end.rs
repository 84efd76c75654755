//! Runs a program when this process ends, even by SIGKILL: for what outlives a process, like a
//! container.
//!
//! A small shell waits for the end of a pipe whose only write end is ours. Signals would not do: a
//! process that a script starts in the background ignores some of them, and so does every shell
//! that it starts. It must never inherit our output, and no process waits for it.

use std::ffi::OsStr;
use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;

const SCRIPT: &str = r#"
trap '' HUP INT TERM
while read -r line; do :; done
exec "$0" "$@"
"#;

/// Runs a program when this value is dropped and when this process ends in any way.
///
/// ```
/// let _tidy = wakeq_testbed::AtEnd::run("rm", ["-f", "/a/file/that/does/not/exist"])?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AtEnd {
    _pipe: PipeWriter,
}

impl AtEnd {
    /// Takes the program, by path or by name on `PATH`, and its arguments. Its output is discarded.
    pub fn run<A: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = A>,
    ) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(SCRIPT).arg(program).args(arguments).current_dir("/").process_group(0);
        let mut shell = command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        thread::Builder::new().name("at the end".to_owned()).spawn(move || shell.wait())?;
        Ok(Self { _pipe: writer })
    }
}
