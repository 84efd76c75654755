//! The watchdog: a small shell in a process group of its own, which briefly outlives this process.
//!
//! It reads from a pipe whose only write end is ours. When that pipe is closed, because this
//! process has ended, it ends the processes that it watches and removes its folder. It must never
//! inherit our output: a process that waits for the end of that output would wait for the watchdog.

use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use super::guarded::{Ending, locked};

/// Reads `watch PID SIGNAL` and `forget PID`. At the end of its input it sends the watched
/// processes their signals, kills the survivors, their children and their process groups, and then
/// removes the folder, retrying because a dying child may still be writing to it.
const GUARD_SCRIPT: &str = r#"
trap '' HUP INT TERM
watched=
while read -r word pid signal; do
  case $word in
    watch) watched="$watched $pid:$signal" ;;
    forget)
      rest=
      for other in $watched; do [ "${other%:*}" = "$pid" ] || rest="$rest $other"; done
      watched=$rest ;;
  esac
done
for entry in $watched; do
  pid=${entry%:*}
  if [ "${entry#*:}" != KILL ]; then
    kill -"${entry#*:}" "$pid"
    attempt=0
    while kill -0 "$pid" && [ $attempt -lt 100 ]; do
      attempt=$((attempt + 1))
      sleep 0.02
    done
  fi
  kill -STOP "$pid" || continue
  children=$(cat "/proc/$pid/task/$pid/children" || pgrep -P "$pid")
  kill -KILL "$pid" $children
  kill -KILL "-$pid"
done
[ -n "$1" ] || exit 0
attempt=0
while [ $attempt -lt 100 ]; do
  rm -rf -- "$1" && exit 0
  attempt=$((attempt + 1))
  sleep 0.05
done
"#;

/// The shell that briefly outlives us. Its pipe is closed when this is dropped, and when we are
/// killed.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pipe: Mutex<Option<PipeWriter>>,
    shell: Mutex<Child>,
}

impl Watchdog {
    pub(crate) fn start(folder: Option<&Path>) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(GUARD_SCRIPT).arg("wakeq-guard").args(folder);
        command.current_dir("/").process_group(0);
        let shell = command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { pipe: Mutex::new(Some(writer)), shell: Mutex::new(shell) })
    }

    pub(crate) fn watch(&self, pid: u32, ending: Ending) -> io::Result<()> {
        let signal = match ending {
            Ending::Kill => "KILL",
            Ending::Quit => "QUIT",
        };
        self.tell(&format!("watch {pid} {signal}\n"))
    }

    pub(crate) fn forget(&self, pid: u32) {
        let _ = self.tell(&format!("forget {pid}\n"));
    }

    fn tell(&self, line: &str) -> io::Result<()> {
        match locked(&self.pipe).as_mut() {
            Some(pipe) => pipe.write_all(line.as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        locked(&self.pipe).take();
        let _ = locked(&self.shell).wait(); // bounded by the script itself
    }
}
