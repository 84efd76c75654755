//! Child processes that end when this process ends, also when it is killed with -9.
//!
//! A child is held back until the watchdog knows of it, so no moment is left in which only the child would survive.
//! This module must never signal a process that it did not start, nor one that has already been reaped.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::sync::watch;

use super::watchdog::Watchdog;

/// Waits for the word that the guard watches it, then becomes the program.
const GATE_SCRIPT: &str = r#"read -r go || exit 125; exec "$0" "$@""#;

/// How long a process may take to end by its own signal before it is killed.
const QUITS_WITHIN: Duration = Duration::from_secs(2);
/// How long killed processes may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(10);
const LONGEST_LINE_BYTES: u64 = 16 * 1024;
const REMEMBERED_LINES: usize = 40;

/// What can go wrong with a child process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The program could not be started.
    #[error("{program} could not be started")]
    Start {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended before it had begun its work.
    #[error("{program} ended at its start; its last words:\n{words}")]
    Ended {
        /// The program.
        program: String,
        /// The end of its output.
        words: String,
    },
    /// The process was killed, but it, or a child that holds its output, is still there.
    #[error("process {pid} was killed but is not gone after {} s", GONE_WITHIN.as_secs())]
    StillThere {
        /// Its process id.
        pid: u32,
    },
}

/// Watches over child processes and, if it was given one, a folder: both end when this process ends.
///
/// ```
/// use wakeq_services::{Guard, Launch};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), wakeq_services::ProcessError> {
/// let guard = Guard::new(None)?;
/// let child = guard.start(Launch::new("sleep").argument("1000"))?;
/// child.kill_9().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Guard(Arc<Watchdog>);

impl Guard {
    /// Starts the guard. The folder is removed with everything in it when this process ends or the guard and
    /// all its children are dropped.
    pub fn new(folder: Option<&Path>) -> Result<Self, ProcessError> {
        Watchdog::start(folder).map(|watchdog| Self(Arc::new(watchdog))).map_err(at_start("sh"))
    }

    /// Starts a child under this guard.
    pub fn start(&self, launch: Launch) -> Result<Guarded, ProcessError> {
        let program = launch.program.to_string_lossy().into_owned();
        Guarded::start(launch, Arc::clone(&self.0)).map_err(at_start(&program))
    }
}

/// The user and group that a child drops to; only root may ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAs {
    /// The user's number.
    pub user: u32,
    /// The group's number.
    pub group: u32,
}

/// How a child is ended when its handle is dropped or this process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ending {
    /// By SIGKILL.
    #[default]
    Kill,
    /// By SIGQUIT, and by SIGKILL two seconds later: for a program that must give back what outlives a process, as
    /// Postgres its shared memory.
    Quit,
}

/// What to start: a program, its arguments, and where its output goes.
pub struct Launch {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    run_as: Option<RunAs>,
    errors: Option<File>,
    ending: Ending,
    on_line: Box<dyn FnMut(&str) + Send>,
}

impl Launch {
    /// A program, by its path or by its name on `PATH`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            run_as: None,
            errors: None,
            ending: Ending::default(),
            on_line: Box::new(|_| {}),
        }
    }

    /// One more argument.
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// More arguments.
    pub fn arguments<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets a variable in the child's environment, beside those that it inherits.
    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The folder that the child starts in.
    pub fn current_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Drops root's rights; `None` keeps the user as it is.
    pub fn run_as(mut self, run_as: Option<RunAs>) -> Self {
        self.run_as = run_as;
        self
    }

    /// Writes the standard error to this file instead of reading it.
    pub fn errors_to(mut self, file: File) -> Self {
        self.errors = Some(file);
        self
    }

    /// How it ends when nobody ends it explicitly; SIGKILL, if this is not called.
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// Is called, on a thread of its own, with every line of output. It must not block.
    pub fn on_line(mut self, on_line: impl FnMut(&str) + Send + 'static) -> Self {
        self.on_line = Box::new(on_line);
        self
    }
}

/// A running child process. It ends when this value is dropped, and when this process ends, however that happens.
///
/// It counts as ended once nothing holds its standard output any more: with it its own children have gone.
#[derive(Debug)]
pub struct Guarded {
    pid: u32,
    ending: Ending,
    shared: Arc<Shared>,
    ended: watch::Receiver<Option<ExitStatus>>,
    /// Disconnected when the child has been reaped.
    reaped: Mutex<mpsc::Receiver<()>>,
    _watchdog: Arc<Watchdog>,
}

