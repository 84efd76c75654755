//! What brokers cost: heartbeats are HOT updates by key, an observer reads its node's rows, a quiet round reads two small tables.

use std::io::Write as _;
use std::time::Duration;

use uuid::Uuid;

use super::Table;
use super::cost::{buffers, plan};
use crate::event::{EventSource, Lead, Name, NewSubscription, NodeId, Partition, SubscriberId};

const LEASE: Duration = Duration::from_secs(600);

/// Three nodes with fifty groups of four partitions, each with what it is given.
async fn fill(table: &Table) -> (NodeId, Lead) {
    let nodes: Vec<NodeId> = (0..3).map(|_| NodeId::new()).collect();
    let category = EventSource::category("companies").unwrap();
    let parts: Vec<EventSource> =
        Partition::all(4).into_iter().filter_map(|part| category.partition(part)).collect();
    let term = table.store.take_lock(&Name::coordinator(), Uuid::now_v7(), LEASE).await.unwrap().unwrap();
    let (owner, _) = table.store.lock_holder(&Name::coordinator()).await.unwrap().unwrap();
    let lead = Lead { name: Name::coordinator(), owner, term };
    let mut new = Vec::new();
    for group in 0..50 {
        let name: Name = format!("group-{group}").parse().unwrap();
        for (at, node) in nodes.iter().enumerate() {
            let id = SubscriberId::new();
            table.store.register_subscriber(&name, id, *node, &parts, LEASE).await.unwrap();
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
    // Once: more versions than a page has room for are no cost of a heartbeat's, which come seconds apart.
    table.store.beat_node(node, LEASE).await.unwrap();
    assert_eq!(table.store.beat_subscribers(&beats, LEASE).await.unwrap().len(), 50);
    table.store.bury_subscribers(&lead).await.unwrap().unwrap();
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
    let buried = of("a look for who was not heard of", "lapsed as", &arguments, "").await;
    let states = of("150 subscribers read", "requests::text", "null, 1000", "").await;
    let allocations =
        of("150 subscriptions read", "from wakeq.subscriptions where $1", "null, 1000", "").await;
    assert!(buried <= 800 && states <= 800 && allocations <= 800);
}

/// What groups gave up is forgotten when it is old, whatever group it is of.
#[tokio::test]
async fn what_groups_gave_up_is_forgotten_when_it_is_old() {
    let table = Table::new().await;
    for (group, canvas, days) in [("a", 6, 31), ("b", 7, 31), ("a", 7, 29)] {
        let canvas = Uuid::from_u128(canvas);
        sqlx::query(
            "insert into wakeq.consumer_dead (consumer_group, source, seq, id, canvas_id, category, stream, name, payload,
                                              attempts, last_error, died_at)
             values ($1, 'log', $3, $2, $2, 'c', 's', 'n', '1', 1, 'no room', now() - make_interval(days => $3))",
        )
        .bind(group)
        .bind(canvas)
        .bind(days)
        .execute(&table.pool)
        .await
        .unwrap();
    }
    let kept = Duration::from_secs(30 * 24 * 3600);
    assert_eq!(table.store.expire_group_dead(kept).await.unwrap(), 2);
    assert_eq!(table.store.expire_group_dead(kept).await.unwrap(), 0);
    let left = table.store.group_dead(&"a".parse().unwrap(), None, 10).await.unwrap();
    assert_eq!(left.iter().map(|dead| dead.seq).collect::<Vec<_>>(), [29]);
}
