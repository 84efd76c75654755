//! Subscribers that only record what they are given, and detect whether another one has it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::consumer::{EventSubscriber, Health};
use crate::event::SubscriberId;
use wakeq::Name;
use wakeq::log::{EventSource, Partition};

/// Which subscriber works on which source, over all nodes of a test.
#[derive(Clone, Default)]
pub(super) struct Floor(Arc<watch::Sender<Works>>, Arc<Mutex<usize>>);

type Works = BTreeMap<(String, EventSource), SubscriberId>;

impl Floor {
    /// How often a source was started while another subscriber was working on it.
    pub(super) fn doubles(&self) -> usize {
        *self.1.lock().unwrap()
    }

    /// The sources that each subscriber of a group works on.
    pub(super) fn works(&self, group: &str) -> BTreeMap<SubscriberId, BTreeSet<EventSource>> {
        let mut works = BTreeMap::<_, BTreeSet<_>>::new();
        for ((of, source), id) in &*self.0.borrow() {
            if of == group {
                works.entry(*id).or_default().insert(source.clone());
            }
        }
        works
    }

    pub(super) fn loads(&self, group: &str, of: &[&Arc<Fake>]) -> Vec<usize> {
        let works = self.works(group);
        of.iter().map(|fake| works.get(&fake.id).map_or(0, BTreeSet::len)).collect()
    }

    /// Returns when each of these works on this many sources.
    pub(super) async fn until(&self, group: &str, of: &[&Arc<Fake>], loads: &[usize]) {
        let mut changes = self.0.subscribe();
        let settled = async {
            while self.loads(group, of) != loads {
                changes.changed().await.unwrap();
            }
        };
        let patience = tokio::time::timeout(Duration::from_secs(600), settled).await;
        patience.unwrap_or_else(|_| panic!("{group}: {:?} instead of {loads:?}", self.loads(group, of)));
    }

    /// Its process was killed: it works on nothing from now on.
    pub(super) fn forget(&self, fake: &Fake) {
        fake.dead.send_replace(true);
        self.0.send_modify(|works| works.retain(|_, id| *id != fake.id));
    }
}

pub(super) struct Fake {
    name: Name,
    pub(super) id: SubscriberId,
    requests: Vec<EventSource>,
    pub(super) health: watch::Sender<Health>,
    /// While this is set, withdrawals do not end.
    pub(super) busy: watch::Sender<bool>,
    /// While this is set, withdrawals end with a panic.
    pub(super) panics: watch::Sender<bool>,
    /// While this is set, it panics when it is given a source.
    pub(super) panics_at_first: watch::Sender<bool>,
    pub(super) grace: Mutex<Duration>,
    dead: watch::Sender<bool>,
    floor: Floor,
    /// The epochs under which it was given sources.
    pub(super) epochs: Mutex<Vec<i64>>,
}

impl Fake {
    pub(super) fn new(floor: &Floor, name: &str, requests: Vec<EventSource>) -> Arc<Self> {
        Arc::new(Self {
            name: name.parse().unwrap(),
            id: SubscriberId::new(),
            requests,
            health: watch::Sender::new(Health::Healthy),
            busy: watch::Sender::new(false),
            panics: watch::Sender::new(false),
            panics_at_first: watch::Sender::new(false),
            grace: Mutex::new(Duration::from_secs(5)),
            dead: watch::Sender::new(false),
            floor: floor.clone(),
            epochs: Mutex::default(),
        })
    }
}

pub(super) fn parts(category: &str, of: u16) -> Vec<EventSource> {
    let whole = EventSource::category(category).unwrap();
    Partition::all(of).into_iter().filter_map(|part| whole.partition(part)).collect()
}

#[async_trait]
impl EventSubscriber for Fake {
    fn name(&self) -> &Name {
        &self.name
    }

    fn id(&self) -> SubscriberId {
        self.id
    }

    fn requests(&self) -> Vec<EventSource> {
        self.requests.clone()
    }

    fn accept(&self, source: EventSource, epoch: i64) {
        assert!(self.requests.contains(&source));
        assert!(!*self.panics_at_first.borrow(), "an accept that panics");
        self.epochs.lock().unwrap().push(epoch);
        if *self.dead.borrow() {
            return;
        }
        self.floor.0.send_modify(|works| {
            let before = works.insert((self.name.to_string(), source), self.id);
            *self.floor.1.lock().unwrap() += usize::from(before.is_some_and(|id| id != self.id));
        });
    }

    async fn withdraw(&self, source: &EventSource) {
        self.busy.subscribe().wait_for(|busy| !*busy).await.unwrap();
        let key = (self.name.to_string(), source.clone());
        self.floor.0.send_modify(|works| {
            if works.get(&key) == Some(&self.id) {
                works.remove(&key);
            }
        });
        assert!(!*self.panics.borrow(), "a withdraw that panics");
    }

    fn grace(&self) -> Duration {
        *self.grace.lock().unwrap()
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }
}
