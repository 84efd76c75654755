//! Removes the containers that killed runs left behind, before this process starts its first one.
//!
//! It must never touch a container without the label of these tests.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testcontainers::bollard::Docker;
use testcontainers::bollard::errors::Error;
use testcontainers::bollard::models::ContainerSummary;
use testcontainers::bollard::query_parameters::{
    ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
};
use testcontainers::core::client::docker_client_instance;
use testcontainers::core::error::ClientError;
use tokio::sync::OnceCell;

use super::owner::{MACHINE_LABEL, is_left};
use crate::choice::say;

/// Runs once per process; every start of a container waits for it.
pub(super) async fn sweep() -> Result<(), ClientError> {
    static SWEPT: OnceCell<()> = OnceCell::const_new();
    SWEPT
        .get_or_try_init(async || {
            let engine = docker_client_instance().await?;
            for container in left(&engine).await.map_err(ClientError::ListContainers)? {
                remove(&engine, &container).await;
            }
            Ok(())
        })
        .await
        .copied()
}

async fn left(engine: &Docker) -> Result<Vec<ContainerSummary>, Error> {
    let labelled = HashMap::from([("label".to_owned(), vec![MACHINE_LABEL.to_owned()])]);
    let options = ListContainersOptionsBuilder::new().all(true).filters(&labelled).build();
    let mut containers = engine.list_containers(Some(options)).await?;
    let no_labels = HashMap::new();
    containers.retain(|one| is_left(one.labels.as_ref().unwrap_or(&no_labels), age(one)));
    Ok(containers)
}

/// By the engine's clock and ours; their skew is small against the age that matters.
fn age(container: &ContainerSummary) -> Duration {
    let created =
        Duration::from_secs(container.created.and_then(|at| at.try_into().ok()).unwrap_or(u64::MAX));
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(created)
}

/// Another process may remove the container at the same time; one that stays does not fail the
/// tests.
async fn remove(engine: &Docker, container: &ContainerSummary) {
    let Some(id) = &container.id else { return };
    let name = container.names.iter().flatten().next().unwrap_or(id).trim_start_matches('/');
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    match engine.remove_container(id, Some(options)).await {
        Ok(()) => say(&format!("{name} is removed: its process no longer exists")),
        Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => {}
        Err(error) => say(&format!("{name}, whose process no longer exists, can't be removed: {error}")),
    }
}
