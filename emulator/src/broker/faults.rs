//! What goes wrong.

/// What goes wrong; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct Faults {}
