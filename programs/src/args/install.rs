//! The arguments of `winddown install` and `winddown uninstall`.

use std::path::PathBuf;

use clap::Args;

use super::RuntimeChoice;

/// Puts the binary, units, drop-ins, default configuration and directories in place.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown install --start
  winddown install --runtime process
  winddown install --companion
  winddown install --root /mnt/image
  winddown install --dry-run")]
pub struct InstallArgs {
    /// Install into this directory tree instead of the running system
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// What will run the containers: process (this host's own processes), systemd (the same, as
    /// services of systemd) or cri (containerd, CRI-O). If unset: what the configuration
    /// names, otherwise systemd if it runs this machine with cgroup v2, and process if not
    #[arg(long, value_enum, value_name = "RUNTIME", hide_possible_values = true)]
    pub runtime: Option<RuntimeChoice>,
    /// Start with this configuration instead of the default one; an existing one is never touched
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Beside this node's kubelet: finds its kubeconfig, its container runtime and its grace periods, writes a
    /// configuration with them, and says how to switch the kubelet's own graceful shutdown off
    #[arg(long, conflicts_with_all = ["runtime", "from"])]
    pub companion: bool,
    /// With --companion: this kubelet, by its unit or process id
    #[arg(long, value_name = "UNIT", requires = "companion")]
    pub kubelet: Option<String>,
    /// With --companion: the kubeconfig to use instead of the kubelet's
    #[arg(long, value_name = "FILE", requires = "companion")]
    pub kubeconfig: Option<PathBuf>,
    /// With --companion: the kubelet's container runtime, as unix:///run/containerd/containerd.sock
    #[arg(long, value_name = "ADDRESS", requires = "companion")]
    pub container_runtime_endpoint: Option<String>,
    /// The directory for the programs, below --root [default: where they are installed, otherwise /usr/bin]
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Do not enable the unit
    #[arg(long)]
    pub no_enable: bool,
    /// Start the agent when everything is in place
    #[arg(long, conflicts_with = "no_enable")]
    pub start: bool,
    /// Overwrite files of the same names that winddown did not put there, and trust programs, configuration and
    /// directories that other users may write
    #[arg(long)]
    pub force: bool,
    /// Only print what would be done
    #[arg(long)]
    pub dry_run: bool,
}

/// Takes away what install put in place. Manifests always stay; configuration, state and logs stay
/// unless --purge.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown uninstall
  winddown uninstall --root /mnt/image --purge")]
pub struct UninstallArgs {
    /// Uninstall from this directory tree instead of the running system
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Remove configuration, state and logs as well
    #[arg(long)]
    pub purge: bool,
    /// Also remove files that were edited after they were installed, a companion whose kubelet does not terminate its
    /// pods itself, and with --purge what running pods use
    #[arg(long)]
    pub force: bool,
    /// Only print what would be done
    #[arg(long)]
    pub dry_run: bool,
}
