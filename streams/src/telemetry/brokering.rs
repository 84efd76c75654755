//! The metrics of brokers.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, ObservableGauge};

use wakeq::Name;
use wakeq::internals::telemetry::{counter, observed};

/// What the coordinator does, if it is this process.
pub(crate) struct BrokerMetrics {
    allocations: Counter<u64>,
    refused: Counter<u64>,
}

impl BrokerMetrics {
    pub(crate) fn new() -> Self {
        Self {
            allocations: counter(
                "wakeq.group.allocations",
                "{subscription}",
                "Subscriptions that the coordinator of this process has written",
            ),
            refused: counter(
                "wakeq.group.allocations.refused",
                "{write}",
                "Writes of a coordinator that were refused: another node led by then",
            ),
        }
    }

    /// This many subscriptions were written.
    pub(crate) fn moved(&self, count: usize) {
        self.allocations.add(u64::try_from(count).unwrap_or(u64::MAX), &[]);
    }

    /// A write was refused.
    pub(crate) fn refused(&self) {
        self.refused.add(1, &[]);
    }
}

/// Consumer groups in the gauges. There are few, so their names are used as labels.
#[derive(Clone, Debug, Default)]
pub struct GroupsGauge {
    /// The processes that run brokers.
    pub nodes: u64,
    /// The coordinator's term, if there is a coordinator.
    pub term: Option<u64>,
    /// The groups by name.
    pub groups: Vec<(Name, GroupGauge)>,
    /// A holder, which keeps the first partition of the log from being dropped, and how far it is
    /// behind, in sequence numbers of the log.
    pub holders: Vec<(String, u64)>,
}

/// A consumer group in the gauges.
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupGauge {
    /// How many sources it reads.
    pub sources: u64,
    /// How many of them have an owner.
    pub owned: u64,
    /// How far it is behind, in sequence numbers of the log.
    pub lag: u64,
}

/// The gauges of consumer groups, as long as this exists.
pub struct GroupGauges {
    _kept: [ObservableGauge<u64>; 6],
}

impl GroupGauges {
    /// Shows what the function returns whenever metrics are collected. It must not block for long.
    #[doc(hidden)]
    pub fn over(groups: impl Fn() -> Option<GroupsGauge> + Clone + Send + Sync + 'static) -> Self {
        let of_groups = |name: &'static str,
                         unit: &'static str,
                         description: &'static str,
                         of: fn(&GroupGauge) -> u64| {
            let groups = groups.clone();
            observed(name, unit, description, move |observer| {
                for (name, group) in groups().into_iter().flat_map(|seen| seen.groups) {
                    let label = KeyValue::new("messaging.consumer.group.name", name.to_string());
                    observer.observe(of(&group), &[label]);
                }
            })
        };
        let (of_nodes, of_term) = (groups.clone(), groups.clone());
        let nodes = observed(
            "wakeq.group.nodes",
            "{node}",
            "Nodes with subscribers whose last heartbeat is within their lease",
            move |observer| of_nodes().into_iter().for_each(|seen| observer.observe(seen.nodes, &[])),
        );
        let term = observed(
            "wakeq.group.coordinator.term",
            "{term}",
            "The term of the coordinator; none while no node coordinates",
            move |observer| {
                of_term().and_then(|seen| seen.term).into_iter().for_each(|term| observer.observe(term, &[]));
            },
        );
        let sources =
            of_groups("wakeq.group.sources", "{source}", "Sources of each group", |group| group.sources);
        let owned = of_groups(
            "wakeq.group.owned",
            "{source}",
            "Sources that are assigned to a subscriber",
            |group| group.owned,
        );
        let lag = of_groups(
            "wakeq.group.lag",
            "{event}",
            "Log numbers between the position that is furthest behind and the last one that can be read",
            |group| group.lag,
        );
        let of_holders = groups.clone();
        let holders = observed(
            "wakeq.log.holders",
            "{event}",
            "Log numbers that are kept because of a group or a pin, although they may be old enough to be dropped",
            move |observer| {
                for (holder, behind) in of_holders().into_iter().flat_map(|seen| seen.holders) {
                    observer.observe(behind, &[KeyValue::new("wakeq.log.holder", holder)]);
                }
            },
        );
        Self { _kept: [nodes, term, sources, owned, lag, holders] }
    }
}
