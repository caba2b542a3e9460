//! What is known of a sandbox as JSON, for programs and for reading in full.

use osb_runtime::Inspection;
use osb_store::HistoryEntry;
use serde_json::{Map, Value, json};

use crate::sandbox::Record;

/// Describes a sandbox that exists.
pub(super) fn of_record(record: &Record, container: Option<&Inspection>) -> Value {
    json!({
        "sandbox": record.sandbox,
        "resourceLimits": record.facts.origin.resources,
        "stages": record.facts.stages.iter()
            .map(|it| json!({ "stage": it.stage.as_str(), "at": it.at }))
            .collect::<Vec<_>>(),
        "container": container.map(of_container),
    })
}

/// Describes a create that failed, or a sandbox that vanished.
pub(super) fn of_history(entry: &HistoryEntry) -> Value {
    json!({
        "id": entry.id,
        "image": entry.image,
        "createdAt": entry.created_at,
        "endedAt": entry.ended_at,
        "reason": entry.reason,
        "message": entry.message,
        "stages": entry.stages.iter()
            .map(|it| json!({ "stage": it.stage, "at": it.at }))
            .collect::<Vec<_>>(),
        "metadata": entry.spec.metadata,
        "entrypoint": entry.spec.entrypoint,
        "resourceLimits": entry.spec.resources,
        "expiresAt": entry.spec.expires_at,
        "container": null,
    })
}

fn of_container(container: &Inspection) -> Value {
    let pairs = |pairs: &[(String, String)]| -> Map<String, Value> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect()
    };
    let ports = container.ports.iter();
    let ports: Map<String, Value> = ports
        .map(|(inside, published)| (inside.clone(), json!(published)))
        .collect();
    json!({
        "id": container.container,
        "name": container.name,
        "image": container.image,
        "runtime": container.oci_runtime,
        "state": {
            "status": container.status,
            "running": container.is_running,
            "paused": container.is_paused,
            "oomKilled": container.out_of_memory,
            "exitCode": container.exit_code,
            "error": container.error,
            "restarts": container.restarts,
            "createdAt": container.created,
            "startedAt": container.started,
            "finishedAt": container.finished,
        },
        "limits": {
            "nanoCpus": container.nano_cpus,
            "memoryBytes": container.memory_bytes,
            "pids": container.pids,
        },
        "networks": pairs(&container.networks),
        "ports": ports,
        "labels": container.labels,
        "environmentNames": container.environment,
        "healthChecks": container.health_checks.iter()
            .map(|check| json!({
                "at": check.at,
                "exitCode": check.exit_code,
                "output": check.output,
            }))
            .collect::<Vec<_>>(),
    })
}

/// Changes every text of a value.
pub(super) fn each_text(value: &mut Value, change: &impl Fn(String) -> String) {
    match value {
        Value::String(text) => *text = change(std::mem::take(text)),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(members) => {
            members
                .values_mut()
                .for_each(|member| each_text(member, change));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_changed_at_every_depth() {
        let mut value = json!({ "a": ["x secret", { "b": "secret" }], "n": 1 });
        each_text(&mut value, &|text| text.replace("secret", "***"));
        assert_eq!(value, json!({ "a": ["x ***", { "b": "***" }], "n": 1 }));
    }

    #[test]
    fn of_variables_only_the_names_are_there() {
        let container = Inspection {
            environment: vec!["PATH".to_owned()],
            ports: vec![("44772/tcp".to_owned(), None)],
            oci_runtime: Some("runsc".to_owned()),
            ..Inspection::default()
        };
        let value = of_container(&container);
        assert_eq!(value["environmentNames"], json!(["PATH"]));
        assert_eq!(value["ports"], json!({ "44772/tcp": null }));
        assert_eq!(value["runtime"], "runsc");
    }
}
