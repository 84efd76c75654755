//! Judges the topic, the subscription, and the permissions on them.

use std::time::Duration;

use super::{Finding, list};
use wakeq::notify::{MissingPermission, PubSubRights, SettingDifference, TopicState, TopicsReport};

/// The permission that only pulling requires.
const CONSUME: &str = "pubsub.subscriptions.consume";

/// Whether topic and subscription exist, and are configured as the queue needs them.
pub(crate) fn topics(report: &TopicsReport) -> Vec<Finding> {
    let found = |what, name: &str, state| match state {
        TopicState::Missing => {
            Finding::fail(what, format!("{name} does not exist"), "run `wakeq topics create`")
        }
        TopicState::Unknown => {
            Finding::ok(what, format!("{name}, if it exists: this account may not look at it, and need not"))
        }
        TopicState::Created | TopicState::AlreadyThere => Finding::ok(what, name),
    };
    let mut findings = vec![
        found("topic", &report.topic, report.topic_state),
        found("subscription", &report.subscription, report.subscription_state),
    ];
    if let Some(urgent) = &report.urgent {
        findings.push(found("urgent subscription", &urgent.name, urgent.state));
    }
    if let Some((topic, state)) = &report.broadcast_topic {
        findings.push(found("topic of broadcasts", topic, *state));
    }
    if let Some(endpoint) = &report.push_endpoint {
        findings.push(Finding::ok("delivery", format!("pushed to {endpoint}")));
    }
    findings.extend(differences("subscription", &report.differences));
    if let Some(urgent) = &report.urgent {
        findings.extend(differences("urgent subscription", &urgent.differences));
        if urgent.push_endpoint.is_some() != report.push_endpoint.is_some() {
            let found = "one of the two subscriptions pushes, and the other is pulled from";
            findings.push(Finding::fail(
                "urgent subscription",
                found,
                "make both the same way, with `wakeq topics create`",
            ));
        }
    }
    findings
}

fn differences(what: &'static str, all: &[SettingDifference]) -> impl Iterator<Item = Finding> {
    all.iter().map(move |difference| {
        let found = format!("{} is {}, wanted {}", difference.setting, difference.found, difference.wanted);
        Finding::fail(what, found, &difference.advice)
    })
}

/// Without Pub/Sub.
pub(crate) fn without_topics(is_local: bool, has_transaction_pooler: bool) -> Finding {
    if !is_local && has_transaction_pooler {
        let found = "postgres: workers LISTEN, which a pooler in transaction mode does not support";
        return Finding::fail("notifier", found, "connect directly (DATABASE_URL), or use Pub/Sub");
    }
    let found = match is_local {
        true => "local: a process wakes only itself, so run a single worker process; Pub/Sub is not needed",
        false => {
            "postgres: NOTIFY wakes a handful of worker processes, and urgent events are first only among what \
             waits in one of them; Pub/Sub is not needed"
        }
    };
    Finding::ok("notifier", found)
}

/// Whether the deployment's durations suit a push subscription.
pub(crate) fn push_horizon(horizon: Duration) -> Finding {
    let what = "delivery";
    if horizon.is_zero() {
        return Finding::ok(what, "the horizon is 0 s, as push mode needs it");
    }
    let found = format!("the subscription pushes, and the horizon is {} s", horizon.as_secs_f64());
    Finding::fail(what, found, "stop every process, run `wakeq settings set --horizon 0s`, start them again")
}

