//! Principals, their grants, and the one function that decides. Pure: no I/O, no clock, no
//! credentials.

use uuid::Uuid;

use super::{KeyId, NarrowScope, Scope, Scopes};
use wakeq::{CanvasId, Name};

/// Where a grant applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// On one canvas.
    Canvas(CanvasId),
    /// On every canvas, including future ones.
    EveryCanvas,
}

impl Reach {
    /// From the column: null means every canvas.
    pub(super) fn of_row(canvas_id: Option<Uuid>) -> Self {
        canvas_id.map(CanvasId).map_or(Self::EveryCanvas, Self::Canvas)
    }

    /// The value of the column.
    pub(super) fn to_row(self) -> Option<CanvasId> {
        match self {
            Self::Canvas(canvas) => Some(canvas),
            Self::EveryCanvas => None,
        }
    }

    fn covers(self, canvas: CanvasId) -> bool {
        match self {
            Self::Canvas(own) => own == canvas,
            Self::EveryCanvas => true,
        }
    }
}

/// Scopes and where they apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Where they apply.
    pub reach: Reach,
    /// The granted scopes.
    pub scopes: Scopes,
}

/// An identified caller and its grants. Has no default and is never deserialized: rights come from
/// a key, from a registered service account, or from the program itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    name: String,
    key: Option<KeyId>,
    grants: Vec<Grant>,
    /// Scopes granted for some handlers only, and where they apply.
    narrow: Vec<(Reach, NarrowScope)>,
}

impl Principal {
    /// A principal that this program vouches for, such as the user of a command. `name` is what the
    /// audit log shows, for example `cli:ada`.
    pub fn trusted(name: impl Into<String>, grants: Vec<Grant>) -> Self {
        Self { name: name.into(), key: None, grants, narrow: Vec::new() }
    }

    /// The holder of a key.
    pub(super) fn of_key(key: KeyId, holder: &str, granted: GrantSet) -> Self {
        let GrantSet { grants, narrow } = granted;
        Self { name: format!("key:{holder}"), key: Some(key), grants, narrow }
    }

    /// A Google service account.
    pub(super) fn of_account(email: &str, granted: GrantSet) -> Self {
        let GrantSet { grants, narrow } = granted;
        Self { name: format!("account:{email}"), key: None, grants, narrow }
    }

    /// The name in the audit log: `key:<holder>`, `account:<email>`, or the name given to
    /// [`Principal::trusted`]. At most 200 characters, unless the program chose a longer one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The public part of the key that was presented, if it was a key: tells two keys of one holder
    /// apart.
    pub fn key(&self) -> Option<KeyId> {
        self.key
    }

    /// The scopes that were granted for all handlers.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The handlers of a canvas for which a scope was granted on its own: each a module, with a
    /// name unless it is all of the module; sorted, and without repeats.
    pub(crate) fn handlers_on(&self, canvas: CanvasId, scope: Scope) -> Vec<(Name, Option<Name>)> {
        let narrow =
            self.narrow.iter().filter(|(reach, narrow)| reach.covers(canvas) && narrow.scope() == scope);
        let handlers = narrow.map(|(_, narrow)| narrow.handlers());
        let mut handlers: Vec<_> = handlers.map(|(module, name)| (module.clone(), name.cloned())).collect();
        handlers.sort();
        handlers.dedup();
        handlers
    }

    /// All that it may do on a canvas, as a text: two for whom it is equal are allowed the same
    /// there.
    pub(crate) fn rights_on(&self, canvas: CanvasId) -> String {
        let place = |reach: Reach| if reach == Reach::EveryCanvas { "*" } else { "" };
        let grants = self.grants.iter().filter(|grant| grant.reach.covers(canvas));
        let grants = grants.map(|grant| format!("{}{}", place(grant.reach), grant.scopes));
        let narrow = self.narrow.iter().filter(|(reach, _)| reach.covers(canvas));
        let narrow = narrow.map(|(reach, narrow)| format!("{}{narrow}", place(*reach)));
        let mut rights: Vec<String> = grants.chain(narrow).collect();
        rights.sort_unstable();
        rights.join(" ")
    }
}

