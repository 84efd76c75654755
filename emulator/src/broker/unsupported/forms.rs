//! The forms of settings that are stored and not carried out: what the service refuses without
//! looking anything up, and what it fills in.
//!
//! It does not know whether a table, a bucket or a key exists.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::broker::{Answer, Refusal, limits};
use crate::proto::pubsub::ingestion_data_source_settings::{
    Source, aws_kinesis, aws_msk, azure_event_hubs, cloud_storage, confluent_cloud,
};
use crate::proto::pubsub::message_transform::Transform;
use crate::proto::pubsub::{
    BigQueryConfig, BigtableConfig, CloudStorageConfig, MessageTransform, Subscription, Topic,
    big_query_config, bigtable_config, cloud_storage_config,
};

const KMS_KEY: &str = "projects/*/locations/*/keyRings/*/cryptoKeys/*";
const BIGTABLE_TABLE: &str = "projects/*/instances/*/tables/*";
const BIGQUERY_TABLE: &str = "PROJECT.DATASET.TABLE";
const BUCKET: &str = "3 to 222 lower-case letters, digits, '-', '_' and '.', without gs://";

const SHORTEST_BUCKET: usize = 3;
const LONGEST_BUCKET: usize = 222;
const SHORTEST_FILE: Duration = Duration::from_secs(60);
const LONGEST_FILE: Duration = Duration::from_secs(600);
const DEFAULT_FILE: Duration = Duration::from_secs(300);
const SMALLEST_FILE: i64 = 1_000;
const LARGEST_FILE: i64 = 10 << 30;
const FEWEST_MESSAGES: i64 = 1_000;

pub(super) fn complete_topic(topic: &mut Topic) -> Answer<()> {
    if !topic.kms_key_name.is_empty() && !follows(KMS_KEY, &topic.kms_key_name) {
        return Err(malformed("kms_key_name", &topic.kms_key_name, KMS_KEY));
    }
    check_transforms(&topic.message_transforms)?;
    match topic.ingestion_data_source_settings.as_mut().and_then(|settings| settings.source.as_mut()) {
        Some(source) => complete_source(source),
        None => Ok(()),
    }
}

pub(super) fn complete_subscription(subscription: &mut Subscription) -> Answer<()> {
    check_destinations(subscription)?;
    check_transforms(&subscription.message_transforms)?;
    if let Some(config) = &mut subscription.bigquery_config {
        complete_bigquery(config)?;
    }
    if let Some(config) = &mut subscription.cloud_storage_config {
        complete_cloud_storage(config)?;
    }
    if let Some(config) = &mut subscription.bigtable_config {
        complete_bigtable(config)?;
    }
    Ok(())
}

/// A subscription is pulled, pushes, or writes to one place.
fn check_destinations(subscription: &Subscription) -> Answer<()> {
    let pushes = subscription.push_config.as_ref().is_some_and(|push| !push.push_endpoint.is_empty());
    let writes = [
        subscription.bigquery_config.is_some(),
        subscription.cloud_storage_config.is_some(),
        subscription.bigtable_config.is_some(),
    ];
    let writes = writes.into_iter().filter(|is_set| *is_set).count();
    if writes + usize::from(pushes) > 1 {
        return Err(Refusal::invalid(
            "A subscription has at most one of push_config, bigquery_config, cloud_storage_config and \
             bigtable_config.",
        ));
    }
    if writes > 0 && subscription.enable_exactly_once_delivery {
        return Err(Refusal::invalid(
            "Exactly-once delivery is for pull subscriptions: unset enable_exactly_once_delivery, or where the \
             subscription writes to.",
        ));
    }
    Ok(())
}

fn complete_bigquery(config: &mut BigQueryConfig) -> Answer<()> {
    if !is_bigquery_table(&config.table) {
        return Err(malformed("bigquery_config.table", &config.table, BIGQUERY_TABLE));
    }
    if config.use_topic_schema && config.use_table_schema {
        return Err(limits::bad_argument("bigquery_config.use_table_schema"));
    }
    config.state = big_query_config::State::Active.into();
    Ok(())
}

fn complete_cloud_storage(config: &mut CloudStorageConfig) -> Answer<()> {
    if !is_bucket(&config.bucket) {
        return Err(malformed("cloud_storage_config.bucket", &config.bucket, BUCKET));
    }
    if config.filename_suffix.ends_with('/') {
        return Err(limits::bad_argument("cloud_storage_config.filename_suffix"));
    }
    // Not compared with the ack deadline: published configurations have both defaults.
    let duration = config.max_duration.get_or_insert_with(|| limits::proto_duration(DEFAULT_FILE));
    limits::duration("max_duration", duration, SHORTEST_FILE, LONGEST_FILE)?;
    // Zero is not set.
    match config.max_bytes {
        0 | SMALLEST_FILE..=LARGEST_FILE => {}
        bytes if bytes < SMALLEST_FILE => return Err(limits::too_small("max_bytes", bytes, SMALLEST_FILE)),
        bytes => return Err(limits::too_large("max_bytes", bytes, LARGEST_FILE)),
    }
    if config.max_messages != 0 && config.max_messages < FEWEST_MESSAGES {
        return Err(limits::too_small("max_messages", config.max_messages, FEWEST_MESSAGES));
    }
    config.state = cloud_storage_config::State::Active.into();
    Ok(())
}

fn complete_bigtable(config: &mut BigtableConfig) -> Answer<()> {
    if !follows(BIGTABLE_TABLE, &config.table) {
        return Err(malformed("bigtable_config.table", &config.table, BIGTABLE_TABLE));
    }
    config.state = bigtable_config::State::Active.into();
    Ok(())
}

