//! One canvas emits 200,000 events by one statement of plain SQL, for a handler that takes 3 s, so
//! that the pass publishes more of them than a worker can start; another canvas comes meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::deployment::{NIL, OTHER, Site};
use super::receiver::{Receiver, SLOW};
use super::{at_most, figure, slowest_start, until};

const FLOOD: &str = "select count(e.event_id) from generate_series(1, 200000) as number,
                            lateral wakeq.emit('slow', number::text) as e";
const OTHERS: usize = 20;

pub(super) async fn run(site: &Site) -> Result<()> {
    let receiver = Receiver::start().await?;
    site.target(NIL, "slow", &receiver.url("slow"), &[])?;
    site.target(OTHER, "ok", &receiver.url("ok"), &[])?;
    let server = site.start(&[]).await?;
    let began = Instant::now();
    let emitted = site.number(FLOOD).await?;
    figure("events of one statement", format!("{emitted} in {:.0?}", began.elapsed()));
    let runs = until(Duration::from_secs(300), async || Ok(!receiver.taken("slow").is_empty())).await?;
    ensure!(runs, "no event of the flood has started within 300 s");
    let worst = slowest_start(&server, &receiver, OTHERS).await?;
    let bound = SLOW.as_secs_f64() + 1.0;
    at_most("seconds until an event of the other canvas had started", worst.as_secs_f64(), bound)
}
