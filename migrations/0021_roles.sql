-- Rights: the schema's owner migrates; the API and the workers log in as roles of their own, with what they need and no
-- more. The roles are made by whoever looks after the server; wakeq.grant_rights says what each kind gets.

revoke all on schema wakeq from public;
revoke all on all functions in schema wakeq from public;

-- The record goes by its age alone: no role but the owner deletes from it otherwise. How many lines went, at most 1,000.
create function wakeq.expire_audit(kept interval) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    gone bigint;
begin
    if kept is null or kept < interval '1 hour' then
        raise exception 'the record is kept for an hour at least';
    end if;
    delete from wakeq.audit_log where id = any (array(
        select id from wakeq.audit_log where at < now() - kept order by at limit 1000 for update skip locked));
    get diagnostics gone = row_count;
    return gone;
end $$;

-- Keys that were revoked or have expired go as the record of them does. How many went, at most 1,000.
create function wakeq.expire_keys(kept interval) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    gone bigint;
begin
    if kept is null or kept < interval '1 hour' then
        raise exception 'keys that count no more are kept for an hour at least';
    end if;
    delete from wakeq.access_keys where id = any (array(
        select id from wakeq.access_keys
         where least(revoked_at, expires_at) < now() - kept limit 1000 for update skip locked));
    get diagnostics gone = row_count;
    return gone;
end $$;

-- What processes of a kind need: 'api' for `wakeq serve` and commands of operators, 'worker' for `wakeq work`; `wakeq all`,
-- and a service in push mode, need both. The one list of it: a table that is not in it is for the owner alone.
create function wakeq.needed_rights(kind text) returns table (object_kind text, object text, needed text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'schema', 'wakeq', 'usage'
    union all
    select 'table', format('wakeq.%I', c.relname), unnest(string_to_array(case kind when 'api' then r.api else r.worker end, ', '))
      from (values
        ('_migrations',          'select',                         'select'),
        ('access_keys',          'select, insert, update',         null),
        ('audit_log',            'select, insert',                 'insert'),
        ('canvas_quotas',        'select, insert, update, delete', 'select'),
        ('chores',               'select, update',                 'select, update'),
        ('claim_gate',           null,                             'insert'),
        ('canvas_turns',         'select, insert, update',         null),
        ('consumer_dead',        'select, insert, update, delete', 'select, insert, update, delete'),
        ('consumer_groups',      'select, insert, update, delete', 'select, insert, update, delete'),
        ('consumer_positions',   'select, insert, update, delete', 'select, insert, update, delete'),
        ('cron_records',         'select, insert, update, delete', 'select, update'),
        ('dead_events',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('deployment',           'select, update',                 'select'),
        ('emitted_ids',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('emitters',             null,                            null),
        ('entities',             'select, insert, update',        'select, insert, update'),
        ('entity_asides',        'select, insert, update, delete', 'select, insert, update, delete'),
        ('entity_events',        'select, insert, update, delete', 'select, insert, update, delete'),
        ('entity_owners',        'select, insert, update, delete', 'select, insert, update, delete'),
        ('events_v2',            'select, insert, update, delete', 'select, insert, update, delete'),
        ('facet_settings',       'select, insert, update',        'select'),
        ('facets',               'select, insert, update, delete', 'select, insert, update, delete'),
        -- A redrive locks what halts a lane, which takes the right to update.
        ('halted_lanes',         'select, insert, update, delete', 'select, insert, delete'),
        ('http_targets',         'select, insert, update, delete', 'select, update, delete'),
        ('idempotency_keys',     'select, insert, update, delete', 'select, insert, update, delete'),
        ('idle_cursor',          'select, update',                 'select, update'),
        ('idle_marks',           'select, insert, delete',         'select, insert, delete'),
        ('locks',                'select, insert, update',         'select, insert, update'),
        ('log',                  'select, insert',                 'select, insert'),
        ('log_appenders',        'select',                         'select'),
        ('log_gate',             'insert',                         'insert'),
        ('log_partitioning',     null,                             null),
        ('log_pins',             'select, insert, delete',        'select, insert, delete'),
        ('log_streams',          'select, insert, update',         'select, insert, update'),
        ('nodes',                'select, insert, update, delete', 'select, insert, update, delete'),
        ('objects',              'select, insert, update, delete', 'select, insert, update, delete'),
        ('queue_patterns',       'select, insert, delete',        'select'),
        ('queue_registry',       'select, update',                 'select'),
        ('queue_turns',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('queue_wakes',          'select, insert, update, delete', 'select, update, delete'),
        -- A worker that parks a copy locks its queue's row, which takes the right to update.
        ('queues',               'select, insert, update, delete', 'select, insert, update, delete'),
        ('resume_jobs',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('scheduling_rules',     'select, insert, update, delete', 'select, insert, update, delete'),
        ('service_accounts',     'select, insert, update',         null),
        ('settings',             'select, insert',                 'select, insert'),
        ('single_groups',        'select, insert, update, delete', 'select, insert, update, delete'),
        ('subscribers',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('subscription_sources', 'select',                         'select'),
        ('subscriptions',        'select, insert, update, delete', 'select, insert, update, delete'),
        ('tombstones',           'select, insert, delete',         'select, insert, delete'),
        ('unknown_handlers',     'select, insert, update, delete', 'select, insert, update, delete')
      ) as r (name, api, worker)
      join pg_class c on c.relnamespace = 'wakeq'::regnamespace and c.relname = r.name
    union all
    select 'sequence', format('wakeq.%I', c.relname), 'usage'
      from pg_class c where c.relnamespace = 'wakeq'::regnamespace and c.relkind = 'S'
    union all
    -- A function that is listed is for the kind beside it; both kinds have the others.
    select 'function', p.oid::regprocedure::text, 'execute'
      from pg_proc p
      left join (values
          ('await_claims', 'api'), ('claim', 'worker'), ('take_turns', 'worker'), ('pull_turns', 'api'), ('drop_log_partition', 'worker'),
          ('erase_entity', 'worker'),
          ('emit', null), ('grant_rights', null)
      ) as only_for (name, kind) on only_for.name = p.proname
     where p.pronamespace = 'wakeq'::regnamespace and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype
       and (only_for.name is null or only_for.kind = needed_rights.kind)
$$;

-- Grants a role what a kind needs. It takes nothing away, except what everybody has. `wakeq migrate --api-role …
-- --worker-role …` calls it after each migration, which grants what is new.
create function wakeq.grant_rights(role name, kind text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    granted record;
begin
    if kind is null or kind not in ('api', 'worker') then
        raise exception 'a role is of the kind api or worker, not %', coalesce(kind, 'null');
    end if;
    revoke all on schema wakeq from public;
    revoke all on all functions in schema wakeq from public;
    for granted in
        select n.object_kind, n.object, string_agg(n.needed, ', ') as needed
          from wakeq.needed_rights(kind) as n group by n.object_kind, n.object
    loop
        execute format('grant %s on %s %s to %I', granted.needed, granted.object_kind, granted.object, role);
    end loop;
    -- Cloud SQL makes its users members of a role that may take on others, and lets them make roles.
    if exists (select from pg_roles r where r.rolname = 'cloudsqlsuperuser' and pg_has_role(role, r.oid, 'member')) then
        begin
            execute format('revoke cloudsqlsuperuser from %I', role);
            execute format('alter role %I nocreaterole nocreatedb', role);
        exception when insufficient_privilege then
            raise warning 'the role % is still a member of cloudsqlsuperuser', role;
        end;
    end if;
end $$;

revoke all on all functions in schema wakeq from public;
