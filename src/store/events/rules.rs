//! Pauses and blocks. Lifting one is always a delete, one rule per transaction, together with its
//! resume job. A switch is a rule on a whole canvas or on everything, which is stored as one on a
//! handler that no event has ([`HandlerScope::of_canvas`]).

use uuid::Uuid;

use crate::event::{
    Actor, CanvasId, HandlerScope, Name, Quota, QuotaExceeded, RuleKind, RuleReach, Timestamp,
};
use crate::store::kernel::{Sql, Store, StoreError, address, handler_columns};
use crate::store::quotas::default_quota;

/// A pause or a block on a handler, on a whole canvas, or on everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// A pause (by a user) or a block (by an admin).
    pub kind: RuleKind,
    /// The handler, with all its modifiers. Unless the rule [reaches](Rule::reach) further: then
    /// its name says nothing.
    pub scope: HandlerScope,
    /// Why.
    pub reason: Option<String>,
    /// When it ends by itself, if it does.
    pub until: Option<Timestamp>,
    /// Who made it.
    pub created_by: String,
    /// Since when it is in force.
    pub created_at: Timestamp,
}

impl Rule {
    /// What it stops.
    pub fn reach(&self) -> RuleReach {
        self.scope.reach()
    }
}

/// Where a list of rules continues: after this kind of rule on this handler.
pub(crate) type RulePosition = (HandlerScope, RuleKind);

/// The outcome of adding a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddedRule {
    /// Whether there was none of its kind.
    pub(crate) new: bool,
    /// The rule as it is now.
    pub(crate) rule: Rule,
    /// Whether a rule of the other kind is in force.
    pub(crate) other_stands: bool,
}

/// The outcome of lifting a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiftedRule {
    /// The jobs that wake the events that waited for the rule, and for targets that had answered
    /// 410 Gone. Empty if there was neither.
    pub(crate) jobs: Vec<i64>,
    /// Whether a rule of the other kind is still in force.
    pub(crate) other_stands: bool,
}

// Workers that park events hold a share lock on a rule's row for as long as they find events to
// park, one statement after the other. Changing the rule waits for a gap between them, longer than
// other statements wait for a lock.