/// The grants in the rows of a credential.
#[derive(Clone, Debug, Default)]
pub(super) struct GrantSet {
    grants: Vec<Grant>,
    narrow: Vec<(Reach, NarrowScope)>,
}

impl GrantSet {
    /// Adds the grants of one row.
    pub(super) fn and(mut self, reach: Reach, scopes: &[String]) -> Self {
        self.grants.push(Grant { reach, scopes: Scopes::of_row(scopes) });
        self.narrow.extend(NarrowScope::of_row(scopes).into_iter().map(|narrow| (reach, narrow)));
        self
    }
}

/// Why an identified caller may not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Nothing is granted on this canvas. Reported as if the canvas did not exist, so that callers
    /// cannot find out which canvases there are.
    #[error("there is no such thing")]
    NotFound,
    /// The operation concerns every canvas, and the scope is not granted on all of them.
    #[error(
        "this concerns the events of all canvases: it needs a key or an account that reaches every \
         canvas, with the scope `{needed}`; `wakeq keys create NAME --scope {needed} \
         --all-canvases` creates such a key"
    )]
    NotEverywhere {
        /// The missing scope.
        needed: Scope,
    },
    /// Other scopes are granted on this canvas, but not this one.
    #[error("this needs the scope `{needed}`, which was not granted")]
    Forbidden {
        /// The missing scope.
        needed: Scope,
    },
    /// The scope is granted on this canvas for some handlers only, and the operation concerns
    /// another handler or no single one.
    #[error(
        "the scope `{needed}` was granted for some handlers only, and this request is about another \
         handler, or not about a single one: a list of events has to name one of them, and all else \
         takes the scope for all handlers"
    )]
    Narrow {
        /// The scope.
        needed: Scope,
    },
    /// The scope is granted for the handlers concerned, and the request would write more than their
    /// events.
    #[error(
        "the scope `{needed}` was granted for some handlers only, and {what} writes more than events of \
         these handlers: it needs the scope for all handlers"
    )]
    Beyond {
        /// The scope.
        needed: Scope,
        /// The field or the operation.
        what: &'static str,
    },
}

/// Decides whether a principal may use a scope on a canvas: the only place where that is decided.
/// Scopes that are not granted are denied.
///
/// ```
/// use wakeq::CanvasId;
/// use wakeq_service::access::{Denied, Grant, Principal, Reach, Scope, authorize};
///
/// let scopes = [Scope::Read].into_iter().collect();
/// let ada = Principal::trusted("cli:ada", vec![Grant { reach: Reach::Canvas(CanvasId::DEFAULT), scopes }]);
/// assert_eq!(authorize(&ada, CanvasId::DEFAULT, Scope::Read), Ok(()));
/// assert_eq!(
///     authorize(&ada, CanvasId::DEFAULT, Scope::Admin),
///     Err(Denied::Forbidden { needed: Scope::Admin })
/// );
/// ```
pub fn authorize(principal: &Principal, canvas: CanvasId, needed: Scope) -> Result<(), Denied> {
    let mut granted = principal
        .grants
        .iter()
        .filter(|grant| grant.reach.covers(canvas) && !grant.scopes.is_empty())
        .peekable();
    let mut narrow = principal.narrow.iter().filter(|(reach, _)| reach.covers(canvas)).peekable();
    if granted.peek().is_none() && narrow.peek().is_none() {
        return Err(Denied::NotFound);
    }
    if granted.any(|grant| grant.scopes.contains(needed)) {
        Ok(())
    } else if narrow.any(|(_, narrow)| narrow.scope() == needed) {
        Err(Denied::Narrow { needed })
    } else {
        Err(Denied::Forbidden { needed })
    }
}

/// Like [`authorize`], for an operation on one handler, for which the scope may have been granted
/// on its own.
pub(crate) fn authorize_handler(
    principal: &Principal,
    canvas: CanvasId,
    needed: Scope,
    module: &Name,
    name: &Name,
) -> Result<(), Denied> {
    authorize_handlers(principal, canvas, needed, (module, Some(name)))
}

