//! The cost of brokers: heartbeats are HOT updates by key, an observer reads its node's rows, a
//! quiet round reads two small tables.

use std::io::Write as _;
use std::time::Duration;

use uuid::Uuid;

use super::cost::{buffers, plan};
use super::{Table, tester};
use crate::event::{NewSubscription, NodeId, SubscriberId, Term};
use crate::store::{GroupClaim, PositionMove, RegisterOutcome, Store};
use wakeq::Name;
use wakeq::log::{EventSource, Partition};

const LEASE: Duration = Duration::from_secs(600);

/// Three nodes with fifty groups of four partitions, each with its subscription.
async fn fill(table: &Table) -> (NodeId, Term) {
    let nodes: Vec<NodeId> = (0..3).map(|_| NodeId::new()).collect();
    let category = EventSource::category("companies").unwrap();
    let parts: Vec<EventSource> =
        Partition::all(4).into_iter().filter_map(|part| category.partition(part)).collect();
    let term = table.store.take_lock(&Name::coordinator(), Uuid::now_v7(), LEASE).await.unwrap().unwrap();
    let (owner, _) = table.store.lock_holder(&Name::coordinator()).await.unwrap().unwrap();
    let lead = Term { name: Name::coordinator(), owner, term };
    let mut new = Vec::new();
    for group in 0..50 {
        let name: Name = format!("group-{group}").parse().unwrap();
        for (at, node) in nodes.iter().enumerate() {
            let id = SubscriberId::new();
            let registered = table.store.register_subscriber(&name, id, *node, &parts, LEASE).await.unwrap();
            assert_eq!(registered, RegisterOutcome::Done);
            new.push(NewSubscription {
                group: name.clone(),
                subscriber: id,
                node: *node,
                sources: parts[at..=at].to_vec(),
                releasing: Vec::new(),
                seen_epoch: 0,
            });
        }
    }
    for node in &nodes {
        table.store.beat_node(*node, LEASE).await.unwrap();
    }
    assert_eq!(table.store.write_subscriptions(&lead, &new).await.unwrap().unwrap().len(), 150);
    table.run("analyze wakeq.subscribers").await;
    table.run("analyze wakeq.subscriptions").await;
    (nodes[0], lead)
}

fn figure(what: &str, pages: i64) {
    let _ = writeln!(std::io::stdout(), "    {what}: {pages} pages");
}

#[tokio::test]
async fn heartbeats_and_rounds_are_small() {
    let table = Table::of_one_connection().await;
    let (node, lead) = fill(&table).await;
    let own = table.store.subscriptions_of(node).await.unwrap();
    let beats: Vec<(SubscriberId, i64)> = own.iter().map(|one| (one.subscriber, one.epoch)).collect();
    // Once: heartbeats come seconds apart, so a page never has to hold many versions.
    table.store.beat_node(node, LEASE).await.unwrap();
    assert_eq!(table.store.beat_subscribers(&beats, LEASE).await.unwrap().len(), 50);
    table.store.remove_lapsed_subscribers(&lead).await.unwrap().unwrap();
    table.store.subscribers(None).await.unwrap();
    table.store.subscriptions(None).await.unwrap();
    let ids: Vec<String> = beats.iter().map(|(id, _)| id.to_string()).collect();
    let epochs: Vec<String> = beats.iter().map(|(_, epoch)| epoch.to_string()).collect();
    let (ids, epochs) = (format!("'{{{}}}'", ids.join(",")), format!("'{{{}}}'", epochs.join(",")));
    let of = async |what: &str, part: &str, arguments: &str, node: &str| {
        let plan = plan(&table.store, part, arguments).await;
        let pages = buffers(&plan, node);
        assert!(pages > 0 && !plan.contains("Hash Join"), "{what}: {plan}");
        figure(what, pages);
        pages
    };
    let beat =
        of("heartbeat of a node", "insert into wakeq.nodes", &format!("'{node}', '10 min'"), "Insert").await;
    assert!(beat <= 10);
    let arguments = format!("{ids}, {epochs}, '10 min'");
    let heard = of("heartbeats of 50 subscribers", "greatest(confirmed_epoch", &arguments, "Update").await;
    assert!(heard <= 800, "16 pages a subscriber");
    let observed =
        of("an observer with 50 subscribers", "where node_id = $1 order", &format!("'{node}', 100"), "")
            .await;
    assert!(observed <= 160);
    let arguments = format!("'coordinator', '{}', {}", lead.owner, lead.term);
    let lapsed = of("a look for lapsed nodes", "lapsed as", &arguments, "").await;
    let states = of("150 subscribers read", "requests::text", "null, 1000", "").await;
    let allocations =
        of("150 subscriptions read", "from wakeq.subscriptions where $1", "null, 1000", "").await;
    assert!(lapsed <= 800 && states <= 800 && allocations <= 800);
}

/// A session that locks the groups `g` and `h`, as registering or removing a member does.
async fn hold(table: &Table) -> sqlx::Transaction<'static, sqlx::Postgres> {
    table.run("insert into wakeq.consumer_groups (consumer_group) values ('g'), ('h')").await;
    let mut held = table.pool.begin().await.unwrap();
    let lock = "select from wakeq.consumer_groups where consumer_group = 'g' for update";
    sqlx::query(lock).execute(&mut *held).await.unwrap();
    held
}

/// What that session does: it adds a member of `g` that requests a category.
const MEMBER: &str = r#"
    insert into wakeq.subscribers (subscriber_name, subscriber_id, node_id, expires_at, requests, request_count)
    values ('g', gen_random_uuid(), gen_random_uuid(), now() + interval '1 h',
            '[{"type":"category","category":"companies"}]', 1)"#;

