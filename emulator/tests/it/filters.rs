//! Filters: the documented grammar, and what happens to messages that do not match.

use std::collections::BTreeMap;

use tonic::Code;
use wakeq_emulator::proto::pubsub::Subscription;

use crate::stage::{refused_as, sorted, texts, with};

/// Each filter, and which of the messages below it admits.
const FILTERS: [(&str, &str); 16] = [
    ("attributes:colour", "blue red reddish"),
    ("NOT attributes:colour", "plain"),
    ("-attributes:colour", "plain"),
    ("attributes.colour = \"red\"", "red"),
    ("attributes.colour=\"red\"", "red"),
    ("attributes.colour != \"red\"", "blue plain reddish"),
    ("attributes:colour AND attributes.colour != \"red\"", "blue reddish"),
    ("hasPrefix(attributes.colour, \"red\")", "red reddish"),
    ("NOT hasPrefix(attributes.colour, \"red\")", "blue plain"),
    ("attributes.colour = \"red\" OR attributes.colour = \"blue\"", "blue red"),
    ("attributes:colour AND attributes:size", "red"),
    ("attributes:size AND NOT attributes.size = \"1\"", "plain"),
    ("(attributes:colour AND NOT attributes:size) OR attributes.size = \"2\"", "blue plain reddish"),
    ("attributes:\"colour\"", "blue red reddish"),
    ("attributes.\"colour\" = \"red\"", "red"),
    ("hasPrefix(attributes.\"colour\", \"blue\")", "blue"),
];

const BAD: [&str; 14] = [
    "colour",
    "attributes",
    "attributes.colour",
    "attributes:",
    "attributes.colour = red",
    "attributes.colour == \"red\"",
    "attributes.colour = \"red",
    "attributes.colour > \"red\"",
    "attributes:colour AND",
    "attributes:a AND attributes:b OR attributes:c",
    "(attributes:colour",
    "hasPrefix(attributes.colour)",
    "hasSuffix(attributes.colour, \"d\")",
    "data = \"red\"",
];

cases! {
    async fn filters_let_through_what_the_grammar_says(stage) {
        let topic = stage.topic("a-topic").await;
        let mut subscriptions = BTreeMap::new();
        for (at, (filter, _)) in FILTERS.iter().enumerate() {
            // Also matches the last message, whose arrival shows that all before it have been
            // filtered.
            let filter = format!("({filter}) OR attributes:last");
            let subscription = Subscription { filter, ..stage.to(&topic, &format!("filter-{at}")) };
            subscriptions.insert(at, stage.subscribe(subscription).await);
        }
        let messages = [
            with("red", &[("colour", "red"), ("size", "1")]),
            with("reddish", &[("colour", "reddish")]),
            with("blue", &[("colour", "blue")]),
            with("plain", &[("size", "2")]),
        ];
        stage.publish(&topic, &messages).await;
        stage.publish(&topic, &[with("~", &[("last", "")])]).await;
        for (at, (filter, expected)) in FILTERS.iter().enumerate() {
            let mut received = Vec::new();
            while !texts(&received).contains(&"~".to_owned()) {
                received.extend(stage.pull(&subscriptions[&at], 10).await);
            }
            // The last message has neither of the attributes.
            assert_eq!(sorted(&received).join(" "), format!("{expected} ~"), "{filter}");
        }
    }

    async fn filters_outside_the_grammar_are_refused(stage) {
        let topic = stage.topic("a-topic").await;
        for (at, bad) in BAD.iter().enumerate() {
            let id = format!("filter-{at}");
            let subscription = Subscription { filter: (*bad).to_owned(), ..stage.to(&topic, &id) };
            refused_as(bad, stage.try_subscribe(subscription).await, Code::InvalidArgument);
        }
    }

    async fn a_filter_has_up_to_256_bytes(stage) {
        let topic = stage.topic("a-topic").await;
        let of = |length: usize| {
            let start = "attributes.colour = \"";
            format!("{start}{}\"", "r".repeat(length - start.len() - 1))
        };
        stage.subscribe(Subscription { filter: of(256), ..stage.to(&topic, "fits") }).await;
        let too_long = Subscription { filter: of(257), ..stage.to(&topic, "too-long") };
        refused_as("257 bytes", stage.try_subscribe(too_long).await, Code::InvalidArgument);
    }
}
