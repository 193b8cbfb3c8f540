//! Who may give notice that the node ends at a certain time.

use std::path::PathBuf;
use std::time::Duration;

use winddown_notices::Cloud;

use super::read::{HOUR, absolute, interval};
use winddown_yaml::{Fields, Located, Problem};

const KEY: &str = "shutdownNotices";

/// `shutdownNotices`: whom the agent listens to beside the login manager. Nobody, unless set.
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

// === impl NoticesConfig ===

impl Default for NoticesConfig {
    fn default() -> Self {
        Self { file: None, cloud: None, endpoint: None, poll: Duration::from_secs(5) }
    }
}

impl NoticesConfig {
    /// Whether anybody is listened to.
    pub fn is_enabled(&self) -> bool {
        self.file.is_some() || self.cloud.is_some()
    }

    pub(super) fn read(fields: &mut Fields<'_, '_>, warnings: &mut Vec<Problem>) -> Self {
        let notices = fields.below(KEY, |fields| {
            let file = fields.text("file").map(|text| absolute(fields, "file", &text));
            let cloud = cloud(fields);
            let endpoint = endpoint(fields);
            if let (None, Some(Located { at, .. })) = (cloud, &endpoint) {
                let what = "has no cloud to go with, and no effect";
                warnings.push(Problem::new(*at, "shutdownNotices.metadataEndpoint", what));
            }
            let endpoint = endpoint.map(|given| given.value);
            let poll = interval(fields, "pollInterval", HOUR).unwrap_or(Self::default().poll);
            Some(Self { file, cloud, endpoint, poll })
        });
        notices.unwrap_or_default()
    }
}

fn cloud(fields: &mut Fields<'_, '_>) -> Option<Cloud> {
    let Located { value, at } = fields.text("cloud")?;
    match value {
        "none" => None,
        "aws" => Some(Cloud::Aws),
        "azure" => Some(Cloud::Azure),
        "gcp" => Some(Cloud::Gcp),
        other => {
            fields.fail(
                "cloud",
                at,
                format!("`{other}` is unknown: write aws, azure, gcp or none"),
            );
            None
        }
    }
}

fn endpoint(fields: &mut Fields<'_, '_>) -> Option<Located<String>> {
    const FIELD: &str = "metadataEndpoint";
    let Located { value, at } = fields.text(FIELD)?;
    let authority =
        value.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let valid = |b: u8| b.is_ascii_alphanumeric() || b".-:[]".contains(&b);
    match authority {
        Some(authority) if !authority.is_empty() && authority.bytes().all(valid) => {
            Some(Located { value: format!("http://{authority}"), at })
        }
        _ => {
            let what = format!(
                "`{value}` is no address of a metadata service: write http://HOST or \
                 http://HOST:PORT, without a path"
            );
            fields.fail(FIELD, at, what);
            None
        }
    }
}
