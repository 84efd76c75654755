//! A tenant's things: something of each kind, under names that both tenants use, and under names of
//! its own.

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;
use wakeq::{Actor, CanvasId};
use wakeq_service::access::{Reach, Scope};

use super::world::{QUEUE, World};
use crate::edge::bodies::body;
use crate::support::service::Answer;

pub(super) struct Tenant {
    pub(super) canvas: CanvasId,
    pub(super) word: &'static str,
}

pub(super) const ATTACKER: Tenant =
    Tenant { canvas: CanvasId(Uuid::from_u128(0xa000_0000_0000_4000_8000_0000_0000_000a)), word: "attacker" };
pub(super) const VICTIM: Tenant =
    Tenant { canvas: CanvasId(Uuid::from_u128(0xb000_0000_0000_4000_8000_0000_0000_000b)), word: "victim" };

/// A mark in everything that a tenant keeps to itself, and in no request.
pub(super) fn secret(word: &str) -> String {
    format!("hush-{word}")
}

/// The names of a tenant's things, by kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    pub(super) canvas: String,
    /// Ids of events, alive and dead, as the tenant chose them and as they are stored.
    pub(super) ids: Vec<(&'static str, String)>,
    /// Module, name and modifier.
    pub(super) handlers: Vec<[String; 3]>,
    pub(super) crons: Vec<String>,
    pub(super) hooks: Vec<String>,
    pub(super) batches: Vec<String>,
    pub(super) objects: Vec<String>,
    /// Type and id.
    pub(super) entities: Vec<[String; 2]>,
    /// Category and stream.
    pub(super) streams: Vec<[String; 2]>,
    pub(super) seqs: Vec<String>,
    pub(super) keys: Vec<String>,
    pub(super) holders: Vec<String>,
    pub(super) idempotency_keys: Vec<String>,
    pub(super) unique_keys: Vec<String>,
    pub(super) tags: Vec<String>,
    /// Of its dead events, whose errors or handlers no other tenant has.
    pub(super) error_groups: Vec<String>,
    pub(super) limit_keys: Vec<String>,
    pub(super) limits: Vec<String>,
    /// By the operation that lists.
    pub(super) cursors: Vec<(String, String)>,
}

struct Planting<'a> {
    world: &'a World,
    tenant: &'a Tenant,
    key: String,
    values: Values,
}

/// Creates a tenant's things.
pub(super) async fn plant(world: &World, tenant: &Tenant) -> Values {
    let key = world.key(tenant, &Scope::ALL).await;
    let values = Values { canvas: tenant.canvas.to_string(), ..Values::default() };
    let mut planting = Planting { world, tenant, key, values };
    planting.events().await;
    planting.limits().await;
    planting.objects().await;
    planting.copies().await;
    planting.log_and_entities().await;
    planting.settings().await;
    planting.cursors().await;
    planting.values
}

