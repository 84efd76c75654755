//! Where an emulator deviates from the service's documentation.

use std::collections::BTreeSet;

use crate::cases;
use crate::sides::Side;

/// A case that fails on one side.
pub(crate) struct Difference {
    pub(crate) side: Side,
    pub(crate) case: &'static str,
    /// What that side does.
    pub(crate) does: &'static str,
    /// What the documentation says, and where: `proto` is `google/pubsub/v1/pubsub.proto`.
    pub(crate) documented: &'static str,
    /// A part of the failure's message, so that this entry does not hide another failure.
    pub(crate) sign: &'static str,
}

/// Google's are those of its emulator 0.8.20.
pub(crate) const DIFFERENCES: &[Difference] = &[
    google(
        "a_deadline_is_from_0_to_600_seconds",
        "accepts 601 seconds",
        "proto, ModifyAckDeadlineRequest.ack_deadline_seconds: at most 600 seconds",
        "601 was not refused",
    ),
    google(
        "a_deadline_out_of_range_ends_the_stream",
        "goes on, also after 601 seconds",
        "proto, StreamingPullRequest.modify_deadline_seconds; the range is that of ModifyAckDeadlineRequest",
        "established",
    ),
    google(
        "a_detached_subscription_drops_its_messages_and_can_not_be_pulled",
        "has no DetachSubscription",
        "proto, Publisher.DetachSubscription",
        "DetachSubscription is unimplemented",
    ),
    google(
        "a_filter_has_up_to_256_bytes",
        "does not look at filters",
        "https://cloud.google.com/pubsub/docs/subscription-message-filter: at most 256 bytes",
        "257 bytes was not refused",
    ),
    google(
        "a_message_holds_up_to_100_attributes",
        "does not count attributes",
        "https://cloud.google.com/pubsub/quotas: 100 attributes a message",
        "was not refused",
    ),
    google(
        "a_message_larger_than_the_limit_is_delivered_alone",
        "ignores max_outstanding_bytes",
        "proto, StreamingPullRequest.max_outstanding_bytes",
        "more than one message is outstanding",
    ),
    google(
        "a_nack_in_a_stream_waits_for_the_back_off",
        "delivers at once after the first nack",
        "proto, RetryPolicy: minimum_backoff is the least delay between deliveries, applied on nacks",
        "\"waits\"",
    ),
    google(
        "a_negative_page_size_is_refused",
        "lists everything",
        "https://google.aip.dev/158: a negative page size is INVALID_ARGUMENT",
        "was not refused",
    ),
    google(
        "a_page_token_that_was_never_given_is_refused",
        "lists from the beginning",
        "proto, ListTopicsRequest.page_token: the value that the last response returned",
        "was not refused",
    ),
    google(
        "a_ping_is_answered_at_once",
        "does not answer",
        "the official clients close a stream of protocol version 1 that does not answer within 15 s; 0.8.32 does",
        "nothing came of: a response of the stream",
    ),
    google(
        "a_policy_is_kept_and_returned",
        "has no IAM",
        "iam_policy.proto, IAMPolicy.GetIamPolicy",
        "Unimplemented",
    ),
    google(
        "a_policy_is_of_something_that_is_there",
        "has no IAM",
        "iam_policy.proto, IAMPolicy.SetIamPolicy",
        "Unimplemented",
    ),
    google(
        "a_pull_asks_for_at_least_one_message",
        "refuses 0 and accepts negative numbers",
        "proto, PullRequest.max_messages: a positive integer",
        "-1 was not refused",
    ),
    google(
        "a_request_holds_up_to_ten_megabytes",
        "accepts more",
        "https://cloud.google.com/pubsub/quotas: 10 MB a publish request",
        "one was not refused",
    ),
    google(
        "a_request_has_one_ordering_key",
        "accepts several",
        "proto, PubsubMessage.ordering_key: all messages of a request have the same",
        "it was not refused",
    ),
    google(
        "a_snapshot_is_of_a_topic_and_lives_for_at_most_a_week",
        "drops the labels",
        "proto, CreateSnapshotRequest.labels",
        "right: ",
    ),
    google(
        "a_snapshots_labels_are_changed",
        "has no UpdateSnapshot",
        "proto, Subscriber.UpdateSnapshot",
        "UpdateSnapshot is unimplemented",
    ),
    google(
        "a_stream_confirms_acknowledgements",
        "confirms only where an id is invalid, and then beside its next messages",
        "proto, StreamingPullResponse.acknowledge_confirmation: the ids that were processed",
        "nothing came of: a response of the stream",
    ),
    google(
        "a_stream_confirms_changes_of_deadlines",
        "confirms only where an id is invalid, and then beside its next messages",
        "proto, StreamingPullResponse.modify_ack_deadline_confirmation: the ids that were processed",
        "nothing came of: a response of the stream",
    ),
    google(
        "a_stream_confirms_what_its_first_request_acknowledges",
        "confirms only where an id is invalid, and then beside its next messages",
        "proto, StreamingPullResponse.acknowledge_confirmation: the ids that were processed",
        "nothing came of: a response of the stream",
    ),
    google(
        "a_stream_ends_when_its_subscription_is_detached",
        "has no DetachSubscription",
        "proto, Publisher.DetachSubscription",
        "DetachSubscription is unimplemented",
    ),
    google(
        "a_stream_has_no_more_bytes_outstanding_than_it_asked_for",
        "ignores max_outstanding_bytes",
        "proto, StreamingPullRequest.max_outstanding_bytes",
        "5 messages of 1,000 bytes",
    ),
    google(
        "a_stream_has_no_more_messages_outstanding_than_it_asked_for",
        "ignores max_outstanding_messages",
        "proto, StreamingPullRequest.max_outstanding_messages",
        "more than two messages are outstanding",
    ),
    google(
        "a_subscription_expires_after_31_days_by_default",
        "sets no expiration policy",
        "proto, Subscription.expiration_policy: 31 days if not set",
        "left: None",
    ),
    google(
        "a_subscription_is_active",
        "leaves the state unspecified",
        "proto, Subscription.state: ACTIVE if it can receive messages",
        "left: Unspecified",
    ),
    google(
        "a_subscription_keeps_messages_for_up_to_31_days",
        "refuses more than 7 days",
        "proto, Subscription.message_retention_duration: at most 31 days",
        "2678400: ",
    ),
    google(
        "a_subscription_lives_for_at_least_a_day_or_for_ever",
        "accepts less than a day",
        "proto, Subscription.expiration_policy: ttl is at least a day",
        "Some(86399) was not refused",
    ),
    google(
        "a_topic_that_is_not_there_has_no_list_of_subscriptions",
        "lists nothing",
        "google/rpc/code.proto, NOT_FOUND: a requested entity was not found",
        "was not refused",
    ),
    google(
        "an_acknowledgement_deadline_is_from_10_to_600_seconds",
        "accepts 9 seconds",
        "proto, Subscription.ack_deadline_seconds: at least 10 seconds",
        "9 was not refused",
    ),
    google(
        "an_attributes_key_and_value_are_limited",
        "accepts any length",
        "https://cloud.google.com/pubsub/quotas: 256 bytes a key, 1,024 bytes a value",
        "257 bytes was not refused",
    ),
    google(
        "an_ordering_key_has_up_to_1024_bytes",
        "accepts any length",
        "https://cloud.google.com/pubsub/quotas: 1 KB an ordering key",
        "was not refused",
    ),
    google(
        "attributes_do_not_begin_with_goog",
        "accepts them",
        "https://cloud.google.com/pubsub/docs/publisher: attribute keys do not begin with goog",
        "was not refused",
    ),
    google(
        "detaching_what_is_not_there_is_refused",
        "has no DetachSubscription",
        "proto, Publisher.DetachSubscription",
        "Unimplemented",
    ),
    google(
        "exactly_once_is_for_pulling_only",
        "accepts both",
        "https://cloud.google.com/pubsub/docs/exactly-once-delivery: only pull subscriptions",
        "was not refused",
    ),
    google(
        "filters_let_through_what_the_grammar_says",
        "delivers everything",
        "proto, Subscription.filter: only messages that match are delivered",
        "attributes:colour",
    ),
    google(
        "filters_outside_the_grammar_are_refused",
        "does not look at filters",
        "https://cloud.google.com/pubsub/docs/subscription-message-filter: the grammar",
        "colour was not refused",
    ),
    google(
        "flow_control_is_said_in_the_first_request_only",
        "goes on",
        "proto, StreamingPullRequest.max_outstanding_messages: the stream is aborted",
        "established",
    ),
    google(
        "only_what_the_mask_names_of_a_subscription_is_changed",
        "knows no labels",
        "proto, Subscription.labels",
        "labels is not a known Subscription field",
    ),
    google(
        "only_what_the_mask_names_of_a_topic_is_changed",
        "knows no labels",
        "proto, Topic.labels",
        "labels is not a known Topic field",
    ),
    google(
        "parts_of_fields_are_changed",
        "knows no parts of fields",
        "https://protobuf.dev/reference/protobuf/google.protobuf: a mask's path names a field within a field too",
        "is not a known Subscription field",
    ),
    google(
        "permissions_are_answered_from_those_asked_for",
        "has no IAM",
        "iam_policy.proto, IAMPolicy.TestIamPermissions",
        "Unimplemented",
    ),
    google(
        "the_first_nack_already_waits_for_the_back_off",
        "delivers at once after the first nack",
        "proto, RetryPolicy: minimum_backoff is the least delay between deliveries, applied on nacks",
        "\"waits\"",
    ),
    google(
        "the_service_words_what_is_missing_and_what_is_taken",
        "says: Topic not found",
        "the service's answers, as its users report them; the codes are the same",
        "Topic not found",
    ),
    google(
        "what_follows_a_nacked_message_of_its_key_comes_again_after_it",
        "delivers what follows, and the nacked message last",
        "https://cloud.google.com/pubsub/docs/ordering: in the order of publication, redelivered or not",
        "left: [\"b\", \"c\", \"a\"]",
    ),
    google(
        "what_follows_a_redelivered_message_is_redelivered_though_acknowledged",
        "redelivers the nacked message alone",
        "https://cloud.google.com/pubsub/docs/ordering: every later message of the key comes again, acknowledged ones too",
        "right: [\"a\", \"b\", \"c\", \"d\"]",
    ),
];

const fn google(
    case: &'static str,
    does: &'static str,
    documented: &'static str,
    sign: &'static str,
) -> Difference {
    Difference { side: Side::Google, case, does, documented, sign }
}

#[test]
fn every_difference_names_a_case_and_its_source() {
    let known: BTreeSet<_> = cases().collect();
    assert_eq!(known.len(), cases().count(), "two cases have one name");
    let mut seen = Vec::new();
    for Difference { side, case, does, documented, sign } in DIFFERENCES {
        assert!(known.contains(case), "there is no case {case}");
        assert!(!seen.contains(&(side, case)), "{case} is listed twice");
        seen.push((side, case));
        assert!(!does.is_empty() && !documented.is_empty() && !sign.is_empty(), "{case}");
    }
}
