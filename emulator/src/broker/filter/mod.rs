//! The filter language of subscriptions: parsed once, and evaluated on each message's attributes.
//!
//! ```text
//! filter     = condition, { "AND", condition } | condition, { "OR", condition } ;
//! condition  = [ "NOT" | "-" ], ( "(", filter, ")" | comparison ) ;
//! comparison = "attributes", ":", key
//!            | "attributes", ".", key, ( "=" | "!=" ), string
//!            | "hasPrefix", "(", "attributes", ".", key, ",", string, ")" ;
//! key        = letters, digits, "-" and "_" | string ;
//! ```
//!
//! It knows attributes only, not a message's data or a subscription.

mod lexer;
mod parser;

use std::collections::BTreeMap;

pub(super) use parser::FilterError;

/// A parsed filter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Filter(Condition);

/// A condition on a message's attributes.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Condition {
    Has { key: String },
    Is { key: String, value: String },
    HasPrefix { key: String, prefix: String },
    Not(Box<Condition>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

impl Filter {
    /// Parses a filter.
    pub(super) fn parse(text: &str) -> Result<Self, FilterError> {
        parser::parse(text).map(Self)
    }

    /// Whether a message with these attributes passes.
    pub(super) fn matches(&self, attributes: &BTreeMap<String, String>) -> bool {
        self.0.matches(attributes)
    }
}

impl Condition {
    fn matches(&self, attributes: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Has { key } => attributes.contains_key(key),
            Self::Is { key, value } => attributes.get(key).is_some_and(|found| found == value),
            Self::HasPrefix { key, prefix } => {
                attributes.get(key).is_some_and(|found| found.starts_with(prefix))
            }
            Self::Not(condition) => !condition.matches(attributes),
            Self::All(conditions) => conditions.iter().all(|condition| condition.matches(attributes)),
            Self::Any(conditions) => conditions.iter().any(|condition| condition.matches(attributes)),
        }
    }
}

#[cfg(test)]
mod tests;
