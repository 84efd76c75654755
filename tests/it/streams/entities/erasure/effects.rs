//! Erased entities: what is removed, what stays, and what may come after.

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;
use wakeq::log::EventSource;
use wakeq::{Actor, CanvasId, EventId, Execution, Handlers};
use wakeq_streams::entities::{EntityEventStatus, EntityOutcome};
use wakeq_streams::{
    Asked, EntityAnswer, EntityError, EntityEvent, EntityId, EntityProcessor, EntityStatus, SentToEntity,
};

use crate::streams::entities::{
    Account, Bank, Change, OTHER, accept, account, config, deposit, like_accounts, of, withdraw,
};
use crate::support::handlers::reporting;

/// In every payload, state and result of the erased entity, and of no other.
const SECRET: u32 = 918_273_645;

// Another type, with entities of the same names.
like_accounts! { Invoice "invoice" }

impl Bank {
    async fn erase(&self, entity: &EntityId, id: Option<EventId>) -> SentToEntity {
        self.entities.erase(entity, id, &Actor::user("grace")).await.unwrap()
    }

    /// Erases ada and waits for it.
    async fn erased(&self) -> EntityEventStatus {
        let sent = self.erase(&account("ada"), None).await;
        self.ended(sent.id.0).await
    }

    async fn outcomes(&self) -> Vec<(EventId, EntityOutcome, Option<i64>)> {
        let answers: Vec<EntityAnswer> = self.waiting("told").await;
        answers.into_iter().map(|answer| (answer.event_id, answer.outcome, answer.version)).collect()
    }

    /// Entities that share a part of its name, with everything that an entity can have; returns all
    /// their rows.
    async fn with_others(&self) -> Vec<String> {
        let invoice = of(CanvasId::DEFAULT, "invoice", "ada");
        for entity in &[of(OTHER, "account", "ada"), invoice, account("adam"), account("bob")] {
            self.sent_to(entity, deposit(5)).await;
            self.sent_to(entity, EntityEvent::of(&Change::Panics).unwrap()).await;
            self.sent_to(entity, EntityEvent::of(&Change::Withdraw { cents: 9 }).unwrap()).await;
        }
        others(&self.stage.pool).await
    }

    /// An entity with data in every table that has anything about entities; returns its first
    /// event.
    async fn with_secrets(&self, ada: &EntityId) -> EntityEventStatus {
        let first = self.sent_to(ada, deposit(SECRET)).await;
        self.sent_to(ada, EntityEvent::of(&Change::TopUp { cents: SECRET }).unwrap()).await;
        self.sent_to(ada, EntityEvent::of(&Change::Withdraw { cents: SECRET + 1 }).unwrap()).await;
        self.sent_to(ada, EntityEvent::new("panics", &SECRET).unwrap()).await;
        self.sent_to(ada, EntityEvent::of(&Change::Panics).unwrap()).await;
        // Another group that reads the repository gave up one of its events.
        let sql = "insert into wakeq.consumer_dead (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error)
                   select 'projection', 'category/entities:account', seq, id, canvas_id, category, stream, name, payload, 3, 'no'
                     from wakeq.log where category = 'entities:account' and stream = 'ada' and canvas_id = $1";
        sqlx::query(sql).bind(CanvasId::DEFAULT.0).execute(&self.stage.pool).await.unwrap();
        let tables: Vec<String> =
            found(&self.stage.pool, &SECRET.to_string()).await.into_iter().map(|(table, _)| table).collect();
        assert_eq!(tables, ["consumer_dead", "entities", "entity_events", "events_v2", "log"]);
        first
    }
}

/// The tables that contain this text, and in how many rows.
async fn found(pool: &PgPool, text: &str) -> Vec<(String, i64)> {
    let sql = "select relname::text from pg_class
                where relnamespace = 'wakeq'::regnamespace and relkind in ('r', 'p') and not relispartition order by 1";
    let tables: Vec<String> = sqlx::query_scalar(sql).fetch_all(pool).await.unwrap();
    let mut found = Vec::new();
    for table in tables {
        let count =
            format!("select count(*) from wakeq.\"{table}\" t where strpos(to_jsonb(t)::text, $1) > 0");
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(count)).bind(text).fetch_one(pool).await.unwrap();
        if count > 0 {
            found.push((table, count));
        }
    }
    found
}