impl Sql<'_> {
    pub(in crate::store) async fn add_rule(
        &self,
        kind: RuleKind,
        scope: &HandlerScope,
        reason: Option<&str>,
        until: Option<Timestamp>,
        actor: &Actor,
    ) -> Result<AddedRule, StoreError> {
        let query = sqlx::query!(
            r#"with patience as (
                   select set_config('lock_timeout', '4s', true) as set
               ), kept as (
                   select count(*) filter (where r.event_space <> 'CANVAS') as rules, wakeq.quota_of($2, 'rules', $10) as most,
                          coalesce(bool_or((r.rule_type, r.event_space, r.handler_name)
                                           = ($1::text::wakeq.scheduling_rule_type, $3, $4)), false) as has_it
                     from wakeq.scheduling_rules r where r.canvas_id = $2
               ), put as (
                   insert into wakeq.scheduling_rules
                       (rule_type, canvas_id, event_space, handler_name, reason, until, created_by)
                   select $1::text::wakeq.scheduling_rule_type, $2, $3, $4, $5, $6, $7 from patience, kept
                    where kept.rules < kept.most or kept.has_it or $3 = 'CANVAS'
                       on conflict on constraint scheduling_rules_one_of_a_kind
                       do update set reason = excluded.reason, until = excluded.until, created_by = excluded.created_by
                returning xmax = 0 as new, created_at
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, detail, request_id)
                   select nullif($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), $7,
                          $1::text || case when $3 <> 'CANVAS' then '' when $2 = 'ffffffff-ffff-ffff-ffff-ffffffffffff' then '-all' else '-canvas' end,
                          nullif($3::text, 'CANVAS'), case when $3 <> 'CANVAS' then $4::text end, 'done',
                          left(concat_ws('; ', $9::text, case when not new then 'it stood already' end,
                                         'until ' || to_char($6::timestamptz, 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), $5::text),
                               1000), $8
                     from put
               )
               select new as "new?", created_at at time zone 'UTC' as "created_at?", rules as "rules!", most as "most!",
                      exists (select from wakeq.scheduling_rules r
                               where r.canvas_id = $2 and r.event_space = $3 and r.handler_name = $4
                                 and r.rule_type <> $1::text::wakeq.scheduling_rule_type
                                 and (r.until is null or r.until > now())) as "other_stands!"
                 from kept left join put on true"#,
            kind.as_str(),
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            reason,
            until,
            actor.name(),
            actor.request_id(),
            actor.credential_id(),
            default_quota(Quota::Rules)
        );
        let row = self.session().await?.one("add a rule", query).await?;
        let (Some(new), Some(created_at)) = (row.new, row.created_at) else {
            let [used, limit] = [row.rules, row.most].map(|count| u64::try_from(count).unwrap_or(0));
            let exceeded =
                QuotaExceeded { canvas: scope.canvas, quota: Quota::Rules, limit, used, wanted: 1 };
            return Err(exceeded.into());
        };
        self.outlast_older_claims().await?;
        let rule = Rule {
            kind,
            scope: scope.clone(),
            reason: reason.map(Into::into),
            until,
            created_by: actor.name().into(),
            created_at,
        };
        Ok(AddedRule { new, rule, other_stands: row.other_stands })
    }

    /// Waits until no claim that began before can still commit. A claim lasts at most as long as a
    /// statement and the silence of its connection may; two waits are longer than that.
    pub(in crate::store) async fn outlast_older_claims(&self) -> Result<(), StoreError> {
        match self.await_older_claims().await {
            Err(error) if error.is_contention() => self.await_older_claims().await,
            waited => waited,
        }
    }

    /// Waits until every claim that may not have seen a committed rule has ended.
    async fn await_older_claims(&self) -> Result<(), StoreError> {
        let query = sqlx::query!("select wakeq.await_claims()::text as passed");
        self.session().await?.one("wait for older claims", query).await.map(drop)
    }

    pub(in crate::store) async fn lift_rule(
        &self,
        kind: RuleKind,
        scope: &HandlerScope,
        actor: &Actor,
    ) -> Result<LiftedRule, StoreError> {
        let query = sqlx::query_as!(
            LiftedRule,
            r#"with patience as (
                   select set_config('lock_timeout', '4s', true) as set
               ), lifted as (
                   delete from wakeq.scheduling_rules
                    where (select set from patience) is not null and canvas_id = $2 and event_space = $3 and handler_name = $4
                      and rule_type = $1::text::wakeq.scheduling_rule_type
                returning canvas_id, event_space, handler_name
               ), regained as (
                   update wakeq.http_targets set gone_at = null
                    where $1::text = 'pause' and canvas_id = $2 and module = $3 and name = $4 and gone_at is not null
                returning canvas_id, module, name, modifier
               ), noted as (
                   delete from wakeq.unknown_handlers u using regained t
                    where u.canvas_id = any (array[t.canvas_id]) and (u.module, u.name, u.modifier) = (t.module, t.name, t.modifier)
               ), job as (
                   insert into wakeq.resume_jobs (kind, canvas_id, module, name, created_at)
                   select 'lifted', canvas_id, event_space, handler_name, clock_timestamp() from lifted
                    union all select distinct 'registered', canvas_id, module, name, clock_timestamp() from regained
                returning id
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, request_id, detail)
                   select nullif(canvas_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), $5,
                          'un' || $1::text || case when $3 <> 'CANVAS' then '' when $2 = 'ffffffff-ffff-ffff-ffff-ffffffffffff' then '-all' else '-canvas' end,
                          nullif(event_space::text, 'CANVAS'), case when $3 <> 'CANVAS' then handler_name end, 'done', $6, $7 from lifted
                    union all select distinct canvas_id, $5, 'unpause', module, name, 'done', $6,
                          concat_ws('; ', $7::text, 'its targets that answered 410 Gone') from regained
               )
               select array(select id from job order by id) as "jobs!",
                      exists (select from wakeq.scheduling_rules r
                               where r.canvas_id = $2 and r.event_space = $3 and r.handler_name = $4
                                 and r.rule_type <> $1::text::wakeq.scheduling_rule_type
                                 and (r.until is null or r.until > now())) as "other_stands!""#,
            kind.as_str(),
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        self.session().await?.one("lift a rule", query).await
    }

    pub(in crate::store) async fn rules(
        &self,
        canvas: Option<CanvasId>,
        handler: Option<(&Name, &Name)>,
        after: Option<&RulePosition>,
        limit: i64,
    ) -> Result<Vec<Rule>, StoreError> {
        let query = sqlx::query_as!(
            RuleRow,
            r#"select rule_type::text as "rule_type!", canvas_id, event_space::text as "module!",
                      handler_name::text as "name!", reason, until, created_by,
                      created_at at time zone 'UTC' as "created_at!"
                 from wakeq.scheduling_rules
                where ($1::uuid is null or canvas_id = $1)
                  and ($2::text is null or event_space = $2) and ($3::text is null or handler_name = $3)
                  and (until is null or until > now())
                  and (canvas_id, event_space, handler_name) >= ($5::uuid, $6::text, $7::text)
                  and ((canvas_id, event_space, handler_name) <> ($5, $6, $7) or $8 and rule_type = 'pause')
                order by canvas_id, event_space, handler_name, rule_type desc limit $4"#,
            canvas.map(|canvas| canvas.0),
            handler.map(|(module, _)| module.as_str()),
            handler.map(|(_, name)| name.as_str()),
            limit,
            after.map_or(Uuid::nil(), |(scope, _)| scope.canvas.0),
            after.map_or("", |(scope, _)| scope.module.as_str()),
            after.map_or("", |(scope, _)| scope.name.as_str()),
            after.is_some_and(|(_, kind)| *kind == RuleKind::Block)
        );
        let rows = self.session().await?.all("list rules", query).await?;
        Ok(rows.into_iter().filter_map(RuleRow::into_rule).collect())
    }

    pub(in crate::store) async fn rules_over(&self, scope: &HandlerScope) -> Result<Vec<Rule>, StoreError> {
        let query = sqlx::query_as!(
            RuleRow,
            r#"select rule_type::text as "rule_type!", canvas_id, event_space::text as "module!",
                      handler_name::text as "name!", reason, until, created_by,
                      created_at at time zone 'UTC' as "created_at!"
                 from wakeq.scheduling_rules
                where canvas_id = any (array[$1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'])
                  and (event_space = 'CANVAS' and handler_name = '_'
                       or canvas_id = $1 and event_space = $2::text and handler_name = $3::text)
                  and (until is null or until > now())
                order by rule_type desc, canvas_id = $1, event_space <> 'CANVAS'"#,
            scope.canvas.0,
            scope.module.as_str(),
            scope.name.as_str()
        );
        let rows = self.session().await?.all("list the rules over a handler", query).await?;
        Ok(rows.into_iter().filter_map(RuleRow::into_rule).collect())
    }
}

struct RuleRow {
    rule_type: String,
    canvas_id: Uuid,
    module: String,
    name: String,
    reason: Option<String>,
    until: Option<Timestamp>,
    created_by: String,
    created_at: Timestamp,
}

impl RuleRow {
    fn into_rule(self) -> Option<Rule> {
        Some(Rule {
            kind: self.rule_type.parse().ok()?,
            scope: address(self.canvas_id, &self.module, &self.name, "_").ok()?.scope,
            reason: self.reason,
            until: self.until,
            created_by: self.created_by,
            created_at: self.created_at,
        })
    }
}

impl Store {
    /// The rules in force on these handlers of a canvas, in the given order; a block before a
    /// pause.
    pub(crate) async fn rules_of(
        &self,
        canvas: CanvasId,
        handlers: &[HandlerScope],
    ) -> Result<Vec<Rule>, StoreError> {
        let (modules, names) = handler_columns(handlers);
        let query = sqlx::query!(
            r#"select rule.kind as "kind!", rule.reason, rule.until, rule.created_by as "created_by!",
                      rule.created_at as "created_at!", wanted.at as "at!"
                 from (select at, module::wakeq.name as module, name::wakeq.name as name
                         from unnest($2::text[], $3::text[]) with ordinality as given (module, name, at)) as wanted
                cross join lateral (
                    select r.rule_type::text as kind, r.reason, r.until, r.created_by,
                           r.created_at at time zone 'UTC' as created_at
                      from wakeq.scheduling_rules r
                     where r.canvas_id = $1 and r.event_space = wanted.module and r.handler_name = wanted.name
                       and (r.until is null or r.until > now())
                     order by r.rule_type desc limit 2) as rule
                order by wanted.at, rule.kind"#,
            canvas.0,
            &modules,
            &names
        );
        let rows = self.session().await?.all("list the rules of handlers", query).await?;
        let rules = rows.into_iter().filter_map(|row| {
            Some(Rule {
                kind: row.kind.parse().ok()?,
                scope: handlers.get(usize::try_from(row.at - 1).ok()?)?.clone(),
                reason: row.reason,
                until: row.until,
                created_by: row.created_by,
                created_at: row.created_at,
            })
        });
        Ok(rules.collect())
    }
}
