//! Removes a container at the end, whether this process ends or its own value is dropped.
//!
//! It goes by the container's name, so it can be there before the container is. It must never hold up anybody.

use super::ContainerError;
use crate::process::{AtEnd, program_on_path};

/// Removes the container of this name when it is dropped, and when this process ends, however that happens.
#[derive(Debug)]
pub(super) struct Remover {
    _removal: AtEnd,
}

impl Remover {
    pub(super) fn of(name: &str) -> Result<Self, ContainerError> {
        let client = program_on_path("docker").ok_or(ContainerError::NoClient)?;
        let removal = AtEnd::run(client, ["rm", "--force", "--volumes", name]);
        Ok(Self { _removal: removal.map_err(ContainerError::Remover)? })
    }
}