/// All rows that are not to be erased, from every table with data of entities.
async fn others(pool: &PgPool) -> Vec<String> {
    let mut rows = Vec::new();
    for (table, entity) in [
        ("log", "category, stream"),
        ("log_streams", "category, stream"),
        ("entities", "'entities:' || entity_type, id"),
        ("entity_events", "'entities:' || entity_type, entity"),
        ("consumer_dead", "category, stream"),
    ] {
        let all = format!(
            "select to_jsonb(t)::text from wakeq.{table} t
              where (canvas_id, {entity}) not in (values ('{canvas}'::uuid, 'entities:account', 'ada'),
                                                         ('{canvas}'::uuid, 'entities:account.inbox', 'ada'))
              order by 1",
            canvas = CanvasId::DEFAULT
        );
        rows.extend(sqlx::query_scalar::<_, String>(AssertSqlSafe(all)).fetch_all(pool).await.unwrap());
    }
    rows
}

/// Everything with one of its payloads, states or results is removed; entities of the same name on
/// another canvas or of another type, and those of other names, are unchanged to the byte.
/// Follow-up events and answers stay.
// Shows: ENT-11
#[tokio::test]
async fn an_erasure_removes_all_data_of_one_entity_only() {
    let (bank, processor) = Bank::owned().await;
    let invoices = bank.processor_of::<Invoice>(config());
    accept(&invoices, 1).await;
    let (ada, pool) = (account("ada"), &bank.stage.pool);
    let before = bank.with_others().await;
    let first = bank.with_secrets(&ada).await;

    let ended = bank.erased().await;
    assert_eq!((ended.status, ended.version), (EntityStatus::Completed, None));
    assert_eq!(ended.name.as_str(), "wakeq.erase");
    let left = found(pool, &SECRET.to_string()).await;
    assert_eq!(left, [("events_v2".to_owned(), 1)], "what it asked others is theirs");
    assert_eq!(others(pool).await, before);
    assert!(bank.entities.show(&ada).await.unwrap().is_none());
    assert!(bank.entities.status(CanvasId::DEFAULT, first.event.0).await.unwrap().is_none());
    assert_eq!(processor.state(CanvasId::DEFAULT, "ada").await, None);
    let state = async |processor: &EntityProcessor<Account>, canvas| {
        let state = processor.state(canvas, "ada").await;
        state.map(|(balance, version)| (balance.cents, version))
    };
    assert_eq!(state(&processor, OTHER).await, Some((5, 1)));
    let repository = EventSource::Category {
        canvas: Some(CanvasId::DEFAULT),
        category: processor.entity_type().repository().clone(),
        partition: None,
    };
    let streams = async || -> Vec<(String, i64)> {
        let page = bank.log.read(&repository, 0, 100).await.unwrap();
        page.events.iter().map(|event| (event.stream.name.to_string(), event.position)).collect()
    };
    assert_eq!(streams().await, [("adam".into(), 0), ("bob".into(), 0)]);

    // It starts again from nothing, and readers of the repository see it.
    assert_eq!(bank.deposited("ada", 3).await.version, Some(1));
    assert_eq!(bank.cents().await, Some((3, 1)));
    assert_eq!(streams().await.last(), Some(&("ada".into(), 0)));
    withdraw(&processor).await;
    let heir = bank.processor(config());
    assert_eq!(accept(&heir, 2).await, (4, 0));
    assert_eq!(state(&heir, CanvasId::DEFAULT).await, Some((3, 1)));
    let sql = "select canvas_id, actor, event_id, outcome, detail from wakeq.audit_log where action = 'erase-entity'";
    let recorded: Vec<(Uuid, String, Option<Uuid>, String, String)> =
        sqlx::query_as(sql).fetch_all(pool).await.unwrap();
    let (done, name) = ("done".to_owned(), "account/ada".to_owned());
    assert_eq!(recorded, [(CanvasId::DEFAULT.0, "grace".into(), Some(ended.event.0), done, name)]);
}

