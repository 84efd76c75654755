//! A definition of either type, read once and kept with its revision.

use tonic::Code;

use super::avro::AvroSchema;
use super::proto::ProtoSchema;
use crate::broker::limits::{self, LARGEST_SCHEMA};
use crate::broker::{Answer, Refusal};
use crate::proto::pubsub::schema::Type;
use crate::proto::pubsub::{self, Encoding};

/// What messages have to fit.
#[derive(Debug)]
pub(super) enum Definition {
    Avro(AvroSchema),
    ProtocolBuffer(ProtoSchema),
}

impl Definition {
    /// Reads the definition of a schema in a request.
    pub(super) fn of(schema: &pubsub::Schema) -> Answer<Self> {
        let text = schema.definition.as_str();
        if text.is_empty() {
            return Err(invalid("it is empty"));
        }
        limits::at_most("schema.definition", text.len(), LARGEST_SCHEMA)?;
        let definition = match Type::try_from(schema.r#type) {
            Ok(Type::Avro) => AvroSchema::parse(text).map(Self::Avro),
            Ok(Type::ProtocolBuffer) => ProtoSchema::parse(text).map(Self::ProtocolBuffer),
            Ok(Type::Unspecified) | Err(_) => return Err(limits::bad_argument("schema.type")),
        };
        definition.map_err(|why| invalid(&format!("Could not parse schema: {why}")))
    }

    pub(super) fn kind(&self) -> Type {
        match self {
            Self::Avro(_) => Type::Avro,
            Self::ProtocolBuffer(_) => Type::ProtocolBuffer,
        }
    }

    /// Says why a message does not fit, if so.
    pub(super) fn check(&self, encoding: Encoding, data: &[u8]) -> Result<(), String> {
        match (self, encoding) {
            (Self::Avro(schema), Encoding::Json) => schema.check_json(data),
            (Self::Avro(schema), Encoding::Binary) => schema.check_binary(data),
            (Self::ProtocolBuffer(schema), Encoding::Json) => schema.check_json(data),
            (Self::ProtocolBuffer(schema), Encoding::Binary) => schema.check_binary(data),
            (Self::Avro(_) | Self::ProtocolBuffer(_), Encoding::Unspecified) => {
                Err("no encoding is specified".to_owned())
            }
        }
    }

    /// The service's reason for the refusal of a message.
    pub(super) fn reason(&self, encoding: Encoding) -> &'static str {
        match (self, encoding) {
            (Self::Avro(_), Encoding::Json | Encoding::Unspecified) => "INVALID_JSON_AVRO_MESSAGE",
            (Self::Avro(_), Encoding::Binary) => "INVALID_BINARY_AVRO_MESSAGE",
            (Self::ProtocolBuffer(_), Encoding::Json | Encoding::Unspecified) => "INVALID_JSON_PROTO_MESSAGE",
            (Self::ProtocolBuffer(_), Encoding::Binary) => "INVALID_BINARY_PROTO_MESSAGE",
        }
    }

    /// Refuses this as the next revision after `earlier`: in Avro, each has to read what the other
    /// wrote, and in Protocol Buffers, only optional fields may come and go.
    pub(super) fn check_revises(&self, earlier: &Self) -> Answer<()> {
        let fits = match (earlier, self) {
            (Self::Avro(earlier), Self::Avro(later)) => {
                earlier.is_read_by(later).and_then(|()| later.is_read_by(earlier))
            }
            (Self::ProtocolBuffer(earlier), Self::ProtocolBuffer(later)) => later.revises(earlier),
            (Self::Avro(_), Self::ProtocolBuffer(_)) | (Self::ProtocolBuffer(_), Self::Avro(_)) => {
                Err("the type of a schema can't change".to_owned())
            }
        };
        fits.map_err(|why| invalid(&format!("It is not compatible with the revision before: {why}")))
    }
}

fn invalid(why: &str) -> Refusal {
    Refusal::new(Code::InvalidArgument, format!("Invalid schema definition: {why}."))
}
