//! Judges the role: which rights it lacks for which kind of process, and which it should not have.

use super::{Finding, list};
use crate::store::checkup::{Right, RolePowers};
use wakeq::database::RoleKind;

/// The rights that the role lacks for an API and for a worker. Being complete for one of them is
/// enough.
pub(crate) fn rights(missing: &[(RoleKind, Vec<Right>)], role: &str) -> Finding {
    let what = "rights";
    let complete: Vec<RoleKind> =
        missing.iter().filter(|(_, missing)| missing.is_empty()).map(|(kind, _)| *kind).collect();
    match complete.as_slice() {
        [] => {}
        [RoleKind::Api] => {
            return Finding::ok(what, format!("{role} has what the API needs, and starts no event"));
        }
        [RoleKind::Worker] => {
            return Finding::ok(what, format!("{role} has what a worker needs, and serves no API"));
        }
        [_, _, ..] => return Finding::ok(what, format!("{role} has what the API and a worker need")),
    }
    // Presumably the role is meant for the kind for which the fewest rights are missing.
    let nearest = missing.iter().min_by_key(|(_, missing)| missing.len());
    let Some((kind, missing)) = nearest else {
        return Finding::ok(what, format!("{role} was not checked"));
    };
    let words: Vec<String> =
        missing.iter().map(|right| format!("{} on {}", right.right, right.object)).collect();
    let advice = format!(
        "run `wakeq migrate --{kind}-role '{role}'` as the owner of the schema (a role that only emits needs less: docs/sql.md)"
    );
    Finding::fail(what, format!("{role} lacks {} for the kind `{kind}`", list(&words)), advice)
}

/// The powers that a process's role should not have.
pub(crate) fn role(powers: RolePowers, role: &str) -> Finding {
    let what = "role";
    let advice = "make roles for the API and the workers, and run `wakeq migrate --api-role … --worker-role …` as the owner \
                  (docs/operations.md#rights)";
    let RolePowers { is_superuser, owns_schema, makes_roles, public_functions } = powers;
    let powers = [
        (is_superuser, "is, or may become, a superuser"),
        (owns_schema, "owns the schema: it may drop the log, delete the audit log and alter every table"),
        (makes_roles, "may make roles, and so give itself the rights of others"),
    ];
    let powers: Vec<&str> = powers.into_iter().filter(|(has, _)| *has).map(|(_, words)| words).collect();
    if let [first, ..] = powers.as_slice() {
        return Finding::warn(what, format!("{role} {first}"), advice);
    }
    if public_functions {
        let advice = "run `revoke all on all functions in schema wakeq from public` as the owner, or `wakeq migrate --api-role …`";
        return Finding::warn(what, "every role may execute functions of the schema", advice);
    }
    Finding::ok(what, format!("{role} owns nothing of the schema"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    fn lacking(count: usize) -> Vec<Right> {
        let right = Right { kind: "table".into(), object: "wakeq.log".into(), right: "insert".into() };
        vec![right; count]
    }

    #[test]
    fn rights_of_one_role_kind_suffice() {
        let found = |api, worker| {
            rights(&[(RoleKind::Api, lacking(api)), (RoleKind::Worker, lacking(worker))], "app")
        };
        assert_eq!(found(0, 0).found, "app has what the API and a worker need");
        assert_eq!(found(0, 3).found, "app has what the API needs, and starts no event");
        assert_eq!(found(3, 0).found, "app has what a worker needs, and serves no API");
        let lacks = found(30, 1);
        assert_eq!(
            (lacks.level, lacks.found.as_str()),
            (Level::Fail, "app lacks insert on wakeq.log for the kind `worker`")
        );
        assert!(lacks.advice.unwrap().starts_with("run `wakeq migrate --worker-role 'app'` as the owner"));
    }

    #[test]
    fn a_role_that_could_do_more_is_a_warning() {
        let none = RolePowers {
            is_superuser: false,
            owns_schema: false,
            makes_roles: false,
            public_functions: false,
        };
        assert_eq!(role(none, "app").level, Level::Ok);
        for (powers, words) in [
            (RolePowers { is_superuser: true, ..none }, "superuser"),
            (RolePowers { owns_schema: true, ..none }, "owns the schema"),
            (RolePowers { makes_roles: true, ..none }, "make roles"),
            (RolePowers { public_functions: true, ..none }, "every role"),
        ] {
            let found = role(powers, "app");
            assert!(found.level == Level::Warn && found.found.contains(words), "{found}");
        }
    }
}
