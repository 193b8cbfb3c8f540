//! The sources of notices that the node goes away at a certain time.

use std::path::PathBuf;
use std::time::Duration;

use winddown_notices::Cloud;

use crate::Trust;
use crate::reference::{ValueKind, Word, options, part};

options! {
    /// `shutdownNotices`: the sources of notices in addition to the login manager. By default, there are none.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NoticesConfig {
        /// Whose metadata service is asked: `aws` (spot interruption, maintenance), `azure` (scheduled events), `gcp`
        /// (preemption, maintenance) or `none`.
        cloud: Option<Cloud> = None => part("cloud");
        /// How often it is asked.
        // For a metadata service without long polling.
        poll: Duration = Duration::from_secs(5)
            => part("pollInterval").kind(ValueKind::INTERVAL).zero_is_unset();
        /// Replaces the service's own address.
        endpoint: Option<String> = None
            => part("metadataEndpoint")
                .text("^http://[-A-Za-z0-9.:\\[\\]]+/?$")
                .check(metadata_endpoint)
                .example("http://169.254.169.254");
        /// Gives notice while it is there: it holds how long the node has (90s) or until when (2026-01-31T12:00:00Z).
        file: Option<PathBuf> = None
            => part("file")
                .kind(ValueKind::PATH)
                .trusted(Trust::Nothing)
                .example("/run/winddown/notice");
    }
}

impl Word for Cloud {
    const ALL: &'static [(&'static str, Self)] = &[
        (Self::Aws.as_str(), Self::Aws),
        (Self::Azure.as_str(), Self::Azure),
        (Self::Gcp.as_str(), Self::Gcp),
    ];
}

impl NoticesConfig {
    /// Whether there is a source of notices.
    pub fn is_enabled(&self) -> bool {
        self.file.is_some() || self.cloud.is_some()
    }
}

fn metadata_endpoint(_: &str, text: &str) -> Option<String> {
    let valid = |b: u8| b.is_ascii_alphanumeric() || b".-:[]".contains(&b);
    let host = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let valid = host.is_some_and(|host| !host.is_empty() && host.bytes().all(valid));
    (!valid).then(|| {
        format!(
            "`{text}` is no address of a metadata service: write http://HOST or http://HOST:PORT, \
             without a path"
        )
    })
}
