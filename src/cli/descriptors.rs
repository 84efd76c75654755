//! File descriptors: a server needs one for each connection, and many systems allow a process 1,024 until it asks.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What a process needs beside its connections: for the database, Pub/Sub, and the runtime.
const OTHERS: u64 = 128;

/// Raises the limit of this process as far as it may, and says if that is too little for so many connections.
pub(super) fn raise(connections: usize) {
    let needed = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        // Not to infinity, which not every system takes.
        let wanted = soft.max(needed.min(hard));
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).map(|()| wanted)
    });
    match raised {
        Ok(limit) if limit >= needed => {}
        Ok(limit) => tracing::warn!(
            limit,
            needed,
            "too few file descriptors for all connections: raise the hard limit (ulimit -Hn), or lower \
             --max-connections"
        ),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the limit of file descriptors stays as it is"
            );
        }
    }
}
