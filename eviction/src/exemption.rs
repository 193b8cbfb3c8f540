//! Why a policy spares pods.

/// Why a policy never evicts a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Exemption {
    /// It is static, and its manifest sets no priority.
    NoPriority,
    /// It is static, and the policy spares all static pods ([`StaticPods::Spared`](crate::StaticPods::Spared)).
    Static,
    /// Its priority is 2000000000 or more.
    Priority,
}

impl Exemption {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::NoPriority => "static without a priority in the manifest",
            Self::Static => "static, and the policy spares those",
            Self::Priority => "of a priority of 2000000000 or more",
        }
    }
}
