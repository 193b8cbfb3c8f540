//! Observations of the API server and the connection to it.

use winddown_companion::{READ_BUDGETS, RightsUnknown, may, may_taint, missing_for_requests};
use winddown_config::Config;
use winddown_machine::host::node_name;
use winddown_node::cluster::connect;
use winddown_shared::{WallClock, error_chain};

use crate::facts::{LIST_BUDGETS, REQUEST_EVICTIONS, TAINT_NODES};

/// The required permissions that the API server does not grant.
///
/// # Errors
/// The API server cannot be queried; the reason, as text for users.
pub(super) async fn missing_rights(
    config: &Config,
    wall: &WallClock,
) -> Result<Vec<String>, String> {
    let name = config.node_name_or(&node_name());
    let connection = connect(config, &name, wall).await.map_err(|error| error_chain(&error))?;
    let client = connection.client();
    let asked = async {
        let missing = winddown_companion::missing_rights(&client, &name).await?;
        let mut missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
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
    asked.await.map_err(|error| error.why)
}

/// Whether the credentials verify the API server's certificate. Makes no request.
///
/// # Errors
/// The credentials cannot be read; the reason, as text for users.
pub(super) async fn verifies_server(config: &Config, wall: &WallClock) -> Result<bool, String> {
    let name = config.node_name_or(&node_name());
    let connection = connect(config, &name, wall).await.map_err(|error| error_chain(&error))?;
    Ok(connection.verifies_server())
}
