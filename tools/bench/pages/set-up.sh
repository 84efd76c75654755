#!/usr/bin/env bash
# Sets up a shop of 10,000 jobs on wakeq, pg-boss and pgqueuer, and serves the pages of all three until
# it is stopped. `measure.py` then asks each of them the twelve questions of docs/page-compared.md.
#
#   PGHOST=127.0.0.1 PGPORT=5432 PGUSER=postgres WAKEQ=target/release/wakeq \
#     tools/bench/pages/set-up.sh FOLDER
#
# FOLDER is for what is installed. The databases shop_wakeq, shop_boss and shop_pgq are made anew.
# Wants npm, Python 3.11, psql, Chromium and its driver.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
wakeq=$(realpath "$WAKEQ")
mkdir -p "$1" && cd "$1"
sql() { psql -Xq -d "shop_$1" -c "$2"; }
dsn() { echo "postgres://$PGUSER@$PGHOST:$PGPORT/shop_$1"; }
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

# @pg-boss/dashboard 1.9.0 opens no job of a schema that is newer than that of pg-boss 12.34.0.
npm install --silent node@22 pg-boss@12.34.0 @pg-boss/dashboard@1.9.0
[ -d python ] || python3 -m venv python
python/bin/pip install --quiet 'pgqueuer[web]==1.6.0' asyncpg selenium
node=node_modules/.bin/node
cp "$here"/boss.mjs .
python3 "$here/shop.py" > jobs.jsonl
for name in wakeq boss pgq; do
    psql -Xq -d postgres -c "drop database if exists shop_$name with (force)" -c "create database shop_$name"
done

yesterday="- interval '1 day'"
export DATABASE_URL PGDSN
DATABASE_URL=$(dsn boss)
for phase in setup 1; do $node boss.mjs $phase; done
sql boss "update pgboss.job set created_on = created_on $yesterday, start_after = start_after $yesterday,
                                started_on = started_on $yesterday, completed_on = completed_on $yesterday;
          update pgboss.job set created_on = current_date + time '01:00', start_after = current_date + time '01:00',
                                started_on = current_date + time '01:00:01',
                                completed_on = current_date + time '01:00:03' where name = 'nightly-report';
          update pgboss.schedule set last_job_id = (select id from pgboss.job where name = 'nightly-report')
           where name = 'nightly-report'"
for phase in 2 3; do $node boss.mjs $phase; done
$node boss.mjs work > boss.log 2>&1 &
HOST=127.0.0.1 PORT=55931 $node node_modules/@pg-boss/dashboard/bin/cli.js > boss-page.log 2>&1 &

PGDSN=$(dsn pgq)
python/bin/pgq install
python/bin/python "$here/seed_pgqueuer.py" 1
sql pgq "update pgqueuer_log set created = created $yesterday;
         update pgqueuer_statistics set created = created $yesterday"
for phase in 2 3; do python/bin/python "$here/seed_pgqueuer.py" $phase; done
python/bin/python "$here/seed_pgqueuer.py" work > pgq.log 2>&1 &
python/bin/pgq web --host 127.0.0.1 --port 55932 > pgq-page.log 2>&1 &

DATABASE_URL=$(dsn wakeq)
export WAKEQ_NOTIFIER=postgres WAKEQ_DELIVER_HTTP=1 WAKEQ_DELIVER_TO='*=127.0.0.1:1-65535' USER=ada
export WAKEQ_SECRET_KEY WAKEQ_KEY MIA_KEY PYTHONPATH="$here/../../../clients/python/src"
WAKEQ_SECRET_KEY=$("$wakeq" secrets new-key)
"$wakeq" migrate > /dev/null
scopes="--scope emit --scope read --scope operate --scope admin"
# shellcheck disable=SC2086
WAKEQ_KEY=$("$wakeq" keys create ada --all-canvases $scopes 2> /dev/null)
MIA_KEY=$("$wakeq" keys create mia --scope read --scope operate 2> /dev/null)
"$wakeq" all --listen 127.0.0.1 --port 55933 > wakeq.log 2>&1 &
until curl -sf http://127.0.0.1:55933/readyz > /dev/null; do sleep 0.5; done
export WAKEQ_SERVER=http://127.0.0.1:55933
seed="python/bin/python $here/seed_wakeq.py"
$seed setup
$seed targets > targets.log 2>&1 &
$seed pull > pull.log 2>&1 &
$seed 1
sleep 70 # What was counted is written once a minute.
sql wakeq "update wakeq.minute_statistics set at = at $yesterday"
for phase in 2 3; do $seed $phase; done
sql wakeq "insert into wakeq.ended_events
           select canvas_id, gen_random_uuid(), kept_until, module, 'nightly-report', modifier, value, result, outcome,
                  error, ended_by, enqueued_at, current_date + time '01:00', current_date + time '01:00:03',
                  current_date + time '01:00:01', 2000000, worker, claims, retries, losses, attempts, null, object, seq,
                  prev, options
             from wakeq.ended_events where name = 'exchange-rates' limit 1"
sql pgq "update pgqueuer_schedules set last_run = current_date + time '01:00' where entrypoint = 'nightly-report'"

echo "Serving. In another terminal, in this folder:"
echo "python/bin/python $here/measure.py $WAKEQ_SERVER $WAKEQ_KEY http://127.0.0.1:55931 shop_boss" \
    "http://127.0.0.1:55932 shop_pgq"
wait
