//! Whatever announces the shutdown, as one type: a node is compiled once for all of them.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use winddown_shared::{Inhibitor, InhibitorState};

/// Any [`Inhibitor`]. Clones are one.
#[derive(Clone)]
pub(super) struct Announcer(Arc<dyn Boxed>);

trait Boxed: Send + Sync {
    fn state(&self) -> watch::Receiver<InhibitorState>;

    fn release(&self) -> BoxFuture<'_, ()>;
}

impl Announcer {
    pub(super) fn new<I: Inhibitor>(inhibitor: Arc<I>) -> Self {
        Self(Arc::new(Of(inhibitor)))
    }
}

struct Of<I>(Arc<I>);

impl<I: Inhibitor> Boxed for Of<I> {
    fn state(&self) -> watch::Receiver<InhibitorState> {
        self.0.state()
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        self.0.release().boxed()
    }
}

impl Inhibitor for Announcer {
    fn state(&self) -> watch::Receiver<InhibitorState> {
        self.0.state()
    }

    fn release(&self) -> impl Future<Output = ()> + Send {
        self.0.release()
    }
}
