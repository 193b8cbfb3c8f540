//! Prints a [`Config`] as YAML and as JSON.

use serde_json::{Map, Value, json};

use super::emit::write_entry;
use super::{API_VERSION, Config, KIND, reference};

impl Config {
    /// Returns the configuration as YAML that parses back to it.
    pub fn to_yaml(&self) -> String {
        let mut yaml = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
        for (key, value) in reference::entries(self) {
            write_entry(&mut yaml, key, &value);
        }
        yaml
    }

    /// Returns the configuration as JSON, with the content of [`to_yaml`](Self::to_yaml).
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("apiVersion".to_owned(), json!(API_VERSION));
        object.insert("kind".to_owned(), json!(KIND));
        object.extend(
            reference::entries(self).into_iter().map(|(key, value)| (key.to_owned(), value)),
        );
        Value::Object(object)
    }
}
