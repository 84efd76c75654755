//! Asks whether a definition is valid, and whether a message fits one, without a change.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::definition::Definition;
use crate::broker::names;
use crate::broker::{Answer, Broker, Reason, Refusal, Time, limits};
use crate::proto::pubsub::validate_message_request::SchemaSpec;
use crate::proto::pubsub::{self, Encoding};

/// A message, and what it is to be validated with. It needs no broker, so that both can be read
/// while that is not locked.
pub(crate) struct MessageCheck {
    message: Vec<u8>,
    encoding: Encoding,
    with: With,
}

enum With {
    Revision(Arc<Definition>),
    Unread(pubsub::Schema),
}

impl MessageCheck {
    pub(crate) fn run(self) -> Answer<pubsub::ValidateMessageResponse> {
        let Self { message, encoding, with } = self;
        let definition = match with {
            With::Revision(definition) => definition,
            With::Unread(schema) => Arc::new(Definition::of(&schema)?),
        };
        match definition.check(encoding, &message) {
            Ok(()) => Ok(pubsub::ValidateMessageResponse {}),
            Err(why) => Err(misfit(&definition, encoding, "message", format!("{FAILED}: {why}"))),
        }
    }
}

/// Refuses a definition that no schema can have.
pub(crate) fn validate_schema(
    request: pubsub::ValidateSchemaRequest,
) -> Answer<pubsub::ValidateSchemaResponse> {
    names::project(&request.parent)?;
    Definition::of(&request.schema.unwrap_or_default())?;
    Ok(pubsub::ValidateSchemaResponse {})
}

impl Broker {
    /// Refuses a definition that no schema can have.
    pub fn validate_schema(
        &mut self,
        _now: Time,
        request: pubsub::ValidateSchemaRequest,
    ) -> Answer<pubsub::ValidateSchemaResponse> {
        validate_schema(request)
    }

    /// Refuses a message that does not fit a schema: that with a name, or one in the request.
    pub fn validate_message(
        &mut self,
        _now: Time,
        request: pubsub::ValidateMessageRequest,
    ) -> Answer<pubsub::ValidateMessageResponse> {
        self.message_check(request)?.run()
    }

    /// What the validation of a message has to read.
    pub(crate) fn message_check(&self, request: pubsub::ValidateMessageRequest) -> Answer<MessageCheck> {
        names::project(&request.parent)?;
        let encoding = request.encoding();
        if encoding == Encoding::Unspecified {
            return Err(limits::bad_argument("encoding"));
        }
        limits::at_most("message", request.message.len(), limits::LARGEST_PUBLISH)?;
        let with = match request.schema_spec {
            Some(SchemaSpec::Name(name)) => {
                With::Revision(Arc::clone(&self.schema_revision(&name)?.1.definition))
            }
            Some(SchemaSpec::Schema(schema)) => With::Unread(schema),
            None => return Err(limits::bad_argument("schema_spec")),
        };
        Ok(MessageCheck { message: request.message, encoding, with })
    }
}

const FAILED: &str = "Message failed schema validation";

/// The service's refusal of a message that does not fit, with one more detail.
pub(super) fn misfit(definition: &Definition, encoding: Encoding, detail: &str, words: String) -> Refusal {
    let metadata = BTreeMap::from([("message".to_owned(), FAILED.to_owned()), (detail.to_owned(), words)]);
    let reason = Reason { reason: definition.reason(encoding).to_owned(), metadata };
    Refusal { reason: Some(reason), ..Refusal::invalid(format!("Invalid data in message: {FAILED}.")) }
}
