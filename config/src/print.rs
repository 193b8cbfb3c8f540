//! A [`Config`] as the YAML that gives it, and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{API_VERSION, Config, KIND, ShutdownPeriods, shutdown::go};

impl Config {
    /// The configuration in effect, as YAML that reads back to it.
    pub fn to_yaml(&self) -> String {
        let mut yaml = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
        for (key, value) in self.entries() {
            write_entry(&mut yaml, key, &value);
        }
        yaml
    }

    /// The configuration in effect, as the JSON of [`to_yaml`](Self::to_yaml).
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("apiVersion".to_owned(), json!(API_VERSION));
        object.insert("kind".to_owned(), json!(KIND));
        object.extend(self.entries().into_iter().map(|(key, value)| (key.to_owned(), value)));
        Value::Object(object)
    }

    /// Field and value of everything that is set, in the order of the reference.
    pub(super) fn entries(&self) -> Vec<(&'static str, Value)> {
        let path = |path: &std::path::Path| json!(path.to_string_lossy());
        let mut entries =
            vec![("mode", json!(self.mode.as_str())), ("runtime", json!(self.runtime.as_str()))];
        entries.extend(self.node_name.as_ref().map(|name| ("nodeName", json!(name))));
        entries.extend([
            ("staticPodPath", self.static_pod_path.as_deref().map_or(json!(""), path)),
            ("fileCheckFrequency", json!(go(self.file_check_frequency))),
        ]);
        entries.extend(self.shutdown_entries());
        entries.push(("shutdownNotices", self.notices_entry()));
        entries.push(("reportsKept", json!(self.reports_kept)));
        let eviction = &self.eviction;
        entries.push(("evictionHard", json!(eviction.hard)));
        if !eviction.soft.is_empty() {
            entries.push(("evictionSoft", json!(eviction.soft)));
        }
        if !eviction.soft_grace_period.is_empty() {
            let graces = eviction.soft_grace_period.iter().map(|(k, v)| (k.clone(), json!(go(*v))));
            entries.push(("evictionSoftGracePeriod", Value::Object(graces.collect())));
        }
        if !eviction.minimum_reclaim.is_empty() {
            entries.push(("evictionMinimumReclaim", json!(eviction.minimum_reclaim)));
        }
        entries.extend([
            ("evictionPressureTransitionPeriod", json!(go(eviction.pressure_transition_period))),
            ("evictionMaxPodGracePeriod", json!(eviction.max_pod_grace_period)),
        ]);
        entries.extend(eviction.entries_beyond());
        entries.extend([("containerRuntimeEndpoint", json!(self.container_runtime_endpoint))]);
        for (key, map) in [
            ("systemReserved", &self.system_reserved),
            ("kubeReserved", &self.kube_reserved),
            ("extendedResources", &self.extended_resources),
            ("nodeLabels", &self.node_labels),
        ] {
            if !map.is_empty() {
                entries.push((key, json!(map)));
            }
        }
        entries.extend([
            ("maxPods", json!(self.max_pods)),
            ("preemptionStrategy", json!(self.preemption_strategy.as_str())),
            ("nodeStatusUpdateFrequency", json!(go(self.node_status_update_frequency))),
        ]);
        entries.extend(self.cluster.entries());
        entries.extend(self.companion.entries());
        entries.extend([
            ("resolvConf", path(&self.resolv_conf)),
            ("podLogsDir", path(&self.pod_logs_dir)),
            ("containerLogMaxSize", json!(size(self.container_log_max_size))),
            ("containerLogMaxFiles", json!(self.container_log_max_files)),
            ("stateDirectory", path(&self.state_directory)),
            ("controlSocket", path(&self.control_socket)),
        ]);
        entries
            .extend(self.control_socket_group.as_ref().map(|g| ("controlSocketGroup", json!(g))));
        entries.extend(self.metrics_address.map(|a| ("metricsAddress", json!(a.to_string()))));
        entries
    }

    fn notices_entry(&self) -> Value {
        let notices = &self.notices;
        let mut entry = Map::new();
        if let Some(file) = &notices.file {
            entry.insert("file".to_owned(), json!(file.to_string_lossy()));
        }
        let cloud = notices.cloud.map_or("none", winddown_notices::Cloud::as_str);
        entry.insert("cloud".to_owned(), json!(cloud));
        if let Some(endpoint) = &notices.endpoint {
            entry.insert("metadataEndpoint".to_owned(), json!(endpoint));
        }
        entry.insert("pollInterval".to_owned(), json!(go(notices.poll)));
        Value::Object(entry)
    }

    fn shutdown_entries(&self) -> Vec<(&'static str, Value)> {
        let shutdown = &self.shutdown;
        let mut entries = match &shutdown.periods {
            ShutdownPeriods::Total { total, critical } => vec![
                ("shutdownGracePeriod", json!(go(*total))),
                ("shutdownGracePeriodCriticalPods", json!(go(*critical))),
            ],
            ShutdownPeriods::ByPriority(groups) => {
                let group = |g: &super::PriorityPeriod| json!({"priority": g.priority, "shutdownGracePeriodSeconds": g.period.as_secs()});
                let groups = groups.iter().map(group).collect();
                vec![("shutdownGracePeriodByPodPriority", Value::Array(groups))]
            }
        };
        entries.extend([
            ("shutdownOrder", json!(shutdown.order.as_str())),
            ("shutdownEndpointDrainPeriod", json!(go(shutdown.endpoint_drain))),
            ("shutdownReserve", json!(go(shutdown.reserve))),
        ]);
        entries
    }
}

fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    match UNITS.iter().find(|(unit, _)| bytes.is_multiple_of(*unit) && bytes > 0) {
        Some((unit, suffix)) => format!("{}{suffix}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// One field in block style, at most two levels deep, which is all there is.
pub(super) fn write_entry(yaml: &mut String, key: &str, value: &Value) {
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Object(map) if map.is_empty() => writeln!(yaml, "{key}: {{}}"),
        Value::Object(map) => {
            let _ = writeln!(yaml, "{key}:");
            map.iter().try_for_each(|(k, v)| writeln!(yaml, "  {k}: {}", scalar(v)))
        }
        Value::Array(items) => {
            let _ = writeln!(yaml, "{key}:");
            items.iter().try_for_each(|item| {
                let entries = item.as_object().into_iter().flatten();
                entries.enumerate().try_for_each(|(n, (k, v))| {
                    let lead = if n == 0 { "  - " } else { "    " };
                    writeln!(yaml, "{lead}{k}: {}", scalar(v))
                })
            })
        }
        scalar_value => writeln!(yaml, "{key}: {}", scalar(scalar_value)),
    };
}

pub(super) fn scalar(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/.-_%:".contains(&b);
    // What YAML would take for a number, a bool or null has to be in quotes.
    let starts_as_text = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let duration_like =
        text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(['s', 'm', 'h', 'i', '%']);
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
    );
    match text.bytes().all(plain)
        && (starts_as_text || duration_like)
        && !word
        && !text.ends_with(':')
    {
        true => text.clone(),
        false => value.to_string(),
    }
}
