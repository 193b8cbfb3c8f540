//! What the kernel of this host can limit.

use std::path::Path;

use winddown_host::{huge_page_sizes, kernel};
use winddown_shared::error_chain;

use super::config::CriConfig;

/// What the kernel can limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelLimits {
    /// Whether control groups of version 2 limit memory.
    pub(super) has_unified_memory: bool,
    /// The sizes of huge pages in bytes.
    pub(super) huge_pages: Vec<i64>,
}

impl KernelLimits {
    /// Reads a few files of the kernel's.
    pub(super) fn read(config: &CriConfig) -> Self {
        let huge_pages = huge_page_sizes(&config.paths.sys).unwrap_or_else(|error| {
            tracing::warn!(
                error = error_chain(&error),
                "huge pages are limited only where a container says so"
            );
            Vec::new()
        });
        Self { has_unified_memory: has_controller(&config.cgroups.mount, "memory"), huge_pages }
    }
}

/// Whether control groups of version 2 have this controller.
pub(super) fn has_controller(mount: &Path, name: &str) -> bool {
    kernel::read_to_string(mount.join("cgroup.controllers"))
        .is_ok_and(|all| all.split_whitespace().any(|controller| controller == name))
}
