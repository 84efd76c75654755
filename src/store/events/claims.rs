//! The writes of a worker that owns an event: claim, renew, complete, retry, release.
//!
//! Every statement except the claim is fenced: it takes effect only while the claim stands, and
//! reports whether it did.
//!
//! Ids come from a subquery, `any ((select $1::uuid[])::uuid[])`, so that the planner does not see
//! how many there are. If it does, it plans each call anew, because a plan for any number seems to
//! cost more; that took half the time of a completion.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::handler_keys::HandlerKeys;
use super::load::{ClaimedEvent, ClaimedRow};
use crate::event::{Claim, Notification};
use crate::store::kernel::{Sql, Store, StoreError, interval};

/// The limits on what a statement may claim.
#[derive(Clone, Debug)]
pub(crate) struct ClaimLimits {
    /// Handlers of any canvas.
    pub(crate) handlers: HandlerKeys,
    /// Handlers of one canvas, as `canvas/module/name/modifier`.
    pub(crate) canvas_handlers: Vec<String>,
    /// Only events with fewer losses than this, including the loss of a takeover.
    pub(crate) losses_below: i32,
    /// Only events whose value has at most this many bytes: a statement claims many.
    pub(crate) value_max: i32,
}

/// What a renewal found of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// It does not stand.
    Lost,
    /// It stands, for another lease.
    Renewed,
    /// The same, and somebody has cancelled its event.
    Cancelled,
}

/// An event that will be retried.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    pub(crate) claim: Claim,
    /// The new count of retries.
    pub(crate) retries: i32,
    pub(crate) delay: Duration,
    pub(crate) error: String,
    /// What the history notes of the attempt, if anything.
    pub(crate) noted: Option<NotedRetry>,
}

/// What the history notes of an attempt after which its event is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotedRetry {
    pub(crate) took: Duration,
    /// It was too early, and counts as no failure.
    pub(crate) is_postponed: bool,
}

impl Retry {
    /// Longest delay: a hundred years, which Postgres can still add to a timestamp.
    pub(in crate::store) const DELAY_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);
}

