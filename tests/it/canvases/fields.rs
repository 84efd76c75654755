//! Which part of a request names something, and what of a tenant it may name. A new parameter or
//! field needs a line here.

use serde_json::{Value, json};

use super::seed::Values;
use super::world::QUEUE;

/// Query parameters and fields of bodies that name nothing of a tenant.
const NAMES_NOTHING: [&str; 95] = [
    // Content that is stored as the caller sends it.
    "value",
    "result",
    "payload",
    "metadata",
    "state",
    "data",
    "reason",
    "note",
    "url",
    "headers",
    "audience",
    "expression",
    "zone",
    "missed",
    // Amounts and time ranges.
    "limit",
    "delay_s",
    "delay_until",
    "emitted_since",
    "emitted_before",
    "due_since",
    "due_before",
    "died_since",
    "died_before",
    "since",
    "from",
    "before",
    "until",
    "for_s",
    "step_s",
    "lifetime_s",
    "retries",
    "factor",
    "delay_max_s",
    "timeout_s",
    "delays_s",
    "not_after",
    "concurrency",
    "weight",
    "in_flight_max",
    "count",
    "period_s",
    "burst",
    "waiting_max",
    "on_death",
    "halts",
    "expect",
    "remember_s",
    "postpone_s",
    "at_most_s",
    "keep_s",
    "completed",
    "failed",
    "cancelled",
    // Modes.
    "action",
    "known",
    "order",
    "on_conflict",
    "on_full",
    "outcome",
    "view",
    "all",
    "count_up_to",
    "look_up_to",
    "states",
    "add_tags",
    "remove_tags",
    "dry_run",
    "error_text",
    "value_text",
    "result_text",
    "only_queues",
    "urgent",
    "running",
    "waiting",
    "scopes",
    "rotate_secret",
    "drop_previous_secret",
    "kind",
    "to",
    "policy",
    // A secret that the caller chooses signs the caller's deliveries, and is never looked up.
    "secret",
    // The claim of an attempt, which counts only for the event that the path names.
    "claim",
    // Fields of a queue or a group, which belong to the platform.
    "source",
    "tenant_visible",
    "patterns",
    "target",
    "pull",
    // Fields of a copy in a queue, which belongs to the queue.
    "lease",
    "lease_s",
    "max",
    "wait_s",
    "error",
    "retry_s",
    "dead",
    // Of a worker, which works for every canvas.
    "instance",
];

/// The values for a part of a path.
pub(super) fn of_path(part: &str, values: &Values) -> Vec<Vec<(&'static str, String)>> {
    let single = |name: &'static str, all: &[String]| {
        all.iter().map(|value| vec![(name, value.clone())]).collect::<Vec<_>>()
    };
    match part {
        "id" => values.ids.iter().map(|(_, id)| vec![("id", id.clone())]).collect(),
        "module" => {
            let parts = |[module, name, modifier]: &[String; 3]| {
                vec![("module", module.clone()), ("name", name.clone()), ("modifier", modifier.clone())]
            };
            values.handlers.iter().map(parts).collect()
        }
        "type" => {
            let parts = |[kind, id]: &[String; 2]| vec![("type", kind.clone()), ("entity", id.clone())];
            values.entities.iter().map(parts).collect()
        }
        "cron" => single("cron", &values.crons),
        "hook" => single("hook", &values.hooks),
        "batch" => single("batch", &values.batches),
        "object" => single("object", &values.objects),
        "key" => single("key", &values.keys),
        "limit" => single("limit", &values.limits),
        "queue" => vec![vec![("queue", QUEUE.to_owned())]],
        "error_group" => single("error_group", &values.error_groups),
        "operation" => operations(values).map(|operation| vec![("operation", operation)]).into(),
        "quota" => vec![vec![("quota", "events".to_owned())]],
        "group" => vec![vec![("group", "projection".to_owned())]],
        "worker" => vec![vec![("worker", format!("worker-{}", &values.canvas[..8]))]],
        other => panic!(
            "no victim value known for the parameter `{other}` of a path: say in this file what it names"
        ),
    }
}

/// The operations of a canvas, as its seed has them: one that has ended, and an open one.
fn operations(values: &Values) -> [String; 2] {
    ["0000a001", "0000a002"].map(|start| format!("{start}{}", &values.canvas[8..]))
}

