//! Lists of more than fits on a page: nothing is cut, nothing is counted as 0 that is not, and a
//! cursor is one of its own list and canvas.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::{AdminError, CanvasId};
use wakeq_service::access::Scope;

use crate::cli::Terminal;
use crate::support::service::{NONE, Service};

const OTHER: CanvasId = CanvasId(Uuid::from_u128(0x0707));

/// Events of 2,010 handlers on each of two canvases, and a dead event of each tenth; `zz`, the last
/// one, is paused, has a target with twelve modifiers, five waiting events and no place on the
/// first pages.
const HANDLERS: &str = "
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
    select gen_random_uuid(), c.id::uuid, 'WORKER', 'h' || to_char(n, 'FM00000'), '_', '1', now() - interval '1 s'
      from generate_series(1, 2010) n, (values ('00000000-0000-0000-0000-000000000000'), ('00000000-0000-0000-0000-000000000707')) c (id);
    insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, cause)
    select gen_random_uuid(), c.id::uuid, 'WORKER', 'h' || to_char(n * 10, 'FM00000'), '_', '1', 2, now(), 3, 0, 'retries'
      from generate_series(1, 201) n, (values ('00000000-0000-0000-0000-000000000000'), ('00000000-0000-0000-0000-000000000707')) c (id);
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
    select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'zz', '_', '1', now() - interval '1 s'
      from generate_series(1, 5);
    insert into wakeq.scheduling_rules (rule_type, canvas_id, event_space, handler_name)
    values ('pause', '00000000-0000-0000-0000-000000000000', 'WORKER', 'zz');
    insert into wakeq.http_targets (canvas_id, module, name, modifier, url, retries, delay_ms, factor, delay_max_ms, timeout_ms,
                                    secret, created_by, updated_by)
    select '00000000-0000-0000-0000-000000000000', 'WORKER', 'zz', 'm' || to_char(n, 'FM00'), 'https://a.example/', 2, 0, 1, 0,
           1000, decode(repeat('ab', 32), 'hex'), 'test', 'test' from generate_series(1, 12) n";