impl Planting<'_> {
    async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let path = path.replace("{}", &self.tenant.canvas.to_string());
        let mut request = self.world.service.request(method, &path).bearer_auth(&self.key);
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = Answer::of(request).await;
        if answer.text.is_empty() { Value::Null } else { answer.json() }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.ask(Method::POST, &format!("/v1/canvases/{{}}{path}"), body).await
    }

    async fn put(&self, path: &str, body: Value) -> Value {
        self.ask(Method::PUT, &format!("/v1/canvases/{{}}{path}"), body).await
    }

    async fn sql(&self, statement: &'static str, id: &str) {
        let id: Uuid = id.parse().unwrap();
        let done = sqlx::query(statement).bind(id).execute(&self.world.service.stage.pool).await.unwrap();
        assert_eq!(done.rows_affected(), 1, "{statement}");
    }

    fn is_victim(&self) -> bool {
        self.tenant.word == "victim"
    }

    /// An id that the tenant chooses for something.
    fn chosen(&self, what: &str) -> String {
        Uuid::new_v5(&self.tenant.canvas.0, what.as_bytes()).to_string()
    }

    /// Emits, and records the stored id and the chosen one.
    async fn emit(&mut self, what: &'static str, mut event: Value) -> String {
        event["value"] = json!(format!("{} {what}", secret(self.tenant.word)));
        let id = self.post("/events", event.clone()).await["id"].as_str().unwrap().to_owned();
        self.values.ids.push((what, id.clone()));
        if let Some(chosen) = event["id"].as_str().filter(|chosen| *chosen != id) {
            self.values.ids.push((what, chosen.to_owned()));
        }
        id
    }

    async fn events(&mut self) {
        let (reason, own) =
            (json!({"reason": secret(self.tenant.word)}), format!("{}-only", self.tenant.word));
        self.put("/handlers/WORKER/held/pause", reason.clone()).await;
        self.ask(Method::PUT, "/v1/admin/canvases/{}/handlers/WORKER/blocked/block", reason).await;
        // A rule on a handler for which the other tenant has events.
        let other = if self.is_victim() { "attacker-only" } else { "victim-only" };
        self.put(&format!("/handlers/WORKER/{other}/pause"), json!({"reason": secret(self.tenant.word)}))
            .await;
        // The first handler in lists.
        let first = if self.is_victim() { "a-first" } else { "a-second" };
        self.emit("of the first handler", json!({"name": first})).await;
        self.emit("waiting", json!({"name": "greet"})).await;
        self.emit("of its own handler", json!({"name": own})).await;
        self.emit("delayed", json!({"name": "greet", "delay_s": 1_000_000})).await;
        for key in ["order:1".to_owned(), format!("{}:1", self.tenant.word)] {
            let unique = json!({"key": key, "remember_s": 1_000_000});
            let event = json!({"name": "greet", "delay_s": 36_000, "unique": unique});
            self.emit("with a unique key", event).await;
            self.values.unique_keys.push(key);
        }
        for tag in ["order:1".to_owned(), format!("{}:tag", self.tenant.word)] {
            self.emit("tagged", json!({"name": "greet", "delay_s": 36_000, "options": {"tags": [tag]}}))
                .await;
            self.values.tags.push(tag);
        }
        self.emit("paused", json!({"name": "held"})).await;
        self.emit("blocked", json!({"name": "blocked"})).await;
        let running = self.emit("running", json!({"name": "greet"})).await;
        self.sql(
            "update wakeq.events_v2 set locked_at = now() + interval '1 hour', claims = 1,
                    worker = 'worker-' || left(canvas_id::text, 8) where id = $1",
            &running,
        )
        .await;
        self.sql(CHECKPOINT, &running).await;
        for what in ["dead", "another dead"] {
            let id = self.emit(what, json!({"name": "broken"})).await;
            self.sql(DIES, &id).await;
        }
        let id = self.chosen("chosen");
        self.emit("chosen", json!({"name": "greet", "id": id})).await;
        let id = self.chosen("chosen and dead");
        let dead = self.emit("chosen and dead", json!({"name": "broken", "id": id})).await;
        self.sql(DIES, &dead).await;
        let id = self.chosen("chosen and completed");
        let completed = self.emit("chosen and completed", json!({"name": "greet", "id": id})).await;
        self.sql("delete from wakeq.events_v2 where id = $1", &completed).await;
        let path = format!("/v1/canvases/{}/events", self.tenant.canvas);
        let cloud = json!({"specversion": "1.0", "id": "1", "source": "/shop", "type": "greet",
                           "data": secret(self.tenant.word)});
        let request = self.world.service.request(Method::POST, &path).bearer_auth(&self.key);
        let request = request.header("content-type", "application/cloudevents+json").body(cloud.to_string());
        let emitted = Answer::of(request).await.json();
        self.values.ids.push(("a CloudEvent", emitted["id"].as_str().unwrap().to_owned()));
        let request = self.world.service.request(Method::POST, &path).bearer_auth(&self.key);
        // The victim repeats this request later.
        let order =
            if self.is_victim() { body("emit").unwrap() } else { json!({"name": "greet", "value": 7}) };
        let emitted = Answer::of(request.header("idempotency-key", "order-1").json(&order)).await.json();
        self.values.ids.push(("under a key", emitted["id"].as_str().unwrap().to_owned()));
        self.values.idempotency_keys = vec!["order-1".into()];
        for (module, name) in
            [("WORKER", "greet"), ("WORKER", "held"), ("WORKER", "blocked"), ("WORKER", "broken")]
        {
            self.values.handlers.push([module.into(), name.into(), "_".into()]);
        }
        self.values.handlers.push(["WORKER".into(), format!("{}-only", self.tenant.word), "_".into()]);
    }

    /// Limits, and events that name their keys.
    async fn limits(&mut self) {
        let own = format!("{}-only", self.tenant.word);
        for limit in ["order", &own] {
            let rate = json!({"count": 1000, "period_s": self.tenant.word.len()});
            self.put(&format!("/limits/{limit}"), json!({"concurrency": limit.len(), "rate": rate})).await;
            self.values.limits.push(limit.to_owned());
        }
        for key in ["order:1".to_owned(), format!("{}:limit", self.tenant.word)] {
            let event = json!({"name": "greet", "delay_s": 36_000, "options": {"limits": [key]}});
            self.emit("of a limit", event).await;
            self.values.limit_keys.push(key);
        }
    }

    async fn objects(&mut self) {
        let own = format!("{}:1", self.tenant.word);
        for object in ["work:1", &own] {
            for what in ["first of an object", "second of an object"] {
                self.emit(what, json!({"name": "step", "object": object})).await;
            }
            let change = json!({"main": {"name": "step"}, "subevents": [{"name": "step"}],
                                "state": secret(self.tenant.word)});
            self.post(&format!("/objects/{object}/events"), change).await;
            self.values.objects.push(object.to_owned());
        }
        let dead = self.emit("dead on an object", json!({"name": "broken", "object": "work:1"})).await;
        self.sql(DIES, &dead).await;
        let halted = self.emit("halts an object", json!({"name": "step", "object": "halt:1"})).await;
        self.emit("behind a halt", json!({"name": "step", "object": "halt:1"})).await;
        self.sql(HALTS, &halted).await;
        let cancelled =
            self.emit("cancelled on an object", json!({"name": "step", "object": "halt:1"})).await;
        self.post(&format!("/events/{cancelled}/cancel"), Value::Null).await;
        self.values.objects.push("halt:1".into());
        self.values.handlers.push(["WORKER".into(), "step".into(), "_".into()]);
    }

    async fn copies(&mut self) {
        let copied = |only| json!({"module": "usage", "name": "gigabytes", "only_queues": only});
        self.emit("copied", copied(false)).await;
        self.emit("copied twice", copied(true)).await;
        let copies = "select id::text from wakeq.events_v2 where canvas_id = $1 and queue is not null order by enqueued_at, id";
        let copies = sqlx::query_scalar(copies).bind(self.tenant.canvas.0);
        let copies: Vec<String> = copies.fetch_all(&self.world.service.stage.pool).await.unwrap();
        let [waiting, dead] = copies.as_slice() else { panic!("two copies: {copies:?}") };
        self.sql(DIES, dead).await;
        self.values.ids.push(("a copy", waiting.clone()));
        self.values.ids.push(("a dead copy", dead.clone()));
        self.values.handlers.push(["usage".into(), "gigabytes".into(), "_".into()]);
    }

    async fn log_and_entities(&mut self) {
        let own = format!("{}-only", self.tenant.word);
        for [category, stream] in [["accounts", "a"], ["accounts", &own], [&own, "a"]] {
            let id = self.chosen(&format!("{category}/{stream}"));
            let event = |id: &str| json!({"name": "opened", "payload": secret(self.tenant.word), "id": id});
            let events = [event(&id), event(&self.chosen(&format!("{category}/{stream} again")))];
            let appends = json!({"appends": [{"category": category, "stream": stream, "events": events}]});
            self.values.seqs.push(self.post("/log", appends).await["events"][0]["seq"].to_string());
            self.values.ids.push(("an event of the log", id));
            self.values.streams.push([category.to_owned(), stream.to_owned()]);
        }
        for entity in ["ada", &own] {
            let (chosen, correlation) = (self.chosen(&format!("to {entity}")), self.chosen("correlation"));
            let event = json!({"name": "deposit", "payload": secret(self.tenant.word), "id": chosen,
                               "correlation_id": correlation, "reply_to": {"name": "told"}});
            self.post(&format!("/entities/account/{entity}/events"), event).await;
            self.values.ids.push(("sent to an entity", chosen));
            self.values.ids.push(("a correlation id", correlation));
            let stored = "insert into wakeq.entities (entity_type, canvas_id, id, version, last_link, state, state_version, state_seq)
                          values ('account', $1, $2, 1, 1, to_jsonb($3::text)::text, 1, 2)";
            let stored =
                sqlx::query(stored).bind(self.tenant.canvas.0).bind(entity).bind(secret(self.tenant.word));
            stored.execute(&self.world.service.stage.pool).await.unwrap();
            self.values.entities.push(["account".into(), entity.to_owned()]);
        }
        // Of a type that the tenant alone has.
        let alone = "insert into wakeq.entities (entity_type, canvas_id, id, version, last_link) values ($1, $2, 'a', 1, 1)";
        let alone = sqlx::query(alone).bind(&own).bind(self.tenant.canvas.0);
        alone.execute(&self.world.service.stage.pool).await.unwrap();
    }

    async fn settings(&mut self) {
        let own = format!("{}-only", self.tenant.word);
        for cron in ["nightly", &own] {
            let expression = format!("{} 0 1 1 *", self.tenant.word.len());
            let put = json!({"expression": expression, "value": secret(self.tenant.word)});
            self.put(&format!("/cron/{cron}"), put).await;
            self.values.crons.push(cron.to_owned());
        }
        for hook in ["incoming", &own] {
            let put = json!({"kind": "github", "handler": {"name": secret(self.tenant.word)}});
            self.put(&format!("/hooks/{hook}"), put).await;
            self.values.hooks.push(hook.to_owned());
        }
        for batch in ["import:1", &own] {
            let open = json!({"on_end": {"name": "imported", "value": secret(self.tenant.word)}});
            self.post(&format!("/batches/{batch}"), open).await;
            let member = json!({"name": "greet", "delay_s": 36_000, "batch": batch});
            self.emit("in a batch", member).await;
            self.values.batches.push(batch.to_owned());
        }
        let url = format!("https://{}.example/events", secret(self.tenant.word));
        for path in ["/handlers/WORKER/sent", "/handlers/WORKER/sent/other"] {
            self.put(path, json!({"url": url})).await;
        }
        self.emit("for a target", json!({"name": "sent"})).await;
        for modifier in ["_", "other"] {
            self.values.handlers.push(["WORKER".into(), "sent".into(), modifier.into()]);
        }
        // Together with the attacker's own, more than one canvas may have. The last one is under a
        // name that nothing else has.
        for bulk in 0..10 {
            self.put(&format!("/handlers/WORKER/bulk-{bulk}"), json!({"url": url})).await;
        }
        self.put(&format!("/handlers/WORKER/{own}-target"), json!({"url": url})).await;
        for name in ["pulled", &format!("{own}-pulled")] {
            self.put(&format!("/handlers/WORKER/{name}/pull"), json!({"retries": name.len()})).await;
            self.emit("for a puller", json!({"name": name, "value": secret(self.tenant.word)})).await;
            self.values.handlers.push(["WORKER".into(), name.to_owned(), "_".into()]);
        }
        for holder in ["bob", &own] {
            let created = json!({"holder": holder, "scopes": ["read"]});
            let created =
                async || self.ask(Method::POST, "/v1/admin/canvases/{}/keys", created.clone()).await;
            let (first, _second) = (created().await, created().await);
            self.values.keys.push(first["id"].as_str().unwrap().to_owned());
            self.values.holders.push(holder.to_owned());
        }
        let pool = &self.world.service.stage.pool;
        let settled = SETTLED.replace("CANVAS", &self.tenant.canvas.to_string()).replace("OWN", &own);
        sqlx::raw_sql(AssertSqlSafe(settled)).execute(pool).await.unwrap();
        let ended = "select id::text from wakeq.ended_events where canvas_id = $1 order by id";
        let ended = sqlx::query_scalar::<_, String>(ended).bind(self.tenant.canvas.0);
        for id in ended.fetch_all(pool).await.unwrap() {
            self.values.ids.push(("of an ended event", id));
        }
        let groups =
            "select distinct error_group::text from wakeq.dead_events where canvas_id = $1 order by 1";
        let groups = sqlx::query_scalar(groups).bind(self.tenant.canvas.0);
        self.values.error_groups = groups.fetch_all(pool).await.unwrap();
        let facet = "insert into wakeq.facet_settings (queue, canvas_id, weight) values ($1, $2, 3)";
        sqlx::query(facet).bind(QUEUE).bind(self.tenant.canvas.0).execute(pool).await.unwrap();
        let quota = "insert into wakeq.canvas_quotas (canvas_id, quota, most, set_by) values ($1, 'events', $2, 'tests')";
        let most = 5000 + i64::try_from(self.tenant.word.len()).unwrap();
        sqlx::query(quota).bind(self.tenant.canvas.0).bind(most).execute(pool).await.unwrap();
        let email = format!("{}@project.iam.gserviceaccount.com", self.tenant.word);
        let (reach, scopes) = (Reach::Canvas(self.tenant.canvas), [Scope::Read].into_iter().collect());
        self.world.service.access.allow_account(&email, reach, scopes, &Actor::admin("t")).await.unwrap();
    }

    /// The cursor of the second page of each list.
    async fn cursors(&mut self) {
        for operation in &self.world.operations {
            let parameters = operation.described["parameters"].as_array().cloned().unwrap_or_default();
            if !parameters.iter().any(|parameter| parameter["name"] == "cursor") {
                continue;
            }
            // Of the platform's lists, and of those whose items here fit on one page.
            let given = match operation.id.as_str() {
                _ if operation.everywhere => Some(self.tenant.canvas.to_string()),
                "list_tombstones" | "entity_status" => Some("0".to_owned()),
                "list_switches" => Some("block-canvas".to_owned()),
                "count_events" => Some(format!("e~WORKER~a~0~{}", self.tenant.canvas.0.simple())),
                "count_ended_events" => {
                    Some(format!("f~{}~{}", 4_000_000_000_000_000_i64, self.tenant.canvas.0.simple()))
                }
                "list_pulled_handlers" => Some("h~WORKER~a".to_owned()),
                // After `customer`.
                "list_limit_uses" => Some("m~Y3VzdG9tZXI".to_owned()),
                "list_targets" | "list_programs" => Some("g~WORKER~a~_".to_owned()),
                "list_operations" => {
                    Some(format!("p~{}~{}", 4_000_000_000_000_000_i64, self.tenant.canvas.0.simple()))
                }
                // Of the category `accounts`.
                "list_log_streams" => Some("a".to_owned()),
                "list_halted_objects" => Some(format!("o~0~{}", self.tenant.canvas.0.simple())),
                _ => None,
            };
            if let Some(given) = given {
                self.values.cursors.push((operation.id.clone(), given));
                continue;
            }
            let path = operation.path.replace("{canvas}", "{}").replace("{type}", "account");
            assert!(
                !path.contains("{c") && path.matches('{').count() == 1,
                "no page of {} is known",
                operation.id
            );
            let page = self.ask(Method::GET, &format!("{path}?limit=1"), Value::Null).await;
            let cursor = page["next_cursor"].as_str();
            let cursor = cursor.unwrap_or_else(|| panic!("one page of `{}` is all there is", operation.id));
            self.values.cursors.push((operation.id.clone(), cursor.to_owned()));
        }
    }
}

