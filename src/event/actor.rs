//! Who does something, for the record and for what only admins may do. Says nothing about how they proved it.

/// Who does something, for the record and for what only admins may do.
///
/// ```
/// use wakeq::Actor;
///
/// let ada = Actor::user("ada@example.com");
/// let operations = Actor::admin("operations").request("b2f0c6");
/// assert_eq!(operations.name(), "operations");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Actor {
    name: String,
    admin: bool,
    request: Option<String>,
    credential: Option<String>,
}

impl Actor {
    /// Somebody who may do everything but block and unblock. The name has 1 to 200 characters, none of them NUL.
    pub fn user(name: &str) -> Self {
        Self { name: name.into(), admin: false, request: None, credential: None }
    }

    /// Somebody who may also block and unblock.
    pub fn admin(name: &str) -> Self {
        Self { name: name.into(), admin: true, request: None, credential: None }
    }

    /// In answer to this request: kept beside what was done. 1 to 64 characters, none of them NUL.
    pub fn request(mut self, id: &str) -> Self {
        self.request = Some(id.into());
        self
    }

    /// By means of this, of which only a public part is named: `with wakeq_0123456789ab`. It tells apart what has one name, and
    /// stands at the beginning of the record's `detail`. 1 to 100 characters, none of them NUL.
    pub fn credential(mut self, public_part: &str) -> Self {
        self.credential = Some(public_part.into());
        self
    }

    /// The name for the record.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether they may block and unblock.
    pub fn is_admin(&self) -> bool {
        self.admin
    }

    /// The request that was answered.
    pub fn request_id(&self) -> Option<&str> {
        self.request.as_deref()
    }

    /// What they showed, by its public part.
    pub fn credential_id(&self) -> Option<&str> {
        self.credential.as_deref()
    }

    /// What is wrong with the name, the request's id or the credential's, if anything.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let within =
            |text: &str, most: usize| (1..=most).contains(&text.chars().count()) && !text.contains('\0');
        if !within(&self.name, 200) {
            return Err("the actor's name must have 1 to 200 characters, none of them NUL");
        }
        if !self.request.as_ref().is_none_or(|id| within(id, 64)) {
            return Err("the request's id must have 1 to 64 characters, none of them NUL");
        }
        if !self.credential.as_ref().is_none_or(|id| within(id, 100)) {
            return Err("the credential's public part must have 1 to 100 characters, none of them NUL");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_requests_have_limits() {
        assert_eq!(Actor::user(&"ä".repeat(200)).request(&"x".repeat(64)).check(), Ok(()));
        for actor in [
            Actor::user(""),
            Actor::user(&"x".repeat(201)),
            Actor::user("a\0"),
            Actor::user("ada").request(""),
            Actor::admin("ops").request(&"x".repeat(65)),
            Actor::user("ada").credential(""),
            Actor::user("ada").credential(&"x".repeat(101)),
        ] {
            assert!(actor.check().is_err(), "{actor:?}");
        }
    }
}