/// The same for an operation on all handlers of a module, if no name is given.
pub(crate) fn authorize_handlers(
    principal: &Principal,
    canvas: CanvasId,
    needed: Scope,
    (module, name): (&Name, Option<&Name>),
) -> Result<(), Denied> {
    let allows =
        |(reach, narrow): &(Reach, NarrowScope)| reach.covers(canvas) && narrow.allows(needed, module, name);
    match authorize(principal, canvas, needed) {
        Err(Denied::Narrow { .. }) if principal.narrow.iter().any(allows) => Ok(()),
        decided => decided,
    }
}

/// Like [`authorize`], for an operation whose handlers are not known yet: each of them has to be
/// checked with [`authorize_handler`] later.
pub(crate) fn authorize_some_handler(
    principal: &Principal,
    canvas: CanvasId,
    needed: Scope,
) -> Result<(), Denied> {
    match authorize(principal, canvas, needed) {
        Err(Denied::Narrow { .. }) => Ok(()),
        decided => decided,
    }
}

/// The canvases on which a principal has a scope, for operations on several canvases; `None` means
/// all of them. Follows the same rule as [`authorize`].
fn canvases(principal: &Principal, needed: Scope) -> Result<Option<Vec<CanvasId>>, Denied> {
    if principal.grants.iter().all(|grant| grant.scopes.is_empty()) {
        return Err(Denied::NotFound);
    }
    let mut canvases = Vec::new();
    for grant in principal.grants.iter().filter(|grant| grant.scopes.contains(needed)) {
        match grant.reach {
            Reach::EveryCanvas => return Ok(None),
            Reach::Canvas(canvas) => canvases.push(canvas),
        }
    }
    canvases.sort_unstable();
    if canvases.is_empty() { Err(Denied::Forbidden { needed }) } else { Ok(Some(canvases)) }
}

/// The same for two scopes, of which both are needed on a canvas.
pub(crate) fn canvases_with(
    principal: &Principal,
    [first, second]: [Scope; 2],
) -> Result<Option<Vec<CanvasId>>, Denied> {
    let both: Vec<_> = match (canvases(principal, first)?, canvases(principal, second)?) {
        (None, canvases) | (canvases, None) => return Ok(canvases),
        (Some(own), Some(others)) => own.into_iter().filter(|canvas| others.contains(canvas)).collect(),
    };
    if both.is_empty() { Err(Denied::Forbidden { needed: second }) } else { Ok(Some(both)) }
}