/// The names on all pages of a list, asserting that none is there twice.
async fn names(service: &Service, path: &str, name: &str) -> BTreeSet<String> {
    let items = service.items(path).await;
    let names: BTreeSet<_> = items.iter().map(|item| item[name].as_str().unwrap().to_owned()).collect();
    assert_eq!(names.len(), items.len(), "{path}");
    names
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn every_handler_is_listed_with_its_own_counts() {
    let service = Service::start().await;
    service.stage.execute(HANDLERS).await;
    for limit in [1000, 137] {
        assert_eq!(names(&service, &format!("/handlers?limit={limit}"), "name").await.len(), 2011);
    }
    let first = service.get("/handlers?limit=10").await.json();
    let [.., tenth] = first["items"].as_array().unwrap().as_slice() else { panic!("{first}") };
    assert_eq!((&tenth["name"], &tenth["waiting"], &tenth["dead"]), (&json!("h00010"), &json!(1), &json!(1)));
    let cursor = first["next_cursor"].as_str().unwrap();
    let last = service.items("/handlers?limit=1000").await.pop().unwrap();
    assert_eq!((&last["name"], &last["paused"], &last["waiting"]), (&json!("zz"), &json!(5), &json!(0)));
    let shown = service.get("/handlers/WORKER/zz").await.json();
    let targets =
        |handler: &Value| (handler["targets"].as_array().unwrap().len(), handler["more_targets"].clone());
    assert_eq!((targets(&last), targets(&shown)), ((10, json!(true)), (12, json!(false))));
    let all = names(&service, "/targets?limit=5", "modifier").await;
    assert_eq!((all.len(), &all), (12, &names(&service, "/targets?name=zz&limit=7", "modifier").await));
    // On the other canvas the same cursor is a place in its own list, and shows nothing of this
    // one.
    let key = service.key("other", OTHER, &[Scope::Read]).await;
    let path = |query: &str| format!("/canvases/{OTHER}{query}");
    let there =
        service.ask(&key, Method::GET, &path(&format!("/handlers?limit=1000&cursor={cursor}")), NONE).await;
    assert_eq!(there.json()["items"][0]["name"], "h00011");
    let targets = service.ask(&key, Method::GET, &path("/targets"), NONE).await.json();
    assert_eq!(targets, json!({"items": [], "next_cursor": null}));
    // A cursor of another list, or of another handler, is refused.
    for path in [
        "/handlers?cursor=g~WORKER~zz~m01",
        "/handlers?cursor=h~WORKER",
        "/targets?name=h&cursor=g~WORKER~zz~m01",
    ] {
        let refused = service.get(path).await;
        refused.says((400, "bad-request"), "this is not a cursor of this list");
    }
    service.stop().await;
}

/// What the canvas has altogether is what its handlers have.
#[tokio::test]
async fn a_canvas_is_counted_with_all_its_handlers() {
    let service = Service::start().await;
    let empty = service.get("/counts").await.json();
    assert_eq!(
        (&empty["handlers"], &empty["waiting"], &empty["busiest"]),
        (&json!(0), &json!(0), &json!([]))
    );
    service.stage.execute(HANDLERS).await;
    let run = "update wakeq.events_v2 set locked_at = now(), claims = 1 where name in ('h00007', 'zz')
                  and canvas_id = '00000000-0000-0000-0000-000000000000'
                  and id = any (array(select distinct on (name, canvas_id) id from wakeq.events_v2))";
    service.stage.execute(run).await;
    let counts = service.get("/counts").await.json();
    let sums = |name: &str| counts[name].as_i64().unwrap();
    let all = ["handlers", "waiting", "delayed", "paused", "running", "dead", "halted"].map(sums);
    assert_eq!(all, [2011, 2009, 0, 4, 2, 201, 0], "{counts}");
    assert_eq!(
        (sums("stopped_handlers"), sums("unknown_handlers"), &counts["capped"]),
        (1, 0, &json!(false))
    );
    let listed = service.items("/handlers?limit=1000").await;
    for name in ["waiting", "delayed", "paused", "running", "dead", "halted"] {
        assert_eq!(listed.iter().map(|one| one[name].as_i64().unwrap()).sum::<i64>(), sums(name), "{name}");
    }
    let busiest = counts["busiest"].as_array().unwrap();
    assert_eq!(
        (busiest.len(), &busiest[0]["name"], &busiest[49]["name"]),
        (50, &json!("h00010"), &json!("h00500"))
    );
    let tenth = listed.iter().find(|one| one["name"] == "h00010");
    assert_eq!(tenth, Some(&busiest[0]));
    let stopped = counts["stopped"].as_array().unwrap();
    assert_eq!((stopped.len(), stopped.first(), &counts["unknown"]), (1, listed.last(), &json!([])));

    let key = service.key("other", OTHER, &[Scope::Read]).await;
    let there = service.ask(&key, Method::GET, &format!("/canvases/{OTHER}/counts"), NONE).await.json();
    let sums = |name: &str| there[name].as_i64().unwrap();
    let all = ["handlers", "waiting", "paused", "running", "dead", "stopped_handlers"].map(sums);
    assert_eq!(all, [2010, 2010, 0, 0, 201, 0], "{there}");
    service.stop().await;
}

/// A handler whose only copies are in a queue that does not show them, or whose rule has ended,
/// takes a place on a page, but is not shown.
#[tokio::test]
async fn a_page_without_anything_to_show_has_a_next_one() {
    let service = Service::start().await;
    service
        .stage
        .execute(
            "insert into wakeq.queues (name, created_by, updated_by) values ('hidden', 'tests', 'tests');
             insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, queue, origin)
             select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'a' || n, '_', '1', now(), 'hidden',
                    gen_random_uuid()
               from generate_series(1, 3) n;
             insert into wakeq.scheduling_rules (rule_type, canvas_id, event_space, handler_name, until)
             values ('pause', '00000000-0000-0000-0000-000000000000', 'WORKER', 'b', now() - interval '1 h')",
        )
        .await;
    service.stage.emit("z").await;
    let first = service.get("/handlers?limit=2").await.json();
    assert_eq!(
        (first["items"].as_array().unwrap().len(), first["next_cursor"].is_string()),
        (0, true),
        "{first}"
    );
    assert_eq!(names(&service, "/handlers?limit=2", "name").await, BTreeSet::from(["z".to_owned()]));
    service.stop().await;
}

