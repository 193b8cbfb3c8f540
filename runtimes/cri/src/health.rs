//! The health of the runtime.

use super::client::CallError;
use super::{CriContext, api};

/// The runtime's health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriHealth {
    /// Whether the runtime answers.
    pub reachable: bool,
    /// Whether the runtime reports that it can run containers.
    pub runtime_ready: bool,
    /// Whether the runtime reports that pods can have a network of their own.
    pub network_ready: bool,
    /// The runtime's name and version; empty until it has answered once.
    pub version: String,
    /// What is wrong, as text for users; empty if nothing is.
    pub message: String,
    /// How often the runtime became reachable.
    pub epoch: u64,
}

impl CriHealth {
    /// The state before the first check.
    pub fn unknown() -> Self {
        Self {
            reachable: false,
            runtime_ready: false,
            network_ready: false,
            version: String::new(),
            message: "not asked yet".to_owned(),
            epoch: 0,
        }
    }

    /// Whether pods of any kind can be run.
    pub fn is_well(&self) -> bool {
        self.reachable && self.runtime_ready && self.network_ready
    }

    /// What is wrong and what that means for pods, worded to follow the runtime's name in a sentence; `None` if
    /// all is well.
    pub fn trouble(&self) -> Option<String> {
        let why = &self.message;
        if !self.reachable {
            Some(format!("does not answer: {why}. No pod can be started until it does"))
        } else if !self.runtime_ready {
            Some(format!("answers, but cannot run containers: {why}. No pod can be started"))
        } else if !self.network_ready {
            Some(format!(
                "has no network for pods: {why}. Only pods with `hostNetwork: true` can be started"
            ))
        } else {
            None
        }
    }
}

/// Asks for the runtime's name if it is not known yet: published container IDs start with it.
pub(super) async fn know_name(context: &CriContext) -> Result<(), CallError> {
    if context.health.borrow().version.is_empty() {
        let version = version(context).await?;
        context.health.send_modify(|health| health.version = version);
    }
    Ok(())
}

/// The runtime's name and version.
pub(super) async fn version(context: &CriContext) -> Result<String, CallError> {
    let asked = api::VersionRequest { version: "v1".to_owned() };
    let answer = context.client.version(asked).await?;
    Ok(format!("{} {}", answer.runtime_name, answer.runtime_version))
}

/// Records that a call found the runtime unreachable, so that readers of the health learn it at once.
pub(super) fn note_unreachable(context: &CriContext, error: &CallError) {
    if !matches!(error, CallError::Unreachable { .. } | CallError::NoCri { .. }) {
        return;
    }
    note_gone(context, &error.to_string());
}

/// Records that the runtime is gone.
pub(super) fn note_gone(context: &CriContext, message: &str) {
    context.health.send_if_modified(|health| {
        let was = std::mem::replace(&mut health.reachable, false);
        if was {
            message.clone_into(&mut health.message);
        }
        was
    });
}

/// The conditions that pods depend on. containerd has another one for its deprecated settings.
const NEEDED: [&str; 2] = ["RuntimeReady", "NetworkReady"];

/// Reads the runtime's conditions. A missing condition counts as false.
pub(super) fn read(conditions: &[api::RuntimeCondition]) -> CriHealth {
    let found = NEEDED.map(|name| conditions.iter().find(|c| c.r#type == name));
    let [runtime_ready, network_ready] = found.map(|found| found.is_some_and(|c| c.status));
    let wrong = NEEDED.into_iter().zip(found).filter_map(|(name, found)| match found {
        Some(c) if c.status => None,
        // In the kubelet's form.
        Some(c) => Some(format!("{name}=false reason:{} message:{}", c.reason, c.message)),
        None => Some(format!("{name} is not reported")),
    });
    let wrong: Vec<String> = wrong.collect();
    CriHealth {
        reachable: true,
        runtime_ready,
        network_ready,
        message: wrong.join("; "),
        ..CriHealth::unknown()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(name: &str, status: bool) -> api::RuntimeCondition {
        api::RuntimeCondition {
            r#type: name.to_owned(),
            status,
            reason: "Because".to_owned(),
            message: "of that".to_owned(),
        }
    }

    #[test]
    fn a_runtime_without_a_network_says_what_is_missing() {
        let health = read(&[condition("RuntimeReady", true), condition("NetworkReady", false)]);
        assert!(health.runtime_ready && !health.network_ready && !health.is_well());
        assert_eq!(health.message, "NetworkReady=false reason:Because message:of that");
    }

    #[test]
    fn a_condition_that_pods_do_not_depend_on_is_not_named_as_what_is_wrong() {
        let notes = condition("ContainerdHasNoDeprecationWarnings", false);
        let network = condition("NetworkReady", false);
        let health = read(&[condition("RuntimeReady", true), network, notes.clone()]);
        assert_eq!(health.message, "NetworkReady=false reason:Because message:of that");
        let well = [condition("RuntimeReady", true), condition("NetworkReady", true), notes];
        assert_eq!(read(&well).message, "");
    }

    #[test]
    fn what_is_wrong_is_said_with_what_it_means_for_pods() {
        let ready = condition("RuntimeReady", true);
        let none = read(&[ready.clone(), condition("NetworkReady", false)]).trouble().unwrap();
        assert_eq!(
            none,
            "has no network for pods: NetworkReady=false reason:Because message:of that. Only pods with \
             `hostNetwork: true` can be started"
        );
        let ill = read(&[condition("RuntimeReady", false)]).trouble().unwrap();
        assert!(ill.starts_with("answers, but cannot run containers: RuntimeReady=f"), "{ill}");
        let away = CriHealth { message: "gone".to_owned(), ..CriHealth::unknown() };
        assert!(away.trouble().unwrap().starts_with("does not answer: gone. No pod"));
        assert_eq!(read(&[ready, condition("NetworkReady", true)]).trouble(), None);
    }

    #[test]
    fn a_condition_that_is_not_named_is_not_met() {
        let none = read(&[]);
        assert!(!none.runtime_ready);
        assert_eq!(none.message, "RuntimeReady is not reported; NetworkReady is not reported");
        assert!(
            read(&[condition("RuntimeReady", true), condition("NetworkReady", true)]).is_well()
        );
    }
}