/// An erasure takes its turn: earlier events are decided first, and their senders get their
/// results; later ones start a new entity.
#[tokio::test]
async fn an_erasure_takes_its_turn_among_the_events() {
    let bank = Bank::open().await;
    let with_reply = |event: EntityEvent| event.reply_to("told").unwrap();
    let entities = &bank.entities;
    let before = entities.send(&account("ada"), with_reply(deposit(5))).await.unwrap();
    let theirs = entities.send(&of(OTHER, "account", "ada"), deposit(11)).await.unwrap();
    let erasure = bank.erase(&account("ada"), None).await;
    let after = entities.send(&account("ada"), with_reply(deposit(7))).await.unwrap();
    let more = entities.send(&account("ada"), with_reply(deposit(1))).await.unwrap();
    assert_eq!((erasure.link.prev, after.link.prev), (before.link.id, erasure.link.id), "one chain");
    let _processor = bank.owner(config(), 1).await;
    assert_eq!(bank.ended(more.id.0).await.version, Some(2));
    let processed = [(before.id, 1), (after.id, 1), (more.id, 2)];
    let processed = processed.map(|(id, version)| (id, EntityOutcome::Processed, Some(version)));
    assert_eq!(bank.outcomes().await, processed);
    assert_eq!(bank.cents().await, Some((8, 2)));
    assert!(entities.status(CanvasId::DEFAULT, before.id.0).await.unwrap().is_none());
    assert_eq!(bank.ended(erasure.id.0).await.status, EntityStatus::Completed);
    assert_eq!(bank.ended_on(OTHER, theirs.id.0).await.version, Some(1));
}

/// Requested again with the same id, an erasure erases nothing that came since: even after another
/// erasure, and if the position of the inbox is moved back.
#[tokio::test]
async fn a_repeated_erasure_erases_no_later_events() {
    let (bank, processor) = Bank::owned().await;
    let (ada, id) = (account("ada"), EventId::new());
    bank.deposited("ada", 5).await;
    let first = bank.erase(&ada, Some(id)).await;
    bank.ended(id.0).await;
    let again = bank.erase(&ada, Some(id)).await;
    assert_eq!((first.again, again.again, again.link), (false, true, first.link));
    bank.deposited("ada", 6).await;
    bank.erase(&ada, Some(id)).await;
    bank.deposited("ada", 1).await;
    assert_eq!(bank.cents().await, Some((7, 2)));
    // The same id on another canvas is another erasure.
    let theirs = of(OTHER, "account", "ada");
    bank.sent_to(&theirs, deposit(3)).await;
    assert!(!bank.erase(&theirs, Some(id)).await.again);
    assert_eq!(bank.ended_on(OTHER, id.0).await.status, EntityStatus::Completed);
    assert!(bank.entities.show(&theirs).await.unwrap().is_none());
    assert_eq!(bank.cents().await, Some((7, 2)));
    bank.erased().await;
    bank.deposited("ada", 9).await;
    assert!(bank.erase(&ada, Some(id)).await.again, "it is remembered");
    bank.deposited("ada", 1).await;
    assert_eq!(bank.cents().await, Some((10, 2)));
    withdraw(&processor).await;
    bank.stage.execute("update wakeq.consumer_positions set position = 0").await;
    accept(&processor, 2).await;
    assert_eq!(bank.deposited("ada", 1).await.version, Some(3));
    assert_eq!(bank.cents().await, Some((11, 3)));
    let failed = "select count(*) from wakeq.entity_events where status <> 'processed'";
    assert_eq!(bank.count(failed).await, 0);
}

/// An id belongs either to an event or to an erasure.
#[tokio::test]
async fn an_event_and_an_erasure_have_different_ids() {
    let bank = Bank::open().await;
    let (ada, id, other) = (account("ada"), EventId::new(), EventId::new());
    bank.entities.send(&ada, deposit(1).id(id)).await.unwrap();
    let refused = bank.entities.erase(&ada, Some(id), &Actor::user("grace")).await.unwrap_err();
    assert!(matches!(refused, EntityError::Taken(taken) if taken == id), "{refused}");
    bank.erase(&ada, Some(other)).await;
    for refused in [
        bank.entities.send(&ada, deposit(1).id(other)).await,
        bank.entities.erase(&account("bob"), Some(other), &Actor::user("grace")).await,
    ] {
        assert!(matches!(refused, Err(EntityError::Taken(taken)) if taken == other), "{refused:?}");
    }
    assert_eq!(bank.count("select count(*) from wakeq.audit_log").await, 1, "what was refused is not done");
    // Nor does its name make an event an erasure.
    let _processor = bank.owner(config(), 1).await;
    bank.deposited("ada", 5).await;
    bank.sent_to(&ada, EntityEvent::new("wakeq.erase", &Value::Null).unwrap()).await;
    assert_eq!(bank.cents().await, Some((5, 1)));
}

