//! The name of a worker, shown with its claims.

use std::sync::OnceLock;

use uuid::Uuid;

use crate::event::Name;

/// Maximum number of characters of the host's name that are kept, because every claimed row stores
/// them. They are taken from the end, where the names of pods differ.
const HOST_MAX: usize = 31;
/// Maximum number of characters of the host's name in a worker's row.
const SHOWN_MAX: usize = 255;

/// The name of this process, constant until it ends: the host's name, which in a container is that
/// of the pod, and eight random hexadecimal digits.
pub(super) fn of_this_process() -> Name {
    static NAME: OnceLock<Name> = OnceLock::new();
    NAME.get_or_init(|| name(&host(), Uuid::new_v4())).clone()
}

/// The host's name as a worker's row shows it, if it is known.
pub(super) fn host_of_this_process() -> Option<String> {
    shown(&host())
}

/// A host's name without blanks and control characters, up to a length that no host's name has.
fn shown(host: &str) -> Option<String> {
    let shown: String = host.trim().chars().filter(char::is_ascii_graphic).take(SHOWN_MAX).collect();
    (!shown.is_empty()).then_some(shown)
}

fn host() -> String {
    let named = std::env::var("HOSTNAME").ok().filter(|host| !host.trim().is_empty());
    named.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok()).unwrap_or_default()
}

fn name(host: &str, random: Uuid) -> Name {
    let kept = |char: char| if char.is_ascii_alphanumeric() || "_.-".contains(char) { char } else { '-' };
    let host: Vec<char> = host.trim().chars().map(kept).collect();
    let host: String = host[host.len().saturating_sub(HOST_MAX)..].iter().collect();
    let host = if host.is_empty() { "worker" } else { &host };
    format!("{host}-{:08x}", random.as_fields().0).parse().unwrap_or_else(|_| Name::worker())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_called_after_its_host_and_has_one_name() {
        let random = Uuid::from_u128(0x89ab_cdef_0000_0000_0000_0000_0000_0000);
        for (host, expected) in [
            ("orders-6d4cf-x7k2p\n", "orders-6d4cf-x7k2p-89abcdef"),
            ("ada's laptop", "ada-s-laptop-89abcdef"),
            ("payments-reconciliation-worker-6d4cf9b8c7-x7k2p", "liation-worker-6d4cf9b8c7-x7k2p-89abcdef"),
            ("", "worker-89abcdef"),
        ] {
            assert_eq!(name(host, random).as_str(), expected);
        }
        assert_eq!(name(&"é".repeat(300), random).as_str().len(), HOST_MAX + 9);
        assert_eq!(of_this_process(), of_this_process());
    }

    #[test]
    fn a_row_shows_the_whole_name_of_the_host() {
        assert_eq!(
            shown(" payments-worker-6d4cf9b8c7-x7k2p.eu\n").as_deref(),
            Some("payments-worker-6d4cf9b8c7-x7k2p.eu")
        );
        assert_eq!(shown(" \0\u{1b} "), None);
        assert_eq!(shown(&"x".repeat(300)).unwrap().len(), SHOWN_MAX);
    }
}
