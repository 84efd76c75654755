//! The reads of a list of entities, and of the lookups of their events.

use super::Table;
use super::cost::{buffers, plan};
use crate::event::EntityId;
use crate::store::WantedTail;
use wakeq::machine::Link;
use wakeq::{CanvasId, EventId};

/// A page of a list reads its own rows and no others, wherever it starts, and whatever other types
/// and canvases have.
#[tokio::test]
async fn a_page_of_entities_reads_no_more_than_the_page() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.entities (entity_type, canvas_id, id, version, last_link, state, state_version, state_seq)
             select kind, ('00000000-0000-0000-0000-00000000000' || canvas)::uuid, 'e' || lpad(n::text, 6, '0'), 1, 1,
                    to_jsonb(repeat(md5(n::text), 200))::text, 1, 1
               from unnest(array['account', 'order']) as kind, generate_series(0, 1) as canvas, generate_series(1, 5000) as n",
        )
        .await;
    table.run("vacuum analyze wakeq.entities").await;
    let (canvas, account) = (CanvasId::DEFAULT, "account".parse().unwrap());
    assert_eq!(table.store.list_entities(canvas, &account, None, 11).await.unwrap().len(), 11);
    for after in ["", "e002500", "e004989"] {
        let arguments = format!("'account', '{canvas}', '{after}', 11");
        let plan = plan(&table.store, "octet_length(state)", &arguments).await;
        assert!(plan.contains("Index Scan using entities_pkey") && plan.contains("rows=11 "), "{plan}");
        assert!(!plan.contains("Sort") && buffers(&plan, "Limit") < 30, "{plan}");
    }
}

/// An entity's repository with this many events, and half as many on another canvas: event n has
/// the id n, the link 10n + 5, or 10n + 6 there, and its `seq` is 7 after that.
async fn add_repository(table: &Table, events: i64) {
    sqlx::query(
        r#"insert into wakeq.log (seq, prev, canvas_id, category, stream, position, bucket, id, name, payload, metadata)
           select 10 * n + 12 + c.more, case n when 1 then 0 else 10 * n + 2 + c.more end, c.id::uuid, 'entities:account', 'ada',
                  n - 1, 0, lpad(to_hex(n), 32, '0')::uuid, 'deposit', '1',
                  format('{"correlation_id":"x","link":{"id":%s,"prev":%s}}', 10 * n + 5 + c.more, 10 * (n - 1))
             from generate_series(1, $1) as n,
                  (values ('00000000-0000-0000-0000-000000000000', 0), ('00000000-0000-0000-0000-0000000000f0', 1)) as c (id, more)
            where c.more = 0 or n <= $1 / 2
            order by 1"#,
    )
    .bind(events)
    .execute(&table.pool)
    .await
    .unwrap();
    table
        .run(
            "insert into wakeq.log_streams select canvas_id, category, stream, max(position), max(seq) from wakeq.log
              group by canvas_id, category, stream",
        )
        .await;
}

const OTHER: &str = "00000000-0000-0000-0000-0000000000f0";

/// An event that is sent again much later is found by its link, and only by that; another canvas's
/// event with the same id and link is not found.
// Shows: ENT-29
#[tokio::test]
async fn repeated_events_are_found_by_their_link() {
    let table = Table::new().await;
    add_repository(&table, 600).await;
    let id = |n: i64| EventId(uuid::Uuid::from_u128(u128::try_from(n).unwrap()));
    let stored = async |canvas, n: i64, link: i64| {
        let entity = EntityId::new(canvas, "account", "ada").unwrap();
        let link = Link { id: link, prev: link - 1 };
        table.store.entity_recorded(&entity, id(n), link).await.unwrap().stored
    };
    let (own, other) = (CanvasId::DEFAULT, CanvasId(OTHER.parse().unwrap()));
    for n in (1..=600).step_by(13).chain([2, 299, 300, 301, 599, 600]) {
        assert!(stored(own, n, 10 * n + 5).await, "{n}");
        assert_eq!(stored(other, n, 10 * n + 6).await, n <= 300, "{n} of the other canvas");
        // A link between two events, that of another event, and that of the other canvas.
        for link in [10 * n + 4, 10 * n + 15, 10 * n - 5, 10 * n + 6, 1] {
            assert!(!stored(own, n, link).await, "{n} with the link {link}");
        }
    }
    assert!(!stored(own, 601, 6_015).await && !stored(own, 1, i64::MAX).await);
    let nobody = EntityId::new(own, "account", "bob").unwrap();
    let link = Link { id: 15, prev: 0 };
    assert!(!table.store.entity_recorded(&nobody, id(1), link).await.unwrap().stored);
}

/// Where an inbox begins is asked of its own canvas.
// Shows: ENT-29
#[tokio::test]
async fn the_start_of_an_inbox_is_per_canvas() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.log (seq, prev, canvas_id, category, stream, position, bucket, id, name, payload)
             select seq, 0, canvas::uuid, 'entities:account.inbox', 'ada', 0, 0, gen_random_uuid(), 'deposit', '1'
               from (values (5, '00000000-0000-0000-0000-0000000000f0'), (8, '00000000-0000-0000-0000-000000000000')) as l (seq, canvas)",
        )
        .await;
    let link = Link { id: 15, prev: 0 };
    for (canvas, first) in [(CanvasId::DEFAULT, 8), (CanvasId(OTHER.parse().unwrap()), 5)] {
        let ada = EntityId::new(canvas, "account", "ada").unwrap();
        assert_eq!(table.store.entity_recorded(&ada, EventId::new(), link).await.unwrap().first, first);
    }
}

