//! Whose limits a page is about, and what they allow.

use crate::access::Scope;
use crate::page::ask::Ask;
use crate::page::visit::Visit;
use crate::resources::limits::wire::LimitJson;

/// Whose limits a page is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Canvas,
    /// The operator, for all canvases.
    Operator,
}

impl Owner {
    const PARAMETER: &str = "of";
    const OPERATOR: &str = "operator";

    /// As the address says.
    pub(super) fn of(visit: &Visit) -> Self {
        if visit.parameter(Self::PARAMETER) == Self::OPERATOR { Self::Operator } else { Self::Canvas }
    }

    pub(super) fn ask(self, visit: &Visit, path: &[&str]) -> Ask {
        match self {
            Self::Canvas => visit.ask(path),
            Self::Operator => visit.ask_everywhere(path),
        }
    }

    /// The address of a page about limits of this owner.
    pub(super) fn link(self, visit: &Visit, path: &[&str]) -> String {
        match self {
            Self::Canvas => visit.link(path),
            Self::Operator => visit.link_with(path, &[(Self::PARAMETER, Self::OPERATOR)]),
        }
    }

    pub(super) fn may_change(self, visit: &Visit) -> bool {
        match self {
            Self::Canvas => visit.may(Scope::Operate),
            Self::Operator => visit.may_everywhere(Scope::Admin),
        }
    }
}

/// What a limit allows, in words; those of a later release may be unknown here.
pub(super) fn allowed(limit: &LimitJson) -> String {
    limit.definition().map_or_else(|_| "unknown to this release".to_owned(), |limit| limit.to_string())
}
