//! Definitions of schemas, and messages to validate with them, are read while the broker is not
//! locked: that may take long, and other calls would wait.

use super::{CHECKS_MAX, Calls};
use crate::broker::{Answer, Committed, Method, NewSchema, validate_schema};
use crate::proto::pubsub::{
    CommitSchemaRequest, CreateSchemaRequest, Schema, ValidateMessageRequest, ValidateMessageResponse,
    ValidateSchemaRequest, ValidateSchemaResponse,
};

impl Calls {
    pub(super) async fn new_schema(&self, request: CreateSchemaRequest) -> Answer<Schema> {
        self.admit(Method::CreateSchema).await?;
        let schema = NewSchema::read(request)?;
        self.core.change(|broker, now| broker.create_read_schema(now, schema)).await?
    }

    pub(super) async fn new_revision(&self, request: CommitSchemaRequest) -> Answer<Schema> {
        self.admit(Method::CommitSchema).await?;
        let unread = self.core.with(|broker, _| broker.revision_to_read(request))?;
        let mut revision = unread.read()?;
        for _ in 0..CHECKS_MAX {
            match self.core.change(|broker, now| broker.commit_read(now, revision)).await?? {
                Committed::Added(schema) => return Ok(schema),
                Committed::Uncompared(again) => revision = again.compared()?,
            }
        }
        self.core.change(|broker, now| broker.commit_locked(now, revision)).await?
    }

    pub(super) async fn valid_schema(
        &self,
        request: ValidateSchemaRequest,
    ) -> Answer<ValidateSchemaResponse> {
        self.admit(Method::ValidateSchema).await?;
        validate_schema(request)
    }

    pub(super) async fn valid_message(
        &self,
        request: ValidateMessageRequest,
    ) -> Answer<ValidateMessageResponse> {
        self.admit(Method::ValidateMessage).await?;
        self.core.with(|broker, _| broker.message_check(request))?.run()
    }
}
