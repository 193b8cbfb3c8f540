//! What the API server makes of a status patch, as far as the fields of a pod's status need it.

use k8s_openapi::api::core::v1 as api;
use serde_json::{Map, Value};

/// The pod after the strategic-merge `patch`.
pub(in crate::status) fn apply(pod: &api::Pod, patch: &Value) -> api::Pod {
    let mut object = serde_json::to_value(pod).unwrap();
    assert_eq!(object["metadata"]["uid"], patch["metadata"]["uid"]);
    let status =
        object.as_object_mut().unwrap().entry("status").or_insert_with(|| Map::new().into());
    let status = status.as_object_mut().unwrap();
    for (name, news) in patch["status"].as_object().unwrap() {
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
                merge_list(list.as_array_mut().unwrap(), news, key);
            }
            _ => {
                status.insert(name.clone(), news.clone());
            }
        }
    }
    serde_json::from_value(object).unwrap()
}

fn merge_list(list: &mut Vec<Value>, news: &[Value], key: &str) {
    if news.iter().any(|item| item["$patch"] == "replace") {
        list.clear();
    }
    for item in news.iter().filter(|item| item.get("$patch").is_none()) {
        match list.iter_mut().find(|had| had[key] == item[key]) {
            Some(Value::Object(had)) => {
                for (name, value) in item.as_object().unwrap() {
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
