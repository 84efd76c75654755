//! Collects the errors of a pass: one failing part must not hold up the others, and none is
//! forgotten.

use super::WakeError;

/// The first error, which the pass returns; further ones are logged.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<WakeError>);

impl Trouble {
    /// Notes why a part was not done.
    pub(super) fn note(&mut self, part: &'static str, error: impl Into<WakeError>) {
        let error = error.into();
        if self.0.is_none() {
            self.0 = Some(error);
            return;
        }
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, part, "this part of the pass failed as well; the next pass tries again");
    }

    /// The result of a part; `None` if it failed.
    pub(super) fn look<T>(
        &mut self,
        part: &'static str,
        result: Result<T, impl Into<WakeError>>,
    ) -> Option<T> {
        result.map_err(|error| self.note(part, error)).ok()
    }

    /// The first error, if there was one.
    pub(super) fn ended(self) -> Result<(), WakeError> {
        self.0.map_or(Ok(()), Err)
    }
}
