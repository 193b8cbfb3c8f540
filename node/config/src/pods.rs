//! The options for pods from manifests.

use std::path::PathBuf;
use std::time::Duration;

use crate::reference::{ValueKind, at_restart, options};
use crate::{Effect, Trust};

options! {
    /// The options for pods from manifests.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PodSettings {
        /// The directory of pod manifests: each file is one pod's, unless its name begins with a dot. An empty string
        /// turns it off.
        static_pod_path: Option<PathBuf> = Some(PathBuf::from("/etc/winddown/pods"))
            => at_restart("staticPodPath", Effect::PODS).trusted(Trust::Manifests);
        /// Changes are noticed as they happen. This is how often the directory is looked through as well, where changes
        /// go unnoticed.
        file_check_frequency: Duration = Duration::from_secs(20)
            => at_restart("fileCheckFrequency", Effect::PODS)
                .kind(ValueKind::INTERVAL)
                .zero_is_unset();
    }
}
