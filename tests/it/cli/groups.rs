//! `wakeq groups` on the database and against a server: the same output.

use wakeq::CanvasId;
use wakeq::log::{AppendCondition, Log, NewLogEvent, StreamId};
use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::service::Service;
use crate::support::{OTHER, Statements};

/// A group with two subscribers, one of them unhealthy; groups of which only a position or only a
/// pin is left; and one that a process consumes alone.
const FILL: &str = "
    insert into wakeq.nodes (node_id, heartbeat_timestamp, expires_at) values
        ('00000000-0000-7000-8000-000000000001', '2026-01-01 00:00:00Z', 'infinity'),
        ('00000000-0000-7000-8000-000000000002', '2026-01-01 00:00:00Z', '-infinity');
    insert into wakeq.locks (name, owner, term, expires_at) values
        ('coordinator', '00000000-0000-7000-8000-000000000001', 7, 'infinity');
    insert into wakeq.subscribers (subscriber_name, subscriber_id, node_id, heartbeat_timestamp, expires_at, requests,
                                   request_count, unhealthy) values
        ('projection', '00000000-0000-7000-8000-000000000003', '00000000-0000-7000-8000-000000000001',
         '2026-01-01 00:00:00Z', 'infinity',
         '[{\"type\":\"category\",\"category\":\"companies\",\"partitions\":[\"1\",\"2\"],\"of\":2}]', 2, null),
        ('projection', '00000000-0000-7000-8000-000000000004', '00000000-0000-7000-8000-000000000001',
         '2026-01-01 00:00:00Z', 'infinity',
         '[{\"type\":\"category\",\"category\":\"companies\",\"partitions\":[\"1\",\"2\"],\"of\":2}]', 2, 'the disk is full');
    insert into wakeq.subscriptions (subscriber_name, subscriber_id, node_id, subscriber_event_sources, releasing, epoch, term)
        values ('projection', '00000000-0000-7000-8000-000000000003', '00000000-0000-7000-8000-000000000001',
         '[{\"type\":\"category\",\"category\":\"companies\",\"partitions\":[\"1\"],\"of\":2}]', '[]', 3, 7);
    insert into wakeq.consumer_positions (consumer_group, source, position, epoch, updated_at) values
        ('projection', 'category/companies/1-of-2', 0, 3, '2026-01-01 00:00:00Z'),
        ('entities.old', 'category/entities:old.inbox', 0, 1, '2026-01-01 00:00:00Z'),
        ('solo', 'log', 0, 1, '2026-01-01 00:00:00Z'),
        ('former', 'category/a', 0, 1, '2026-01-01 00:00:00Z'),
        ('former', 'log', 0, 1, '2026-01-01 00:00:00Z');
    update wakeq.consumer_positions
       set failing_seq = 1, failing_since = '2026-01-01 00:00:00Z', failing_attempts = 3, failing_error = 'no room'
     where consumer_group = 'projection';
    insert into wakeq.consumer_dead
        (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error, died_at) values
        ('former', 'log', 5, '00000000-0000-7000-8000-000000000005', '00000000-0000-7000-8000-000000000006', 'companies', 'a',
         'changed', '1', 1, 'no room', '2026-01-01 00:00:00Z');
    insert into wakeq.single_groups values
        ('solo', '00000000-0000-7000-8000-000000000007', 'infinity'),
        ('former', '00000000-0000-7000-8000-000000000007', '-infinity');
    insert into wakeq.log_pins values ('entities/old', 0), ('entities/other', 0), ('entities/third', 0), ('of nobody', 0);";

/// What is typed, and what is printed.
const SESSION: &str = "\
$ groups nodes
NODE                                  HEARTBEAT             COORDINATES
<id>  <time>  in term 7
$ groups list
GROUP           SUBSCRIBERS  UNHEALTHY  SOURCES  IDLE  LAG
entities.old              0          0        1     1  0
entities.other            0          0        0     0  0
entities.third            0          0        0     0  0
former                    0          0        2     2  0
projection                2          1        2     1  0
solo                  alone          0        1     0  0
$ groups show projection
group     projection
subscriber <id> on node <id>, healthy
subscriber <id> on node <id>, unhealthy: the disk is full
SOURCE                     SUBSCRIBER                            POSITION  LAG  SINCE
category/companies/1-of-2  <id>         0    0  <time>
category/companies/2-of-2  -                                            0    0  -
category/companies/1-of-2 waits for event 1, which has failed 3 times since <time>: no room
$ groups show solo
group     solo
alone     process <id> owns all of its sources
SOURCE  SUBSCRIBER  POSITION  LAG  SINCE
log     alone              0    0  <time>
$ groups show entities.other
group     entities.other
pin       the log keeps everything after 0 for this entity type
no sources
$ groups recover projection
the members of group projection will retry with their next heartbeat
$ groups dead former
SEQ  CANVAS                                STREAM       EVENT    ATTEMPTS  DIED                  ERROR
  5  <id>  companies/a  changed         1  <time>  no room
$ groups dead projection
nothing was given up
$ groups redrive former --seq 5
1 event will be retried
$ groups redrive former --all
0 events will be retried
$ groups remove former --source category/a
removed 1 position and 0 pins of group former
$ groups remove former
removed 1 position and 0 pins of group former
$ groups remove entities.old --source category/entities:old.inbox
removed 1 position and 1 pin of group entities.old
$ groups remove entities.other
removed 0 positions and 1 pin of group entities.other
$ groups reset projection --to end
group projection resumes after 0 in 2 sources
$ groups reset projection --to start --source category/companies/2-of-2
group projection resumes after 0 in 1 source
";

