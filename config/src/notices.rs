//! Who may give notice that the node ends at a certain time.

use std::path::PathBuf;
use std::time::Duration;

use winddown_notices::Cloud;

/// `shutdownNotices`: who may give notice beside the login manager. No one, unless set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticesConfig {
    /// `file`: a notice is in force while this file is there. Absolute.
    pub file: Option<PathBuf>,
    /// `cloud`: whose metadata service is asked.
    pub cloud: Option<Cloud>,
    /// `metadataEndpoint`: `http://HOST[:PORT]` in place of the cloud's own address.
    pub endpoint: Option<String>,
    /// `pollInterval`: how often a metadata service that does not tell by itself is asked. 1 s to
    /// 1 h.
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
