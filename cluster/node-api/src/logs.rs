//! Container logs, as requested by the API server.

mod options;

use hyper::StatusCode;
use winddown_host::pod_logs::{LogError, LogReading, LoggedContainer};

use crate::answer::FailureAnswer;
use crate::context::RequestContext;
use crate::route::ContainerRef;

pub(crate) use options::parse;

/// Opens the log of a container.
pub(crate) async fn open(
    context: &RequestContext,
    container_ref: &ContainerRef,
    query: Option<&str>,
) -> Result<LogReading, FailureAnswer> {
    let ContainerRef { namespace, pod, container } = container_ref;
    let options = parse(query.unwrap_or_default(), context.node.now())?;
    let entry = context.pod(namespace, pod).ok_or_else(|| {
        FailureAnswer::new(StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist"))
    })?;
    let mut container = LoggedContainer::find(&entry, Some(container))?;
    if options.follow {
        let (node, uid) = (context.node.clone(), entry.pod.uid().clone());
        container = container.followed(context.node.changes(), move || node.status(&uid));
    }
    Ok(context.logs.open(container, options).await?)
}

impl From<LogError> for FailureAnswer {
    fn from(error: LogError) -> Self {
        let status = match &error {
            LogError::TooMany => StatusCode::SERVICE_UNAVAILABLE,
            LogError::NoContainer { .. } => StatusCode::NOT_FOUND,
            LogError::BadName | LogError::NoRun(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}
