-- Search: which events a filter selects.
--
-- Lists, counts and operations on many events take a filter, EventFilter of src/event/filter.rs, as
-- its JSON. Statements find the rows that may meet it by an index, a bounded number at a time, and
-- ask the function here about each. It finds nothing itself.

-- Whether a value, as JSON text, has this scalar at the place to which the path leads. A path has no
-- wildcards, so it costs no more than to read the value. One that is no jsonb has nothing there.
create function wakeq.value_has(value text, asked jsonb) returns boolean language plpgsql immutable as $$
begin
    return coalesce(
        value::jsonb #> array(select jsonb_array_elements_text(asked->'path')) = asked->'equals', false);
exception when data_exception or program_limit_exceeded then
    return false;
end
$$;

-- Whether an event meets every condition of a filter. A condition on what the event does not have
-- (null) is not met. Of what is not a filter no event is said to meet it. What costs most is asked
-- last: the value is read only where everything else is met.
create function wakeq.matches(
    asked jsonb, module text, name text, modifier text, state text, worker text, tags jsonb,
    emitted timestamptz, due timestamptz, died timestamptz, error text, value text)
returns boolean language plpgsql stable as $$
begin
    return jsonb_typeof(asked) = 'object'
       and coalesce(module = asked->>'module', not asked ? 'module')
       and coalesce(name = asked->>'name', not asked ? 'name')
       and coalesce(modifier = asked->>'modifier', not asked ? 'modifier')
       and coalesce(asked->'states' ? state, not asked ? 'states')
       and coalesce(worker = asked->>'worker', not asked ? 'worker')
       and coalesce(tags @> (asked->'tags'), not asked ? 'tags')
       and coalesce(emitted >= (asked->>'emitted_since')::timestamptz, not asked ? 'emitted_since')
       and coalesce(emitted < (asked->>'emitted_before')::timestamptz, not asked ? 'emitted_before')
       and coalesce(due >= (asked->>'due_since')::timestamptz, not asked ? 'due_since')
       and coalesce(due < (asked->>'due_before')::timestamptz, not asked ? 'due_before')
       and coalesce(died >= (asked->>'died_since')::timestamptz, not asked ? 'died_since')
       and coalesce(died < (asked->>'died_before')::timestamptz, not asked ? 'died_before')
       and coalesce(strpos(error, asked->>'error_text') > 0, not asked ? 'error_text')
       and coalesce(strpos(value, asked->>'value_text') > 0, not asked ? 'value_text')
       and (not asked ? 'value' or coalesce(wakeq.value_has(value, asked->'value'), false));
end
$$;

revoke all on all functions in schema wakeq from public;