/// The values for a query parameter, together with the parameters that it requires; empty if it
/// names nothing.
pub(super) fn of_query(operation: &str, name: &str, values: &Values) -> Vec<Vec<(&'static str, String)>> {
    match name {
        "cursor" => {
            let own = values.cursors.iter().filter(|(listing, _)| listing == operation);
            let own: Vec<_> = own.map(|(_, cursor)| vec![("cursor", cursor.clone())]).collect();
            assert!(!own.is_empty(), "no victim value known for the cursor of `{operation}`");
            if operation == "list_log_streams" {
                let category = ("category", "accounts".to_owned());
                return own.into_iter().map(|cursor| [vec![category.clone()], cursor].concat()).collect();
            }
            own
        }
        // It is sent with the name.
        "module" => vec![],
        "name" => {
            let both =
                |[module, name, _]: &[String; 3]| vec![("module", module.clone()), ("name", name.clone())];
            values.handlers.iter().map(both).collect()
        }
        "category" => {
            values.streams.iter().map(|[category, _]| vec![("category", category.clone())]).collect()
        }
        "stream" => {
            let both = |[category, stream]: &[String; 2]| {
                vec![("category", category.clone()), ("stream", stream.clone())]
            };
            values.streams.iter().map(both).collect()
        }
        "after" => values.seqs.iter().map(|seq| vec![("after", seq.clone())]).collect(),
        "state" => {
            ["waiting", "delayed", "paused", "running"].map(|state| vec![("state", state.to_owned())]).into()
        }
        "id" => values.ids.iter().map(|(_, id)| vec![("id", id.clone())]).collect(),
        "event_id" => values.ids.iter().map(|(_, id)| vec![("event_id", id.clone())]).collect(),
        "key" => values.keys.iter().map(|key| vec![("key", key.clone())]).collect(),
        "actor" => values.holders.iter().map(|of| vec![("actor", format!("key:{of}"))]).collect(),
        "tag" => values.tags.iter().map(|tag| vec![("tag", tag.clone())]).collect(),
        "object" => values.objects.iter().map(|object| vec![("object", object.clone())]).collect(),
        "batch" => values.batches.iter().map(|batch| vec![("batch", batch.clone())]).collect(),
        "error_group" => {
            values.error_groups.iter().map(|group| vec![("error_group", group.clone())]).collect()
        }
        "modifier" => {
            values.handlers.iter().map(|[_, _, modifier]| vec![("modifier", modifier.clone())]).collect()
        }
        "queue" => vec![vec![("queue", QUEUE.to_owned())]],
        "worker" => vec![vec![("worker", format!("worker-{}", &values.canvas[..8]))]],
        "waits_for" => values.limit_keys.iter().map(|key| vec![("waits_for", key.clone())]).collect(),
        "view" => vec![vec![("view", "full".to_owned())]],
        other if NAMES_NOTHING.contains(&other) => vec![],
        other => panic!(
            "no victim value known for the query parameter `{other}` of `{operation}`: say in this file what it names"
        ),
    }
}

/// The values for a field of a body, as fields with values; empty if it names nothing.
pub(super) fn of_body(operation: &str, pointer: &str, values: &Values) -> Vec<Vec<(&'static str, Value)>> {
    let field = pointer.rsplit('/').next().unwrap_or_default();
    let texts =
        |name: &'static str, all: &[String]| all.iter().map(|text| vec![(name, json!(text))]).collect();
    match (field, operation) {
        ("id", _) => values.ids.iter().map(|(_, id)| vec![("id", json!(id))]).collect(),
        ("correlation_id", _) => {
            values.ids.iter().map(|(_, id)| vec![("correlation_id", json!(id))]).collect()
        }
        ("seq", _) => {
            let number = |seq: &String| vec![("seq", json!(seq.parse::<i64>().unwrap()))];
            values.seqs.iter().map(number).collect()
        }
        ("name", "send_to_entity") if pointer.contains("/reply_to/") => {
            let parts =
                |[module, name, _]: &[String; 3]| vec![("module", json!(module)), ("name", json!(name))];
            values.handlers.iter().map(parts).collect()
        }
        // The kind of an event of a stream or an entity.
        ("name", "append_to_log" | "send_to_entity") => vec![],
        // They are sent with the name, if there is one.
        ("module" | "modifier", operation) if operation != "put_cron" => vec![],
        ("name" | "modifier", _) => {
            let parts = |[module, name, modifier]: &[String; 3]| match operation {
                "put_cron" => vec![("modifier", json!(modifier))],
                "emit" | "emit_batch" | "change_object" => {
                    vec![("module", json!(module)), ("name", json!(name)), ("modifier", json!(modifier))]
                }
                _ => vec![("module", json!(module)), ("name", json!(name))],
            };
            values.handlers.iter().map(parts).collect()
        }
        ("key", "emit" | "emit_batch" | "change_object") => texts("key", &values.unique_keys),
        ("batch", _) => texts("batch", &values.batches),
        ("object", "change_object") => vec![],
        ("object", _) => texts("object", &values.objects),
        ("category" | "stream", _) => {
            let both = |[category, stream]: &[String; 2]| {
                vec![("category", json!(category)), ("stream", json!(stream))]
            };
            values.streams.iter().map(both).collect()
        }
        ("holder", _) => texts("holder", &values.holders),
        ("worker", _) => vec![vec![("worker", json!(format!("worker-{}", &values.canvas[..8])))]],
        ("waits_for", _) => texts("waits_for", &values.limit_keys),
        ("limits", _) => values.limit_keys.iter().map(|key| vec![("limits", json!([key]))]).collect(),
        ("ids", _) => values.ids.iter().map(|(_, id)| vec![("ids", json!([id]))]).collect(),
        ("error_group", _) => texts("error_group", &values.error_groups),
        ("tags", _) => values.tags.iter().map(|tag| vec![("tags", json!([tag]))]).collect(),
        (other, _) if NAMES_NOTHING.contains(&other) => vec![],
        (other, _) => panic!(
            "no victim value known for the field `{other}` of `{operation}`: say in this file what it names"
        ),
    }
}
