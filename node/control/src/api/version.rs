//! The version of the program.

use serde::{Deserialize, Serialize};

/// The version of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionAnswer {
    /// The program's version.
    pub version: String,
}
