//! Judges the topic, the subscription, and the rights on them.

use super::{Finding, list};
use crate::notify::{PubSubRights, TopicState, TopicsReport};

/// Whether topic and subscription are there, and set up as the queue needs them.
pub(crate) fn topics(report: &TopicsReport) -> Vec<Finding> {
    let found = |what, name: &str, state| match state {
        TopicState::Missing => {
            Finding::fail(what, format!("{name} does not exist"), "run `wakeq topics create`")
        }
        TopicState::Created | TopicState::AlreadyThere => Finding::ok(what, name),
    };
    let mut findings = vec![
        found("topic", &report.topic, report.topic_state),
        found("subscription", &report.subscription, report.subscription_state),
    ];
    findings.extend(report.differences.iter().map(|difference| {
        let found = format!("{} is {}, wanted {}", difference.setting, difference.found, difference.wanted);
        Finding::fail("subscription", found, &difference.mend)
    }));
    findings
}

/// Without Pub/Sub.
pub(crate) fn local() -> Finding {
    Finding::ok(
        "notifier",
        "local: a process wakes itself, so one process should work; Pub/Sub is not needed",
    )
}

/// Whether this account may publish and receive.
pub(crate) fn pubsub_rights(rights: &PubSubRights) -> Finding {
    let what = "Pub/Sub rights";
    match rights {
        PubSubRights::Emulator => Finding::ok(what, "not checked: an emulator has none"),
        PubSubRights::Missing(missing) if missing.is_empty() => {
            Finding::ok(what, "this account may publish, receive, and look at the subscription")
        }
        PubSubRights::Missing(missing) => {
            let names: Vec<&str> = missing.iter().map(|missing| missing.permission).collect();
            let mend: Vec<String> = missing
                .iter()
                .map(|missing| format!("grant {} on {}", missing.role, missing.resource))
                .collect();
            let (found, mend) = (format!("this account lacks {}", list(&names)), mend.join(", "));
            if missing.iter().all(|missing| !missing.is_vital) {
                let mend = format!("{mend}; without it a broken stream is noticed later");
                return Finding::warn(what, found, mend);
            }
            Finding::fail(what, found, mend)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::notify::{MissingPermission, SettingDifference};

    #[test]
    fn each_difference_is_a_finding() {
        let mut report = TopicsReport {
            topic: "projects/p/topics/t".into(),
            topic_state: TopicState::AlreadyThere,
            subscription: "projects/p/subscriptions/s".into(),
            subscription_state: TopicState::AlreadyThere,
            differences: Vec::new(),
        };
        assert!(topics(&report).iter().all(|finding| finding.level == Level::Ok));
        let (setting, found, wanted) = ("retention", "600 s".into(), "604800 s".into());
        report.differences.push(SettingDifference { setting, found, wanted, mend: "gcloud …".into() });
        report.topic_state = TopicState::Missing;
        let levels: Vec<Level> = topics(&report).iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Fail, Level::Ok, Level::Fail]);
    }

    #[test]
    fn a_right_that_work_needs_is_a_failure() {
        let missing = |permission, is_vital| MissingPermission {
            permission,
            role: "roles/pubsub.publisher",
            resource: "projects/p/topics/t".into(),
            is_vital,
        };
        let level = |missing| pubsub_rights(&PubSubRights::Missing(missing)).level;
        assert_eq!(level(vec![]), Level::Ok);
        assert_eq!(level(vec![missing("pubsub.subscriptions.get", false)]), Level::Warn);
        assert_eq!(level(vec![missing("a", false), missing("pubsub.topics.publish", true)]), Level::Fail);
    }
}
