//! When a watch begins anew with a list although nothing has failed.

use std::time::Duration;

use tokio::time::sleep;
use winddown_shared::fraction;

/// The shortest time between two lists. The longest is twice that, so that nodes that started together drift apart.
const LIST_AGAIN: Duration = Duration::from_secs(1800);

/// Resolves when the watch that begins now has to begin anew.
///
/// If the server's data was restored from a backup, versions are lower than before, and a watch from a later one
/// is silent without an error (<https://github.com/kubernetes/kubernetes/issues/107457>).
pub async fn due() {
    sleep(LIST_AGAIN.mul_f64(1.0 + fraction())).await;
}
