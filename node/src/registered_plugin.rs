//! The list of a node's third-party plug-ins, and what is refused in it.

use winddown_shared::{KillReason, PluginMetric, PluginName};

/// Prefixes of the node's own metrics.
const OURS: [&str; 3] = ["kubelet_", "winddown_", "process_"];

/// Suffixes that the exposition format adds or reserves.
const ADDED: [&str; 6] = ["_total", "_bucket", "_count", "_sum", "_created", "_info"];

/// The node's own reasons to terminate a pod. Each has a name where a plug-in has its own.
pub(crate) const OWN_REASONS: [KillReason; 6] = [
    KillReason::Shutdown,
    KillReason::Preemption,
    KillReason::Eviction,
    KillReason::Drain,
    KillReason::Operator,
    KillReason::Removed,
];

/// A third-party plug-in in the list of a node.
#[derive(Clone, Debug)]
pub struct RegisteredPlugin {
    /// Its name.
    pub name: PluginName,
    /// Its metrics.
    pub metrics: Vec<PluginMetric>,
}

/// Why a node cannot start with a list of plug-ins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// Two plug-ins have the same name.
    #[error("two plug-ins are called {name}; give one of them another name")]
    NameTaken {
        /// The name.
        name: PluginName,
    },
    /// Its requests to terminate a pod could not be told from those of the node's own controllers.
    #[error(
        "a plug-in is called {name}, as a reason of the node's own to terminate a pod; give it another name"
    )]
    NameOfNode {
        /// The name.
        name: PluginName,
    },
    /// The name of a metric is invalid, or could be one of the node's own.
    #[error(
        "the plug-in {plugin} has a metric {metric:?}; call it {}_ and then lower-case letters, digits and \
         underscores, without an ending that is added ({})", prefix(*plugin), ADDED.join(", ")
    )]
    MetricName {
        /// The plug-in.
        plugin: PluginName,
        /// The name.
        metric: &'static str,
    },
    /// The names of the plug-in's metrics would look like those of the node.
    #[error("metrics of the plug-in {plugin} would look like the node's own; give it another name")]
    MetricOfNode {
        /// The plug-in.
        plugin: PluginName,
    },
    /// Two metrics have the same name.
    #[error(
        "the metric {metric:?} of the plug-in {plugin} is there twice; give one of them another name"
    )]
    MetricTaken {
        /// The plug-in of the second one.
        plugin: PluginName,
        /// The name.
        metric: &'static str,
    },
}

impl RegisteredPlugin {
    /// Checks that these can be plug-ins of one node: their names, and those of their metrics.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(plugins: &[Self]) -> Result<(), PluginError> {
        let mut taken = std::collections::HashSet::new();
        for (at, Self { name, metrics }) in plugins.iter().enumerate() {
            if plugins[..at].iter().any(|other| other.name == *name) {
                return Err(PluginError::NameTaken { name: *name });
            }
            if OWN_REASONS.iter().any(|own| own.as_str() == name.as_str()) {
                return Err(PluginError::NameOfNode { name: *name });
            }
            for metric in metrics {
                check_metric(metric, *name)?;
                if !taken.insert(metric.name()) {
                    let (plugin, metric) = (*name, metric.name());
                    return Err(PluginError::MetricTaken { plugin, metric });
                }
            }
        }
        Ok(())
    }
}

fn check_metric(metric: &PluginMetric, plugin: PluginName) -> Result<(), PluginError> {
    let prefix = format!("{}_", prefix(plugin));
    if OURS.iter().any(|ours| prefix.starts_with(ours)) {
        return Err(PluginError::MetricOfNode { plugin });
    }
    let name = metric.name();
    let rest = name.strip_prefix(&prefix).unwrap_or_default();
    if !is_word(rest) || ADDED.iter().any(|added| name.ends_with(added)) {
        return Err(PluginError::MetricName { plugin, metric: name });
    }
    Ok(())
}

fn prefix(plugin: PluginName) -> String {
    plugin.as_str().replace('-', "_")
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests;
