//! Everything that has a target, in one table.

use winddown_shared::error_chain;

use crate::document;
use crate::options::Options;
use crate::table::Table;
use crate::{agent, containers, preemption, pressure, workers};

/// Measures one thing after the other: what takes long to settle last. What cannot be measured here
/// is a line that says why.
pub(crate) async fn measure(options: &Options) -> Result<String, String> {
    let mut table = Table::titled("everything that has a target".to_owned());
    let own = |what: &'static str| move |error: String| (what, error);
    // The workers have a runtime of their own, which cannot be begun inside this one.
    let measured = tokio::task::spawn_blocking(workers::measure).await;
    let parts = [
        measured
            .map_err(|error| error.to_string())
            .and_then(|measured| measured.map_err(|error| error.to_string()))
            .map_err(own("the pod workers alone")),
        preemption::measure().map_err(own("the choice of victims")),
        agent(options).await.map_err(|error| error_chain(&error)).map_err(own("the running agent")),
        containers::measure(options)
            .await
            .map_err(|error| error_chain(&error))
            .map_err(own("real containers")),
        pressure::measure().map_err(own("pressure to SIGTERM")),
    ];
    for part in parts {
        match part {
            Ok(part) => table.append(part),
            Err((what, why)) => {
                table.row(what, format!("not measured: {why}"));
            }
        }
    }
    Ok(format!("{table}\n{}", document::machine()))
}
