//! File descriptors: a server needs one per connection, but many systems allow only 1,024 by
//! default.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors needed besides connections: for the database, Pub/Sub and the runtime.
const OTHERS: u64 = 128;

/// Raises this process's limit as far as allowed, and warns if it is too low for this many
/// connections.
pub(super) fn raise(connections: usize) {
    let needed = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        // Not to infinity, which some systems refuse.
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