impl Guarded {
    fn start(launch: Launch, watchdog: Arc<Watchdog>) -> io::Result<Self> {
        let Launch { program, arguments, environment, folder, run_as, errors, ending, on_line } = launch;
        let (output, output_writer) = io::pipe()?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(GATE_SCRIPT).arg(program).args(arguments).envs(environment).process_group(0);
        command.stdin(Stdio::piped());
        match errors {
            Some(file) => command.stderr(file),
            None => command.stderr(output_writer.try_clone()?),
        };
        command.stdout(output_writer);
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        if let Some(RunAs { user, group }) = run_as {
            command.uid(user).gid(group);
        }
        let mut child = command.spawn()?;
        drop(command); // it holds writing ends of the output

        let pid = child.id();
        let gate = child.stdin.take();
        let shared = Arc::new(Shared { child: Mutex::new(child), last_lines: Mutex::default() });
        let (ended_sender, ended) = watch::channel(None);
        let (reaped_sender, reaped) = mpsc::channel::<()>();
        {
            let (shared, watchdog) = (Arc::clone(&shared), Arc::clone(&watchdog));
            thread::Builder::new().name(format!("child {pid}")).spawn(move || {
                shared.read(output, on_line);
                let status = shared.reap();
                watchdog.forget(pid);
                drop(watchdog);
                ended_sender.send_replace(status);
                drop(reaped_sender);
            })?;
        }
        let reaped = Mutex::new(reaped);
        let guarded = Self { pid, ending, shared, ended, reaped, _watchdog: Arc::clone(&watchdog) };
        watchdog.watch(pid, ending)?;
        if let Some(mut gate) = gate {
            gate.write_all(b"go\n")?;
        }
        Ok(guarded)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has not ended yet.
    pub fn is_running(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Waits until it has ended by itself or by a signal.
    pub async fn ended(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(status) => status.unwrap_or_default(),
            Err(_) => ExitStatus::default(), // the thread that would tell is gone, and so is the child
        }
    }

    /// The last lines of its output, for error messages.
    pub fn last_lines(&self) -> String {
        Vec::from(locked(&self.shared.last_lines).clone()).join("\n")
    }

    /// Kills it and its children with SIGKILL and waits until they are gone.
    pub async fn kill_9(&self) -> Result<(), ProcessError> {
        self.shared.kill_family();
        match tokio::time::timeout(GONE_WITHIN, self.ended()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(ProcessError::StillThere { pid: self.pid }),
        }
    }

    /// Asks it to end with SIGTERM, and kills it if it has not done so in time.
    pub async fn stop(&self, grace: Duration) -> Result<(), ProcessError> {
        self.stop_with(Signal::SIGTERM, grace).await
    }

    /// Asks it to end with SIGINT, and kills it if it has not done so in time.
    pub async fn interrupt(&self, grace: Duration) -> Result<(), ProcessError> {
        self.stop_with(Signal::SIGINT, grace).await
    }

    async fn stop_with(&self, signal: Signal, grace: Duration) -> Result<(), ProcessError> {
        self.shared.signal(signal);
        match tokio::time::timeout(grace, self.ended()).await {
            Ok(_) => Ok(()),
            Err(_) => self.kill_9().await,
        }
    }

    /// Freezes it with SIGSTOP; its children go on.
    pub fn freeze(&self) {
        self.shared.signal(Signal::SIGSTOP);
    }

    /// Lets it go on after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        self.shared.signal(Signal::SIGCONT);
    }

    fn await_reaped(&self, patience: Duration) {
        let _ = locked(&self.reaped).recv_timeout(patience);
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        match self.ending {
            Ending::Kill => {}
            Ending::Quit => {
                self.shared.signal(Signal::SIGQUIT);
                self.await_reaped(QUITS_WITHIN);
            }
        }
        self.shared.kill_family();
        self.await_reaped(GONE_WITHIN);
    }
}

/// What the child's handle and the thread that reads and reaps it have in common.
#[derive(Debug)]
struct Shared {
    child: Mutex<Child>,
    last_lines: Mutex<VecDeque<String>>,
}

impl Shared {
    fn read(&self, output: PipeReader, mut on_line: Box<dyn FnMut(&str) + Send>) {
        let mut output = BufReader::new(output);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            match (&mut output).take(LONGEST_LINE_BYTES).read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            {
                let mut last_lines = locked(&self.last_lines);
                last_lines.push_back(line.clone());
                if last_lines.len() > REMEMBERED_LINES {
                    last_lines.pop_front();
                }
            }
            on_line(&line);
        }
    }

    /// The output has ended, so the child is about to, if it has not done so: asks now and then, instead of waiting
    /// with the child locked, so that it can still be killed.
    #[expect(clippy::disallowed_methods, reason = "nothing signals the end of a child to a thread")]
    fn reap(&self) -> Option<ExitStatus> {
        let mut pause = Duration::from_millis(1);
        loop {
            match locked(&self.child).try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => {}
                Err(_) => return Some(ExitStatus::default()),
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    fn signal(&self, signal: Signal) {
        let mut child = locked(&self.child);
        if let Ok(None) = child.try_wait() {
            let _ = kill(pid(child.id()), signal);
        }
    }

    /// Its children, which may have left its process group, and all who are still in that: the children of those.
    /// Stopped first, the process cannot start another child while they are listed.
    fn kill_family(&self) {
        let mut child = locked(&self.child);
        if let Ok(None) = child.try_wait() {
            let _ = kill(pid(child.id()), Signal::SIGSTOP);
            let children = children_of(child.id());
            let _ = killpg(pid(child.id()), Signal::SIGKILL);
            for one in children {
                let _ = kill(pid(one), Signal::SIGKILL);
            }
        }
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).or_else(|_| {
        let output = Command::new("pgrep").arg("-P").arg(parent.to_string()).stderr(Stdio::null()).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    listed.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn at_start(program: &str) -> impl FnOnce(io::Error) -> ProcessError {
    let program = program.to_owned();
    move |source| ProcessError::Start { program, source }
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed())
}

/// A panic while one of these locks was held leaves nothing half-done behind it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
