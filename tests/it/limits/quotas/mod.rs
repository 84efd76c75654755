//! Quotas: a canvas over its quota is refused with the reason, others are not; who may set them;
//! what they cost.

mod cost;
mod http;
mod kept;
mod kinds;
mod tables;

use uuid::Uuid;
use wakeq::control::{Quota, QuotaExceeded};
use wakeq::{Actor, Admin, CanvasId, EmitError, Event, StoreError};

const GREEDY: CanvasId = CanvasId(Uuid::from_u128(0xa));
const VICTIM: CanvasId = CanvasId(Uuid::from_u128(0xb));

fn operator() -> Actor {
    Actor::admin("operator")
}

fn events(canvas: CanvasId, count: usize) -> Vec<Event> {
    (0..count).map(|index| Event::new("work", &index).unwrap().canvas(canvas)).collect()
}

async fn set(admin: &Admin, quota: Quota, limit: u64) {
    admin.set_quota(GREEDY, quota, limit, &operator()).await.unwrap();
}

async fn used(admin: &Admin, canvas: CanvasId, quota: Quota) -> u64 {
    let quotas = admin.quotas(canvas).await.unwrap();
    quotas.iter().find(|of| of.quota == quota).unwrap().used
}

#[track_caller]
fn exceeded(error: &StoreError, quota: Quota) -> QuotaExceeded {
    let StoreError::Quota(exceeded) = error else { panic!("{error:?}") };
    assert_eq!((exceeded.canvas, exceeded.quota), (GREEDY, quota), "{error}");
    for words in [quota.as_str(), "wakeq quotas set", &exceeded.limit.to_string()] {
        assert!(error.to_string().contains(words), "{error}");
    }
    *exceeded
}

#[track_caller]
fn refused<T: std::fmt::Debug>(emitted: Result<T, EmitError>, quota: Quota) -> QuotaExceeded {
    let Err(EmitError::Store(error)) = emitted else { panic!("{emitted:?}") };
    exceeded(&error, quota)
}