impl Sql<'_> {
    pub(in crate::store) async fn claim(
        &self,
        notifications: &[Notification],
        limits: &ClaimLimits,
    ) -> Result<Vec<Option<ClaimedEvent>>, StoreError> {
        let mut asked: Vec<(Uuid, Uuid)> =
            notifications.iter().map(|notification| (notification.id.0, notification.canvas.0)).collect();
        asked.sort_unstable();
        let (keys, canvases): (Vec<Uuid>, Vec<Uuid>) = asked.into_iter().unzip();
        let rows = self.claim_rows((&keys, &canvases), limits).await?;
        let (mut events, left) = ClaimedRow::into_events(rows, None);
        if let Err(error) = self.add_long_values(&mut events, &left).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(
                error,
                events = left.len(),
                "claimed events were released: their values can't be read"
            );
        }
        let mut claimed: HashMap<Uuid, ClaimedEvent> =
            events.into_iter().map(|event| (event.claim.id.0, event)).collect();
        // Of two notifications of one event in a batch, only the first has claimed it.
        let mut taken = |notification: &Notification| {
            let canvas = claimed.get(&notification.id.0)?.address.scope.canvas;
            if canvas == notification.canvas { claimed.remove(&notification.id.0) } else { None }
        };
        Ok(notifications.iter().map(&mut taken).collect())
    }

    /// The statement, for events in the order of their ids and the canvas of each.
    ///
    /// It names the gate, which Postgres therefore locks before it takes the statement's snapshot:
    /// a claim sees every rule whose maker has passed the gate. If there are no rules at all, none
    /// is looked up, and if there are no switches, none of a canvas. The same goes for pulled
    /// handlers, whose events are left to others, and for limits of the batch's canvases, whose
    /// events are left to `wakeq.claim_limited`: limits of other canvases cost a batch one look,
    /// and its events nothing. An event on an object runs when no earlier event of its lane is left
    /// and the lane is not halted; the first event of each lane is looked up once, and only if some
    /// event is on an object. Earlier events of a lane were committed earlier, so a claim that sees
    /// an event sees all events before it.
    async fn claim_rows(
        &self,
        (keys, canvases): (&[Uuid], &[Uuid]),
        limits: &ClaimLimits,
    ) -> Result<Vec<ClaimedRow>, StoreError> {
        let hashes = limits.handlers.hashes(self).await?;
        let compared = if hashes.is_some() { &[] } else { limits.handlers.names() };
        let query = sqlx::query_as!(
            ClaimedRow,
            r#"with gate as (insert into wakeq.claim_gate select where false)
               update wakeq.events_v2 e
                  set locked_at = clock_timestamp(), worker = $9, claims = e.claims + 1,
                      nonce = floor(random() * 2147483648)::integer,
                      losses = e.losses + (e.locked_at is not null)::integer
                where e.id = any ((select $1::uuid[])::uuid[])
                  -- Not by "=", for which the index of handlers would do: batches have to visit rows
                  -- in the order of their ids. The position is found by halves.
                  and e.canvas_id is not distinct from
                      coalesce($3::uuid, ($2::uuid[])[width_bucket(e.id, $1::uuid[])])
                  and e.queue is null and e.delay_until <= clock_timestamp()
                  and (e.locked_at is null or e.locked_at < clock_timestamp() - $6::interval)
                  and e.losses + (e.locked_at is not null)::integer < $7
                  and octet_length(e.value) <= $8
                  and (   e.module || '/' || e.name || '/' || e.modifier = any ((select $4::text[])::text[])
                       or e.canvas_id || '/' || e.module || '/' || e.name || '/' || e.modifier
                          = any ((select $5::text[])::text[])
                       or $10::bigint[] is not null and hashtextextended(e.module || '/' || e.name || '/' || e.modifier, $11)
                          = ($10::bigint[])[width_bucket(hashtextextended(e.module || '/' || e.name || '/' || e.modifier, $11), $10::bigint[])])
                  and ((select not exists (select from wakeq.pulled_handlers)) or not exists (
                      select from wakeq.pulled_handlers p where p.canvas_id = e.canvas_id and p.module = e.module and p.name = e.name offset 0))
                  and (e.options is null or not e.options ? 'limits')
                  and ((select not exists (
                      select from wakeq.limits o where (o.name = 'canvas' or o.name like 'handler:%') and o.canvas_id = any (
                          case when $3::uuid is null then $2::uuid[] else array[$3::uuid] end || 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)))
                      or not exists (
                      select from (values (e.canvas_id), ('ffffffff-ffff-ffff-ffff-ffffffffffff')) as c (canvas_id)
                       cross join (values ('canvas'), ('handler:' || e.module || '/' || e.name)) as n (name)
                       cross join lateral (select from wakeq.limits x where x.canvas_id = c.canvas_id and x.name = n.name offset 0) as l))
                  and ((select not exists (select from wakeq.scheduling_rules)) or not exists (
                      select from wakeq.scheduling_rules r
                       where r.canvas_id = e.canvas_id and r.event_space = e.module and r.handler_name = e.name
                         and (r.until is null or r.until > clock_timestamp()))
                      and ((select not exists (select from wakeq.scheduling_rules where event_space = 'CANVAS')) or not exists (
                          select from wakeq.scheduling_rules r
                           where r.canvas_id = any (array[e.canvas_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'])
                             and r.event_space = 'CANVAS' and r.handler_name = '_' and (r.until is null or r.until > clock_timestamp()))))
                  and (e.object is null or e.id = any (coalesce((select wakeq.firsts_of_lanes($1, true)), '{}')))
            returning e.id, e.canvas_id, e.module::text as "module!", e.name::text as "name!",
                      e.modifier::text as "modifier!",
                      case when octet_length(e.value) <= 4096 - coalesce(octet_length(e.options::text), 0) then e.value::text end as value,
                      e.retries, e.delay_until, e.enqueued_at, e.locked_at as "locked_at!", e.claims, e.nonce, e.losses,
                      e.postponed_since, (e.losses > 0 and exists (
                          select from wakeq.events_v2 before where before.id = e.id and before.locked_at is not null offset 0)) as "took_over!",
                      e.traceparent::text as traceparent, e.object::text as object, e.seq, e.prev,
                      e.options::text as options, null::uuid as origin, false as "is_limited!", e.cancelled_by is not null as "is_cancelled!",
                      null::text as token"#,
            keys,
            canvases,
            shared(canvases) as Option<Uuid>,
            compared,
            &limits.canvas_handlers,
            interval(self.timing().lease),
            limits.losses_below,
            limits.value_max,
            self.worker() as _,
            hashes.as_ref().map(|hashes| hashes.sorted.as_slice()),
            hashes.as_ref().map_or(0, |hashes| hashes.seed)
        );
        self.session().await?.all("claim events", query).await
    }

    pub(in crate::store) async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>, StoreError> {
        let (ids, fences) = fences(claims);
        let query = sqlx::query!(
            r#"update wakeq.events_v2 set locked_at = clock_timestamp()
                where id = any ((select $1::uuid[])::uuid[])
                  and claims::bigint << 32 | nonce = ($2::bigint[])[width_bucket(id, $1::uuid[])]
                  and locked_at is not null
            returning id, cancelled_by is not null as "is_cancelled!""#,
            &ids,
            &fences
        );
        let rows = self.renewal_session().await?.all("renew leases", query).await?;
        let cancelled: HashSet<Uuid> = rows.iter().filter(|row| row.is_cancelled).map(|row| row.id).collect();
        let renewed = happened(claims, rows.into_iter().map(|row| row.id).collect());
        let renewals = claims.iter().zip(renewed);
        Ok(renewals.map(|(claim, renewed)| Renewal::of(renewed, cancelled.contains(&claim.id.0))).collect())
    }

    pub(in crate::store) async fn complete(&self, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        let (ids, fences) = fences(claims);
        let query = sqlx::query_scalar!(
            "delete from wakeq.events_v2
              where id = any ((select $1::uuid[])::uuid[])
                and claims::bigint << 32 | nonce = ($2::bigint[])[width_bucket(id, $1::uuid[])]
                and locked_at is not null
          returning id",
            &ids,
            &fences
        );
        Ok(happened(claims, self.session().await?.all("complete events", query).await?))
    }

    /// The new count is written rather than added, because the statement may be repeated if its
    /// answer was lost.
    pub(in crate::store) async fn retry(&self, retries: &[Arc<Retry>]) -> Result<Vec<bool>, StoreError> {
        let claims: Vec<Claim> = retries.iter().map(|retry| retry.claim).collect();
        let (ids, fences) = fences(&claims);
        let written: HashMap<(Uuid, i64), &Retry> =
            retries.iter().map(|retry| ((retry.claim.id.0, retry.claim.fence()), retry.as_ref())).collect();
        let in_order = ids.iter().copied().zip(fences.iter().copied());
        let in_order: Vec<&Retry> = in_order.filter_map(|claim| written.get(&claim).copied()).collect();
        let counts: Vec<i32> = in_order.iter().map(|retry| retry.retries).collect();
        let delays_s: Vec<f64> =
            in_order.iter().map(|retry| retry.delay.min(Retry::DELAY_MAX).as_secs_f64()).collect();
        let errors: Vec<String> = in_order.iter().map(|retry| retry.error.clone()).collect();
        let noted = in_order.iter().map(|retry| retry.noted);
        let (took_us, outcomes): (Vec<Option<i64>>, Vec<&str>) = noted.map(columns_of_noted).unzip();
        let query = sqlx::query_scalar!(
            "with saved as (
                 update wakeq.events_v2
                    set retries = ($3::integer[])[width_bucket(id, $1::uuid[])],
                        postponed_since = coalesce(
                            postponed_since,
                            case when retries = ($3::integer[])[width_bucket(id, $1::uuid[])] then now() end),
                        delay_until = now() + ($4::float8[])[width_bucket(id, $1::uuid[])] * interval '1 second',
                        notify_at = wakeq.wake_at(
                            now() + ($4::float8[])[width_bucket(id, $1::uuid[])] * interval '1 second', now(), $6, $7),
                        probes = 0, locked_at = null, worker = null,
                        last_error = ($5::text[])[width_bucket(id, $1::uuid[])]
                  where id = any ((select $1::uuid[])::uuid[])
                    and claims::bigint << 32 | nonce = ($2::bigint[])[width_bucket(id, $1::uuid[])]
                    and locked_at is not null
              returning id, canvas_id, claims, nonce, last_error
             ), noted as (
                 insert into wakeq.attempts
                        (canvas_id, event_id, number, nonce, outcome, worker, started_at, took_us, error)
                 select canvas_id, id, claims, nonce, ($9::text[])[width_bucket(id, $1::uuid[])], $10,
                        clock_timestamp() - took.us * interval '1 microsecond', took.us, left(last_error, 1000)
                   from saved cross join lateral (select ($8::bigint[])[width_bucket(id, $1::uuid[])]) as took (us)
                  where took.us is not null and wakeq.is_noted(claims)
             )
             select id from saved",
            &ids,
            &fences,
            &counts,
            &delays_s,
            &errors,
            interval(self.timing().horizon),
            interval(self.timing().grace),
            took_us.as_slice() as &[Option<i64>],
            outcomes.as_slice() as &[&str],
            self.worker()
        );
        Ok(happened(&claims, self.session().await?.all("save retries", query).await?))
    }

    pub(in crate::store) async fn release(&self, claims: &[Claim]) -> Result<u64, StoreError> {
        let (ids, fences) = fences(claims);
        let query = sqlx::query!(
            "update wakeq.events_v2 set locked_at = null, worker = null
              where id = any ((select $1::uuid[])::uuid[])
                and claims::bigint << 32 | nonce = ($2::bigint[])[width_bucket(id, $1::uuid[])] and locked_at is not null",
            &ids,
            &fences
        );
        Ok(self.session().await?.execute("release claims", query).await?.rows_affected())
    }
}

