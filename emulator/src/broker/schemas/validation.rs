//! Asks whether a definition is valid, and whether a message fits one, without a change.

use std::collections::BTreeMap;

use super::definition::Definition;
use crate::broker::names;
use crate::broker::{Answer, Broker, Reason, Refusal, Time, limits};
use crate::proto::pubsub::validate_message_request::SchemaSpec;
use crate::proto::pubsub::{self, Encoding};

impl Broker {
    /// Refuses a definition that no schema can have.
    pub fn validate_schema(
        &mut self,
        _now: Time,
        request: pubsub::ValidateSchemaRequest,
    ) -> Answer<pubsub::ValidateSchemaResponse> {
        names::project(&request.parent)?;
        Definition::of(&request.schema.unwrap_or_default())?;
        Ok(pubsub::ValidateSchemaResponse {})
    }

    /// Refuses a message that does not fit a schema: that with a name, or one in the request.
    pub fn validate_message(
        &mut self,
        _now: Time,
        request: pubsub::ValidateMessageRequest,
    ) -> Answer<pubsub::ValidateMessageResponse> {
        names::project(&request.parent)?;
        let encoding = request.encoding();
        if encoding == Encoding::Unspecified {
            return Err(limits::bad_argument("encoding"));
        }
        limits::at_most("message", request.message.len(), limits::LARGEST_PUBLISH)?;
        let fits = |definition: &Definition| {
            let result = definition.check(encoding, &request.message);
            result.map_err(|why| misfit(definition, encoding, "message", format!("{FAILED}: {why}")))
        };
        match &request.schema_spec {
            Some(SchemaSpec::Name(name)) => fits(&self.schema_revision(name)?.1.definition)?,
            Some(SchemaSpec::Schema(schema)) => fits(&Definition::of(schema)?)?,
            None => return Err(limits::bad_argument("schema_spec")),
        }
        Ok(pubsub::ValidateMessageResponse {})
    }
}

const FAILED: &str = "Message failed schema validation";

/// The service's refusal of a message that does not fit, with one more detail.
pub(super) fn misfit(definition: &Definition, encoding: Encoding, detail: &str, words: String) -> Refusal {
    let metadata = BTreeMap::from([("message".to_owned(), FAILED.to_owned()), (detail.to_owned(), words)]);
    let reason = Reason { reason: definition.reason(encoding).to_owned(), metadata };
    Refusal { reason: Some(reason), ..Refusal::invalid(format!("Invalid data in message: {FAILED}.")) }
}
