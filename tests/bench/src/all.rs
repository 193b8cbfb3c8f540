//! Everything that has a target, in one table.

use winddown_shared::error_chain;

use crate::document;
use crate::options::Options;
use crate::table::{NOT_MEASURED, Table};
use crate::{Said, agent, containers, package, preemption, pressure, workers};

/// Measures one thing after the other: what takes long to settle last. What cannot be measured here
/// is a line that says why.
pub(crate) async fn measure(options: &Options) -> Said {
    let own = |place: &'static str| move |error: String| (place, error);
    // The workers have a runtime of their own, which cannot be begun inside this one.
    let workers = tokio::task::spawn_blocking(workers::measure).await;
    let workers = workers.map_err(|error| error.to_string());
    let parts = [
        workers
            .and_then(|measured| measured.map_err(|error| error.to_string()))
            .map(|table| ("workers", table))
            .map_err(own("workers")),
        preemption::measure(options.choices.as_deref())
            .map(|table| ("preemption", table))
            .map_err(own("preemption")),
        agent(options)
            .await
            .map(|table| ("agent", table))
            .map_err(|error| ("agent", error_chain(&error))),
        containers::measure(options)
            .await
            .map(|table| ("containers", table))
            .map_err(|error| ("containers", error_chain(&error))),
        package::measure().map(|table| ("package", table)).map_err(own("package")),
        pressure::measure().map(|table| ("pressure", table)).map_err(own("pressure")),
    ];
    let mut all = Table::titled("everything that has a target".to_owned());
    let mut places = Vec::new();
    let machine = document::machine();
    for part in parts {
        match part {
            Ok((place, table)) => {
                places.push((place.to_owned(), format!("{table}\n{machine}")));
                all.append(table);
            }
            Err((place, why)) => {
                all.row(&format!("**{place}**"), format!("{NOT_MEASURED}: {why}"));
            }
        }
    }
    Said { text: format!("{all}\n{machine}"), places }
}
