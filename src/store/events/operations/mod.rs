//! Operations on all events that match a filter, or are named: their rows, what a page looks at and
//! what it does.

mod acts;
mod look;
mod page;
mod rows;

pub(crate) use look::{Looked, OperationEvents, OperationPosition};
pub(crate) use rows::{BegunOperation, KeyedBegin, OPERATIONS_OPEN_MAX, OperationsAfter};
