//! What a credential may be allowed: four scopes, sets of them, and scopes for some handlers only. Says nothing about
//! canvases or about who asks.

use std::fmt;
use std::str::FromStr;

use crate::event::Name;

/// One kind of thing to be allowed. None implies another: who may do everything holds all four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Emit events.
    Emit,
    /// Look at events, handlers, counts and dead events.
    Read,
    /// Pause, unpause, cancel, hurry, purge, redrive; with [`Scope::Read`] register targets, with [`Scope::Emit`] put crons.
    Operate,
    /// Block and unblock, erase entities, make and revoke keys, read the audit list.
    Admin,
}

impl Scope {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 4] = [Self::Emit, Self::Read, Self::Operate, Self::Admin];

    /// `emit`, `read`, `operate` or `admin`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Emit => "emit",
            Self::Read => "read",
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
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// A text that names no scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a scope is one of emit, read, operate, admin; the first three may be limited to handlers: emit:WORKER/*, \
     operate:WORKER/resize"
)]
pub struct InvalidScope;

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or(InvalidScope)
    }
}

/// A scope for the handlers of one module, or for one of them: `emit:WORKER/*`, `operate:WORKER/resize`. It allows what is about
/// such a handler and nothing else: no lists, and no event by its id.
///
/// ```
/// use wakeq::access::{NarrowScope, Scope};
///
/// let narrow: NarrowScope = "emit:WORKER/*".parse().unwrap();
/// assert_eq!((narrow.scope(), narrow.to_string().as_str()), (Scope::Emit, "emit:WORKER/*"));
/// assert!("admin:WORKER/*".parse::<NarrowScope>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NarrowScope {
    scope: Scope,
    module: Name,
    /// None: all of them.
    name: Option<Name>,
}

impl NarrowScope {
    /// What it allows there.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Whether it allows this for a handler.
    pub(super) fn allows(&self, needed: Scope, module: &Name, name: &Name) -> bool {
        self.scope == needed && self.module == *module && self.name.as_ref().is_none_or(|own| own == name)
    }

    /// Those that a row names.
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
            // Keys, blocks and the record are about a whole canvas.
            Scope::Admin => Err(InvalidScope),
            Scope::Emit | Scope::Read | Scope::Operate => {
                let name = if name == "*" { None } else { Some(part(name)?) };
                Ok(Self { scope, module: part(module)?, name })
            }
        }
    }
}

/// What is to be allowed, from texts: whole scopes, and those for some handlers.
pub(crate) fn read_scopes(texts: &[String]) -> Result<(Scopes, Vec<NarrowScope>), InvalidScope> {
    let (narrow, whole): (Vec<&String>, Vec<&String>) = texts.iter().partition(|text| text.contains(':'));
    let whole = whole.into_iter().map(|text| text.parse::<Scope>()).collect::<Result<_, _>>()?;
    let mut narrow = narrow.into_iter().map(|text| text.parse()).collect::<Result<Vec<_>, _>>()?;
    narrow.sort();
    narrow.dedup();
    Ok((whole, narrow))
}

/// A set of scopes. There is no default, so that nobody holds rights without having been given them.
///
/// ```
/// use wakeq::access::{Scope, Scopes};
///
/// let scopes: Scopes = [Scope::Read, Scope::Emit].into_iter().collect();
/// assert!(scopes.contains(Scope::Emit) && !scopes.contains(Scope::Admin));
/// assert_eq!(scopes.to_string(), "emit,read");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scopes(u8);

impl Scopes {
    /// Whether the set has this scope.
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Whether it allows nothing.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// What it has, in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }

    /// The scopes that a row names. One that this program does not know allows nothing.
    pub(super) fn of_row(names: &[String]) -> Self {
        names.iter().filter_map(|name| name.parse::<Scope>().ok()).collect()
    }

    /// As a row names them.
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
        for text in ["emit:WORKER/*", "operate:WORKER/resize", "read:image/a.b-c_d"] {
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
        for bits in 0..16_u8 {
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