/// Decides whether a principal may use a scope for an operation on all canvases. Only grants on
/// every canvas count, however many single canvases are granted.
///
/// ```
/// use wakeq::CanvasId;
/// use wakeq_service::access::{Denied, Grant, Principal, Reach, Scope, authorize_everywhere};
///
/// let scopes = [Scope::Operate].into_iter().collect();
/// let ada = Principal::trusted("cli:ada", vec![Grant { reach: Reach::Canvas(CanvasId::DEFAULT), scopes }]);
/// assert_eq!(
///     authorize_everywhere(&ada, Scope::Operate),
///     Err(Denied::NotEverywhere { needed: Scope::Operate })
/// );
/// ```
pub fn authorize_everywhere(principal: &Principal, needed: Scope) -> Result<(), Denied> {
    let mut everywhere = principal.grants.iter().filter(|grant| grant.reach == Reach::EveryCanvas);
    if everywhere.any(|grant| grant.scopes.contains(needed)) {
        Ok(())
    } else {
        Err(Denied::NotEverywhere { needed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: CanvasId = CanvasId(Uuid::from_u128(1));
    const OTHER: CanvasId = CanvasId(Uuid::from_u128(2));

    fn sets() -> impl Iterator<Item = Scopes> {
        (0..32_u8).map(|bits| {
            Scope::ALL
                .into_iter()
                .enumerate()
                .filter(|(i, _)| bits >> i & 1 == 1)
                .map(|(_, scope)| scope)
                .collect()
        })
    }

    /// The rule, written differently from the code.
    fn expected(here: bool, scopes: Scopes, needed: Scope) -> Result<(), Denied> {
        match (here && scopes.iter().count() > 0, scopes.iter().any(|scope| scope == needed)) {
            (false, _) => Err(Denied::NotFound),
            (true, false) => Err(Denied::Forbidden { needed }),
            (true, true) => Ok(()),
        }
    }

    #[test]
    fn whose_rights_are_equal_may_do_the_same() {
        let granted = |grants: GrantSet, reach, scopes: &[&str]| {
            let rows: Vec<String> = scopes.iter().map(|&scope| scope.to_owned()).collect();
            grants.and(reach, &rows)
        };
        let of = |reach, scopes: &[&str]| {
            Principal::of_account("ada", granted(GrantSet::default(), reach, scopes)).rights_on(OWN)
        };
        let all = [
            of(Reach::Canvas(OWN), &["read"]),
            of(Reach::EveryCanvas, &["read"]),
            of(Reach::Canvas(OWN), &["read", "admin"]),
            of(Reach::Canvas(OWN), &["read", "operate"]),
            of(Reach::Canvas(OWN), &["read", "operate:WORKER/a"]),
            of(Reach::Canvas(OWN), &["read", "operate:WORKER/b"]),
            of(Reach::EveryCanvas, &["read", "operate:WORKER/b"]),
            of(Reach::Canvas(OTHER), &["read"]),
        ];
        for (at, rights) in all.iter().enumerate() {
            assert!(!all[..at].contains(rights), "{rights}");
        }
        let read = granted(GrantSet::default(), Reach::Canvas(OWN), &["read"]);
        let elsewhere = granted(read, Reach::Canvas(OTHER), &["admin", "operate:WORKER/a"]);
        let bob = Principal::of_account("bob", elsewhere);
        assert_eq!(bob.rights_on(OWN), all[0], "neither a name counts nor what is allowed elsewhere");
    }

    #[test]
    fn every_set_of_scopes_on_every_reach() {
        let mut allowed = 0;
        for scopes in sets() {
            for (reach, here) in
                [(Reach::Canvas(OWN), true), (Reach::Canvas(OTHER), false), (Reach::EveryCanvas, true)]
            {
                for needed in Scope::ALL {
                    let principal = Principal::trusted("test", vec![Grant { reach, scopes }]);
                    let answer = authorize(&principal, OWN, needed);
                    assert_eq!(answer, expected(here, scopes, needed), "{reach:?} {scopes:?} {needed}");
                    allowed += u32::from(answer.is_ok());
                }
            }
        }
        assert_eq!(
            allowed,
            2 * 5 * 16,
            "each scope is in half of the 32 sets, and two of three reaches count"
        );
    }

    #[test]
    fn grants_add_up_on_their_own_canvas_only() {
        for here in sets() {
            for there in sets() {
                let grants = vec![
                    Grant { reach: Reach::Canvas(OTHER), scopes: there },
                    Grant { reach: Reach::Canvas(OWN), scopes: here },
                ];
                let principal = Principal::trusted("test", grants);
                for needed in Scope::ALL {
                    assert_eq!(authorize(&principal, OWN, needed), expected(true, here, needed));
                    assert_eq!(authorize(&principal, OTHER, needed), expected(true, there, needed));
                }
            }
        }
    }

    #[test]
    fn canvases_are_those_on_which_the_scope_is_granted() {
        for here in sets() {
            for (reach, there) in [(Reach::Canvas(OTHER), Scope::Read), (Reach::EveryCanvas, Scope::Emit)] {
                let grants = vec![
                    Grant { reach: Reach::Canvas(OWN), scopes: here },
                    Grant { reach, scopes: [there].into_iter().collect() },
                ];
                let principal = Principal::trusted("test", grants);
                for needed in Scope::ALL {
                    let canvases = canvases(&principal, needed);
                    for canvas in [OWN, OTHER, CanvasId(Uuid::from_u128(3))] {
                        let covered = match &canvases {
                            Ok(Some(canvases)) => canvases.contains(&canvas),
                            Ok(None) => true,
                            Err(_) => false,
                        };
                        assert_eq!(covered, authorize(&principal, canvas, needed).is_ok(), "{principal:?}");
                    }
                }
            }
        }
        let nobody = Principal::trusted("nobody", Vec::new());
        assert_eq!(canvases(&nobody, Scope::Read), Err(Denied::NotFound));
    }

    #[test]
    fn both_scopes_are_needed_on_the_same_canvas() {
        let grant = |reach, scope| Grant { reach, scopes: [scope].into_iter().collect() };
        let of = |grants| canvases_with(&Principal::trusted("test", grants), [Scope::Read, Scope::Values]);
        let (own, other, all) = (Reach::Canvas(OWN), Reach::Canvas(OTHER), Reach::EveryCanvas);
        let forbidden = |needed| Err(Denied::Forbidden { needed });
        assert_eq!(of(vec![grant(own, Scope::Read)]), forbidden(Scope::Values));
        assert_eq!(of(vec![grant(own, Scope::Values)]), forbidden(Scope::Read));
        let apart = vec![grant(own, Scope::Read), grant(other, Scope::Values)];
        assert_eq!(of(apart.clone()), forbidden(Scope::Values));
        assert_eq!(of([apart, vec![grant(other, Scope::Read)]].concat()), Ok(Some(vec![OTHER])));
        assert_eq!(of(vec![grant(all, Scope::Read), grant(own, Scope::Values)]), Ok(Some(vec![OWN])));
        assert_eq!(of(vec![grant(all, Scope::Values), grant(own, Scope::Read)]), Ok(Some(vec![OWN])));
        assert_eq!(of(vec![grant(all, Scope::Values), grant(all, Scope::Read)]), Ok(None));
    }

    #[test]
    fn a_narrow_scope_counts_for_its_handlers_on_its_canvas_and_for_nothing_else() {
        let rows = ["emit:WORKER/resize".to_owned(), "operate:image/*".to_owned()];
        let robot = Principal::of_account("robot", GrantSet::default().and(Reach::Canvas(OWN), &rows));
        let name = |text: &str| text.parse::<Name>().unwrap();
        for canvas in [OWN, OTHER] {
            for (module, handler) in
                [("WORKER", "resize"), ("WORKER", "other"), ("image", "resize"), ("image", "other")]
            {
                for needed in Scope::ALL {
                    let asked = authorize_handler(&robot, canvas, needed, &name(module), &name(handler));
                    let expected = match (needed, canvas == OWN) {
                        (_, false) => Err(Denied::NotFound),
                        (Scope::Emit, true) if (module, handler) == ("WORKER", "resize") => Ok(()),
                        (Scope::Operate, true) if module == "image" => Ok(()),
                        (Scope::Emit | Scope::Operate, true) => Err(Denied::Narrow { needed }),
                        (Scope::Read | Scope::Values | Scope::Admin, true) => {
                            Err(Denied::Forbidden { needed })
                        }
                    };
                    assert_eq!(asked, expected, "{canvas} {module}/{handler} {needed}");
                }
            }
        }
        let of_module = |module: &str, needed| authorize_handlers(&robot, OWN, needed, (&name(module), None));
        assert_eq!(of_module("image", Scope::Operate), Ok(()));
        assert_eq!(
            of_module("WORKER", Scope::Emit),
            Err(Denied::Narrow { needed: Scope::Emit }),
            "one of it"
        );
        assert_eq!(of_module("WORKER", Scope::Operate), Err(Denied::Narrow { needed: Scope::Operate }));
        assert_eq!(robot.handlers_on(OWN, Scope::Operate), [(name("image"), None::<Name>)]);
        assert_eq!(robot.handlers_on(OWN, Scope::Emit), [(name("WORKER"), Some(name("resize")))]);
        assert!(robot.handlers_on(OTHER, Scope::Emit).is_empty());
        assert_eq!(authorize(&robot, OWN, Scope::Emit), Err(Denied::Narrow { needed: Scope::Emit }));
        assert_eq!(authorize_some_handler(&robot, OWN, Scope::Emit), Ok(()));
        assert_eq!(authorize_some_handler(&robot, OTHER, Scope::Emit), Err(Denied::NotFound));
        assert!(
            canvases(&robot, Scope::Emit).is_err() && authorize_everywhere(&robot, Scope::Operate).is_err()
        );
    }

    #[test]
    fn a_principal_without_grants_gets_not_found() {
        let nobody = Principal::trusted("nobody", Vec::new());
        for needed in Scope::ALL {
            for canvas in [OWN, OTHER, CanvasId::DEFAULT] {
                assert_eq!(authorize(&nobody, canvas, needed), Err(Denied::NotFound));
            }
        }
    }
}