/// Events from before the erasure do not come back: not by their link, whether or not the erasure
/// was done by then, and not as an answer. Their id alone is like a new one.
#[tokio::test]
async fn erased_events_do_not_come_back() {
    let (bank, processor) = Bank::owned().await;
    let (ada, id) = (account("ada"), EventId::new());
    let theirs = of(OTHER, "account", "ada");
    let first = bank.entities.send(&ada, deposit(5).id(id)).await.unwrap();
    let kept = bank.entities.send(&theirs, deposit(5).id(id)).await.unwrap();
    bank.ended(id.0).await;
    bank.ended_on(OTHER, id.0).await;
    withdraw(&processor).await;
    let erasure = bank.erase(&ada, None).await;
    // Sent again before it is done.
    assert!(bank.entities.send(&ada, deposit(5).id(id)).await.unwrap().again);
    accept(&processor, 2).await;
    bank.ended(erasure.id.0).await;
    let is_from_before = |ended: EntityEventStatus| {
        assert_eq!(ended.status, EntityStatus::Failed);
        assert!(ended.error.as_ref().unwrap().contains("from before the entity was erased"), "{ended:?}");
    };
    is_from_before(bank.ended(id.0).await);
    // And after it, by a sender that remembers the link.
    let late = EventId::new();
    let again = deposit(5).sent_before(late, first.link);
    is_from_before(bank.sent_to(&ada, again.clone()).await);
    assert!(bank.entities.show(&ada).await.unwrap().is_none());
    bank.deposited("ada", 1).await;
    is_from_before(bank.sent_to(&ada, again).await);
    assert_eq!(bank.cents().await, Some((1, 1)));
    // Nothing of the other canvas was erased: there the event is still known.
    let known = bank.sent_to(&theirs, deposit(5).sent_before(id, kept.link)).await;
    assert_eq!((known.status, known.version), (EntityStatus::Completed, Some(1)));
    // A sender that remembers only the id sends a new event.
    bank.erased().await;
    let anew = bank.entities.send(&ada, deposit(5).id(id)).await.unwrap();
    assert!(!anew.again);
    assert_eq!(bank.ended(id.0).await.version, Some(1));
}

/// A question of an entity is void once the entity was erased.
#[tokio::test]
async fn an_answer_after_the_erasure_is_refused() {
    let (bank, _processor) = Bank::owned().await;
    let theirs = of(OTHER, "account", "ada");
    for entity in [&account("ada"), &theirs] {
        bank.sent_to(entity, EntityEvent::of(&Change::TopUp { cents: 3 }).unwrap()).await;
    }
    bank.erased().await;
    let entities = bank.entities.clone();
    let (charge, mut heard) = reporting(move |execution: Execution| {
        let entities = entities.clone();
        async move {
            let asked = execution.asked::<u32>()?;
            let answered = entities.answer(&asked, deposit(*asked.value())).await;
            Ok((asked.entity().canvas, answered.map(|sent| sent.id)))
        }
    });
    let worker = bank.stage.worker(Handlers::new().on("charge", charge));
    for _ in 0..2 {
        let (canvas, answered) = heard.next().await;
        if canvas == OTHER {
            assert_eq!(bank.ended_on(OTHER, answered.unwrap().0).await.version, Some(2));
        } else {
            assert!(matches!(answered, Err(EntityError::NotAsked { .. })), "{answered:?}");
        }
    }
    worker.stop().await;
    assert!(bank.entities.show(&account("ada")).await.unwrap().is_none());
}

/// An entity that does not exist can be erased, repeatedly; and one with only rejected events
/// leaves nothing either.
#[tokio::test]
async fn an_unknown_entity_can_be_erased() {
    let (bank, _processor) = Bank::owned().await;
    bank.sent_to(&of(OTHER, "account", "ada"), deposit(4)).await;
    for _ in 0..2 {
        assert_eq!(bank.erased().await.status, EntityStatus::Completed);
    }
    bank.send("ada", &Change::Withdraw { cents: SECRET }).await;
    bank.erased().await;
    assert_eq!(found(&bank.stage.pool, &SECRET.to_string()).await, []);
    let inbox = "select count(*) from wakeq.log where category = 'entities:account.inbox' and stream = 'ada'
                    and canvas_id = '00000000-0000-0000-0000-000000000000'";
    assert_eq!(bank.count(inbox).await, 1, "the last erasure");
    assert_eq!(bank.deposited("ada", 1).await.version, Some(1));
    let theirs = bank.entities.show(&of(OTHER, "account", "ada")).await.unwrap();
    assert_eq!(theirs.map(|entity| entity.version), Some(1));
}