/// Set up without a request: an operation that has ended and an open one, unknown handlers, an
/// expired key, a cron whose tick was emitted ahead, events that are parked under a rule or
/// deferred because their handler is unknown (see `FRESH`); ends of a batch; a dead event and a
/// halted lane of handlers that have nothing else, and come last; what is known of the dead events;
/// statistics of two days ago and of some hours ago; and just as much room as the attacks need.
const SETTLED: &str = "
    insert into wakeq.operations (canvas_id, id, kind, filter, cut_off, state, preview_count, looked_at, matched, changed, author, job,
                                  ended_at)
    select 'CANVAS'::uuid, ('0000a001' || substr('CANVAS', 9))::uuid, 'delete', jsonb_build_object('name', 'OWN'), now(), 'done',
           length('OWN'), 2 * length('OWN'), length('OWN'), length('OWN'), 'OWN', 1, now();
    insert into wakeq.operations (canvas_id, id, kind, filter, cut_off, author, job)
    select 'CANVAS', ('0000a002' || substr('CANVAS', 9))::uuid, 'delete', jsonb_build_object('name', 'OWN'), now(), 'OWN', -length('OWN');
    insert into wakeq.batch_ends (canvas_id, batch, completed) values ('CANVAS', 'import:1', length('OWN'));
    insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, last_error, cause)
    values (gen_random_uuid(), 'CANVAS', 'zoo', 'OWN-dead', '_', '1', 2, now(), 3, 0, 'x', 'retries');
    insert into wakeq.known_errors (canvas_id, error_group, note, known_by)
    select distinct 'CANVAS'::uuid, error_group, 'hush-' || left('OWN', -5), 'OWN' from wakeq.dead_events
     where canvas_id = 'CANVAS' and queue is null;
    insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
    values ('CANVAS', 'halt:2', 'zoo', 'OWN-halted', gen_random_uuid(), 1, 0);
    insert into wakeq.programs (canvas_id, module, name, worker)
    select 'CANVAS', 'WORKER', 'pulled', worker from unnest(array['mailer-1', 'OWN']) worker;
    insert into wakeq.unknown_handlers (canvas_id, module, name, modifier)
    select 'CANVAS', 'WORKER', name, '_' from unnest(array['greet', 'OWN']) name;
    update wakeq.access_keys set created_at = now() - interval '2 hours', expires_at = now() - interval '1 hour'
     where canvas_id = 'CANVAS' and holder = 'bob' and slot = 2;
    update wakeq.cron_records c set ticks = 1, ahead = array[e.id], ahead_at = array[e.delay_until]
      from wakeq.events_v2 e where c.canvas_id = 'CANVAS' and c.name = 'nightly' and e.canvas_id = 'CANVAS'
       and e.delay_until > now() + interval '1 day' and e.object is null;
    update wakeq.events_v2 set notify_at = null where canvas_id = 'CANVAS' and name = 'held';
    update wakeq.events_v2 set notify_at = now() + interval '20 minutes', probes = 20
     where canvas_id = 'CANVAS' and name = 'greet' and delay_until <= now() and locked_at is null;
    insert into wakeq.hour_statistics (at, canvas_id, module, name, emitted, completed, failed, retried, dead, wait_us, run_us,
                                       wait_bins, run_bins)
    select date_trunc('hour', now()) - interval '50 hours', 'CANVAS', module, name, length('OWN'), 3, 1, 1, 0, 6000, 9000,
           '{0,0,0,4}', '{0,0,3,1}'
      from (values ('', ''), ('WORKER', 'greet'), ('WORKER', 'OWN')) as handlers (module, name);
    insert into wakeq.minute_statistics
    select date_trunc('minute', now()) - interval '5 hours', canvas_id, module, name, 2 * emitted, completed, failed, retried, dead,
           wait_us, run_us, wait_bins, run_bins
      from wakeq.hour_statistics where canvas_id = 'CANVAS';
    insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, result, outcome, enqueued_at, due_at,
                                    claims, retries, losses, started_at, took_us)
    select 'CANVAS', md5('CANVAS' || n)::uuid, now() + interval '1 day', 'WORKER', 'greet', '_', '\"OWN\"', '\"OWN\"',
           (array['completed', 'failed', 'cancelled'])[n], now(), now(), 2, 1, 0, now(), 1000 * length('OWN')
      from generate_series(1, 3) n;
    insert into wakeq.attempts (canvas_id, event_id, number, nonce, outcome, started_at, took_us, error)
    select canvas_id, id, 1, 7, 'retried', now(), 5, 'OWN' from wakeq.ended_events where canvas_id = 'CANVAS';
    insert into wakeq.canvas_quotas (canvas_id, quota, most, set_by)
    select 'CANVAS'::uuid, 'keys', count(*) + 2, 'tests' from wakeq.access_keys where canvas_id = 'CANVAS'
     union all
    select 'CANVAS'::uuid, 'crons', count(*) + 1, 'tests' from wakeq.cron_records where canvas_id = 'CANVAS'
     union all
    select 'CANVAS'::uuid, 'hooks', count(*) + 1, 'tests' from wakeq.hooks where canvas_id = 'CANVAS'
     union all
    select 'CANVAS'::uuid, 'batches', count(*) + 2, 'tests' from wakeq.batches where canvas_id = 'CANVAS'
     union all
    select 'CANVAS'::uuid, 'targets', count(*) + 9, 'tests' from wakeq.http_targets where canvas_id = 'CANVAS'";

