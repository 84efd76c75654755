//! The audit log over HTTP: which lines, page by page, and of which canvas.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{NONE, Service};

/// Lines of two tenants and of the platform. The time of each is its number in hours after a day.
const LINES: &str = "
    with lines (n, canvas, actor, action, module, name, event, outcome, detail) as (values
        (1, 'here', 'key:ada', 'pause', 'WORKER', 'mail', null, 'done', 'with wakeq_0123456789ab; down'),
        (2, 'here', 'key:bo', 'cancel', 'WORKER', 'mail', 'aa', 'done', null),
        (3, 'here', 'key:bo', 'purge', 'REPORTS', 'mail', null, 'refused', 'lacks operate'),
        (4, 'here', 'cli:ada', 'create-key', null, null, null, 'done', 'wakeq_0123456789ab for ada: read'),
        (5, 'there', 'key:ada', 'pause', 'WORKER', 'mail', 'aa', 'done', 'with wakeq_0123456789ab; theirs'),
        (6, null, 'key:ada', 'pause', null, null, null, 'done', 'of the platform')
    )
    insert into wakeq.audit_log (at, canvas_id, actor, action, module, name, event_id, outcome, detail)
    select '2020-01-01T00:00:00Z'::timestamptz + n * interval '1 hour',
           case canvas when 'here' then '00000000-0000-0000-0000-000000000000'::uuid
                       when 'there' then '00000000-0000-0000-0000-000000000007'::uuid end,
           actor, action, module, name, lpad(event, 32, '0')::uuid, outcome, detail
      from lines order by n";

/// Of the lines above, as told apart from those that requests of the test leave.
const OLD: &str = "before=2020-01-02T00:00:00Z";

async fn service() -> Service {
    let service = Service::start().await;
    service.stage.execute(LINES).await;
    service
}

fn actions(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|line| line["action"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn lines_are_selected_by_every_condition() {
    let service = service().await;
    for (query, expected) in [
        ("", vec!["create-key", "purge", "cancel", "pause"]),
        ("action=pause", vec!["pause"]),
        ("actor=key:bo", vec!["purge", "cancel"]),
        ("key=wakeq_0123456789ab", vec!["create-key", "pause"]),
        ("key=0123456789ab&actor=key:ada", vec!["pause"]),
        ("name=mail", vec!["purge", "cancel", "pause"]),
        ("name=mail&module=WORKER", vec!["cancel", "pause"]),
        ("module=REPORTS", vec!["purge"]),
        ("event_id=00000000-0000-0000-0000-0000000000aa", vec!["cancel"]),
        ("outcome=refused", vec!["purge"]),
        ("since=2020-01-01T02:00:00Z", vec!["create-key", "purge", "cancel"]),
        ("since=2020-01-01T02:00:00Z&outcome=done", vec!["create-key", "cancel"]),
        ("action=resume", vec![]),
    ] {
        let page = service.admin(Method::GET, &format!("/audit?{OLD}&{query}"), NONE).await.json();
        assert_eq!(actions(&page), expected, "{query}");
        assert_eq!(page["next_cursor"], json!(null), "{query}");
    }
    let until = service.admin(Method::GET, "/audit?before=2020-01-01T03:00:00Z", NONE).await.json();
    assert_eq!(actions(&until), ["cancel", "pause"], "and not at this time");
    service.stop().await;
}

/// Pages go on where the one before ended, also among lines of one moment.
#[tokio::test]
async fn selected_lines_come_page_by_page() {
    let service = service().await;
    let same = "insert into wakeq.audit_log (at, canvas_id, actor, action, outcome)
                select '2019-12-01T00:00:00Z', '00000000-0000-0000-0000-000000000000', 'key:ada',
                       'act-' || n % 2, 'done' from generate_series(1, 9) n";
    service.stage.execute(same).await;
    for query in ["", "&actor=key:ada", "&action=act-1"] {
        let all = service.admin(Method::GET, &format!("/audit?{OLD}{query}"), NONE).await.json();
        let paged = async |cursor: &str| {
            let path = format!("/audit?{OLD}{query}&limit=2{cursor}");
            service.admin(Method::GET, &path, NONE).await.json()
        };
        let (mut lines, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = paged(&cursor).await;
            lines.extend(page["items"].as_array().unwrap().clone());
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(&lines, all["items"].as_array().unwrap(), "{query}");
    }
    service.stop().await;
}

/// A page looks at ten thousand lines, and says where to go on.
#[tokio::test]
async fn a_rare_line_is_found_on_a_later_page() {
    let service = service().await;
    let many = "insert into wakeq.audit_log (at, canvas_id, actor, action, outcome)
                select '2020-01-01T12:00:00Z', '00000000-0000-0000-0000-000000000000', 'key:eve', 'read', 'done'
                  from generate_series(1, 10000) n";
    service.stage.execute(many).await;
    let path = format!("/audit?{OLD}&action=pause");
    let first = service.admin(Method::GET, &path, NONE).await.json();
    assert_eq!((&first["items"], &first["looked_at"]), (&json!([]), &json!(10_000)));
    let path = format!("{path}&cursor={}", first["next_cursor"].as_str().unwrap());
    let second = service.admin(Method::GET, &path, NONE).await.json();
    assert_eq!((actions(&second), &second["next_cursor"]), (vec!["pause"], &json!(null)));
    service.stop().await;
}

/// A tenant sees its own lines, whatever it asks for; those about every canvas are shown to admins
/// of all of them.
#[tokio::test]
async fn no_condition_reaches_another_canvas() {
    let service = service().await;
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    for query in [
        "action=pause",
        "actor=key:ada",
        "key=0123456789ab",
        "name=mail",
        "event_id=00000000-0000-0000-0000-0000000000aa",
        "cursor=a~1577854800000000~99",
    ] {
        let path = format!("/admin/canvases/{OTHER}/audit?{OLD}&{query}");
        let page = service.ask(&theirs, Method::GET, &path, NONE).await.json();
        let details: Vec<_> = page["items"].as_array().unwrap().iter().map(|line| &line["detail"]).collect();
        assert_eq!(details, ["with wakeq_0123456789ab; theirs"], "{query}");
    }
    let elsewhere = format!("/admin/canvases/{}/audit?{OLD}", CanvasId::DEFAULT);
    assert_eq!(service.ask(&theirs, Method::GET, &elsewhere, NONE).await.problem().0, 404);
    let root = service.wide_key("root", &Scope::ALL).await;
    let path = format!("{elsewhere}&action=pause");
    let page = service.ask(&root, Method::GET, &path, NONE).await.json();
    assert_eq!(page["items"][0]["detail"], "of the platform");
    assert_eq!(actions(&page).len(), 2);
    service.stop().await;
}

#[tokio::test]
async fn rejects_invalid_conditions_with_advice() {
    let service = service().await;
    for query in [
        "action=",
        "action=a%00b",
        &format!("action={}", "a".repeat(65)),
        &format!("actor={}", "a".repeat(201)),
        "key=mine",
        "name=a%20b",
        "event_id=7",
        "outcome=maybe",
        "since=yesterday",
        "before=-000001-01-01T00:00:00Z",
        "cursor=e~1",
        "limit=0",
        "by=ada",
    ] {
        let refused = service.admin(Method::GET, &format!("/audit?{query}"), NONE).await;
        assert_eq!(refused.problem(), (400, "bad-request".into()), "{query}");
    }
    service.stop().await;
}
