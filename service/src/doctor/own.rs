//! Reports the deployment's own origins and audiences, to which nothing is delivered.

use super::Finding;
use wakeq::targets::OwnDeployment;

/// The names under which the API is reached, as far as its processes have registered them.
pub(crate) fn own_names(own: &OwnDeployment) -> Finding {
    let names = own.to_string();
    let found = if names.is_empty() {
        "none was given (WAKEQ_OWN_ORIGINS); deliveries to the API are refused there all the same".to_owned()
    } else {
        format!("no target may be at {names}")
    };
    Finding::ok("own origins", found)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn shows_the_deployments_own_names() {
        let of = |names: &[&str]| {
            own_names(&OwnDeployment::new(Uuid::nil(), names.iter().map(|&name| name.into()).collect())).found
        };
        assert_eq!(of(&["https://a.example", "b"]), "no target may be at https://a.example, b");
        assert!(of(&[]).contains("WAKEQ_OWN_ORIGINS"));
    }
}
