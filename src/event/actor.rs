//! Who performs an administrative action. How they authenticated is not part of it.

/// Who performs an administrative action: recorded, and checked where only admins are allowed.
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
    /// A user, who may do everything except block and unblock. The name has 1 to 200 characters,
    /// none of them NUL.
    pub fn user(name: &str) -> Self {
        Self { name: name.into(), admin: false, request: None, credential: None }
    }

    /// An admin, who may also block and unblock. The name has the limits of [`Actor::user`].
    pub fn admin(name: &str) -> Self {
        Self { name: name.into(), admin: true, request: None, credential: None }
    }

    /// Sets the id of the request that asked for the action; it is stored in the record. 1 to 64
    /// characters, none of them NUL.
    pub fn request(mut self, id: &str) -> Self {
        self.request = Some(id.into());
        self
    }

    /// Sets the public part of the credential that was used, such as `with wakeq_0123456789ab`. It
    /// tells apart credentials of one name, and the record's `detail` begins with it. 1 to 100
    /// characters, none of them NUL.
    pub fn credential(mut self, public_part: &str) -> Self {
        self.credential = Some(public_part.into());
        self
    }

    /// The name in the record.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the actor may block and unblock.
    pub fn is_admin(&self) -> bool {
        self.admin
    }

    /// The id of the request that asked for the action.
    pub fn request_id(&self) -> Option<&str> {
        self.request.as_deref()
    }

    /// The public part of the credential that was used.
    pub fn credential_id(&self) -> Option<&str> {
        self.credential.as_deref()
    }

    /// What is wrong with the name, the request's id or the credential's, if anything.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), &'static str> {
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
