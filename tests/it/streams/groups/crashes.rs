//! Nodes that are killed, stopped and replaced while events flow.

use std::time::Duration;

use tokio::time::Instant;

use super::node::GroupWork;
use super::stage::{Node, Stage};
use crate::support::crash_scene::{figure, is_full, size};

const HANDLED: &str = "select count(*) from handled";

fn work() -> GroupWork {
    let groups = size(3, 50);
    GroupWork { groups, partitions: 4, heartbeat_ms: 500, lease_ms: 3_000, handle_ms: 20 }
}

async fn stop(stage: &Stage, node: Node) {
    node.process.child.stop(Duration::from_secs(30)).await.unwrap();
    let sql = "select count(*) from wakeq.subscribers where node_id = $1";
    let left = sqlx::query_scalar::<_, i64>(sql).bind(node.id).fetch_one(&stage.scene.pool).await.unwrap();
    assert_eq!(left, 0, "a node that shuts down leaves nothing");
}

// Shows: SUB-04, SUB-05, SUB-06, SUB-22, SUB-31, SUB-36, SUB-55
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn every_event_reaches_every_group_whatever_becomes_of_the_nodes() {
    let mut stage = Stage::new("group-nodes", work()).await;
    let (one, two, three) = (stage.node().await, stage.node().await, stage.node().await);
    stage.flow(Duration::from_millis(if is_full() { 1_000 } else { 100 }));
    stage.until_each_works(&[&one, &two, &three]).await;
    stage.scene.until_at_least(HANDLED, stage.sources()).await;

    let lease = Duration::from_millis(stage.work.lease_ms);
    let killed = Instant::now();
    stage.scene.kill_9(&one.process).await;
    stage.until_all_on(&[&two, &three]).await;
    let took = killed.elapsed();
    figure("taken over after a kill", format!("{took:.1?}; the lease is {lease:?}"));

    let four = stage.node().await;
    stage.until_each_works(&[&two, &three, &four]).await;
    let held = stage.hold(&two).await;
    let stopped = Instant::now();
    two.process.child.freeze();
    stage.until_all_on(&[&three, &four]).await;
    figure("taken over after a stop", format!("{:.1?}", stopped.elapsed()));
    stage.until_taken_over(&held).await;
    sqlx::query("truncate refusals").execute(&stage.scene.pool).await.unwrap();
    stage.release(&two);
    two.process.child.thaw();
    stage.scene.until_at_least("select count(*) from refusals", 1).await;

    // It returns as an ordinary node, and then all nodes are replaced.
    let mut nodes = vec![two, three, four];
    for _ in 0..3 {
        nodes.push(stage.node().await);
        stage.until_each_works(&nodes.iter().collect::<Vec<_>>()).await;
        stop(&stage, nodes.remove(0)).await;
    }
    stage.until_all_on(&nodes.iter().collect::<Vec<_>>()).await;
    let count = stage.ebb().await;
    let wanted = count * i64::try_from(stage.work.groups).unwrap();
    let ended = Instant::now();
    let distinct = "select count(*) from (select distinct consumer_group, seq from handled) as each";
    stage.scene.until_at_least(distinct, wanted).await;
    figure("events", count);
    figure("handled by each group after the last", format!("{:.1?}", ended.elapsed()));
    let extra = stage.scene.count(HANDLED).await - wanted;
    figure("handled again", extra);
    // For each group, the first handling of each event of a stream counts: repetitions are allowed.
    let disordered = "select count(*) from (
          select seq, lag(seq) over (partition by consumer_group, stream order by first) as before
            from (select consumer_group, stream, seq, min(number) as first from handled group by 1, 2, 3) as firsts) as pairs
         where before > seq";
    assert_eq!(stage.scene.count(disordered).await, 0, "the order of a stream was not kept");
    let of_two = "select count(*) from refusals where pid = (select min(pid) from refusals)";
    figure("commits that were refused when the stopped one went on", stage.scene.count(of_two).await);
    let looks = stage.check().await;
    figure("looks at the assignment, none with two owners of a source", looks);
}

/// TELEMETRY-02: the coordinator is stopped with a write in flight.
// Shows: SUB-04, SUB-08, SUB-22, SUB-36
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_deposed_coordinator_writes_nothing() {
    let mut stage = Stage::new("group-coordinator", work()).await;
    let process = stage.start_faulty(Some("stop:broker.allocate"));
    let one = Stage::named(process).await;
    stage.scene.until_at_least("select count(*) from wakeq.locks", 1).await;
    let (two, three) = (stage.node().await, stage.node().await);
    let begun = Instant::now();
    stage.until_each_works(&[&two, &three]).await;
    figure("another leads after", format!("{:.1?}", begun.elapsed()));
    assert_eq!(stage.held_by(&one).await, 0);
    let terms = "select min(term) from wakeq.subscriptions";
    assert!(stage.scene.count(terms).await > 1, "it was written under a later term");
    one.process.child.thaw();
    let said = one.process.says("deposed").await;
    let (refused, by_metric) = said.trim_start_matches("deposed ").split_once(' ').unwrap();
    assert_eq!(refused, by_metric, "the metric counts the same");
    let refused: u64 = refused.parse().unwrap();
    assert!(refused > 0, "no write was refused: {said}");
    figure("writes of the deposed coordinator that were refused", refused);
    assert!(stage.scene.count(terms).await > 1, "nothing was written under the former term");
    stage.until_each_works(&[&one, &two, &three]).await;
    for node in [one, two, three] {
        stop(&stage, node).await;
    }
    stage.check().await;
}
