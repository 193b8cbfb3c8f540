//! How pods are ended that a kubelet runs.

use std::time::Duration;

use serde_json::{Value as Json, json};
use winddown_companion::WithoutApi;

use super::cluster::one_of;
use super::read::HOUR;
use super::shutdown::go;
use winddown_yaml::{Fields, Located};

const EVICTION_TIMEOUT: &str = "companionEvictionTimeout";
const WITHOUT_API: &str = "companionWithoutApi";

/// Everything that only matters beside a kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompanionSettings {
    /// `companionEvictionTimeout`: how long a pod's disruption budget is asked for its consent; none
    /// takes a third of the pod's grace, and at most ten seconds. 0 to 1 h.
    pub eviction_timeout: Option<Duration>,
    /// `companionWithoutApi`: what is done when the API server is away while the node goes down.
    pub without_api: WithoutApi,
}

// === impl CompanionSettings ===

impl CompanionSettings {
    pub(super) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let all = [WithoutApi::StopContainers, WithoutApi::Wait];
        let choices = all.map(|choice| (choice.as_str(), choice));
        Self {
            eviction_timeout: eviction_timeout(fields),
            without_api: one_of(fields, WITHOUT_API, &choices).unwrap_or_default(),
        }
    }

    /// The same fields as they would be written.
    pub(super) fn entries(&self) -> Vec<(&'static str, Json)> {
        let timeout = self.eviction_timeout.map(|timeout| (EVICTION_TIMEOUT, json!(go(timeout))));
        let mut entries: Vec<_> = timeout.into_iter().collect();
        entries.push((WITHOUT_API, json!(self.without_api.as_str())));
        entries
    }
}

fn eviction_timeout(fields: &mut Fields<'_, '_>) -> Option<Duration> {
    let Located { value, at } = fields.duration(EVICTION_TIMEOUT)?;
    if value > HOUR {
        let what = format!("{} is out of range: write at most {}", go(value), go(HOUR));
        fields.fail(EVICTION_TIMEOUT, at, what);
    }
    Some(value)
}
