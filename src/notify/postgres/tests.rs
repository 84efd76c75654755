//! What a process keeps of the messages that it hears.

use tokio::time::timeout;

use super::*;
use crate::event::EventId;
use crate::store::tests::Table;

const ONE: CanvasId = CanvasId(Uuid::from_u128(7));
const OTHER: CanvasId = CanvasId(Uuid::from_u128(8));

fn notifications(canvas: CanvasId) -> impl Iterator<Item = Notification> {
    std::iter::repeat_with(move || Notification::new(EventId::new(), canvas))
}

/// A process floods two workers with the events of one canvas. A message for which the mailbox
/// has no room takes room from the reserve if it is this worker's to handle, and is dropped
/// otherwise. The first events of another canvas, from the same process, are all taken.
#[tokio::test]
async fn a_flood_of_one_canvas_leaves_room_to_another() {
    let table = Table::new().await;
    let notifier = PostgresNotifier::new(&table.store);
    let (shared, [sender, worker]) = (&notifier.shared, [1, 2].map(Uuid::from_u128));
    assert!(shared.members().heard(worker), "half of the events are for another worker");
    let (waiting, most) = (|| shared.mailbox.read(|messages| messages.waiting()), WAITING_MAX / 4 * 3);
    shared.take_in(sender, notifications(ONE).take(most + 1_000));
    assert_eq!(waiting(), most);

    let own = notifications(ONE).find(|one| shared.members().is_own(one.id)).unwrap();
    let foreign = notifications(ONE).find(|one| !shared.members().is_own(one.id)).unwrap();
    shared.take_in(sender, [own, foreign].into_iter());
    let names = |id| shared.mailbox.read(|messages| messages.names(id));
    assert_eq!((names(own.id), names(foreign.id), waiting()), (true, false, most));

    let others: Vec<_> = notifications(OTHER).take(100).collect();
    shared.take_in(sender, others.iter().copied());
    assert!(others.iter().all(|one| names(one.id)));
    assert_eq!(waiting(), most + 100);
}

/// A process that had no room for messages that were its to handle learns when it is drained.
/// It does not for others' messages, nor for those that were looked for.
#[tokio::test]
async fn an_overflow_is_noted_only_for_messages_of_the_processs_own_share() {
    let table = Table::new().await;
    let notifier = PostgresNotifier::holding(&table.store, 80);
    let (shared, [sender, worker]) = (&notifier.shared, [1, 2].map(Uuid::from_u128));
    let hearer = WorkerHearer { shared: Arc::clone(shared) };
    let hear = |news: News| news.contents().iter().for_each(|content| hearer.hear(sender, content));
    let is_noted = async || timeout(Duration::ZERO, shared.overflow.noted()).await.is_ok();
    let own = |count: usize| -> Vec<Notification> {
        notifications(ONE).filter(|one| shared.members().is_own(one.id)).take(count).collect()
    };
    hear(News::Wake(own(60)));
    assert!(!is_noted().await, "there was room for three quarters");
    assert!(shared.members().heard(worker));
    let foreign = notifications(ONE).filter(|one| !shared.members().is_own(one.id)).take(20).collect();
    hear(News::Wake(foreign));
    hear(News::Again(own(20)));
    assert!(!is_noted().await);
    let found = own(20);
    let refused = shared.take_in(sender, found.iter().copied()).refused;
    assert_eq!(refused, HashSet::from([ONE]));
    assert!(!is_noted().await, "the one that looked for them knows it");
    hear(News::Wake(found));
    assert!(is_noted().await);

    let mut subscription = shared.mailbox.subscribe(100).unwrap();
    let handled = async {
        while shared.mailbox.read(|messages| messages.own_waiting()) > 10 {
            subscription.next().await.unwrap().acknowledge();
        }
    };
    tokio::join!(notifier.overflowed(), handled);
    assert!(!is_noted().await, "it is looked for now");
}
