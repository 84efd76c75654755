//! Judges which other roles may connect: a session can use up what all sessions of a server share.

use super::{Finding, list};
use crate::store::checkup::Strangers;

/// To connect is a matter of trust, also without any right on the schema.
pub(crate) fn strangers(strangers: &Strangers) -> Finding {
    let what = "other roles";
    let Strangers { all_connect, all_lock, all_make_tables, connecting, unlimited } = strangers;
    if *all_connect {
        let advice = "run `revoke connect on database … from public`, and grant it to the roles that need it \
                      (docs/operations.md#rights)";
        return Finding::warn(what, "every role of the server may connect, and so hold up the queue", advice);
    }
    if *connecting == 0 {
        return Finding::ok(what, "none may connect");
    }
    let advice = "limit it as docs/operations.md#roles-of-other-programs says";
    if !unlimited.is_empty() {
        let found = format!(
            "{} may connect without a limit of connections, of a statement's time, or of an open transaction's",
            list(unlimited)
        );
        return Finding::warn(what, found, advice);
    }
    for (may, words) in
        [(all_lock, "take any number of advisory locks"), (all_make_tables, "make temporary tables")]
    {
        if *may {
            return Finding::warn(
                what,
                format!("{connecting} may connect, and every role may {words}"),
                advice,
            );
        }
    }
    Finding::ok(what, format!("{connecting} may connect, within limits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn excessive_rights_of_other_roles_are_a_warning() {
        let none = Strangers::default();
        assert_eq!(strangers(&none).to_string(), "ok    other roles: none may connect");
        let limited = Strangers { connecting: 2, ..none.clone() };
        assert_eq!(strangers(&limited).level, Level::Ok);
        for (facts, words) in [
            (Strangers { all_connect: true, ..none }, "every role of the server"),
            (
                Strangers { unlimited: vec!["shop".into()], ..limited.clone() },
                "shop may connect without a limit",
            ),
            (Strangers { all_lock: true, ..limited.clone() }, "advisory locks"),
            (Strangers { all_make_tables: true, ..limited }, "temporary tables"),
        ] {
            let found = strangers(&facts);
            assert!(found.level == Level::Warn && found.found.contains(words), "{found}");
        }
    }
}
