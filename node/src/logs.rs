//! The output of containers, for the control socket.

use std::io;
use std::path::Path;

use futures_util::{StreamExt as _, stream};
use winddown_control::api::{ErrorCode, LogQuery};
use winddown_control::{ApiError, LogBlocks};
use winddown_host::SharedWatch;
use winddown_host::pod_logs::{LogError, LogOptions, LoggedContainer, PodLogs};
use winddown_shared::Runtime;
use winddown_shared::status::is_terminal;

use crate::Node;

/// The most logs that are open at the same moment.
const MAX_OPEN_LOGS: usize = 64;

/// The logs in this directory.
pub(crate) fn of(directory: &Path) -> PodLogs {
    PodLogs::new(directory.to_owned(), 0, MAX_OPEN_LOGS, None)
}

impl<R: Runtime> Node<R> {
    /// Opens the log of a container.
    pub(crate) async fn open_log(
        &self,
        namespace: &str,
        name: &str,
        query: LogQuery,
    ) -> Result<LogBlocks, ApiError> {
        let core = &self.0.core;
        let none = || ApiError::new(ErrorCode::NotFound, "the runtime writes no logs");
        let logs = self.0.logs.clone().ok_or_else(none)?;
        let named =
            core.statuses.all().into_iter().filter(|entry| {
                **entry.pod.namespace() == *namespace && **entry.pod.name() == *name
            });
        // A terminated pod may be listed next to a new one of the same name.
        let entry = named.min_by_key(|entry| is_terminal(&entry.status)).ok_or_else(|| {
            let text = format!("there is no pod {namespace}/{name} on this node");
            ApiError::new(ErrorCode::NotFound, text).with_hint("`winddown status` lists the pods")
        })?;
        let container = LoggedContainer::find(&entry, query.container.as_deref());
        let container = container.map_err(|error| refusal(&error))?;
        let options = LogOptions {
            follow: query.follow,
            previous: query.previous,
            timestamps: query.timestamps,
            tail_lines: query.tail_lines,
            ..LogOptions::default()
        };
        if !query.follow {
            let reading = logs.open(container, options).await.map_err(|error| refusal(&error))?;
            return Ok(reading.into_stream().boxed());
        }
        let (growth, watch) = SharedWatch::open().map_err(|error| refusal(&LogError::Io(error)))?;
        let (statuses, uid) = (core.statuses.clone(), entry.pod.uid().clone());
        let changes = core.changes.subscribe();
        let container = container.followed(changes, move || statuses.get(&uid));
        let reading = logs.with_growth(growth).open(container, options).await;
        let blocks = reading.map_err(|error| refusal(&error))?.into_stream();
        // The watch works for as long as the client reads.
        let watching = stream::once(watch.run())
            .filter_map(|()| std::future::ready(None::<io::Result<Vec<u8>>>));
        let ended = stream::iter([None]);
        let blocks = blocks.map(Some).chain(ended);
        let both = stream::select(blocks, watching.map(Some));
        Ok(both
            .take_while(|block| std::future::ready(block.is_some()))
            .filter_map(std::future::ready)
            .boxed())
    }
}

fn refusal(error: &LogError) -> ApiError {
    let code = match error {
        LogError::TooMany => ErrorCode::Unavailable,
        LogError::NoContainer { .. } | LogError::NoRun(_) => ErrorCode::NotFound,
        LogError::BadName => ErrorCode::BadRequest,
        _ => ErrorCode::Internal,
    };
    ApiError::new(code, error.to_string())
}
