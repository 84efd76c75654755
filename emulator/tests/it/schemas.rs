//! Schemas, over gRPC and REST: their life, and the topics that validate with them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Channel;
use wakeq_emulator::proto::pubsub::schema_service_client::SchemaServiceClient;
use wakeq_emulator::proto::pubsub::validate_message_request::SchemaSpec;
use wakeq_emulator::proto::pubsub::{
    CommitSchemaRequest, CreateSchemaRequest, DeleteSchemaRequest, Encoding, GetTopicRequest,
    ListSchemaRevisionsRequest, Schema, SchemaSettings, Topic, ValidateMessageRequest, ValidateSchemaRequest,
    schema,
};
use wakeq_emulator::{FaultCode, Faults, Method, Options};

use crate::inbox::ask;
use crate::limited::LimitedEmulator;
use crate::stage::{Stage, map, message, refused, text, texts};

const ORDER: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}"#;
const ORDER_WITH_NOTE: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},
    {"name":"note","type":["null","string"],"default":null}]}"#;
const PROTO: &str = r#"syntax = "proto3"; message Order { int32 id = 1; string note = 2; }"#;

fn avro(definition: &str) -> Option<Schema> {
    let definition = definition.to_owned();
    Some(Schema { r#type: schema::Type::Avro.into(), definition, ..Schema::default() })
}

async fn emulator() -> (LimitedEmulator, Stage, SchemaServiceClient<Channel>) {
    let emulator = LimitedEmulator::start(Options::default()).await;
    let stage = Stage::new(emulator.host(), "demo".to_owned()).await;
    let schemas = SchemaServiceClient::new(stage.channel.clone());
    (emulator, stage, schemas)
}

async fn create(schemas: &mut SchemaServiceClient<Channel>, project: &str, schema: Option<Schema>) -> Schema {
    let request =
        CreateSchemaRequest { parent: format!("projects/{project}"), schema, schema_id: "order".to_owned() };
    schemas.create_schema(request).await.unwrap().into_inner()
}

async fn topic(stage: &mut Stage, schema: &str, encoding: Encoding) -> String {
    let settings =
        SchemaSettings { schema: schema.to_owned(), encoding: encoding.into(), ..SchemaSettings::default() };
    let topic = Topic {
        name: stage.topic_name("orders"),
        schema_settings: Some(settings.clone()),
        ..Topic::default()
    };
    let created = stage.publisher.create_topic(topic).await.unwrap().into_inner();
    assert_eq!(created.schema_settings, Some(settings));
    created.name
}

fn marks(schema: &str, encoding: &str, revision: &str) -> std::collections::BTreeMap<String, String> {
    map(&[
        ("googclient_schemaname", schema),
        ("googclient_schemaencoding", encoding),
        ("googclient_schemarevisionid", revision),
    ])
}

#[tokio::test]
async fn a_topic_takes_what_fits_a_revision_of_its_schema() {
    let (emulator, mut stage, mut schemas) = emulator().await;
    let one = create(&mut schemas, "demo", avro(ORDER)).await;
    // Another project's schema of the same name, to which the rest must do nothing.
    let other = create(&mut schemas, "other", avro(ORDER)).await;
    let request = CommitSchemaRequest { name: one.name.clone(), schema: avro(ORDER_WITH_NOTE) };
    let two = schemas.commit_schema(request).await.unwrap().into_inner();
    let topic = topic(&mut stage, &one.name, Encoding::Json).await;
    let subscription = stage.subscribe(stage.to(&topic, "worker")).await;
    for (body, revision) in
        [(r#"{"id":7}"#, &one.revision_id), (r#"{"id":7,"note":{"string":"soon"}}"#, &two.revision_id)]
    {
        stage.publish_texts(&topic, &[body]).await;
        let received = stage.pull_one(&subscription).await;
        assert_eq!(message(&received).attributes, marks(&one.name, "JSON", revision));
    }
    let bad = [text(r#"{"id":7}"#), text(r#"{"id":"7"}"#)];
    let status = refused(stage.try_publish(&topic, &bad).await, Code::InvalidArgument);
    assert_eq!(status.message(), "Invalid data in message: Message failed schema validation.");
    let details = String::from_utf8_lossy(status.details()).into_owned();
    assert!(details.contains("INVALID_JSON_AVRO_MESSAGE") && details.contains(&one.revision_id), "{details}");

    stage.publish_texts(&topic, &[r#"{"id":8}"#]).await;
    let request = DeleteSchemaRequest { name: one.name.clone() };
    schemas.delete_schema(request).await.unwrap();
    let received = stage.pull_one(&subscription).await;
    assert_eq!(texts(std::slice::from_ref(&received)), [r#"{"id":8}"#], "nothing of the refused request");
    let deleted = marks("_deleted-schema_", "JSON", "_deleted-schema-revision_");
    assert_eq!(message(&received).attributes, deleted);
    let request = GetTopicRequest { topic: topic.clone() };
    let settings = stage.publisher.get_topic(request).await.unwrap().into_inner().schema_settings.unwrap();
    assert_eq!(settings.schema, "_deleted-schema_");
    refused(stage.try_publish(&topic, &[text(r#"{"id":9}"#)]).await, Code::FailedPrecondition);
    let request = ListSchemaRevisionsRequest { name: other.name, ..Default::default() };
    let listed = schemas.list_schema_revisions(request).await.unwrap().into_inner().schemas;
    assert_eq!(listed.len(), 1);
    emulator.stop().await;
}

#[tokio::test]
async fn the_life_of_a_schema_over_rest() {
    let (emulator, ..) = emulator().await;
    let send = async |line: &str, body: Value| {
        let answer = ask(emulator.address(), line, &[], &body.to_string()).await;
        (answer.status(), answer.json())
    };
    let schemas = "/v1/projects/demo/schemas";
    let proto = json!({ "type": "PROTOCOL_BUFFER", "definition": PROTO });
    let (status, created) = send(&format!("POST {schemas}?schemaId=order"), proto.clone()).await;
    assert_eq!(
        (status, &created["name"], &created["definition"]),
        (200, &json!("projects/demo/schemas/order"), &json!(PROTO))
    );
    let (status, read) = send(&format!("GET {schemas}/order?view=BASIC"), json!({})).await;
    assert_eq!((status, &read["type"], &read["definition"]), (200, &json!("PROTOCOL_BUFFER"), &Value::Null));
    let first = created["revisionId"].as_str().unwrap();
    let more = PROTO.replace("}", "string more = 3; }");
    let commit = json!({ "schema": { "type": "PROTOCOL_BUFFER", "definition": more } });
    let (status, committed) = send(&format!("POST {schemas}/order:commit"), commit).await;
    assert_eq!((status, &committed["definition"]), (200, &json!(more)));
    let (status, back) =
        send(&format!("POST {schemas}/order:rollback"), json!({ "revisionId": first })).await;
    assert_eq!((status, &back["definition"]), (200, &json!(PROTO)));
    let (status, gone) = send(&format!("DELETE {schemas}/order@{first}:deleteRevision"), json!({})).await;
    assert_eq!((status, &gone["revisionId"]), (200, &json!(first)));
    let (_, listed) = send(&format!("GET {schemas}/order:listRevisions?view=FULL"), json!({})).await;
    let listed: Vec<&Value> =
        listed["schemas"].as_array().unwrap().iter().map(|each| &each["definition"]).collect();
    assert_eq!(listed, [PROTO, more.as_str()]);

    let (status, _) = send(&format!("POST {schemas}:validate"), json!({ "schema": proto })).await;
    assert_eq!(status, 200);
    let wrong = json!({ "schema": { "type": "AVRO", "definition": PROTO } });
    let (status, refused) = send(&format!("POST {schemas}:validate"), wrong).await;
    assert_eq!((status, &refused["error"]["status"]), (400, &json!("INVALID_ARGUMENT")));
    for (body, expected) in [(r#"{"id": 7}"#, 200), (r#"{"nothing": 7}"#, 400)] {
        let name = "projects/demo/schemas/order";
        let request = json!({ "name": name, "message": STANDARD.encode(body), "encoding": "JSON" });
        let (status, answer) = send(&format!("POST {schemas}:validateMessage"), request).await;
        assert_eq!(status, expected, "{answer}");
    }
    let settings = json!({ "schema": "projects/demo/schemas/order", "encoding": "JSON" });
    let topic = json!({ "schemaSettings": settings });
    let (status, created) = send("PUT /v1/projects/demo/topics/orders", topic).await;
    assert_eq!((status, &created["schemaSettings"]), (200, &settings));
    let state = ask(emulator.address(), "GET /admin/state", &[], "").await.json();
    assert_eq!(
        (&state["schemas"][0]["type"], &state["schemas"][0]["topics"]),
        (&json!("PROTOCOL_BUFFER"), &json!(1))
    );
    let (status, _) = send(&format!("DELETE {schemas}/order"), json!({})).await;
    assert_eq!((status, send(&format!("GET {schemas}"), json!({})).await.1), (200, json!({})));
    emulator.stop().await;
}

#[tokio::test]
async fn calls_that_read_a_definition_have_faults_and_the_page_s_form_reads_one_too() {
    let (emulator, mut stage, mut schemas) = emulator().await;
    let name = create(&mut schemas, "demo", avro(ORDER)).await.name;
    let topic = topic(&mut stage, &name, Encoding::Json).await;
    let subscription = stage.subscribe(stage.to(&topic, "worker")).await;
    let wrong = || avro("{");
    let (parent, schema_id) = ("projects/demo".to_owned(), "wrong".to_owned());
    let faulty =
        [Method::CreateSchema, Method::CommitSchema, Method::ValidateSchema, Method::ValidateMessage];
    let faults = faulty
        .iter()
        .fold(Faults::default(), |faults, method| faults.fail_next(1, FaultCode::Unavailable, [*method]));
    emulator.set_faults(faults);
    for code in [Code::Unavailable, Code::InvalidArgument] {
        let request =
            CreateSchemaRequest { parent: parent.clone(), schema: wrong(), schema_id: schema_id.clone() };
        refused(schemas.create_schema(request).await, code);
        let request = CommitSchemaRequest { name: name.clone(), schema: wrong() };
        refused(schemas.commit_schema(request).await, code);
        let request = ValidateSchemaRequest { parent: parent.clone(), schema: wrong() };
        refused(schemas.validate_schema(request).await, code);
        let request = ValidateMessageRequest {
            parent: parent.clone(),
            message: b"{}".to_vec(),
            encoding: Encoding::Json.into(),
            schema_spec: Some(SchemaSpec::Name(name.clone())),
        };
        refused(schemas.validate_message(request).await, code);
    }
    let publish = async |body: &str| {
        let fields = [("topic", topic.as_str()), ("data", body)];
        let fields =
            fields.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
        ask(emulator.address(), "POST /admin/publish", &[], &fields.join("&")).await
    };
    let page = publish(r#"{"id":"7"}"#).await;
    assert_eq!(page.status(), 400);
    assert!(page.text().contains("Message failed schema validation"), "{}", page.text());
    assert_eq!(publish(r#"{"id":7}"#).await.status(), 303);
    assert_eq!(texts(&stage.pull(&subscription, 10).await), [r#"{"id":7}"#]);
    emulator.stop().await;
}
