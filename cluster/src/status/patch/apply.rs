//! Applies a status patch as the API server does, as far as the fields of a pod's status need it.

use k8s_openapi::api::core::v1 as api;
use serde_json::{Map, Value};

/// Returns the pod after the strategic-merge `patch`; `None` if the server would refuse it, because
/// it is for another pod or does not result in a pod.
pub(in crate::status) fn apply(pod: &api::Pod, patch: &Value) -> Option<api::Pod> {
    let mut object = serde_json::to_value(pod).ok()?;
    if object["metadata"]["uid"] != patch["metadata"]["uid"] {
        return None;
    }
    let status = object.as_object_mut()?.entry("status").or_insert_with(|| Map::new().into());
    let status = status.as_object_mut()?;
    for (name, news) in patch["status"].as_object()? {
        let key = match name.as_str() {
            "conditions" => Some("type"),
            "podIPs" | "hostIPs" => Some("ip"),
            _ => None,
        };
        match (key, news) {
            (_, Value::Null) => {
                status.remove(name);
            }
            (Some(key), Value::Array(news)) => {
                let list = status.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(list.as_array_mut()?, news, key);
            }
            _ => {
                status.insert(name.clone(), news.clone());
            }
        }
    }
    serde_json::from_value(object).ok()
}

fn merge_list(list: &mut Vec<Value>, news: &[Value], key: &str) {
    if news.iter().any(|item| item["$patch"] == "replace") {
        list.clear();
    }
    for item in news.iter().filter(|item| item.get("$patch").is_none()) {
        match (list.iter_mut().find(|had| had[key] == item[key]), item) {
            (Some(Value::Object(had)), Value::Object(news)) => {
                for (name, value) in news {
                    if value.is_null() {
                        had.remove(name);
                    } else {
                        had.insert(name.clone(), value.clone());
                    }
                }
            }
            _ => list.push(item.clone()),
        }
    }
}
