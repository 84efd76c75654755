//! Schemas, of which there are never any: lists are empty, and whichever one is asked for does not
//! exist.
//!
//! Programs that look for schemas before they do something else can thus go on. Creating one is
//! refused elsewhere.

use super::names::{self, Kind};
use super::{Answer, Broker, Refusal, Time};
use crate::proto::pubsub;

impl Broker {
    /// Lists a project's schemas: none.
    pub fn list_schemas(
        &mut self,
        _now: Time,
        request: pubsub::ListSchemasRequest,
    ) -> Answer<pubsub::ListSchemasResponse> {
        names::project(&request.parent)?;
        Ok(pubsub::ListSchemasResponse::default())
    }

    /// Finds no schema.
    pub fn get_schema(&mut self, _now: Time, request: pubsub::GetSchemaRequest) -> Answer<pubsub::Schema> {
        missing(&request.name)
    }

    /// Finds no schema whose revisions could be listed.
    pub fn list_schema_revisions(
        &mut self,
        _now: Time,
        request: pubsub::ListSchemaRevisionsRequest,
    ) -> Answer<pubsub::ListSchemaRevisionsResponse> {
        missing(&request.name)
    }

    /// Finds no schema to roll back.
    pub fn rollback_schema(
        &mut self,
        _now: Time,
        request: pubsub::RollbackSchemaRequest,
    ) -> Answer<pubsub::Schema> {
        missing(&request.name)
    }

    /// Finds no schema whose revision could be deleted.
    pub fn delete_schema_revision(
        &mut self,
        _now: Time,
        request: pubsub::DeleteSchemaRevisionRequest,
    ) -> Answer<pubsub::Schema> {
        missing(&request.name)
    }

    /// Finds no schema to delete.
    pub fn delete_schema(&mut self, _now: Time, request: pubsub::DeleteSchemaRequest) -> Answer<()> {
        missing(&request.name)
    }
}

/// The name may end with a revision: `@` and its id.
fn missing<T>(name: &str) -> Answer<T> {
    let schema = name.split_once('@').map_or(name, |(schema, _)| schema);
    names::check(Kind::Schema, "name", schema)?;
    Err(Refusal::not_found(name))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::broker::Faults;

    #[test]
    fn there_are_none() {
        let mut broker = Broker::new(Faults::default());
        let now = Time::from_secs(1_700_000_000);
        let list =
            |parent: &str| pubsub::ListSchemasRequest { parent: parent.to_owned(), ..Default::default() };
        assert_eq!(broker.list_schemas(now, list("projects/p")).unwrap().schemas, []);
        assert_eq!(broker.list_schemas(now, list("p")).unwrap_err().code, Code::InvalidArgument);
        for (name, code) in [
            ("projects/p/schemas/orders", Code::NotFound),
            ("projects/p/schemas/orders@1f2e", Code::NotFound),
            ("projects/p/topics/orders", Code::InvalidArgument),
            ("orders", Code::InvalidArgument),
        ] {
            let request = pubsub::GetSchemaRequest { name: name.to_owned(), ..Default::default() };
            assert_eq!(broker.get_schema(now, request).unwrap_err().code, code, "{name}");
        }
    }
}
