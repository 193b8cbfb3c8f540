//! Observations of the API server and the connection to it.

use std::error::Error;
use std::io;

use winddown_companion::{
    READ_BUDGETS, RightsUnknown, kubelet_elsewhere, may, may_taint, missing_for_requests,
};
use winddown_config::Config;
use winddown_host::machine::node_name;
use winddown_node::cluster::connect;
use winddown_shared::{WallClock, error_chain};

use crate::facts::{LIST_BUDGETS, NotObserved, REQUEST_EVICTIONS, TAINT_NODES};

/// Why nothing was observed, with the reason as text for users.
type NotSeen = (NotObserved, String);

/// The required permissions that the API server does not grant.
///
/// # Errors
/// The API server cannot be queried; the reason, as text for users.
pub(super) async fn missing_rights(
    config: &Config,
    wall: &WallClock,
) -> Result<Vec<String>, NotSeen> {
    let name = config.node_name_or(&node_name());
    let connection = connect(config, &name, wall).await.map_err(|error| unreadable(&error))?;
    let client = connection.client();
    let asked = async {
        let missing = winddown_companion::missing_rights(&client, &name).await?;
        let mut missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
        if !missing.is_empty()
            && let Some(other) = kubelet_elsewhere(&client, &name).await
        {
            let why = format!(
                "the credentials are those of node {other}, and this is node {name}: take this node's kubeconfig"
            );
            return Err(RightsUnknown { why });
        }
        if missing.is_empty() {
            if !may_taint(&client, &name).await? {
                missing.push(TAINT_NODES.to_owned());
            }
            if !may(&client, &name, READ_BUDGETS).await? {
                missing.push(LIST_BUDGETS.to_owned());
            }
            if !missing_for_requests(&client, &name).await?.is_empty() {
                missing.push(REQUEST_EVICTIONS.to_owned());
            }
        }
        Ok::<_, RightsUnknown>(missing)
    };
    asked.await.map_err(|error| {
        // The connection knows which credentials were refused, and why.
        let why = connection.health().borrow().state.why().map(str::to_owned);
        (NotObserved::Failed, why.unwrap_or(error.why))
    })
}

/// Whether the credentials verify the API server's certificate. Makes no request.
///
/// # Errors
/// The credentials cannot be read; the reason, as text for users.
pub(super) async fn verifies_server(config: &Config, wall: &WallClock) -> Result<bool, NotSeen> {
    let name = config.node_name_or(&node_name());
    let connection = connect(config, &name, wall).await.map_err(|error| unreadable(&error))?;
    Ok(connection.verifies_server())
}

/// Credentials that this user may not read are no fault of the agent's, which is root.
fn unreadable(error: &(dyn Error + 'static)) -> NotSeen {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    let is_denied = causes.any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
    });
    let kind = if is_denied { NotObserved::Denied } else { NotObserved::Failed };
    (kind, error_chain(error))
}

#[cfg(test)]
mod tests {
    use winddown_config::ConfigError;

    use super::*;

    #[test]
    fn credentials_that_only_root_may_read_are_not_taken_for_broken_ones() {
        let kind = |kind: io::ErrorKind| {
            let path = "/etc/winddown/kubeconfig".into();
            unreadable(&ConfigError::Read { path, source: kind.into() }).0
        };
        assert_eq!(kind(io::ErrorKind::PermissionDenied), NotObserved::Denied);
        assert_eq!(kind(io::ErrorKind::NotFound), NotObserved::Failed);
    }
}
