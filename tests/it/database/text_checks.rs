//! The forms of texts in the schema: each check accepts exactly what its pattern does, without the
//! bounds that make patterns slow.

use sqlx::{AssertSqlSafe, PgConnection};

use crate::support::Stage;

/// Characters where classes could differ, and some of all others, alone, at either end and in a
/// trace context; every length up to 300; a trace context with something else at each place; and
/// random texts of characters that a form allows, or nearly.
const SAMPLES: &str = r"
    create temp table samples as
    with points (c) as (
        select chr(n) from generate_series(1, 1114111) n
         where n not between 55296 and 57343 and (n < 3000 or n between 65024 and 65535 or n % 211 = 0)
    ), traces (trace) as (values ('00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'))
    select unnest(array[c, c || 'ab', 'ab' || c, overlay(trace placing c from 37 for 1)]) as text from points, traces
     union all
    select repeat(part, n) from generate_series(0, 300) n, unnest(array['a', '-', '0', '~', 'é', ' ', '.']) part
     union all
    select overlay(trace placing part from place for cut)
      from traces, generate_series(1, 55) place, generate_series(0, 2) cut,
           unnest(array['', '-', '--', '0', 'f', 'F', 'g', '_', '%', ' ', 'é', e'\n', e'\t', e'\\']) part
     union all
    select (select string_agg(substr(letters, 1 + (i + floor(random() * 99)::integer) % length(letters), 1), '')
              from generate_series(1, n % longest) i)
      from generate_series(1, 400) n,
           (values ('azAZ09_.-', 132), ('azAZ09_.:@=+~-', 204), ('!~azAZ09-', 259), ('0123456789abcdef-', 57),
                   (e'azAZ09_.- \n/é', 9)) as kind (letters, longest)";

/// What the schema checks, as an expression.
async fn expression(connection: &mut PgConnection, check: &str) -> String {
    let expression = sqlx::query_scalar(
        "select substr(pg_get_constraintdef(oid), 6) from pg_constraint
          where conname = $1 and connamespace = 'wakeq'::regnamespace",
    );
    expression.bind(check).fetch_one(connection).await.unwrap()
}

/// How many of the samples a pattern accepts, how many not, and the first that the check judges
/// differently.
async fn judged(connection: &mut PgConnection, check: &str, pattern: &str) -> (i64, i64, Option<String>) {
    let expression = expression(&mut *connection, check).await;
    let compare = format!(
        "select count(*) filter (where fits), count(*) filter (where not fits),
                min(value) filter (where {expression} is distinct from fits)
           from (select text as value, text as key, text ~ '{pattern}' as fits from samples offset 0) as judged"
    );
    sqlx::query_as(AssertSqlSafe(compare)).fetch_one(connection).await.unwrap()
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn each_check_accepts_what_its_pattern_does() {
    let (stage, _) = Stage::memory().await;
    let mut connection = stage.pool.acquire().await.unwrap();
    sqlx::query(SAMPLES).execute(&mut *connection).await.unwrap();
    for (check, pattern) in [
        ("name_check", r"^(?!\.{1,2}$)[A-Za-z0-9_.-]{1,128}$"),
        ("object_key_check", r"^(?!\.{1,2}$)[A-Za-z0-9_.:@=+~-]{1,200}$"),
        ("idempotency_keys_key_check", r"^[\x21-\x7e]{1,255}$"),
        ("unique_key_check", r"^[\x21-\x7e]{1,255}$"),
        ("batch_name_check", r"^(?!\.{1,2}$)[\x21-\x7e]{1,255}$"),
        ("limit_name_check", r"^(?!\.{1,2}$)[A-Za-z0-9_.:@=+~-]{1,200}$"),
        ("traceparent_check", "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"),
    ] {
        let (accepted, refused, different) = judged(&mut connection, check, pattern).await;
        assert_eq!(different, None, "{check}");
        assert!(accepted > 100 && refused > 10_000, "{check}: {accepted} accepted, {refused} refused");
        // Postgres makes the states of a bound anew for each value.
        assert!(!expression(&mut connection, check).await.contains('{'), "{check} is slow");
    }
    // The samples tell apart patterns that differ in a character, a length or the place of a dash.
    for (check, other) in [
        ("name_check", "^[A-Za-z0-9_.-]{1,127}$"),
        ("name_check", "^[A-Za-z0-9_.-]{0,128}$"),
        ("name_check", r"^[A-Za-z0-9_.-]{1,128}\n?$"),
        ("object_key_check", "^[A-Za-z0-9_.:@=+~é-]{1,200}$"),
        ("idempotency_keys_key_check", r"^[\x20-\x7e]{1,255}$"),
        ("unique_key_check", r"^[\x21-\x7d]{1,255}$"),
        ("batch_name_check", r"^[\x21-\x7e]{1,255}$"),
        ("traceparent_check", "^[0-9a-f]{2}-[0-9a-f-]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"),
        ("traceparent_check", "^[0-9a-f]{2}-[0-9a-f]{31,32}-[0-9a-f]{16,17}-[0-9a-f]{2}$"),
    ] {
        let (.., different) = judged(&mut connection, check, other).await;
        assert!(different.is_some(), "{check} against {other}");
    }
}
