//! Scopes: the five of them, sets of them, and scopes limited to some handlers. Knows nothing about
//! canvases or principals.

use std::fmt;
use std::str::FromStr;
use wakeq::Name;

/// A kind of operation that can be allowed. No scope implies another: full access is all five.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Emit events.
    Emit,
    /// Read events, handlers, counts and dead events, without what is in them.
    Read,
    /// With [`Scope::Read`] see values, results, checkpoints, payloads and states; with
    /// [`Scope::Operate`], too, lease events and register targets, which receive them.
    Values,
    /// Pause, unpause, cancel, hurry, purge and redrive; with [`Scope::Emit`] put crons.
    Operate,
    /// Block and unblock, erase entities, create and revoke keys, read the audit log.
    Admin,
}

impl Scope {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 5] = [Self::Emit, Self::Read, Self::Values, Self::Operate, Self::Admin];

    /// `emit`, `read`, `values`, `operate` or `admin`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Emit => "emit",
            Self::Read => "read",
            Self::Values => "values",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Emit => 1,
            Self::Read => 2,
            Self::Operate => 4,
            Self::Admin => 8,
            Self::Values => 16,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// The text is not a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a scope is one of emit, read, values, operate, admin; the first four may be limited to handlers: \
     emit:WORKER/*, operate:WORKER/resize"
)]
pub struct InvalidScope;

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or(InvalidScope)
    }
}

/// A scope limited to the handlers of one module, or to one handler: `emit:WORKER/*`,
/// `operate:WORKER/resize`. It only allows operations on these handlers: no lists, and no access to
/// events by id.
///
/// ```
/// use wakeq_service::access::{NarrowScope, Scope};
///
/// let narrow: NarrowScope = "emit:WORKER/*".parse().unwrap();
/// assert_eq!((narrow.scope(), narrow.to_string().as_str()), (Scope::Emit, "emit:WORKER/*"));
/// assert!("admin:WORKER/*".parse::<NarrowScope>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NarrowScope {
    scope: Scope,
    module: Name,
    /// `None` means all handlers of the module.
    name: Option<Name>,
}

impl NarrowScope {
    /// The scope that it limits.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Whether it grants this scope for this handler.
    pub(super) fn allows(&self, needed: Scope, module: &Name, name: &Name) -> bool {
        self.scope == needed && self.module == *module && self.name.as_ref().is_none_or(|own| own == name)
    }

    /// From the column; entries that are not narrow scopes are skipped.
    pub(super) fn of_row(names: &[String]) -> Vec<Self> {
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }
}

impl fmt::Display for NarrowScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or("*", Name::as_str);
        formatter.pad(&format!("{}:{}/{name}", self.scope, self.module))
    }
}

impl FromStr for NarrowScope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        let (scope, handlers) = text.split_once(':').ok_or(InvalidScope)?;
        let (module, name) = handlers.split_once('/').ok_or(InvalidScope)?;
        let scope: Scope = scope.parse()?;
        let part = |text: &str| text.parse::<Name>().map_err(|_| InvalidScope);
        match scope {
            // Keys, blocks and the audit log belong to a whole canvas.
            Scope::Admin => Err(InvalidScope),
            Scope::Emit | Scope::Read | Scope::Values | Scope::Operate => {
                let name = if name == "*" { None } else { Some(part(name)?) };
                Ok(Self { scope, module: part(module)?, name })
            }
        }
    }
}

/// Parses scopes: whole ones, and those limited to handlers, sorted and without duplicates.
pub(crate) fn read_scopes(texts: &[String]) -> Result<(Scopes, Vec<NarrowScope>), InvalidScope> {
    let (narrow, whole): (Vec<&String>, Vec<&String>) = texts.iter().partition(|text| text.contains(':'));
    let whole = whole.into_iter().map(|text| text.parse::<Scope>()).collect::<Result<_, _>>()?;
    let mut narrow = narrow.into_iter().map(|text| text.parse()).collect::<Result<Vec<_>, _>>()?;
    narrow.sort();
    narrow.dedup();
    Ok((whole, narrow))
}

/// A set of scopes. Has no default, so that no rights arise by omission.
///
/// ```
/// use wakeq_service::access::{Scope, Scopes};
///
/// let scopes: Scopes = [Scope::Read, Scope::Emit].into_iter().collect();
/// assert!(scopes.contains(Scope::Emit) && !scopes.contains(Scope::Admin));
/// assert_eq!(scopes.to_string(), "emit,read");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scopes(u8);

impl Scopes {
    /// Whether the set contains this scope.
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }

    /// From the column; scopes that this version does not know grant nothing.
    pub(super) fn of_row(names: &[String]) -> Self {
        names.iter().filter_map(|name| name.parse::<Scope>().ok()).collect()
    }

    /// The value of the column.
    pub(super) fn to_row(self) -> Vec<String> {
        self.iter().map(|scope| scope.as_str().to_owned()).collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Scope::as_str).collect();
        formatter.pad(&names.join(","))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_read_as_it_is_written() {
        for scope in Scope::ALL {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        for text in ["", "EMIT", " emit", "all", "*", "admin,read"] {
            assert_eq!(text.parse::<Scope>(), Err(InvalidScope), "{text:?}");
        }
    }

    #[test]
    fn a_scope_for_some_handlers_is_read_as_it_is_written() {
        for text in ["emit:WORKER/*", "operate:WORKER/resize", "read:image/a.b-c_d", "values:image/*"] {
            assert_eq!(text.parse::<NarrowScope>().unwrap().to_string(), text);
        }
        for text in [
            "emit",
            "emit:",
            "emit:WORKER",
            "emit:WORKER/",
            "emit:/x",
            "emit:*/x",
            "emit:*/*",
            "emit:WORKER/re*",
            "admin:WORKER/*",
            "all:WORKER/*",
            "emit:WORKER/a/b",
            "emit: WORKER/x",
            "emit:WORKER/x:y",
        ] {
            assert_eq!(text.parse::<NarrowScope>(), Err(InvalidScope), "{text:?}");
        }
        let texts = ["emit:B/*", "read", "emit:A/x", "emit:A/x"].map(str::to_owned);
        let (whole, narrow) = read_scopes(&texts).unwrap();
        assert_eq!(
            (whole.to_string(), narrow.len(), narrow[0].to_string()),
            ("read".into(), 2, "emit:A/x".into())
        );
    }

    #[test]
    fn a_set_has_what_was_put_in_and_nothing_else() {
        for bits in 0..32_u8 {
            let put: Vec<_> =
                Scope::ALL.into_iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1).collect();
            let set: Scopes = put.iter().map(|(_, scope)| *scope).collect();
            assert_eq!(set.is_empty(), bits == 0);
            assert_eq!(
                set.iter().collect::<Vec<_>>(),
                put.iter().map(|(_, scope)| *scope).collect::<Vec<_>>()
            );
            assert_eq!(Scopes::of_row(&set.to_row()), set);
        }
        let unknown = ["read".to_owned(), "everything".to_owned(), "Admin".to_owned()];
        assert_eq!(Scopes::of_row(&unknown), Scopes::from_iter([Scope::Read]));
    }
}
