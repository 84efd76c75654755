//! Bounded DNS lookups. A limited number runs at once, and each canvas has a share of it. All
//! callers that ask for the same name meanwhile share one lookup. Answers are neither cached nor
//! checked.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use wakeq::CanvasId;
use wakeq::internals::SharedPermits;

use super::resolve::Resolve;

/// Maximum number of concurrent lookups; each occupies a thread until the system answers.
pub(super) const LOOKUPS_MAX: usize = 128;
/// Maximum time that a lookup holds its permit. System resolvers give up earlier.
const LOOKUP_WITHIN: Duration = Duration::from_secs(60);

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Lookups {
    inner: Arc<LookupsState>,
}

/// By canvas and host.
type InFlight = HashMap<(CanvasId, String), Arc<watch::Sender<Stage>>>;

struct LookupsState {
    resolver: Arc<dyn Resolve>,
    permits: SharedPermits,
    in_flight: Mutex<InFlight>,
}

#[derive(Clone, Debug)]
enum Stage {
    Queued,
    Started,
    Answered(Result<Vec<IpAddr>, Arc<io::Error>>),
}

/// A lookup that has started.
pub(super) struct Lookup {
    stage: watch::Receiver<Stage>,
}

impl Lookups {
    pub(super) fn new(resolver: Arc<dyn Resolve>, lookups_max: usize) -> Self {
        let (permits, in_flight) = (SharedPermits::new(lookups_max), Mutex::default());
        Self { inner: Arc::new(LookupsState { resolver, permits, in_flight }) }
    }

    /// Starts a lookup of a name for a canvas once it has a permit, or joins the one that is
    /// waiting or running for it.
    pub(super) async fn begin(&self, canvas: CanvasId, name: &str) -> Lookup {
        let mut stage = self.join((canvas, name.to_owned()));
        // If the lookup's task fails, `addresses` reports it.
        let _begun = stage.wait_for(|stage| !matches!(stage, Stage::Queued)).await.is_ok();
        Lookup { stage }
    }

    fn join(&self, asked: (CanvasId, String)) -> watch::Receiver<Stage> {
        let mut in_flight = self.inner.in_flight();
        if let Some(stage) = in_flight.get(&asked) {
            return stage.subscribe();
        }
        let (sender, receiver) = watch::channel(Stage::Queued);
        let stage = Arc::new(sender);
        in_flight.insert(asked.clone(), Arc::clone(&stage));
        drop(in_flight);
        let task = LookupTask { inner: Arc::clone(&self.inner), asked, stage };
        tokio::spawn(task.look_up());
        receiver
    }
}

impl LookupsState {
    fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        // No code panics while a change is incomplete.
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lookup {
    /// Waits for the addresses.
    pub(super) async fn addresses(mut self) -> io::Result<Vec<IpAddr>> {
        let answered = self.stage.wait_for(|stage| matches!(stage, Stage::Answered(_))).await;
        match answered.as_deref() {
            Ok(Stage::Answered(Ok(addresses))) => Ok(addresses.clone()),
            Ok(Stage::Answered(Err(error))) => Err(io::Error::new(error.kind(), Arc::clone(error))),
            Ok(Stage::Queued | Stage::Started) | Err(_) => {
                Err(io::Error::other("the lookup was interrupted"))
            }
        }
    }
}

/// A lookup that other callers can join until this is dropped.
struct LookupTask {
    inner: Arc<LookupsState>,
    asked: (CanvasId, String),
    stage: Arc<watch::Sender<Stage>>,
}

impl LookupTask {
    /// Ends with its last caller while it waits for a permit. Once started, it continues after all
    /// callers have left, as the system's resolver does: a later caller joins it, so that a slow
    /// name never holds two permits.
    async fn look_up(self) {
        let inner = Arc::clone(&self.inner);
        let mut permit = std::pin::pin!(inner.permits.acquire(self.asked.0));
        let permit = loop {
            tokio::select! {
                biased;
                permit = &mut permit => break permit,
                () = self.stage.closed() => if self.leave() { return },
            }
        };
        self.stage.send_replace(Stage::Started);
        let looking = timeout(LOOKUP_WITHIN, inner.resolver.resolve(&self.asked.1));
        let answer = looking.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        drop(permit);
        let stage = Arc::clone(&self.stage);
        // Later callers start a new lookup, since answers are not kept.
        drop(self);
        stage.send_replace(Stage::Answered(answer.map_err(Arc::new)));
    }

