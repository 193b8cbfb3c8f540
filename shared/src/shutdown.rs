//! What a shutdown of the node needs of others: the lock against it, notices of it, and work that it waits for.

pub(crate) mod inhibitor;
pub(crate) mod notice;
pub(crate) mod request_report;
pub(crate) mod work;
