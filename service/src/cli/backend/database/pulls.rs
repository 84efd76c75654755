//! Copies of pulled queues and their leases, directly on the database.

use super::{Database, cursor};
use crate::api::{
    CompleteRequest, ExtendRequest, Extended, Lease, LeaseRequest, Leased, List, ReleaseRequest, Released,
};
use crate::cli::arguments::Page;
use wakeq::{EventId, Name};

impl Database {
    pub(in crate::cli::backend) async fn lease(
        &self,
        queue: &Name,
        request: LeaseRequest,
    ) -> anyhow::Result<Leased> {
        let (lease, wait) = request.read()?;
        Ok(Leased::of(self.silent().lease_copies(queue, request.max, lease, wait).await?)?)
    }

    pub(in crate::cli::backend) async fn extend(
        &self,
        queue: &Name,
        id: EventId,
        request: ExtendRequest,
    ) -> anyhow::Result<Extended> {
        let (token, lease) = request.read()?;
        Ok(Extended { lease_until: self.silent().extend_copy(queue, id, &token, lease).await? })
    }

    pub(in crate::cli::backend) async fn complete(
        &self,
        queue: &Name,
        id: EventId,
        request: CompleteRequest,
    ) -> anyhow::Result<()> {
        Ok(self.silent().complete_copy(queue, id, &request.read()?).await?)
    }

    pub(in crate::cli::backend) async fn release(
        &self,
        queue: &Name,
        id: EventId,
        request: ReleaseRequest,
    ) -> anyhow::Result<Released> {
        let (token, release) = request.read()?;
        Ok(self.silent().release_copy(queue, id, &token, &release).await?.into())
    }

    pub(in crate::cli::backend) async fn leases(
        &self,
        queue: &Name,
        page: Page,
    ) -> anyhow::Result<List<Lease>> {
        Ok(self.silent().leases(queue, cursor(&page)?.as_ref(), page.limit).await?.into())
    }

    pub(in crate::cli::backend) async fn end_lease(&self, queue: &Name, id: EventId) -> anyhow::Result<()> {
        Ok(self.silent().end_lease(queue, id, &self.actor).await?)
    }
}