impl Store {
    /// Renews those claims whose rows are not locked, without waiting; `None` for the others, about
    /// which nothing is known. For use after [`Store::renew`] met a locked row.
    pub(crate) async fn renew_free(&self, claims: &[Claim]) -> Result<Vec<Option<Renewal>>, StoreError> {
        let (ids, fences) = fences(claims);
        let query = sqlx::query!(
            r#"with free as (
                   select id from wakeq.events_v2
                    where id = any ($1) and claims::bigint << 32 | nonce = ($2::bigint[])[width_bucket(id, $1::uuid[])]
                      and locked_at is not null
                      for update skip locked
               ), renewed as (
                   update wakeq.events_v2 e set locked_at = clock_timestamp() where e.id = any (array(select id from free))
                returning e.id
               )
               select e.id, e.id = any (array(select id from renewed)) as "renewed!",
                      e.cancelled_by is not null as "is_cancelled!"
                 from wakeq.events_v2 e
                where e.id = any ($1) and claims::bigint << 32 | nonce = ($2::bigint[])[width_bucket(e.id, $1::uuid[])]
                  and locked_at is not null"#,
            &ids,
            &fences
        );
        let rows = self.renewal_session().await?.all("renew leases, past what others hold", query).await?;
        let stand = happened(claims, rows.iter().map(|row| row.id).collect());
        let renewed = happened(claims, rows.iter().filter(|row| row.renewed).map(|row| row.id).collect());
        let cancelled: HashSet<Uuid> = rows.iter().filter(|row| row.is_cancelled).map(|row| row.id).collect();
        let answers = claims.iter().zip(stand.into_iter().zip(renewed));
        let renewal = |(claim, (stands, renewed)): (&Claim, (bool, bool))| {
            (renewed || !stands).then(|| Renewal::of(renewed, cancelled.contains(&claim.id.0)))
        };
        Ok(answers.map(renewal).collect())
    }
}