async fn register(store: &Store, group: &str, category: &str) -> RegisterOutcome {
    let requests = [EventSource::category(category).unwrap()];
    let (id, node) = (SubscriberId::new(), NodeId::new());
    store.register_subscriber(&group.parse().unwrap(), id, node, &requests, LEASE).await.unwrap()
}

/// Of two that start together the second sees the first, however late the first commits.
// Shows: SUB-20
#[tokio::test]
async fn members_of_a_group_are_registered_one_by_one() {
    let table = Table::new().await;
    let mut held = hold(&table).await;
    sqlx::query(MEMBER).execute(&mut *held).await.unwrap();
    let store = table.store.clone();
    let second = tokio::spawn(async move { register(&store, "g", "contacts").await });
    table.until_waiting(1).await;
    assert_eq!(
        register(&table.store, "h", "contacts").await,
        RegisterOutcome::Done,
        "another group does not wait"
    );
    held.commit().await.unwrap();
    let [known, asked] = ["companies", "contacts"].map(|category| EventSource::category(category).unwrap());
    assert_eq!(second.await.unwrap(), RegisterOutcome::Differs { known, asked });
    assert_eq!(register(&table.store, "g", "companies").await, RegisterOutcome::Done);
}

/// A member that starts while its group is removed keeps the position that it has opened.
#[tokio::test]
async fn a_group_whose_member_starts_is_not_removed() {
    let table = Table::new().await;
    let (g, source): (Name, _) = ("g".parse().unwrap(), EventSource::category("companies").unwrap());
    let other = EventSource::category("former").unwrap();
    for source in [&source, &other] {
        table.store.open_position(&g, source, 1).await.unwrap().unwrap();
    }
    let mut held = hold(&table).await;
    sqlx::query(MEMBER).execute(&mut *held).await.unwrap();
    for of in [None, Some(source.clone())] {
        let (store, g) = (table.store.clone(), g.clone());
        let removing =
            tokio::spawn(async move { store.remove_group(&g, of.as_ref(), None, &tester()).await.unwrap() });
        table.until_waiting(1).await;
        held.commit().await.unwrap();
        assert_eq!(removing.await.unwrap(), None, "somebody works on it");
        held = table.pool.begin().await.unwrap();
        let again = "update wakeq.consumer_groups set recoveries = 0 where consumer_group = 'g'";
        sqlx::query(again).execute(&mut *held).await.unwrap();
    }
    held.rollback().await.unwrap();
    let removed = table.store.remove_group(&g, Some(&other), None, &tester()).await.unwrap().unwrap();
    assert_eq!((removed.positions, removed.pins), (1, 0), "nobody asks for that");
    assert_eq!(table.number("select count(*) from wakeq.consumer_positions").await, 1);
}

/// A process that works alone takes its group before that is removed, or after.
#[tokio::test]
async fn a_group_is_taken_before_it_is_removed_or_after() {
    let table = Table::new().await;
    let (g, h): (Name, Name) = ("g".parse().unwrap(), "h".parse().unwrap());
    let (one, two) = (Uuid::now_v7(), Uuid::now_v7());
    let held = hold(&table).await;
    let (store, group) = (table.store.clone(), g.clone());
    let claiming = tokio::spawn(async move { store.claim_group(&group, one, LEASE, true).await.unwrap() });
    table.until_waiting(1).await;
    assert_eq!(table.store.claim_group(&h, two, LEASE, true).await.unwrap(), GroupClaim::Own { epoch: 0 });
    // It renews what it has without the lock.
    assert_eq!(table.store.claim_group(&h, two, LEASE, false).await.unwrap(), GroupClaim::Own { epoch: 0 });
    held.rollback().await.unwrap();
    assert_eq!(claiming.await.unwrap(), GroupClaim::Own { epoch: 0 });
    assert_eq!(table.store.single_groups(Some(&g)).await.unwrap(), [(g.clone(), NodeId(one))]);
    assert_eq!(table.store.remove_group(&g, None, None, &tester()).await.unwrap(), None);
    assert_eq!(table.store.claim_group(&g, two, LEASE, false).await.unwrap(), GroupClaim::Elsewhere);
    table.store.release_groups(one).await.unwrap();
    assert!(table.store.remove_group(&g, None, None, &tester()).await.unwrap().is_some());
    assert_eq!(table.store.single_groups(None).await.unwrap(), [(h, NodeId(two))]);
}

/// A move of a position whose answer was lost, and that is still in flight, is waited for and seen
/// by its owner. Another group's move is not.
#[tokio::test]
async fn a_position_is_opened_after_a_move_that_is_under_way() {
    let table = Table::new().await;
    let (g, h): (Name, Name) = ("g".parse().unwrap(), "h".parse().unwrap());
    let source = EventSource::category("companies").unwrap();
    for group in [&g, &h] {
        table.store.open_position(group, &source, 3).await.unwrap().unwrap();
    }
    for (epoch, from, to) in [(3, 0, 20), (4, 20, 30)] {
        let mut moving = table.pool.begin().await.unwrap();
        let moves = PositionMove { group: &g, source: &source, epoch: 3, from, to };
        assert!(crate::store::positions::move_position(&mut moving, &moves).await.unwrap());
        let (store, group, of) = (table.store.clone(), g.clone(), source.clone());
        let opening = tokio::spawn(async move { store.open_position(&group, &of, epoch).await.unwrap() });
        table.until_waiting(1).await;
        moving.commit().await.unwrap();
        assert_eq!(opening.await.unwrap(), Some(to), "under epoch {epoch}");
    }
    assert_eq!(table.store.open_position(&g, &source, 3).await.unwrap(), None, "it is another's by now");
    assert_eq!(table.store.open_position(&h, &source, 3).await.unwrap(), Some(0));
}
