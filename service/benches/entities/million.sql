-- A million entities of the type `account`, of the default canvas and 99 others, as their processor
-- leaves them.
with one as materialized (
    select g, nextval('wakeq.log_seq') as seq,
           case when g % 100 = 0 then '00000000-0000-0000-0000-000000000000'::uuid
                else ('00000000-0000-0000-0000-' || lpad(to_hex(g % 100), 12, '0'))::uuid end as canvas_id
      from generate_series(0, 999999) as g
), logged as (
    insert into wakeq.log (seq, prev, canvas_id, category, stream, position, bucket, id, name, payload)
    select seq, 0, canvas_id, 'entities:account', 'a' || g, 0, 0, gen_random_uuid(), 'note',
           '{"text": "' || repeat('x', 200) || '"}'
      from one
), streams as (
    insert into wakeq.log_streams (canvas_id, category, stream, position, last_seq)
    select canvas_id, 'entities:account', 'a' || g, 0, seq from one
)
insert into wakeq.entities (entity_type, canvas_id, id, version, last_link, state, state_version, state_seq, shape)
select 'account', canvas_id, 'a' || g, 1, seq, '{"cents": 0, "note": "' || repeat('x', 200) || '"}', 1, seq, 1
  from one;
analyze wakeq.entities, wakeq.log, wakeq.log_streams;
