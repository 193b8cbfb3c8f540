//! What a person does after an installation, or before the end of one.

use std::fmt;
use std::ops::Deref;

/// Declares [`NextStepKind`] and the list of its variants, so that neither can lack one.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a step does. A test types each on a node: `tests/node/tests/operator/fixes/next_steps.rs` has a row for every
        /// variant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum NextStepKind {
            $($(#[doc = $doc])+ $name,)+
        }

        impl NextStepKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
        }
    };
}

kinds! {
    /// Starts a companion now and at boot, also in the place of an agent that runs without its configuration.
    BeginCompanion,
    /// Starts the agent at boot.
    Enable,
    /// The same in an image.
    EnableInImage,
    /// Starts the agent.
    Start,
    /// Restarts the agent, which ends no pod.
    Restart,
    /// Terminates the pods that a restart of the agent would kill.
    Drain,
    /// Admits pods again after that.
    Undrain,
    /// A line of a change of the kubelet's configuration, for an editor.
    ChangeKubelet,
    /// Makes logind wait for as long as the kubelet needs.
    RaiseDelay,
    /// Restarts the kubelet.
    RestartKubelet,
    /// Takes winddown off a node whose kubelet ends its pods itself again.
    Uninstall,
    /// Shows the agent.
    ShowStatus,
    /// Examines the node.
    AskDoctor,
}

/// A step: a command that is typed into a root shell as it is, or a line of a change for an editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextStep {
    /// What it does.
    pub kind: NextStepKind,
    line: String,
}

// === impl NextStepKind ===

impl NextStepKind {
    pub(super) fn typed(self, line: impl Into<String>) -> NextStep {
        NextStep { kind: self, line: line.into() }
    }
}

// === impl NextStep ===

impl Deref for NextStep {
    type Target = str;

    fn deref(&self) -> &str {
        &self.line
    }
}

/// As it is: print it through `winddown_shared::display::clean`.
impl fmt::Display for NextStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}