/// What would be over while many copies of a world are tried: the run of an event, how long the
/// events of unknown handlers are deferred, and how long a program is shown.
pub(super) const FRESH: &str = "
    update wakeq.events_v2 set locked_at = now() + interval '1 hour' where locked_at is not null;
    update wakeq.events_v2 set notify_at = now() + interval '20 minutes' where probes = 20 and notify_at is not null;
    update wakeq.programs set seen_at = now()";

/// What the attempt that runs has left. It tells of its tenant.
const CHECKPOINT: &str = "insert into wakeq.checkpoints (canvas_id, event_id, claims, value)
    select canvas_id, id, claims,
           to_json(case left(canvas_id::text, 1) when 'a' then 'hush-attacker' else 'hush-victim' end || ' left')::text
      from wakeq.events_v2 where id = $1";

/// Moves an event to the dead ones, as the worker's statement does.
const DIES: &str = "with gone as (delete from wakeq.events_v2 where id = $1 returning *)
    insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                   last_error, cause, object, seq, prev, queue, origin)
    select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 0,
           value || case left(canvas_id::text, 1) when 'a' then ' attacker' else ' victim' end, 'retries', object, seq, prev, queue, origin
      from gone";

/// The same, and halts its object.
const HALTS: &str = "with gone as (delete from wakeq.events_v2 where id = $1 returning *), dead as (
        insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                       last_error, cause, object, seq, prev, queue, origin)
        select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 0,
           value || case left(canvas_id::text, 1) when 'a' then ' attacker' else ' victim' end, 'retries', object, seq, prev, queue, origin
          from gone)
    insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
    select canvas_id, object, module, name, id, seq, prev from gone";
