//! The program that a node is part of.

use std::borrow::Cow;
use std::sync::Arc;

use winddown_shared::PluginMetric;

use crate::registered_plugin::{PluginError, RegisteredPlugin};

/// The prefix of the metrics' names in this crate's sources.
const OURS: &str = "winddown_";

/// The name and the version of the program that a node is part of. Whatever shows the node names them: its status, its
/// metrics, its lock, its Events and its requests to an API server.
///
/// The default is winddown.
///
/// ```
/// use winddown_node::Product;
///
/// let product = Product::new("my-agent", env!("CARGO_PKG_VERSION"));
/// assert_eq!(product.metric("winddown_protected"), "my_agent_protected");
/// assert_eq!(product.metric("kubelet_active_pods"), "kubelet_active_pods");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    name: Arc<str>,
    version: Arc<str>,
    /// The prefix of its metrics.
    prefix: Arc<str>,
}

impl Product {
    /// The program of this name and version. Its metrics begin with the name, with `_` for what they cannot have.
    pub fn new(name: impl Into<Arc<str>>, version: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let mut prefix: String = name.chars().map(letter).collect();
        if prefix.starts_with(|c: char| c.is_ascii_digit()) {
            prefix.insert(0, '_');
        }
        prefix.push('_');
        Self { prefix: prefix.into(), name, version: version.into() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The name and the version, as the user agent of HTTP requests.
    pub fn user_agent(&self) -> String {
        format!("{}/{}", self.name, self.version)
    }

    /// The name and the version, for the user agents of probes and hooks (`kube-probe/NAME-VERSION`, `kube-lifecycle/NAME-VERSION`).
    #[must_use]
    pub(crate) fn program(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// Checks that no metric of a plug-in could be one of its own.
    ///
    /// # Errors
    /// The first plug-in with such a metric.
    pub(crate) fn check(&self, plugins: &[RegisteredPlugin]) -> Result<(), PluginError> {
        let is_ours = |metric: &PluginMetric| metric.name().starts_with(&*self.prefix);
        match plugins.iter().find(|plugin| plugin.metrics.iter().any(is_ours)) {
            Some(plugin) => Err(PluginError::MetricOfNode { plugin: plugin.name }),
            None => Ok(()),
        }
    }

    /// The name of a metric that winddown documents, in this program: those of the kubelet keep theirs.
    pub fn metric<'a>(&self, documented: &'a str) -> Cow<'a, str> {
        match documented.strip_prefix(OURS) {
            Some(rest) if &*self.prefix != OURS => format!("{}{rest}", self.prefix).into(),
            _ => documented.into(),
        }
    }
}

impl Default for Product {
    fn default() -> Self {
        Self::new("winddown", env!("CARGO_PKG_VERSION"))
    }
}
