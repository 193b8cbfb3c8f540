//! The output of containers, for the control socket.

use std::io;
use std::path::Path;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ContainerStatus;
use tokio::time::{Instant, timeout_at};
use winddown_control::api::{ErrorCode, LogQuery};
use winddown_control::{ApiError, LogBlocks};
use winddown_host::SharedWatch;
use winddown_host::pod_logs::{LogError, LogOptions, LogReading, LoggedContainer, PodLogs};
use winddown_shared::Runtime;
use winddown_shared::status::{StatusEntry, is_terminal};

use crate::Node;

/// The most logs that are open at the same moment.
const MAX_OPEN_LOGS: usize = 64;

pub(crate) fn of(directory: &Path) -> PodLogs {
    PodLogs::new(directory.to_owned(), 0, MAX_OPEN_LOGS, None)
}

impl<R: Runtime> Node<R> {
    pub(crate) async fn open_log(
        &self,
        namespace: &str,
        name: &str,
        query: LogQuery,
    ) -> Result<LogBlocks, ApiError> {
        let none = || ApiError::new(ErrorCode::NotFound, "the runtime writes no logs");
        let logs = self.0.logs.clone().ok_or_else(none)?;
        let entry = self.logged(namespace, name)?;
        let refusal = |error: &LogError| refusal(error, &entry);
        let options = LogOptions {
            follow: query.follow,
            previous: query.previous,
            timestamps: query.timestamps,
            tail_lines: query.tail_lines,
            ..LogOptions::default()
        };
        if !query.follow {
            let container = LoggedContainer::find(&entry, query.container.as_deref());
            let container = container.map_err(|error| refusal(&error))?;
            let reading = logs.open(container, options).await.map_err(|error| refusal(&error))?;
            return Ok(reading.into_stream().boxed());
        }
        let (growth, watch) = SharedWatch::open().map_err(|error| refusal(&LogError::Io(error)))?;
        let logs = logs.with_growth(growth);
        let reading = self.begun(&logs, &query, &options, entry.clone()).await;
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

    /// The pod of this name.
    fn logged(&self, namespace: &str, name: &str) -> Result<StatusEntry, ApiError> {
        let named =
            self.0.core.statuses.all().into_iter().filter(|entry| {
                **entry.pod.namespace() == *namespace && **entry.pod.name() == *name
            });
        // A terminated pod may be listed next to a new one of the same name.
        named.min_by_key(|entry| is_terminal(&entry.status)).ok_or_else(|| {
            let text = format!("there is no pod {namespace}/{name} on this node");
            ApiError::new(ErrorCode::NotFound, text).with_hint("`winddown status` lists the pods")
        })
    }

    /// Opens the log of a container to follow it, once there is one: a container that was just restarted has none yet.
    /// After [`LogQuery::START_TIMEOUT`] the error says why there is none.
    async fn begun(
        &self,
        logs: &PodLogs,
        query: &LogQuery,
        options: &LogOptions,
        mut entry: StatusEntry,
    ) -> Result<LogReading, LogError> {
        let core = &self.0.core;
        let mut changes = core.changes.subscribe();
        let deadline = Instant::now() + LogQuery::START_TIMEOUT;
        loop {
            let container = LoggedContainer::find(&entry, query.container.as_deref())?;
            let (statuses, uid) = (core.statuses.clone(), entry.pod.uid().clone());
            let container =
                container.followed(core.changes.subscribe(), move || statuses.get(&uid));
            let opened = logs.open(container, options.clone()).await;
            let may_begin = matches!(opened, Err(LogError::NoRun(_))) && !query.previous;
            // A node that changes all the time does not prolong it.
            let is_over = !may_begin || Instant::now() >= deadline;
            if is_over || !matches!(timeout_at(deadline, changes.changed()).await, Ok(Ok(()))) {
                return opened;
            }
            if let Ok(now) = self.logged(entry.pod.namespace(), entry.pod.name()) {
                entry = now;
            }
        }
    }
}

fn refusal(error: &LogError, entry: &StatusEntry) -> ApiError {
    let code = match error {
        LogError::TooMany => ErrorCode::Unavailable,
        LogError::NoContainer { .. } | LogError::NoRun(_) => ErrorCode::NotFound,
        LogError::BadName => ErrorCode::BadRequest,
        _ => ErrorCode::Internal,
    };
    let hint = match error {
        LogError::NoRun(_) | LogError::NoContainer { .. } => where_else(entry),
        _ => String::new(),
    };
    ApiError::new(code, error.to_string()).with_hint(hint)
}

/// Where to look instead of at a container without a log.
fn where_else(entry: &StatusEntry) -> String {
    let pod = format!("{}/{}", entry.pod.namespace(), entry.pod.name());
    let inits = entry.status.init_container_statuses.iter().flatten();
    let runs = |one: &&ContainerStatus| one.state.as_ref().is_some_and(|s| s.running.is_some());
    match inits.clone().find(runs) {
        Some(init) => {
            format!("its init container runs: `winddown logs {pod} -c {}`", init.name)
        }
        None => format!("`winddown describe {pod}` shows its containers"),
    }
}