async fn plays(terminal: &Terminal) {
    terminal.plays(SESSION).await;
    let refused = [
        ("groups show nothing", 3, ""),
        ("groups reset nothing --to start", 3, ""),
        ("groups reset projection", 2, "--to"),
        ("groups reset projection --to never", 2, "use start, end, or the number"),
        ("groups reset projection --to 99", 2, "the last one of the log"),
        ("groups reset projection --to start --source nonsense", 2, "is not a source"),
        ("groups recover nothing", 3, ""),
        ("groups redrive former", 2, "--seq"),
        ("groups redrive entities.old --all", 2, "send it to the entity again"),
        ("groups remove former", 3, ""),
        ("groups remove entities.old", 3, ""),
        ("groups remove solo", 5, "is in use, or was in use"),
        ("groups remove projection", 5, "is in use, or was in use"),
        ("groups remove projection --source category/companies/2-of-2", 5, "is in use, or was in use"),
    ];
    terminal.refuses(&refused).await;
}

async fn filled() -> Service {
    let service = Service::start().await;
    service.stage.execute(FILL).await;
    service
}

// Shows: SUB-32, SUB-49
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn groups_are_shown_and_reset_on_the_database() {
    let service = filled().await;
    plays(&Terminal::beside(&service)).await;
    let sql = "select detail from wakeq.audit_log where action = 'reset-group' order by at";
    let recorded: Vec<String> = service.stage.pool.values(sql).await;
    assert_eq!(recorded, ["group projection, 2 sources to 0", "group projection, 1 sources to 0"]);
    let sql =
        "select action || ': ' || detail from wakeq.audit_log where action ~ 'rec|rem|redrive-g' order by at";
    let recorded: Vec<String> = service.stage.pool.values(sql).await;
    let expected = [
        "recover-group: group projection",
        "redrive-group: group former, 1 events",
        "remove-group: group former; source category/a",
        "remove-group: group former",
        "remove-group: group entities.old",
        "remove-group: group entities.other",
    ];
    assert_eq!(recorded, expected);
    let left: Vec<String> = service.stage.pool.values("select name from wakeq.log_pins order by name").await;
    assert_eq!(left, ["entities/third", "of nobody"]);
    service.stop().await;
}

/// A source lags by what the log holds after its position, and a group by as much as its latest
/// source.
// Shows: SUB-49
#[tokio::test]
async fn a_group_lags_by_what_the_log_holds_after_its_positions() {
    let service = filled().await;
    let log = Log::new(service.stage.store.clone(), service.stage.notifier.as_ref());
    let mut numbers = Vec::new();
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let stream = StreamId::new(canvas, "companies", "acme").unwrap();
        let events = (0..4).map(|value| NewLogEvent::new("changed", &value).unwrap()).collect();
        let appended = log.append(&stream, events, AppendCondition::None).await.unwrap();
        numbers.extend(appended.into_iter().map(|event| event.seq));
    }
    let (third, last) = (numbers[2], numbers[7]);
    let (server, database) = (Terminal::wide(&service).await, Terminal::beside(&service));
    let (source, to) = ("category/companies/1-of-2", third.to_string());
    server.prints(&["groups", "reset", "projection", "--to", &to, "--source", source]).await;
    for terminal in [&server, &database] {
        let shown = terminal.prints(&["groups", "show", "projection"]).await;
        let row = |of: &str| -> Vec<String> {
            let line = shown.lines().find(|line| line.starts_with(of) && !line.contains("waits")).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        let words = |position: i64| [position.to_string(), (last - position).to_string()];
        assert_eq!(row(source)[2..4], words(third), "{shown}");
        assert_eq!(row("category/companies/2-of-2")[2..4], words(0), "{shown}");
        let listed = terminal.prints(&["groups", "list"]).await;
        let line = listed.lines().find(|line| line.starts_with("projection")).unwrap();
        assert_eq!(line.split_whitespace().last(), Some(last.to_string().as_str()), "{listed}");
    }
    service.stop().await;
}

// Shows: SUB-32
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn groups_are_shown_and_reset_by_a_server() {
    let service = filled().await;
    plays(&Terminal::wide(&service).await).await;
    let of_one = Terminal::with_key(&service, &service.key("ada", CanvasId::DEFAULT, &Scope::ALL).await);
    of_one.refuses(&[("groups list", 4, "reaches every canvas")]).await;
    service.stop().await;
}

/// A trigger makes it slower than the second from which sqlx logs it.
const SLOW: &str = "
    create function public.slow() returns trigger language plpgsql as 'begin perform pg_sleep(1.1); return new; end';
    create trigger slow before update on wakeq.consumer_dead for each row execute function public.slow();";

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_slow_statement_is_not_logged_unless_asked_for() {
    let service = filled().await;
    service.stage.execute(SLOW).await;
    let quiet = Terminal::beside(&service);
    let logging = Terminal::beside(&service).set("RUST_LOG", "warn");
    for (terminal, logs) in [(quiet, false), (logging, true)] {
        service.stage.execute("update wakeq.consumer_dead set redrive_at = null").await;
        let printed = terminal.run(&["groups", "redrive", "former", "--seq", "5"]).await;
        assert_eq!((printed.code, printed.err.contains("slow statement")), (Some(0), logs), "{printed:?}");
    }
    service.stop().await;
}
