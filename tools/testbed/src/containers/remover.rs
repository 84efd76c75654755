//! Removes a container when this process ends or the value is dropped.
//!
//! It uses the container's name, so it can be started before the container. It must never block the
//! caller.

use super::ContainerError;
use crate::process::{AtEnd, program_on_path};

/// Removes the container of this name when it is dropped, and when this process ends in any way.
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