#[tokio::test]
async fn halted_objects_and_missing_links_come_in_pages() {
    let service = Service::start().await;
    service
        .stage
        .execute(
            "insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev, halted_at)
             select c.id::uuid, c.word || n, 'WORKER', 'ship', gen_random_uuid(), n, n - 1, date_trunc('s', now()) - (n / 3) * interval '1 s'
               from generate_series(1, 1203) n,
                    (values ('00000000-0000-0000-0000-000000000000', 'mine-'), ('00000000-0000-0000-0000-000000000707', 'theirs-')) c (id, word);
             insert into wakeq.objects (canvas_id, object, last_seq) values ('00000000-0000-0000-0000-000000000000', 'work:1', 2000);
             insert into wakeq.tombstones (canvas_id, object, seq, prev, cause)
             select c.id::uuid, 'work:1', n, n - 1, 'cancelled'
               from (values ('00000000-0000-0000-0000-000000000000', 1203), ('00000000-0000-0000-0000-000000000707', 5)) c (id, most),
                    generate_series(1, c.most) n",
        )
        .await;
    for limit in [1000, 7] {
        let objects = names(&service, &format!("/halted-objects?limit={limit}"), "object").await;
        assert_eq!(objects.len(), 1203);
        assert!(objects.iter().all(|object| object.starts_with("mine-")));
    }
    let items = service.items("/objects/work:1/tombstones?limit=500").await;
    let links: Vec<_> = items.iter().map(|gone| gone["id"].as_i64().unwrap()).collect();
    assert!(links.iter().copied().eq(1..=1203), "{links:?}");
    assert_eq!(service.items("/objects/work:1/tombstones?after=1200&limit=2").await.len(), 3);
    let admin = &service.stage.admin;
    service.stage.emit("z").await;
    let other = admin.handlers(CanvasId::DEFAULT, None, 1).await.unwrap().next.unwrap();
    assert!(matches!(admin.halted(CanvasId::DEFAULT, Some(&other), 10).await, Err(AdminError::Cursor)));
    service.stop().await;
}

/// An object is halted for 1,203 handlers and runs for 1,002, and one of that name on another
/// canvas for one each. What it does not show, it says, and those for which it is halted are
/// listed.
#[tokio::test]
async fn an_object_says_that_there_are_more_lanes() {
    let service = Service::start().await;
    service
        .stage
        .execute(
            "insert into wakeq.objects (canvas_id, object, last_seq)
             values ('00000000-0000-0000-0000-000000000000', 'work:1', 3000), ('00000000-0000-0000-0000-000000000707', 'work:1', 3000);
             insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
             select c.id::uuid, 'work:1', 'WORKER', c.word || n, gen_random_uuid(), n, n - 1
               from (values ('00000000-0000-0000-0000-000000000000', 'mine-', 1203), ('00000000-0000-0000-0000-000000000707', 'theirs-', 1))
                    c (id, word, most), generate_series(1, c.most) n;
             insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
             values ('00000000-0000-0000-0000-000000000000', 'work:2', 'WORKER', 'mine-too', gen_random_uuid(), 2, 1);
             insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, locked_at, claims, worker, object, seq, prev)
             select gen_random_uuid(), c.id::uuid, 'WORKER', 'h' || n, '_', '1', now(), 1, 'one', 'work:1', n, n - 1
               from (values ('00000000-0000-0000-0000-000000000000', 1002), ('00000000-0000-0000-0000-000000000707', 1)) c (id, most),
                    generate_series(1, c.most) n",
        )
        .await;
    let counts = |object: &Value| {
        let count = |list: &str| object[list].as_array().unwrap().len();
        let more = |word: &str| object[word].as_bool().unwrap();
        [(count("halted"), more("more_halted")), (count("in_hand"), more("more_in_hand"))]
    };
    assert_eq!(counts(&service.get("/objects/work:1").await.json()), [(1000, true), (1000, true)]);
    let key = service.key("other", OTHER, &[Scope::Read]).await;
    let there = |path: &str| format!("/canvases/{OTHER}{path}");
    let theirs = service.ask(&key, Method::GET, &there("/objects/work:1"), NONE).await.json();
    assert_eq!(counts(&theirs), [(1, false), (1, false)]);
    let listed = names(&service, "/halted-objects?object=work%3A1&limit=500", "name").await;
    assert_eq!(listed.len(), 1203);
    assert!(listed.iter().all(|name| name.starts_with("mine-") && name != "mine-too"), "{listed:?}");
    let theirs = service.ask(&key, Method::GET, &there("/halted-objects?object=work%3A1"), NONE).await.json();
    assert_eq!((theirs["items"].as_array().unwrap().len(), &theirs["next_cursor"]), (1, &Value::Null));
    let terminal = Terminal::beside(&service);
    let shown = terminal.run(&["objects", "show", "work:1"]).await.out;
    assert!(shown.contains("more events than these") && shown.contains("for more handlers"), "{shown}");
    let halted = terminal.run(&["objects", "halted", "--object", "work:1", "--limit", "2000"]).await;
    assert_eq!((halted.out.lines().count(), halted.err.as_str()), (1204, ""));
    service.stop().await;
}