/// Looking for an event costs the same in a repository of 100,000 events as in one of 100: one row
/// per halving of the range, whether or not it is found.
// Shows: ENT-29
#[tokio::test]
async fn looking_for_an_event_does_not_read_the_repository() {
    let table = Table::of_one_connection().await;
    add_repository(&table, 100_000).await;
    table.run("vacuum analyze wakeq.log").await;
    let ada = EntityId::new(CanvasId::DEFAULT, "account", "ada").unwrap();
    let link = Link { id: 15, prev: 0 };
    assert!(!table.store.entity_recorded(&ada, EventId::new(), link).await.unwrap().stored);
    for (event, link) in [(1, 15), (7, 16), (50_000, 500_005), (100_001, 1_000_015)] {
        let arguments = format!(
            "'{}', 'entities:account', 'ada', '{}', {link}",
            CanvasId::DEFAULT,
            uuid::Uuid::from_u128(event)
        );
        let plan = plan(&table.store, "with recursive halved", &arguments).await;
        assert!(
            plan.contains("log_0_canvas_id_category_stream_seq_idx") && !plan.contains("log_0_pkey"),
            "{plan}"
        );
        assert!(buffers(&plan, "Result") < 300, "{plan}");
    }
}

/// The events of several entities are read by one statement: no more of each than requested, no
/// more bytes than allowed, and none of the entity of the same name on another canvas.
#[tokio::test]
async fn the_events_of_several_entities_are_one_bounded_read() {
    let table = Table::of_one_connection().await;
    add_repository(&table, 20_000).await;
    table.run("vacuum analyze wakeq.log").await;
    let (account, other) = ("account".parse().unwrap(), CanvasId(OTHER.parse().unwrap()));
    let read = async |bytes| {
        let of = |canvas, most| WantedTail { canvas, id: "ada".parse().unwrap(), after: 100, most };
        let wanted = [of(CanvasId::DEFAULT, 3), of(other, 2)];
        let tails = table.store.entity_tails(&account, &wanted, bytes).await.unwrap();
        tails.into_iter().map(|(place, event)| (place, event.seq)).collect::<Vec<_>>()
    };
    let all = [(0, 102), (0, 112), (0, 122), (1, 103), (1, 113)];
    assert_eq!(read(1000).await, all);
    assert_eq!(read(4).await, all[..4]);
    assert_eq!(read(0).await, all[..1], "one in any case");
    let arguments = format!(
        "'entities:account', '{{{},{OTHER}}}', '{{ada,ada}}', '{{100,100}}', '{{3,2}}', 1000",
        CanvasId::DEFAULT
    );
    let plan = plan(&table.store, "over events as place", &arguments).await;
    assert!(!plan.contains("Seq Scan on log") && buffers(&plan, "WindowAgg") < 50, "{plan}");
}

impl Table {
    /// 300 entities on each of two canvases: entity n has n % 7 events more than its snapshot. The
    /// snapshot includes its first event, and says 100, on the second canvas 200; each event adds a
    /// hundredth of that.
    pub(crate) async fn add_adders(&self) {
        self.run(
            "insert into wakeq.log (seq, prev, canvas_id, category, stream, position, bucket, id, name, payload)
             select 10000 * c.more + 10 * n + e, case e when 0 then 0 else 10000 * c.more + 10 * n + e - 1 end, c.id::uuid,
                    'entities:adder', 'e' || lpad(n::text, 4, '0'), e, 0, gen_random_uuid(), 'adds', c.more::text
               from generate_series(1, 300) as n, generate_series(0, n % 7) as e,
                    (values ('00000000-0000-0000-0000-000000000000', 1),
                            ('00000000-0000-0000-0000-000000000007', 2)) as c (id, more)",
        )
        .await;
        self.run(
            "insert into wakeq.log_streams select canvas_id, category, stream, max(position), max(seq) from wakeq.log
              group by canvas_id, category, stream",
        )
        .await;
        self.run(
            "insert into wakeq.entities
                    (entity_type, canvas_id, id, version, last_link, state, state_version, state_seq, shape)
             select 'adder', canvas_id, stream, count(*), 1, (100 * max(payload::text::bigint))::text, 1, min(seq), 1
               from wakeq.log group by canvas_id, stream",
        )
        .await;
    }

    /// Makes streams of the log unreadable until this is rolled back.
    pub(crate) async fn without_streams(&self) -> sqlx::Transaction<'static, sqlx::Postgres> {
        let mut away = self.pool.begin().await.unwrap();
        sqlx::raw_sql("lock table wakeq.log_streams").execute(&mut *away).await.unwrap();
        away
    }

    /// Makes an adder claim more events than it has.
    pub(crate) async fn add_to_version(&self, canvas: CanvasId, id: &str, more: i64) {
        sqlx::query(
            "update wakeq.entities set version = version + $3
              where entity_type = 'adder' and canvas_id = $1 and id = $2",
        )
        .bind(canvas.0)
        .bind(id)
        .bind(more)
        .execute(&self.pool)
        .await
        .unwrap();
    }

    pub(crate) async fn remove_adder(&self, canvas: CanvasId, id: &str) {
        sqlx::query("delete from wakeq.entities where entity_type = 'adder' and canvas_id = $1 and id = $2")
            .bind(canvas.0)
            .bind(id)
            .execute(&self.pool)
            .await
            .unwrap();
    }
}
