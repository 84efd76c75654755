//! The bodies of good requests. A new operation needs a line here.

use serde_json::{Value, json};

/// Operations on entities; the one that sends has a body.
pub(super) const OF_ENTITIES: [&str; 5] =
    ["list_entities", "show_entity", "entity_status", "erase_entity", "send_to_entity"];

const WITHOUT_BODY: &str =
    "livez wake readyz list_events count_events show_event cancel_event run_event_now list_handlers show_handler show_target delete_target
     delete_target_of_modifier unpause_handler depth total_depth list_dead_events list_ended_events count_ended_events list_halted_objects show_object
     list_tombstones list_targets read_log list_queues show_queue delete_queue queue_depth list_facets list_crons show_cron run_cron_now
     unpause_cron delete_cron list_hooks show_hook delete_hook list_batches show_batch close_batch cancel_batch redrive_dead_event unblock_handler
     list_audit list_keys show_key list_quotas show_quota show_facet unset_quota revoke_key listen canvas_counts canvas_statistics handler_statistics list_workers show_worker list_switches
     unpause_canvas unblock_canvas unblock_all show_checkpoint list_operations show_operation cancel_operation list_leases end_lease list_nodes
     list_groups show_group list_group_dead recover_group remove_group show_pull delete_pull list_pulled_handlers list_programs
     last_attempts list_entity_types list_log_categories list_log_streams list_limits show_limit delete_limit list_limit_uses list_operator_limits show_operator_limit delete_operator_limit
     list_operator_limit_uses show_findings list_error_groups show_error_group forget_error";

/// The body of a good request of an operation; `None` if it has no body.
pub(crate) fn body(operation: &str) -> Option<Value> {
    match operation {
        "emit" => Some(json!({"name": "greet", "value": "Ada"})),
        "emit_batch" => Some(json!({"events": [{"name": "greet", "value": "Bo"}]})),
        "pause_handler" | "block_handler" | "pause_canvas" | "block_canvas" | "block_all" => {
            Some(json!({"reason": "maintenance"}))
        }
        "purge_handler" => Some(json!({"dry_run": false})),
        "begin_operation" | "preview_operation" => {
            Some(json!({"kind": "retag", "filter": {"name": "greet"}, "add_tags": ["marked"]}))
        }
        "know_error" => Some(json!({"note": "ticket 17"})),
        "set_event_due" => Some(json!({"delay_s": 0})),
        "set_event_tags" => Some(json!({"tags": ["customer:7"]})),
        "redrive_dead_events" | "delete_dead_events" => Some(json!({"all": true})),
        "put_target" | "put_target_of_modifier" => {
            Some(json!({"url": "https://target.example/events", "headers": {"x-api-key": "of the target"}}))
        }
        "store_checkpoint" => Some(json!({"claim": "0000000100000000", "value": {"page": 7}})),
        "put_hook" => Some(json!({"kind": "github", "handler": {"name": "greet"}})),
        "open_batch" => Some(json!({"on_end": {"name": "greet"}})),
        // It is sent with its signature: `good` makes both.
        "receive_webhook" => Some(json!({})),
        "put_cron" => Some(json!({"expression": "0 0 1 1 *", "value": 2})),
        "put_queue" => Some(json!({"patterns": ["page"]})),
        "lease_copies" => Some(json!({"max": 10})),
        "extend_copy" | "complete_copy" | "release_copy" => Some(json!({"lease": "0".repeat(40)})),
        "put_pull" => Some(json!({"retries": 5})),
        "lease_events" => Some(json!({"max": 10, "worker": "mailer-1"})),
        "extend_event" | "complete_event" | "release_event" => Some(json!({"lease": "0".repeat(40)})),
        "reset_group" => Some(json!({"to": "start"})),
        "redrive_group_dead" => Some(json!({"seq": 1})),
        "set_quota" => Some(json!({"limit": 1000})),
        "put_limit" | "put_operator_limit" => Some(json!({"concurrency": 3})),
        "set_facet" => Some(json!({"weight": 2})),
        "pause_cron" => Some(json!({"reason": "inventory"})),
        "change_object" => {
            Some(json!({"main": {"name": "greet"}, "subevents": [{"name": "greet"}], "state": {"a": 1}}))
        }
        "send_to_entity" => Some(json!({"name": "deposit", "payload": {"cents": 500}})),
        "skip_object" => Some(json!({"name": "greet"})),
        "append_to_log" => {
            let event = json!({"name": "opened", "payload": 1});
            Some(json!({"appends": [{"category": "accounts", "stream": "a", "events": [event]}]}))
        }
        "push" => Some(json!({"message": {"data": ""}})),
        "create_key" => Some(json!({"holder": "somebody", "scopes": ["read"]})),
        bodiless if WITHOUT_BODY.split_whitespace().any(|id| id == bodiless) => None,
        of_entity if OF_ENTITIES.contains(&of_entity) => None,
        other => panic!("say in this file what a good request of the new operation `{other}` sends"),
    }
}
