//! The sources of notices that the node goes away at a certain time.

use std::path::PathBuf;
use std::time::Duration;

use winddown_notices::Cloud;

/// `shutdownNotices`: the sources of notices in addition to the login manager. By default, there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticesConfig {
    /// `file`: an absolute path; a notice is in force while this file exists.
    pub file: Option<PathBuf>,
    /// `cloud`: the cloud whose metadata service is queried.
    pub cloud: Option<Cloud>,
    /// `metadataEndpoint`: `http://HOST[:PORT]`, instead of the cloud's own address.
    pub endpoint: Option<String>,
    /// `pollInterval`: how often a metadata service without long polling is polled; 1 s to 1 h.
    pub poll: Duration,
}

impl Default for NoticesConfig {
    fn default() -> Self {
        Self { file: None, cloud: None, endpoint: None, poll: Duration::from_secs(5) }
    }
}

impl NoticesConfig {
    /// Whether there is a source of notices.
    pub fn is_enabled(&self) -> bool {
        self.file.is_some() || self.cloud.is_some()
    }
}
