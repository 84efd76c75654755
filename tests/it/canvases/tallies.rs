//! Entities of both tenants with the same name, under one processor: each counts its own events and
//! gets its own results, even after another processor rebuilds it from the repository.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wakeq::log::Log;
use wakeq::{Actor, CanvasId, EventId};
use wakeq_streams::entities::EntityEventStatus;
use wakeq_streams::{
    Applied, Entities, Entity, EntityConfig, EntityEvent, EntityId, EntityProcessor, EntityStatus, Rejection,
};
use wakeq_testbed::Looks;

use super::Findings;
use super::seed::{ATTACKER, VICTIM};
use super::world::World;
use crate::streams::entities::{accept, withdraw};

/// Longest wait for something that is due at once.
const TIMEOUT: Duration = Duration::from_secs(8);

struct Tally;

#[derive(Debug, Serialize, Deserialize)]
enum Change {
    Add(u64),
}

impl Entity for Tally {
    const TYPE: &'static str = "tally";
    type State = u64;
    type Event = Change;

    fn validate(_: &u64, _: &Change) -> Result<(), Rejection> {
        Ok(())
    }

    fn apply(state: u64, Change::Add(count): &Change) -> Applied<u64> {
        Applied::new(state + count).result(&(state + count))
    }
}

fn tally(canvas: CanvasId) -> EntityId {
    EntityId::new(canvas, Tally::TYPE, "ada").unwrap()
}

pub(super) async fn goes_on(world: &World) -> Findings {
    let stage = &world.service.stage;
    let entities = Entities::new(stage.queue.clone());
    let log = Arc::new(Log::new(stage.store.clone(), &*stage.notifier));
    let mut findings = Findings::new();
    // With a snapshot now and then: the second processor reads the events after it.
    let config = || EntityConfig {
        poll_interval: Duration::from_millis(50),
        snapshot_every: 2,
        ..EntityConfig::default()
    };
    let mut expected = 0;
    for (epoch, counts) in [(1, vec![1, 2, 4]), (2, vec![8, 16, 32, 64]), (3, vec![128])] {
        let processor = EntityProcessor::<Tally>::new(stage.queue.clone(), log.clone(), config()).unwrap();
        accept(&processor, epoch).await;
        for count in counts {
            expected += count;
            let send = async |canvas, count| {
                let event = EntityEvent::of(&Change::Add(count)).unwrap();
                entities.send(&tally(canvas), event).await.unwrap().id
            };
            // More events of the attacker, so that no two versions are alike.
            send(ATTACKER.canvas, 100).await;
            send(ATTACKER.canvas, 100).await;
            let result = result(&entities, send(VICTIM.canvas, count).await).await;
            if result != Some(expected.to_string()) {
                findings.push(format!("tallies: it is {result:?} and not {expected}"));
            }
        }
        if epoch == 2 && !erases(&entities, ATTACKER.canvas).await {
            findings.push("tallies: the attacker's is not erased".to_owned());
        }
        withdraw(&processor).await;
    }
    findings
}

/// Erases the tally of a canvas; returns whether it is gone. The next processor must still find all
/// of the other one.
async fn erases(entities: &Entities, canvas: CanvasId) -> bool {
    let erasure = entities.erase(&tally(canvas), None, &Actor::user("tests")).await.unwrap();
    ended(entities, canvas, erasure.id).await.is_some()
        && entities.show(&tally(canvas)).await.unwrap().is_none()
}

/// The result that the victim gets for an event, once that has ended.
async fn result(entities: &Entities, id: EventId) -> Option<String> {
    ended(entities, VICTIM.canvas, id).await?.result
}

/// An event, once it has ended; `None` if it does not.
async fn ended(entities: &Entities, canvas: CanvasId, id: EventId) -> Option<EntityEventStatus> {
    let mut looks = Looks::default();
    let ended = async {
        loop {
            let progress = entities.status(canvas, id.0).await.unwrap();
            if let Some(event) = progress.and_then(|progress| progress.events.into_iter().next())
                && event.status != EntityStatus::Accepted
            {
                return event;
            }
            looks.pause().await;
        }
    };
    tokio::time::timeout(TIMEOUT, ended).await.ok()
}