impl Renewal {
    pub(in crate::store) fn of(renewed: bool, is_cancelled: bool) -> Self {
        match (renewed, is_cancelled) {
            (false, _) => Self::Lost,
            (true, false) => Self::Renewed,
            (true, true) => Self::Cancelled,
        }
    }
}

/// How long an attempt took, as the columns have it: no longer than can be taken from a moment.
pub(super) fn microseconds(took: Duration) -> i64 {
    const MOST: Duration = Duration::from_secs(366 * 24 * 3600);
    i64::try_from(took.min(MOST).as_micros()).unwrap_or(i64::MAX)
}

/// How long an attempt took, and its outcome, as the columns of attempts have them.
fn columns_of_noted(noted: Option<NotedRetry>) -> (Option<i64>, &'static str) {
    match noted {
        Some(NotedRetry { took, is_postponed }) => {
            (Some(microseconds(took)), if is_postponed { "postponed" } else { "retried" })
        }
        None => (None, "retried"),
    }
}

/// The common value, if all are the same: a canvas is often the only one. Comparing with it saves
/// looking up each row's position.
fn shared<T: Copy + PartialEq>(values: &[T]) -> Option<T> {
    let first = values.first()?;
    values.iter().all(|value| value == first).then_some(*first)
}

/// Ids in their order and, at the same positions, the fencing tokens that must still stand:
/// statements find a row's position by halves.
pub(in crate::store) fn fences(claims: &[Claim]) -> (Vec<Uuid>, Vec<i64>) {
    latest(claims).into_iter().map(|(id, claim)| (id, claim.fence())).unzip()
}

/// Of two claims on one event only the later can stand: that with the higher count or, where a
/// failover lost the first, the one named last. The other counts as lost.
fn latest(claims: &[Claim]) -> BTreeMap<Uuid, Claim> {
    let mut latest = BTreeMap::<Uuid, Claim>::new();
    for claim in claims {
        let known = latest.entry(claim.id.0).or_insert(*claim);
        if known.claims <= claim.claims {
            *known = *claim;
        }
    }
    latest
}

pub(in crate::store) fn happened(claims: &[Claim], ids: Vec<Uuid>) -> Vec<bool> {
    let mut stood = latest(claims);
    let ids: HashSet<Uuid> = ids.into_iter().collect();
    stood.retain(|id, _| ids.contains(id));
    claims.iter().map(|claim| stood.get(&claim.id.0) == Some(claim)).collect()
}
