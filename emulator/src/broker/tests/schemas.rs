//! Schemas, their revisions, and the topics that validate with them.

use super::*;
use crate::broker::schemas::CheckedMessages;
use crate::broker::{Committed, Offered};
use crate::proto::pubsub::schema::Type;
use crate::proto::pubsub::validate_message_request::SchemaSpec;
use crate::proto::pubsub::{Encoding, Schema, SchemaSettings, SchemaView, Topic, ValidateMessageRequest};

const PROJECT: &str = "projects/p";
pub(super) const SCHEMA: &str = "projects/p/schemas/order";
pub(super) const ONE: &str =
    r#"{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}"#;
pub(super) const TWO: &str = r#"{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"},
    {"name": "note", "type": "string", "default": ""}]}"#;
pub(super) const LIKE_ONE: &str = r#"{"id": 7}"#;
pub(super) const LIKE_TWO: &str = r#"{"id": 7, "note": "soon"}"#;

pub(super) fn avro(definition: &str) -> Option<Schema> {
    Some(Schema { r#type: Type::Avro.into(), definition: definition.to_owned(), ..Default::default() })
}

pub(super) fn settings(encoding: Encoding, first: &str, last: &str) -> Option<SchemaSettings> {
    Some(SchemaSettings {
        schema: SCHEMA.to_owned(),
        encoding: encoding.into(),
        first_revision_id: first.to_owned(),
        last_revision_id: last.to_owned(),
    })
}

impl World {
    pub(super) fn create_schema(&mut self, id: &str, schema: Option<Schema>) -> Answer<Schema> {
        let request =
            pubsub::CreateSchemaRequest { parent: PROJECT.to_owned(), schema, schema_id: id.to_owned() };
        self.broker.create_schema(self.now, request)
    }

    pub(super) fn commit(&mut self, definition: &str) -> Answer<Schema> {
        let request = pubsub::CommitSchemaRequest { name: SCHEMA.to_owned(), schema: avro(definition) };
        self.broker.commit_schema(self.now, request)
    }

    pub(super) fn get_schema(&mut self, name: &str, view: SchemaView) -> Answer<Schema> {
        let request = pubsub::GetSchemaRequest { name: name.to_owned(), view: view.into() };
        self.broker.get_schema(self.now, request)
    }

    pub(super) fn rollback(&mut self, id: &str) -> Answer<Schema> {
        let request = pubsub::RollbackSchemaRequest { name: SCHEMA.to_owned(), revision_id: id.to_owned() };
        self.broker.rollback_schema(self.now, request)
    }

    fn revisions(&mut self, page_size: i32, page_token: &str) -> pubsub::ListSchemaRevisionsResponse {
        let request = pubsub::ListSchemaRevisionsRequest {
            name: SCHEMA.to_owned(),
            view: 0,
            page_size,
            page_token: page_token.to_owned(),
        };
        self.broker.list_schema_revisions(self.now, request).unwrap()
    }

    pub(super) fn delete_revision(&mut self, name: &str) -> Answer<Schema> {
        let request = pubsub::DeleteSchemaRevisionRequest { name: name.to_owned(), ..Default::default() };
        self.broker.delete_schema_revision(self.now, request)
    }

    pub(super) fn delete_schema(&mut self, name: &str) -> Answer<()> {
        self.broker.delete_schema(self.now, pubsub::DeleteSchemaRequest { name: name.to_owned() })
    }

    fn schema_topic(&mut self, schema_settings: Option<SchemaSettings>) -> Answer<Topic> {
        self.create_topic(Topic { name: TOPIC.to_owned(), schema_settings, ..Default::default() })
    }

    pub(super) fn update_schema(
        &mut self,
        schema_settings: Option<SchemaSettings>,
        paths: &[&str],
    ) -> Answer<Topic> {
        let topic = Topic { name: TOPIC.to_owned(), schema_settings, ..Default::default() };
        let request = pubsub::UpdateTopicRequest { topic: Some(topic), update_mask: Some(mask(paths)) };
        self.broker.update_topic(self.now, request)
    }

    pub(super) fn send(&mut self, body: &str) -> Answer<Vec<String>> {
        self.publish_messages(TOPIC, vec![message(body)])
    }

    /// The attributes of the message that is available.
    fn marks(&mut self) -> Vec<(String, String)> {
        let received = self.pull(SUBSCRIPTION);
        let [received] = received.as_slice() else { panic!("{received:?}") };
        received.message.clone().unwrap().attributes.into_iter().collect()
    }
}

pub(super) fn marks(schema: &str, encoding: &str, revision: &str) -> Vec<(String, String)> {
    let marks = [("encoding", encoding), ("name", schema), ("revisionid", revision)];
    marks.map(|(key, value)| (format!("googclient_schema{key}"), value.to_owned())).to_vec()
}

#[test]
fn a_schema_is_created_read_listed_and_deleted() {
    let mut world = World::new();
    let created = world.create_schema("order", avro(ONE)).unwrap();
    let expected = Schema {
        name: SCHEMA.to_owned(),
        revision_id: created.revision_id.clone(),
        revision_create_time: Some(world.now.timestamp()),
        ..avro(ONE).unwrap()
    };
    assert_eq!(created, expected);
    let id = created.revision_id.as_str();
    assert!(id.len() == 8 && id.bytes().all(|byte| b"0123456789abcdef".contains(&byte)), "{id}");
    let basic = Schema { definition: String::new(), ..created.clone() };
    assert_eq!(world.get_schema(SCHEMA, SchemaView::Unspecified), Ok(created.clone()));
    assert_eq!(world.get_schema(SCHEMA, SchemaView::Basic), Ok(basic.clone()));
    assert_eq!(world.get_schema(&format!("{SCHEMA}@{id}"), SchemaView::Full), Ok(created.clone()));

    assert_eq!(code(world.create_schema("order", avro(ONE))), Code::AlreadyExists);
    world.create_schema("another", avro(ONE)).unwrap();
    let list = |world: &mut World, view: SchemaView, page_token: &str| {
        let request = pubsub::ListSchemasRequest {
            parent: PROJECT.to_owned(),
            view: view.into(),
            page_size: 1,
            page_token: page_token.to_owned(),
        };
        world.broker.list_schemas(world.now, request).unwrap()
    };
    let first = list(&mut world, SchemaView::Unspecified, "");
    assert_eq!(first.schemas[0].name, "projects/p/schemas/another");
    assert_eq!(first.schemas[0].definition, "");
    let second = list(&mut world, SchemaView::Full, &first.next_page_token);
    assert_eq!((second.schemas, second.next_page_token.as_str()), (vec![created], ""));

    world.delete_schema(SCHEMA).unwrap();
    assert_eq!(code(world.get_schema(SCHEMA, SchemaView::Full)), Code::NotFound);
    assert_eq!(code(world.delete_schema(SCHEMA)), Code::NotFound);
    assert!(world.create_schema("order", avro(TWO)).is_ok());
    world.broker.forget_everything();
    assert_eq!(world.broker.overview(world.now).schemas, []);
}

#[test]
fn rejects_what_is_not_a_schema() {
    let mut world = World::new();
    let typed = |kind: Type, definition: &str| {
        Some(Schema { r#type: kind.into(), definition: definition.to_owned(), ..Default::default() })
    };
    let large = format!("{ONE}{}", " ".repeat(300 * 1_024));
    for (id, schema) in [
        ("or", avro(ONE)),
        ("goog-order", avro(ONE)),
        ("order", None),
        ("order", avro("")),
        ("order", avro("\"string\"")),
        ("order", avro(&large)),
        ("order", typed(Type::Unspecified, ONE)),
        ("order", typed(Type::ProtocolBuffer, ONE)),
        ("order", typed(Type::ProtocolBuffer, "syntax = \"proto3\"; message A {} message B {}")),
    ] {
        let refusal = refused(world.create_schema(id, schema.clone()));
        assert!(refusal.starts_with("InvalidArgument: "), "{refusal}");
        let request = pubsub::ValidateSchemaRequest { parent: PROJECT.to_owned(), schema };
        let validated = code(world.broker.validate_schema(world.now, request));
        assert_eq!(validated == Code::Ok, id != "order", "{id}");
    }
    let wording = refused(world.create_schema("order", avro("{")));
    assert!(
        wording.starts_with("InvalidArgument: Invalid schema definition: Could not parse schema"),
        "{wording}"
    );
    for name in ["projects/p/schemas/order", "projects/p/schemas/order@12345678"] {
        assert_eq!(code(world.get_schema(name, SchemaView::Full)), Code::NotFound, "{name}");
    }
    assert_eq!(code(world.get_schema("order", SchemaView::Full)), Code::InvalidArgument);
}

#[test]
fn revisions_are_committed_rolled_back_listed_and_deleted() {
    let mut world = World::new();
    let one = world.create_schema("order", avro(ONE)).unwrap().revision_id;
    let two = world.commit(TWO).unwrap();
    assert_eq!((two.definition.as_str(), two.name.as_str()), (TWO, SCHEMA));
    let two = two.revision_id;
    assert_ne!(one, two);
    let needed = ONE.replace("]}", r#", {"name": "needed", "type": "string"}]}"#);
    let refusal = refused(world.commit(&needed));
    assert!(refusal.contains("needed of Order is not in both and has no default"), "{refusal}");
    let three = world.rollback(&one).unwrap();
    assert_eq!(three.definition, ONE);
    assert_eq!(code(world.rollback("00000000")), Code::NotFound);
    assert_eq!(code(world.rollback("")), Code::InvalidArgument);

    let first = world.revisions(2, "");
    let ids = |page: &pubsub::ListSchemaRevisionsResponse| -> Vec<String> {
        page.schemas.iter().map(|schema| schema.revision_id.clone()).collect()
    };
    assert_eq!(ids(&first), [three.revision_id.clone(), two.clone()]);
    assert_eq!(ids(&world.revisions(2, &first.next_page_token)), std::slice::from_ref(&one));

    assert_eq!(code(world.delete_revision(SCHEMA)), Code::InvalidArgument);
    assert_eq!(code(world.delete_revision(&format!("{SCHEMA}@00000000"))), Code::NotFound);
    for id in [&three.revision_id, &one] {
        assert_eq!(world.delete_revision(&format!("{SCHEMA}@{id}")).unwrap().revision_id, *id);
    }
    assert_eq!(world.get_schema(SCHEMA, SchemaView::Full).unwrap().revision_id, two);
    assert_eq!(code(world.delete_revision(&format!("{SCHEMA}@{two}"))), Code::FailedPrecondition);

    for _ in 1..20 {
        world.commit(TWO).unwrap();
    }
    assert_eq!(code(world.commit(TWO)), Code::ResourceExhausted);
    assert_eq!(code(world.rollback(&two)), Code::ResourceExhausted);
}

#[test]
fn a_topic_takes_what_fits_a_revision_in_its_range() {
    let mut world = World::new();
    let one = world.create_schema("order", avro(ONE)).unwrap().revision_id;
    let two = world.commit(TWO).unwrap().revision_id;
    world.schema_topic(settings(Encoding::Json, "", "")).unwrap();
    world.subscribe(subscription());
    for (body, revision) in [(LIKE_ONE, &one), (LIKE_TWO, &two)] {
        world.send(body).unwrap();
        assert_eq!(world.marks(), marks(SCHEMA, "JSON", revision));
    }
    let batch = vec![message(LIKE_ONE), message(r#"{"id": "7"}"#)];
    let refusal = world.publish_messages(TOPIC, batch).unwrap_err();
    assert_eq!(refusal.message, "Invalid data in message: Message failed schema validation.");
    let reason = refusal.reason.unwrap();
    assert_eq!(reason.reason, "INVALID_JSON_AVRO_MESSAGE");
    let info = format!(
        "Could not validate message with any schema revision for schema: {SCHEMA}, last checked revision: \
         revision_id={one} failed with status: id: JSON object with type string does not match schema which \
         expected number_integer."
    );
    let expected = [("message", "Message failed schema validation"), ("revisionInfo", info.as_str())];
    assert_eq!(reason.metadata, attributes(&expected));
    assert_eq!(world.bodies(SUBSCRIPTION), Vec::<String>::new(), "nothing of the request was published");

    world.update_schema(settings(Encoding::Json, &two, ""), &["schema_settings.first_revision_id"]).unwrap();
    assert_eq!(code(world.send(LIKE_ONE)), Code::InvalidArgument);
    world.send(LIKE_TWO).unwrap();
    let to_one = ["schema_settings.first_revision_id", "schema_settings.last_revision_id"];
    let changed = world.update_schema(settings(Encoding::Unspecified, "", &one), &to_one).unwrap();
    assert_eq!(changed.schema_settings, settings(Encoding::Json, "", &one));
    assert_eq!(code(world.send(LIKE_TWO)), Code::InvalidArgument);
    world.update_schema(settings(Encoding::Binary, "", ""), &["schema_settings"]).unwrap();
    assert_eq!(code(world.send(LIKE_TWO)), Code::InvalidArgument);
    world.pull(SUBSCRIPTION);
    world.send("\u{e}").unwrap();
    assert_eq!(world.marks(), marks(SCHEMA, "BINARY", &one));
    world.update_schema(None, &["schema_settings"]).unwrap();
    world.send("anything").unwrap();
    assert_eq!(world.marks(), []);
}

#[test]
fn rejects_settings_that_name_nothing() {
    let mut world = World::new();
    assert_eq!(code(world.schema_topic(settings(Encoding::Json, "", ""))), Code::NotFound);
    let one = world.create_schema("order", avro(ONE)).unwrap().revision_id;
    let two = world.commit(TWO).unwrap().revision_id;
    let nameless =
        Some(SchemaSettings { schema: String::new(), ..settings(Encoding::Json, "", "").unwrap() });
    for (settings, expected) in [
        (nameless, Code::InvalidArgument),
        (settings(Encoding::Unspecified, "", ""), Code::InvalidArgument),
        (settings(Encoding::Json, "00000000", ""), Code::NotFound),
        (settings(Encoding::Json, "", "00000000"), Code::NotFound),
        (settings(Encoding::Json, &two, &one), Code::InvalidArgument),
        (settings(Encoding::Json, &one, &two), Code::Ok),
    ] {
        assert_eq!(code(world.schema_topic(settings.clone())), expected, "{settings:?}");
    }
}

#[test]
fn a_deletion_shows_in_topics_and_messages() {
    let mut world = World::new();
    let one = world.create_schema("order", avro(ONE)).unwrap().revision_id;
    let two = world.commit(TWO).unwrap().revision_id;
    let three = world.commit(TWO).unwrap().revision_id;
    world.schema_topic(settings(Encoding::Json, &two, &three)).unwrap();
    world.subscribe(subscription());
    world.send(LIKE_TWO).unwrap();
    world.delete_revision(&format!("{SCHEMA}@{three}")).unwrap();
    assert_eq!(world.marks(), marks(SCHEMA, "JSON", "_deleted-schema-revision_"));
    world.send(LIKE_TWO).unwrap();
    assert_eq!(world.marks(), marks(SCHEMA, "JSON", &two), "the one before is the last now");
    let same = settings(Encoding::Json, &two, &three);
    assert!(world.update_schema(same, &["schema_settings"]).is_ok(), "it still has its place");
    assert_eq!(code(world.send(LIKE_ONE)), Code::InvalidArgument);
    world.delete_revision(&format!("{SCHEMA}@{two}")).unwrap();
    assert_eq!(
        code(world.send(LIKE_ONE)),
        Code::FailedPrecondition,
        "the first revision is not in the range"
    );

    world.update_schema(settings(Encoding::Json, &one, ""), &["schema_settings"]).unwrap();
    world.send(LIKE_ONE).unwrap();
    let overview = world.broker.overview(world.now).schemas;
    assert_eq!((overview.len(), overview[0].topics, overview[0].kind), (1, 1, "AVRO"));
    world.delete_schema(SCHEMA).unwrap();
    assert_eq!(world.marks(), marks("_deleted-schema_", "JSON", "_deleted-schema-revision_"));
    let request = pubsub::GetTopicRequest { topic: TOPIC.to_owned() };
    let settings = world.broker.get_topic(world.now, request).unwrap().schema_settings.unwrap();
    assert_eq!(settings.schema, "_deleted-schema_");
    assert_eq!(code(world.send(LIKE_ONE)), Code::FailedPrecondition);
    world.create_schema("order", avro(ONE)).unwrap();
    assert_eq!(code(world.send(LIKE_ONE)), Code::FailedPrecondition, "the new one is another");
}

/// They are read again if what they have to fit has changed meanwhile.
#[test]
fn messages_are_taken_only_by_the_schema_that_they_were_checked_against() {
    let mut world = World::new();
    let one = world.create_schema("order", avro(ONE)).unwrap().revision_id;
    world.schema_topic(settings(Encoding::Json, "", "")).unwrap();
    world.subscribe(subscription());
    let request = || pubsub::PublishRequest { topic: TOPIC.to_owned(), messages: vec![message(LIKE_ONE)] };
    let unchecked = |world: &mut World, checked: Option<&CheckedMessages>| {
        let offered = world.broker.publish_checked(world.now, request(), checked).unwrap();
        let Offered::Unchecked(given_back, schema) = offered else {
            panic!("it was not checked against the schema as it is")
        };
        assert_eq!(given_back, request());
        schema.check(&given_back.messages).unwrap()
    };
    let mut checked = unchecked(&mut world, None);
    let two = world.commit(TWO).unwrap().revision_id;
    checked = unchecked(&mut world, Some(&checked));
    world.delete_revision(&format!("{SCHEMA}@{two}")).unwrap();
    checked = unchecked(&mut world, Some(&checked));
    world.commit(TWO).unwrap();
    world.update_schema(settings(Encoding::Json, &one, &one), &["schema_settings"]).unwrap();
    let published = world.broker.publish_checked(world.now, request(), Some(&checked));
    assert!(matches!(published, Ok(Offered::Published(_))), "it takes the same revision as before");
    assert_eq!(world.marks(), marks(SCHEMA, "JSON", &one));
    world.update_schema(settings(Encoding::Binary, "", ""), &["schema_settings"]).unwrap();
    let published = world.broker.publish_checked(world.now, request(), Some(&checked));
    assert!(matches!(published, Ok(Offered::Unchecked(..))), "in the other encoding");
    world.delete_schema(SCHEMA).unwrap();
    let published = world.broker.publish_checked(world.now, request(), Some(&checked));
    assert!(matches!(published, Err(refusal) if refusal.code == Code::FailedPrecondition));
}

#[test]
fn a_message_is_validated_against_a_name_or_a_definition() {
    let mut world = World::new();
    let one = world.create_schema("order", avro(ONE)).unwrap().revision_id;
    world.commit(TWO).unwrap();
    let old = format!("{SCHEMA}@{one}");
    let by_name = |name: &str| Some(SchemaSpec::Name(name.to_owned()));
    for (schema_spec, body, encoding, expected) in [
        (by_name(SCHEMA), LIKE_TWO, Encoding::Json, Code::Ok),
        (by_name(SCHEMA), LIKE_ONE, Encoding::Json, Code::InvalidArgument),
        (by_name(&old), LIKE_ONE, Encoding::Json, Code::Ok),
        (by_name(&old), "\u{e}", Encoding::Binary, Code::Ok),
        (by_name(&old), LIKE_ONE, Encoding::Unspecified, Code::InvalidArgument),
        (by_name("projects/p/schemas/none"), LIKE_ONE, Encoding::Json, Code::NotFound),
        (avro(ONE).map(SchemaSpec::Schema), LIKE_ONE, Encoding::Json, Code::Ok),
        (avro(ONE).map(SchemaSpec::Schema), LIKE_TWO, Encoding::Json, Code::InvalidArgument),
        (avro("{").map(SchemaSpec::Schema), LIKE_ONE, Encoding::Json, Code::InvalidArgument),
        (None, LIKE_ONE, Encoding::Json, Code::InvalidArgument),
    ] {
        let request = ValidateMessageRequest {
            parent: PROJECT.to_owned(),
            message: body.as_bytes().to_vec(),
            encoding: encoding.into(),
            schema_spec: schema_spec.clone(),
        };
        let validated = code(world.broker.validate_message(world.now, request));
        assert_eq!(validated, expected, "{schema_spec:?} {body}");
    }
}

#[test]
fn protocol_buffers_are_validated_in_either_encoding() {
    let mut world = World::new();
    let definition = r#"syntax = "proto3"; message Order { int32 id = 1; string note = 2; }"#;
    let schema = Schema {
        r#type: Type::ProtocolBuffer.into(),
        definition: definition.to_owned(),
        ..Default::default()
    };
    let revision = world.create_schema("order", Some(schema)).unwrap().revision_id;
    assert_eq!(code(world.commit(ONE)), Code::InvalidArgument, "a schema keeps its type");
    world.schema_topic(settings(Encoding::Binary, "", "")).unwrap();
    world.subscribe(subscription());
    world.send("\u{8}\u{7}\u{12}\u{4}soon").unwrap();
    assert_eq!(world.marks(), marks(SCHEMA, "BINARY", &revision));
    let refusal = world.publish_messages(TOPIC, vec![message(LIKE_TWO)]).unwrap_err();
    assert_eq!(refusal.reason.unwrap().reason, "INVALID_BINARY_PROTO_MESSAGE");
    world.update_schema(settings(Encoding::Json, "", ""), &["schema_settings.encoding"]).unwrap();
    world.send(LIKE_TWO).unwrap();
    assert_eq!(world.marks(), marks(SCHEMA, "JSON", &revision));
    assert_eq!(code(world.send(r#"{"idd": 7}"#)), Code::InvalidArgument);
}

#[test]
fn a_commit_is_compared_again_if_another_one_came_between() {
    let mut world = World::new();
    world.create_schema("order", avro(ONE)).unwrap();
    let commit =
        |definition| pubsub::CommitSchemaRequest { name: SCHEMA.to_owned(), schema: avro(definition) };
    let unread = world.broker.revision_to_read(commit(ONE)).unwrap();
    let two = world.commit(TWO).unwrap();
    let committed = world.broker.commit_read(world.now, unread.read().unwrap()).unwrap();
    let Committed::Uncompared(revision) = committed else { panic!("it was compared with the first one") };
    assert_eq!(world.get_schema(SCHEMA, SchemaView::Full), Ok(two));
    let committed = world.broker.commit_read(world.now, revision.compared().unwrap()).unwrap();
    let Committed::Added(three) = committed else { panic!("nothing came between") };
    assert_eq!(world.get_schema(SCHEMA, SchemaView::Full), Ok(three));
    assert_eq!(world.revisions(0, "").schemas.len(), 3);

    let read = || world.broker.revision_to_read(commit(ONE)).unwrap().read().unwrap();
    let (gone, other, last) = (read(), read(), read());
    world.delete_schema(SCHEMA).unwrap();
    let committed = world.broker.commit_read(world.now, gone).map(drop);
    assert_eq!(code(committed), Code::NotFound);
    let definition = r#"{"type": "record", "name": "Other", "fields": [{"name": "id", "type": "int"}]}"#;
    world.create_schema("order", avro(definition)).unwrap();
    let Ok(Committed::Uncompared(other)) = world.broker.commit_read(world.now, other) else {
        panic!("it is of another schema of the same name")
    };
    assert_eq!(code(other.compared().map(drop)), Code::InvalidArgument);
    assert_eq!(code(world.broker.commit_locked(world.now, last)), Code::InvalidArgument);
}
