//! State that all connections of a server share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Limits;
use super::slots::Slots;

pub(super) struct ServerShared<A> {
    pub(super) api: Arc<A>,
    pub(super) limits: Limits,
    pub(super) slots: Arc<Slots>,
    pub(super) stop: CancellationToken,
}
