//! Removes a container at the end: a small shell that waits until this process ends, or its own value is dropped.
//!
//! It goes by the container's name, so it can be there before the container is. It must never hold up anybody.

use tokio::sync::oneshot;

use super::ContainerError;
use crate::process::{Ending, Guard, Guarded, Launch, ProcessError, program_on_path};

/// On SIGQUIT, by which the guard ends it, it leaves the removal to a process that nobody waits for or kills.
const SCRIPT: &str = r#"
sleep 2147483647 >/dev/null 2>&1 &
sleeping=$!
trap 'kill $sleeping; "$0" rm --force --volumes "$1" >/dev/null 2>&1 & exit 0' QUIT
echo ready
wait
"#;

/// Removes the container of this name when it is dropped, and when this process ends, however that happens.
#[derive(Debug)]
pub(super) struct Remover {
    _shell: Guarded,
}

impl Remover {
    pub(super) async fn of(name: &str) -> Result<Self, ContainerError> {
        let client = program_on_path("docker").ok_or(ContainerError::NoClient)?;
        let (sender, ready) = oneshot::channel();
        let mut sender = Some(sender);
        let launch = Launch::new("sh").argument("-c").argument(SCRIPT).argument(client).argument(name);
        let launch = launch.ending(Ending::Quit).on_line(move |_| {
            if let Some(sender) = sender.take() {
                let _ = sender.send(());
            }
        });
        let shell = Guard::new(None)?.start(launch)?;
        // Until then the signal would end it before it knows what to do.
        if ready.await.is_err() {
            return Err(ProcessError::Ended { program: "sh".to_owned(), words: shell.last_lines() }.into());
        }
        Ok(Self { _shell: shell })
    }
}
