//! The arguments of `winddown doctor`.

use std::path::PathBuf;

use clap::Args;

use super::TextFormat;

/// Looks whether this node's pods would be terminated in order at a shutdown.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  winddown doctor
  winddown doctor -o json | jq -r '.findings[] | .severity + \" \" + .id'
  winddown doctor --root /mnt/image    # an image: files only

Exit codes: 0 all well, 7 warnings, 8 problems. Checks this user
cannot run are reported but do not change the exit code.")]
pub struct DoctorArgs {
    /// Look at the machine or image below this directory; only files, unless it is /
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Output format: text, json or yaml (both are stable interfaces)
    #[arg(short, long, value_enum, default_value_t)]
    #[arg(value_name = "FORM", hide_possible_values = true)]
    pub output: TextFormat,
}
