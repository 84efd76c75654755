//! Every connection to Postgres stays open and passes nothing any longer. A process that is told to
//! end then ends within its grace and two seconds.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::deployment::{NIL, Site};
use super::receiver::Receiver;
use super::relay::Relay;
use super::{at_most, until};

const GRACE: Duration = Duration::from_secs(5);

pub(super) async fn run(site: &Site) -> Result<()> {
    let receiver = Receiver::start().await?;
    site.target(NIL, "hangs", &receiver.url("hang"), &["--timeout", "90s"])?;
    for (name, busy) in [("an idle process", false), ("one with a handler that hangs", true)] {
        let relay = Relay::start(site.port()).await?;
        let url = site.url().replace(&site.port().to_string(), &relay.port.to_string());
        let server = site.start_on(&url, &[("WAKEQ_SHUTDOWN_GRACE", "5s")]).await?;
        if busy {
            server.emit(NIL, "hangs", 1).await?;
            let hangs = until(Duration::from_secs(30), async || Ok(!receiver.taken("hang").is_empty()));
            ensure!(hangs.await?, "the handler that hangs has not started");
        }
        relay.freeze();
        let began = Instant::now();
        server.child.stop(Duration::from_secs(60)).await?;
        let limit = (GRACE + Duration::from_secs(2)).as_secs_f64();
        at_most(&format!("{name}: seconds until its end"), began.elapsed().as_secs_f64(), limit)?;
    }
    Ok(())
}
