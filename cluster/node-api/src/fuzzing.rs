//! Properties that must hold for any query. Called by tests/fuzz.

use crate::logs;
use crate::route::StreamKind;
use crate::streams;

/// Reads the bytes as a query. Panics if one cannot be read.
pub fn query(bytes: &[u8]) {
    if let Ok(query) = std::str::from_utf8(bytes) {
        let _ = logs::parse(query, winddown_shared::WallTime::UNIX_EPOCH);
        let _ = streams::options(&StreamKind::PortForward, query);
        let _ = streams::options(&StreamKind::Exec(String::new()), query);
    }
}

#[test]
fn any_query_is_read_or_refused() {
    winddown_fuzz::short("logs", query);
}