    /// Removes the lookup from the map, unless another caller has joined meanwhile.
    fn leave(&self) -> bool {
        let mut in_flight = self.inner.in_flight();
        let is_wanted = self.stage.receiver_count() > 0;
        if !is_wanted {
            in_flight.remove(&self.asked);
        }
        !is_wanted
    }
}

impl Drop for LookupTask {
    fn drop(&mut self) {
        let mut in_flight = self.inner.in_flight();
        if in_flight.get(&self.asked).is_some_and(|stage| Arc::ptr_eq(stage, &self.stage)) {
            in_flight.remove(&self.asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use async_trait::async_trait;
    use futures_util::poll;
    use tokio::sync::Semaphore;
    use uuid::Uuid;

    use super::*;

    const A: CanvasId = CanvasId(Uuid::from_u128(1));
    const B: CanvasId = CanvasId(Uuid::from_u128(2));

    /// Answers once it is permitted to, and records the names it is asked for.
    #[derive(Debug)]
    struct Gate {
        answers: Semaphore,
        asked: Mutex<Vec<String>>,
    }

    #[async_trait]
    impl Resolve for Gate {
        async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
            self.asked.lock().unwrap().push(name.to_owned());
            self.answers.acquire().await.unwrap().forget();
            if name == "none" { Err(io::ErrorKind::NotFound.into()) } else { Ok(vec![[127, 0, 0, 1].into()]) }
        }
    }

    impl Gate {
        fn asked(&self) -> Vec<String> {
            self.asked.lock().unwrap().clone()
        }
    }

    fn lookups(max: usize) -> (Arc<Gate>, Lookups) {
        let gate = Arc::new(Gate { answers: Semaphore::new(0), asked: Mutex::default() });
        (gate.clone(), Lookups::new(gate, max))
    }

    #[tokio::test]
    async fn requests_for_one_name_share_a_lookup() {
        let (gate, lookups) = lookups(2);
        let (first, second) = tokio::join!(lookups.begin(A, "slow"), lookups.begin(A, "slow"));
        drop(first);
        let third = lookups.begin(A, "slow").await;
        assert_eq!(gate.asked(), ["slow"], "it goes on when the first has left");
        gate.answers.add_permits(1);
        let (second, third) = tokio::join!(second.addresses(), third.addresses());
        assert_eq!(
            (second.unwrap(), third.unwrap()),
            (vec![[127, 0, 0, 1].into()], vec![[127, 0, 0, 1].into()])
        );
        gate.answers.add_permits(2);
        let again = lookups.begin(A, "slow").await.addresses().await;
        assert!(again.is_ok());
        assert_eq!(gate.asked(), ["slow", "slow"], "an answer is not kept");
        let none = lookups.begin(A, "none").await.addresses().await;
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(lookups.inner.in_flight().is_empty());
    }

    #[tokio::test]
    async fn a_lookup_begins_when_there_is_room() {
        let (gate, lookups) = lookups(1);
        let slow = lookups.begin(A, "slow").await;
        let mut left = Box::pin(lookups.begin(A, "left"));
        let mut healthy = pin!(lookups.begin(A, "healthy"));
        assert!(poll!(&mut left).is_pending() && poll!(&mut healthy).is_pending());
        drop(left);
        gate.answers.add_permits(2);
        assert!(slow.addresses().await.is_ok());
        assert!(healthy.await.addresses().await.is_ok());
        assert_eq!(gate.asked(), ["slow", "healthy"], "no lookup is made for callers that left");
        assert!(lookups.inner.in_flight().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_lookup_frees_its_slot() {
        let (_gate, lookups) = lookups(1);
        let slow = lookups.begin(A, "slow").await;
        assert_eq!(slow.addresses().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        lookups.begin(A, "healthy").await;
    }

    /// One canvas has targets at names whose servers do not answer: another one's name is looked
    /// up, also if it is one of these.
    #[tokio::test]
    async fn a_canvas_leaves_lookups_to_others() {
        let (gate, lookups) = lookups(8);
        let names = (0..20).map(|number| format!("slow{number}"));
        let mut hanging: Vec<_> = names
            .map(|name| {
                let lookups = lookups.clone();
                Box::pin(async move { lookups.begin(A, &name).await })
            })
            .collect();
        let mut begun = 0;
        for lookup in &mut hanging {
            begun += usize::from(poll!(lookup).is_ready());
            tokio::task::yield_now().await;
        }
        wakeq_testbed::wait_while!(gate.asked().len() < 6, "six names are looked up");
        lookups.begin(B, "healthy").await;
        lookups.begin(B, "slow0").await;
        let asked = gate.asked();
        assert_eq!(asked.len(), 8, "{asked:?}");
        assert_eq!(asked[6..], ["healthy", "slow0"]);
        assert!(begun <= 6);
    }
}