/// The first of 203 events with a correlation id is that with this id. The other canvas has the
/// same correlation id.
#[tokio::test]
async fn the_events_of_a_correlation_come_in_pages() {
    let service = Service::start().await;
    service
        .stage
        .execute(
            "insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev)
             select c.id::uuid, case n when 1 then '77777777-0000-0000-0000-000000000000'::uuid else gen_random_uuid() end,
                    '77777777-0000-0000-0000-000000000000', 'account', c.word || n % 3, 'deposit', 2 * n + c.odd, 0
               from (values ('00000000-0000-0000-0000-000000000000', 'mine-', 203, 0), ('00000000-0000-0000-0000-000000000707', 'theirs-', 5, 1))
                    c (id, word, most, odd), generate_series(1, c.most) n",
        )
        .await;
    let status = "/entities/status/77777777-0000-0000-0000-000000000000";
    for (limit, pages) in [("?limit=100", 3), ("?limit=7", 29), ("?", 3)] {
        let (mut links, mut asked, mut cursor) = (Vec::new(), 0, String::new());
        loop {
            let page = service.get(&format!("{status}{limit}{cursor}")).await.json();
            let events = page["events"].as_array().unwrap();
            assert!(events.iter().all(|event| event["entity"].as_str().unwrap().starts_with("mine-")));
            links.extend(events.iter().map(|event| event["link"]["id"].as_i64().unwrap()));
            asked += 1;
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert!(links.iter().copied().eq((1..=203).map(|n| 2 * n)), "{links:?}");
        assert_eq!(asked, pages, "{limit}");
    }
    // The cursor of one canvas is a place in the list of the other.
    let key = service.key("other", OTHER, &[Scope::Read]).await;
    let there = format!("/canvases/{OTHER}{status}?cursor=6");
    let theirs = service.ask(&key, Method::GET, &there, NONE).await.json();
    let links: Vec<_> =
        theirs["events"].as_array().unwrap().iter().map(|event| &event["link"]["id"]).collect();
    assert_eq!((links, &theirs["next_cursor"]), (vec![&json!(7), &json!(9), &json!(11)], &Value::Null));
    for refused in ["?limit=0", "?limit=101", "?cursor=x"] {
        assert_eq!(service.get(&format!("{status}{refused}")).await.problem().0, 400, "{refused}");
    }
    let terminal = Terminal::beside(&service);
    let words = ["entities", "status", "77777777-0000-0000-0000-000000000000", "--limit", "2"];
    let first = terminal.run(&words).await;
    assert_eq!(first.err.trim_end(), "there are more: --cursor 4");
    let last = terminal.run(&[&words[..], &["--cursor", "404"]].concat()).await;
    assert_eq!((last.out.lines().count(), last.err.as_str()), (3, ""), "{}", last.out);
    service.stop().await;
}

#[tokio::test]
async fn the_platforms_lists_come_in_pages() {
    let service = Service::start().await;
    service
        .stage
        .execute(
            "insert into wakeq.queues (name, created_by, updated_by)
             select 'q' || chr(64 + n) || chr(96 + n), 'tests', 'tests' from generate_series(1, 20) n;
             insert into wakeq.consumer_positions (consumer_group, source) select 'g-' || n, 'log' from generate_series(1, 12) n;
             insert into wakeq.nodes (node_id, heartbeat_timestamp, expires_at)
             select gen_random_uuid(), now(), 'infinity' from generate_series(1, 12)",
        )
        .await;
    let key = service.wide_key("ops", &[Scope::Read]).await;
    for (list, name, count) in [("queues", "name", 20), ("groups", "name", 12), ("nodes", "id", 12)] {
        let page = async |cursor: &str| {
            service.ask(&key, Method::GET, &format!("/admin/{list}?limit=5{cursor}"), NONE).await.json()
        };
        let items = service.items_by(page).await;
        let names: BTreeSet<_> = items.iter().map(|item| item[name].as_str().unwrap()).collect();
        assert_eq!((items.len(), names.len()), (count, count), "{list}");
    }
    let quotas = names(&service, "/quotas?limit=4", "quota").await;
    assert_eq!(quotas, names(&service, "/quotas?limit=1000", "quota").await);
    assert!(quotas.len() > 10, "{quotas:?}");
    service.stop().await;
}

/// `stats` says that there is more, and how to go on.
#[tokio::test]
async fn the_command_line_says_that_there_is_more() {
    let service = Service::start().await;
    service.stage.execute(HANDLERS).await;
    let terminal = Terminal::beside(&service);
    let first = terminal.run(&["stats", "--limit", "3"]).await;
    assert_eq!((first.code, first.out.lines().count()), (Some(0), 4), "{}", first.out);
    let cursor = first.err.trim_end().strip_prefix("there are more: --cursor ").expect(&first.err);
    let next = terminal.run(&["stats", "--limit", "3", "--cursor", cursor]).await;
    assert!(next.out.contains("h00004") && !next.out.contains("h00003"), "{}", next.out);
    let all = terminal.run(&["handlers", "list", "--limit", "10000"]).await;
    assert_eq!((all.out.lines().count(), all.err.as_str()), (2012, ""));
    let zz = all.out.lines().last().unwrap();
    assert!(zz.contains("WORKER/zz") && zz.contains("more targets: `wakeq handlers targets`"), "{zz}");
    let targets = terminal.run(&["handlers", "targets", "zz", "--limit", "11"]).await;
    assert!(targets.err.starts_with("there are more: --cursor g~WORKER~zz~m11"), "{}", targets.err);
    service.stop().await;
}

#[tokio::test]
async fn service_accounts_come_in_pages() {
    let service = Service::start().await;
    service
        .stage
        .execute(
            "insert into wakeq.service_accounts (email, canvas_id, scopes, created_by)
             select 'a' || n || '@p.iam.gserviceaccount.com', c.id::uuid, '{read}', 'tests' from generate_series(1, 5) n,
                    (values (null), ('00000000-0000-0000-0000-000000000000'), ('00000000-0000-0000-0000-000000000707')) c (id)",
        )
        .await;
    let terminal = Terminal::beside(&service);
    for (flag, count) in [(&["--all-canvases"][..], 15), (&[][..], 5)] {
        let (mut seen, mut cursor) = (BTreeSet::new(), None);
        loop {
            let mut words = vec!["accounts", "list", "--limit", "2", "--json"];
            words.extend(flag);
            words.extend(cursor.iter().flat_map(|cursor: &String| ["--cursor", cursor.as_str()]));
            let page: Value = serde_json::from_str(&terminal.run(&words).await.out).unwrap();
            let items = page["items"].as_array().unwrap();
            seen.extend(items.iter().map(|item| format!("{} {}", item["email"], item["canvas"])));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        assert_eq!(seen.len(), count, "{flag:?}: {seen:?}");
    }
    service.stop().await;
}