fn check_transforms(transforms: &[MessageTransform]) -> Answer<()> {
    let mut functions = BTreeSet::new();
    for transform in transforms {
        match &transform.transform {
            Some(Transform::JavascriptUdf(script)) => {
                let name = script.function_name.as_str();
                let has_function = !name.is_empty() && script.code.contains(name);
                if !has_function || !functions.insert(name) {
                    return Err(Refusal::invalid(format!(
                        "Invalid message transform given (function_name={name}). Its code has to contain the \
                         function, and each transform has a function of its own."
                    )));
                }
            }
            Some(Transform::AiInference(inference)) => {
                required("message_transforms.ai_inference.endpoint", &inference.endpoint)?;
            }
            None => return Err(limits::bad_argument("message_transforms.transform")),
        }
    }
    Ok(())
}

fn complete_source(source: &mut Source) -> Answer<()> {
    match source {
        Source::AwsKinesis(kinesis) => {
            kinesis.state = aws_kinesis::State::Active.into();
            required("aws_kinesis.stream_arn", &kinesis.stream_arn)?;
            required("aws_kinesis.consumer_arn", &kinesis.consumer_arn)?;
            required("aws_kinesis.aws_role_arn", &kinesis.aws_role_arn)?;
            required("aws_kinesis.gcp_service_account", &kinesis.gcp_service_account)
        }
        Source::CloudStorage(storage) => {
            storage.state = cloud_storage::State::Active.into();
            let is_named = is_bucket(&storage.bucket);
            if is_named { Ok(()) } else { Err(malformed("cloud_storage.bucket", &storage.bucket, BUCKET)) }
        }
        Source::AzureEventHubs(hubs) => {
            hubs.state = azure_event_hubs::State::Active.into();
            Ok(())
        }
        Source::AwsMsk(kafka) => {
            kafka.state = aws_msk::State::Active.into();
            required("aws_msk.cluster_arn", &kafka.cluster_arn)?;
            required("aws_msk.topic", &kafka.topic)?;
            required("aws_msk.aws_role_arn", &kafka.aws_role_arn)?;
            required("aws_msk.gcp_service_account", &kafka.gcp_service_account)
        }
        Source::ConfluentCloud(kafka) => {
            kafka.state = confluent_cloud::State::Active.into();
            required("confluent_cloud.bootstrap_server", &kafka.bootstrap_server)?;
            required("confluent_cloud.cluster_id", &kafka.cluster_id)?;
            required("confluent_cloud.topic", &kafka.topic)?;
            required("confluent_cloud.identity_pool_id", &kafka.identity_pool_id)?;
            required("confluent_cloud.gcp_service_account", &kafka.gcp_service_account)
        }
    }
}

fn required(field: &str, value: &str) -> Answer<()> {
    if value.is_empty() { Err(limits::bad_argument(field)) } else { Ok(()) }
}

fn malformed(field: &str, name: &str, form: &str) -> Refusal {
    Refusal::invalid(format!("Invalid resource name given ({field}={name}). Its form is {form}."))
}

/// Whether a name has the parts of a pattern, in which `*` is any part that is not empty.
fn follows(pattern: &str, name: &str) -> bool {
    let (expected, parts) = (pattern.split('/'), name.split('/'));
    expected.clone().count() == parts.clone().count()
        && expected.zip(parts).all(|(expected, part)| match expected {
            "*" => !part.is_empty(),
            expected => part == expected,
        })
}

/// The project may have a colon of its own, and may end with one instead of a dot.
fn is_bigquery_table(name: &str) -> bool {
    let parts = name.rsplit_once('.').and_then(|(rest, table)| {
        let (project, dataset) = rest.rsplit_once(['.', ':'])?;
        Some([project, dataset, table])
    });
    parts.is_some_and(|parts| parts.iter().all(|part| !part.is_empty() && !part.contains(['/', '`'])))
}

fn is_bucket(name: &str) -> bool {
    let is_letter_or_digit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [name.bytes().next(), name.bytes().next_back()];
    (SHORTEST_BUCKET..=LONGEST_BUCKET).contains(&name.len())
        && ends.into_iter().all(|end| end.is_some_and(is_letter_or_digit))
        && name.bytes().all(|byte| is_letter_or_digit(byte) || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_services_have_their_forms() {
        for (name, accepted) in [
            ("p.d.t", true),
            ("p:d.t", true),
            ("example.com:p.d.t", true),
            ("example.com:p:d.t", true),
            ("d.t", false),
            ("p..t", false),
            ("projects/p/datasets/d/tables/t.a.b", false),
            ("", false),
        ] {
            assert_eq!(is_bigquery_table(name), accepted, "{name}");
        }
        let longest = "b".repeat(LONGEST_BUCKET);
        let longer = format!("{longest}b");
        for (name, accepted) in [
            ("b1c", true),
            ("bb", false),
            ("my-bucket_1.example.com", true),
            (longest.as_str(), true),
            (longer.as_str(), false),
            ("gs://bucket", false),
            ("Bucket", false),
            ("-bucket", false),
            ("", false),
        ] {
            assert_eq!(is_bucket(name), accepted, "{name}");
        }
        for (name, accepted) in [
            ("projects/p/locations/l/keyRings/r/cryptoKeys/k", true),
            ("projects/p/locations/l/keyRings/r/cryptoKeys/", false),
            ("projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1", false),
            ("k", false),
        ] {
            assert_eq!(follows(KMS_KEY, name), accepted, "{name}");
        }
    }
}
