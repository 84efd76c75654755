//! The REST form of every method, as stated by the protos' `google.api.http` annotations, written
//! as a table in Rust.

use std::fmt::Write;

use anyhow::Context;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, Value};

const VERBS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

/// Writes the table, with a line for every binding of a method.
pub(crate) fn table(pool: &DescriptorPool) -> anyhow::Result<String> {
    let http = pool.get_extension_by_name("google.api.http").context("google.api.http")?;
    let mut text = String::from(
        "use super::Route;\n\n/// Every REST form of every method.\npub const ROUTES: &[Route] = &[\n",
    );
    for service in pool.services() {
        for method in service.methods() {
            let options = method.options();
            let rule = options.get_extension(&http);
            let rule = rule.as_message().context("the rule is a message")?;
            write_rule(&mut text, &method, rule)?;
            for more in repeated(rule, "additional_bindings") {
                write_rule(&mut text, &method, &more)?;
            }
        }
    }
    text.push_str("];\n");
    Ok(text)
}

fn repeated(rule: &DynamicMessage, field: &str) -> Vec<DynamicMessage> {
    let value = rule.get_field_by_name(field);
    let list = value.as_deref().and_then(Value::as_list).unwrap_or_default();
    list.iter().filter_map(Value::as_message).cloned().collect()
}

fn text_of(rule: &DynamicMessage, field: &str) -> String {
    rule.get_field_by_name(field).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn write_rule(text: &mut String, method: &MethodDescriptor, rule: &DynamicMessage) -> anyhow::Result<()> {
    for verb in VERBS {
        let template = text_of(rule, verb);
        if template.is_empty() {
            continue;
        }
        writeln!(
            text,
            "    Route {{ verb: {:?}, template: {template:?}, body: {:?}, method: {:?} }},",
            verb.to_uppercase(),
            text_of(rule, "body"),
            format!("{}/{}", method.parent_service().full_name(), method.name()),
        )?;
    }
    Ok(())
}
