//! Resource names: `projects/{project}/topics/{topic}` and its siblings, and the service's rules
//! for them.
//!
//! It does not know which resources exist.

use super::{Answer, Name, Refusal};

/// The topic of a subscription or a snapshot whose topic was deleted.
pub(super) const DELETED_TOPIC: &str = "_deleted-topic_";

const SHORTEST_ID: usize = 3;
const LONGEST_ID: usize = 255;
const LONGEST_PROJECT: usize = 255;

/// The kinds of resources, by the collection in their names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Topic,
    Subscription,
    Snapshot,
    Schema,
}

impl Kind {
    pub(super) fn collection(self) -> &'static str {
        match self {
            Self::Topic => "topics",
            Self::Subscription => "subscriptions",
            Self::Snapshot => "snapshots",
            Self::Schema => "schemas",
        }
    }

    /// One of this kind, as a sentence begins.
    fn singular(self) -> &'static str {
        match self {
            Self::Topic => "A topic",
            Self::Subscription => "A subscription",
            Self::Snapshot => "A snapshot",
            Self::Schema => "A schema",
        }
    }

    /// The rule for names of this kind.
    fn rule(self) -> String {
        format!(
            "{} is named {}ID, where ID has {SHORTEST_ID} to {LONGEST_ID} characters, begins with a letter but \
             not with goog, and has only letters, digits and -_.~+%.",
            self.singular(),
            self.prefix("PROJECT")
        )
    }

    /// The kind of a well-formed name.
    pub(super) fn of(name: &str) -> Option<Self> {
        let kinds = [Self::Topic, Self::Subscription, Self::Snapshot, Self::Schema];
        kinds.into_iter().find(|kind| well_formed(*kind, name))
    }

    /// The common prefix of the names of a project's resources of this kind.
    pub(super) fn prefix(self, project: &str) -> String {
        format!("projects/{project}/{}/", self.collection())
    }
}

/// Refuses what is not a name of the kind. `field` is named in the refusal.
pub(super) fn check(kind: Kind, field: &str, name: &str) -> Answer<()> {
    if well_formed(kind, name) { Ok(()) } else { Err(misnamed(field, name, &kind.rule())) }
}

/// Checks a name and returns an owned copy.
pub(super) fn own(kind: Kind, field: &str, name: &str) -> Answer<Name> {
    check(kind, field, name)?;
    Ok(name.into())
}

/// Extracts the project's id from `projects/{project}`.
pub(super) fn project(name: &str) -> Answer<&str> {
    name.strip_prefix("projects/")
        .filter(|project| is_project(project))
        .ok_or_else(|| misnamed("project", name, "A project is named projects/PROJECT."))
}

/// The project's id in a well-formed name; empty in any other.
pub(super) fn project_of(name: &str) -> &str {
    name.split('/').nth(1).unwrap_or_default()
}

/// The last part of a name.
pub(super) fn id_of(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The service's words, and then the rule, which it only links to.
fn misnamed(field: &str, name: &str, rule: &str) -> Refusal {
    Refusal::invalid(format!(
        "Invalid resource name given ({field}={name}). Refer to \
         https://cloud.google.com/pubsub/docs/pubsub-basics#resource_names for more information. {rule}"
    ))
}

fn well_formed(kind: Kind, name: &str) -> bool {
    let mut parts = name.split('/');
    parts.next() == Some("projects")
        && parts.next().is_some_and(is_project)
        && parts.next() == Some(kind.collection())
        && parts.next().is_some_and(is_id)
        && parts.next().is_none()
}

/// Every project exists, so any id is valid.
fn is_project(project: &str) -> bool {
    (1..=LONGEST_PROJECT).contains(&project.len())
        && !project.contains(|character: char| character == '/' || character.is_control())
}

fn is_id(id: &str) -> bool {
    (SHORTEST_ID..=LONGEST_ID).contains(&id.len())
        && id.starts_with(|first: char| first.is_ascii_alphabetic())
        && !id.starts_with("goog")
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~+%".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_the_rules() {
        let longest = format!("a{}", "b".repeat(254));
        let longer = format!("{longest}b");
        let table = [
            ("abc", true),
            ("Abc-_.~+%09", true),
            (longest.as_str(), true),
            (longer.as_str(), false),
            ("ab", false),
            ("", false),
            ("1ab", false),
            ("-ab", false),
            ("goog", false),
            ("google-things", false),
            ("Goog-things", true),
            ("a b", false),
            ("abö", false),
            ("ab/c", false),
        ];
        for (id, accepted) in table {
            let name = format!("projects/p/topics/{id}");
            assert_eq!(check(Kind::Topic, "name", &name).is_ok(), accepted, "{id}");
        }
    }

    #[test]
    fn a_name_says_its_collection_and_nothing_else() {
        for name in [
            "abc",
            "topics/abc",
            "projects/p/subscriptions/abc",
            "projects//topics/abc",
            "projects/p/topics/abc/",
            "/projects/p/topics/abc",
            DELETED_TOPIC,
        ] {
            assert!(check(Kind::Topic, "topic", name).is_err(), "{name}");
        }
        assert!(check(Kind::Topic, "topic", "projects/example.com:p-1/topics/abc").is_ok());
        assert_eq!(Kind::of("projects/p/snapshots/abc"), Some(Kind::Snapshot));
        assert_eq!(Kind::of("projects/p/schemas/abc"), Some(Kind::Schema));
        assert_eq!(Kind::of("projects/p/secrets/abc"), None);
    }

    #[test]
    fn the_refusal_names_the_field_and_the_name() {
        let refusal = check(Kind::Topic, "dead_letter_topic", "nonsense").unwrap_err();
        assert_eq!(refusal.code, tonic::Code::InvalidArgument);
        assert!(refusal.message.starts_with("Invalid resource name given (dead_letter_topic=nonsense)."));
    }

    #[test]
    fn the_refusal_states_the_rule() {
        let refusal = check(Kind::Topic, "name", "projects/p/topics/w").unwrap_err();
        let rule = "A topic is named projects/PROJECT/topics/ID, where ID has 3 to 255 characters, begins with a \
                    letter but not with goog, and has only letters, digits and -_.~+%.";
        assert!(refusal.message.ends_with(&format!(" for more information. {rule}")), "{}", refusal.message);
        let refusal = project("p").unwrap_err();
        assert!(refusal.message.ends_with(" A project is named projects/PROJECT."), "{}", refusal.message);
    }

    #[test]
    fn a_project_is_named_by_any_id() {
        assert_eq!(project("projects/anything").ok(), Some("anything"));
        for name in ["projects/", "projects", "anything", "projects/a/b", ""] {
            assert!(project(name).is_err(), "{name}");
        }
    }
}