/// Whether this account may publish and, unless notifications are pushed, receive.
pub(crate) fn pubsub_rights(rights: &PubSubRights, is_pushed: bool) -> Finding {
    let what = "Pub/Sub rights";
    match rights {
        PubSubRights::Emulator => Finding::ok(what, "not checked: an emulator has none"),
        PubSubRights::Missing(missing) => {
            // A push subscription is never pulled from.
            let needed = |missing: &&MissingPermission| !(is_pushed && missing.permission == CONSUME);
            let missing: Vec<&MissingPermission> = missing.iter().filter(needed).collect();
            if missing.is_empty() {
                let and = if is_pushed { "publish" } else { "publish, receive," };
                return Finding::ok(what, format!("this account may {and} and look at the subscription"));
            }
            let names: Vec<&str> = missing.iter().map(|missing| missing.permission).collect();
            let advice: Vec<String> = missing
                .iter()
                .map(|missing| format!("grant {} on {}", missing.role, missing.resource))
                .collect();
            let (found, advice) = (format!("this account lacks {}", list(&names)), advice.join(", "));
            if missing.iter().all(|missing| !missing.is_vital) {
                let advice = format!("{advice}; without it a broken stream is noticed later");
                return Finding::warn(what, found, advice);
            }
            Finding::fail(what, found, advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use wakeq::notify::SubscriptionReport;

    #[test]
    fn each_difference_is_a_finding() {
        let mut report = TopicsReport {
            topic: "projects/p/topics/t".into(),
            topic_state: TopicState::AlreadyThere,
            subscription: "projects/p/subscriptions/s".into(),
            subscription_state: TopicState::AlreadyThere,
            push_endpoint: None,
            differences: Vec::new(),
            urgent: None,
            broadcast_topic: None,
        };
        assert!(topics(&report).iter().all(|finding| finding.level == Level::Ok));
        let (setting, found, wanted) = ("retention", "600 s".into(), "604800 s".into());
        report.differences.push(SettingDifference { setting, found, wanted, advice: "gcloud …".into() });
        report.topic_state = TopicState::Missing;
        let levels: Vec<Level> = topics(&report).iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Fail, Level::Ok, Level::Fail]);
        let filter = SettingDifference {
            setting: "filter",
            found: "none".into(),
            wanted: "attributes.urgent = \"true\"".into(),
            advice: "a filter can't be changed".into(),
        };
        report.urgent = Some(SubscriptionReport {
            name: "projects/p/subscriptions/s-urgent".into(),
            state: TopicState::AlreadyThere,
            push_endpoint: Some("https://queue.example/v1/push".into()),
            differences: vec![filter],
        });
        let of_urgent: Vec<Level> = topics(&report)
            .into_iter()
            .filter(|finding| finding.what == "urgent subscription")
            .map(|finding| finding.level)
            .collect();
        assert_eq!(of_urgent, [Level::Ok, Level::Fail, Level::Fail]);
        report.urgent = None;
        report.broadcast_topic = Some(("projects/p/topics/t-broadcast".into(), TopicState::Missing));
        let said: Vec<String> = topics(&report).iter().map(ToString::to_string).collect();
        assert_eq!(
            said[2],
            "FAIL  topic of broadcasts: projects/p/topics/t-broadcast does not exist -> run `wakeq topics create`"
        );
    }

    #[test]
    fn push_mode_requires_a_horizon_of_zero() {
        let level = |seconds| push_horizon(Duration::from_secs(seconds)).level;
        assert_eq!((level(0), level(600)), (Level::Ok, Level::Fail));
    }

    #[test]
    fn a_right_that_work_needs_is_a_failure() {
        let missing = |permission, is_vital| MissingPermission {
            permission,
            role: "roles/pubsub.publisher",
            resource: "projects/p/topics/t".into(),
            is_vital,
        };
        let level = |missing| pubsub_rights(&PubSubRights::Missing(missing), false).level;
        let pushed = PubSubRights::Missing(vec![missing(CONSUME, true)]);
        assert_eq!(
            (pubsub_rights(&pushed, true).level, pubsub_rights(&pushed, false).level),
            (Level::Ok, Level::Fail)
        );
        assert_eq!(level(vec![]), Level::Ok);
        assert_eq!(level(vec![missing("pubsub.subscriptions.get", false)]), Level::Warn);
        assert_eq!(level(vec![missing("a", false), missing("pubsub.topics.publish", true)]), Level::Fail);
    }
}
