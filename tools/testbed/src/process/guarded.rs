//! Child processes that end when this process ends, even by SIGKILL.
//!
//! A child is held back until the watchdog knows it, so that at no moment it could survive alone.
//! This module must never signal a process that it did not start, nor one that has already been
//! reaped.

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

/// Waits for the guard's word that the child is watched, then becomes the program.
const GATE_SCRIPT: &str = r#"read -r go || exit 125; exec "$0" "$@""#;

/// How long a process has to end by its own signal before it is killed.
const QUITS_WITHIN: Duration = Duration::from_secs(2);
/// How long killed processes have to disappear.
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
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The program ended before it was ready.
    #[error("{program} exited during startup; its last output:\n{words}")]
    Ended {
        /// The program.
        program: String,
        /// The end of its output.
        words: String,
    },
    /// The process was killed, but it, or a child that holds its output, still exists.
    #[error("process {pid} was killed but still exists after {} s", GONE_WITHIN.as_secs())]
    StillThere {
        /// The process id.
        pid: u32,
    },
}

/// Watches child processes and, optionally, a folder: when this process ends, the children are
/// ended and the folder is removed.
///
/// ```
/// use wakeq_testbed::{Guard, Launch};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), wakeq_testbed::ProcessError> {
/// let guard = Guard::new(None)?;
/// let child = guard.start(Launch::new("sleep").argument("1000"))?;
/// child.kill_9().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Guard(Arc<Watchdog>);

impl Guard {
    /// Starts the guard. The folder and its contents are removed when this process ends, or when
    /// the guard and all its children have been dropped.
    pub fn new(folder: Option<&Path>) -> Result<Self, ProcessError> {
        Watchdog::start(folder).map(|watchdog| Self(Arc::new(watchdog))).map_err(at_start("sh"))
    }

    /// Starts a child under this guard.
    pub fn start(&self, launch: Launch) -> Result<ChildProcess, ProcessError> {
        let program = launch.program.to_string_lossy().into_owned();
        ChildProcess::start(launch, Arc::clone(&self.0)).map_err(at_start(&program))
    }
}

/// The user and group that a child runs as; only root may set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAs {
    /// The user id.
    pub user: u32,
    /// The group id.
    pub group: u32,
}

/// How a child is ended when its handle is dropped or this process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ending {
    /// By SIGKILL.
    #[default]
    Kill,
    /// By SIGQUIT, and by SIGKILL two seconds later: for a program that has to release what
    /// outlives a process, like Postgres its shared memory.
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
    /// The program, by path or by name on `PATH`.
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

    /// Adds an argument.
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn arguments<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets a variable in the child's environment, in addition to the inherited ones.
    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the folder in which the child starts.
    pub fn current_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Runs the child as another user; `None` keeps the current one.
    pub fn run_as(mut self, run_as: Option<RunAs>) -> Self {
        self.run_as = run_as;
        self
    }

    /// Writes standard error to this file instead of capturing it.
    pub fn errors_to(mut self, file: File) -> Self {
        self.errors = Some(file);
        self
    }

    /// How the child is ended if it is never stopped explicitly; SIGKILL by default.
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// Sets a callback for every line of output. It runs on a thread of its own and must not block.
    pub fn on_line(mut self, on_line: impl FnMut(&str) + Send + 'static) -> Self {
        self.on_line = Box::new(on_line);
        self
    }
}

/// A running child process. It is ended when this value is dropped and when this process ends in
/// any way.
///
/// It counts as ended once no process holds its standard output, so its own children have ended
/// too.
#[derive(Debug)]
pub struct ChildProcess {
    pid: u32,
    ending: Ending,
    shared: Arc<Shared>,
    ended: watch::Receiver<Option<ExitStatus>>,
    /// Disconnected when the child has been reaped.
    reaped: Mutex<mpsc::Receiver<()>>,
    _watchdog: Arc<Watchdog>,
}

impl ChildProcess {
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
        drop(command); // it holds write ends of the output

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
        let process = Self { pid, ending, shared, ended, reaped, _watchdog: Arc::clone(&watchdog) };
        watchdog.watch(pid, ending)?;
        if let Some(mut gate) = gate {
            gate.write_all(b"go\n")?;
        }
        Ok(process)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has not ended yet.
    pub fn is_running(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Waits until the process has ended, by itself or by a signal.
    pub async fn ended(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(status) => status.unwrap_or_default(),
            // the thread that would report it is gone, and so is the child
            Err(_) => ExitStatus::default(),
        }
    }

    /// The last lines of output, for error messages.
    pub fn last_lines(&self) -> String {
        Vec::from(locked(&self.shared.last_lines).clone()).join("\n")
    }

    /// Kills the process and its children with SIGKILL and waits until they have ended.
    pub async fn kill_9(&self) -> Result<(), ProcessError> {
        self.shared.kill_family();
        match tokio::time::timeout(GONE_WITHIN, self.ended()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(ProcessError::StillThere { pid: self.pid }),
        }
    }

    /// Sends SIGTERM, and kills the process if it has not ended within `grace`.
    pub async fn stop(&self, grace: Duration) -> Result<(), ProcessError> {
        self.stop_with(Signal::SIGTERM, grace).await
    }

    /// Sends SIGINT, and kills the process if it has not ended within `grace`.
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

    /// Freezes the process with SIGSTOP; its children continue.
    pub fn freeze(&self) {
        self.shared.signal(Signal::SIGSTOP);
    }

    /// Resumes the process after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        self.shared.signal(Signal::SIGCONT);
    }

    fn await_reaped(&self, timeout: Duration) {
        let _ = locked(&self.reaped).recv_timeout(timeout);
    }
}

impl Drop for ChildProcess {
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

/// Shared by the child's handle and the thread that reads its output and reaps it.
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

    /// The output has ended, so the child has ended or is about to. Polls instead of waiting with
    /// the lock held, so that the child can still be killed.
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

    /// Kills the process, its children, which may have left its process group, and the members of
    /// that group. The process is stopped first, so that it cannot start another child while they
    /// are listed.
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

/// Ignores poisoning: a panic with one of these locks held leaves nothing half-done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
