//! Starts one attempt of a container.
//!
//! The order of steps makes it safe for the agent to die between any two of them: the container has
//! its labels and its attempt as soon as the runtime has it, its name with that attempt can be
//! taken only once, and a container that is found created is started instead of created again.

use std::sync::Arc;
use std::time::Duration;

use winddown_engine::container_plan::{self, SpecContainer};
use winddown_engine::pod::{IMAGE_PULL_BACK_OFF, is_of_pull};
use winddown_shared::{Pod, PodEventKind, RuntimeError, error_chain};

use super::client::CallError;
use super::image::{self, ImageError};
use super::kernel_limits::KernelLimits;
use super::masked_paths::masked_paths;
use super::pod::{self, PodEntry, PodState, Starting};
use super::spec::{self, ContainerStart};
use super::{CriContext, api, exits, health, name_conflict, observe, sandbox, shares, volumes};

mod attempt;
mod first_attempt;

use attempt::Begun;

/// The kubelet's reason for a container whose configuration cannot be generated.
const CONFIG_ERROR: &str = "CreateContainerConfigError";
/// How long a container waits for something that the node will have soon, such as an address.
const AWAITED_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Why a container was not started.
enum StartError {
    /// The pod is being stopped.
    Stopping,
    /// A reason and a message for the container's status. The start is retried after a backoff.
    Trouble(&'static str, String),
    /// The node lacks something that it will have soon. The start is retried shortly.
    NotYet(String),
    /// A start that an earlier agent had begun failed. The start is retried at once.
    Undone,
    /// The runtime did not answer. The pod workers retry.
    Runtime(RuntimeError),
}

/// Starts the next attempt of the pod's container `name`. Returns `None` if it does not run; its status says why.
///
/// # Errors
/// The runtime did not answer. Problems of the container itself go to its status.
pub(super) async fn start(
    context: &Arc<CriContext>,
    starting: Starting,
    pod: &Pod,
    name: &Arc<str>,
) -> Result<Option<Arc<str>>, RuntimeError> {
    let Some(found) = container_plan::find(pod, name) else { return Ok(None) };
    let entry = starting.entry();
    match run(context, entry, pod, &found).await {
        Ok(id) => return Ok(Some(id)),
        Err(StartError::Stopping) => {}
        Err(StartError::Undone) => {
            tracing::info!(
                pod = %pod.pod_ref(), container = %name,
                "an earlier start did not complete: starting again"
            );
        }
        Err(StartError::Runtime(error)) => return Err(error),
        Err(StartError::NotYet(message)) => {
            log_trouble(pod, name, CONFIG_ERROR, &message);
            context.pods.record_event(
                entry,
                Some(name),
                PodEventKind::Failed { error: message.clone() },
            );
            if let Some(container) = entry.lock().container(name) {
                container.wait(CONFIG_ERROR, message, AWAITED_RETRY_DELAY);
            }
        }
        Err(StartError::Trouble(reason, message)) => {
            log_trouble(pod, name, reason, &message);
            let error = if is_of_image(reason) { reason.to_owned() } else { message.clone() };
            context.pods.record_event(entry, Some(name), PodEventKind::Failed { error });
            let is_back_off = entry.lock().container(name).is_some_and(|container| {
                container.fail(reason, message, &context.config.retry) == IMAGE_PULL_BACK_OFF
            });
            if is_back_off {
                let image = found.container.image.clone().unwrap_or_default();
                context.pods.record_event(entry, Some(name), PodEventKind::PullBackOff { image });
                let error = IMAGE_PULL_BACK_OFF.to_owned();
                context.pods.record_event(entry, Some(name), PodEventKind::Failed { error });
            }
        }
    }
    Ok(None)
}

/// Whether the kubelet's event for this reason names only the reason; a separate earlier event has the message.
fn is_of_image(reason: &str) -> bool {
    is_of_pull(reason)
        || matches!(reason, "ErrImageNeverPull" | "ImageInspectError" | "InvalidImageName")
}

fn log_trouble(pod: &Pod, container: &str, reason: &'static str, why: &str) {
    let pod = pod.pod_ref();
    tracing::warn!(%pod, %container, reason, "cannot start container {container} of pod {pod}: {why}");
}

/// Creates the container if it does not exist yet, and starts it. Returns its ID.
async fn run(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    found: &SpecContainer<'_>,
) -> Result<Arc<str>, StartError> {
    let name = &found.container.name;
    let made = created(&mut entry.lock(), name);
    let id = match made {
        Some(id) => id,
        // Boxed: the future is large, and is moved several times before its first poll.
        None => Box::pin(make(context, entry, pod, found)).await?,
    };
    if entry.lock().stopping {
        return Err(StartError::Stopping);
    }
    let what = || format!("starting container {name} of pod {}", pod.pod_ref());
    match attempt::begin(context, entry, name, &id).await {
        Begun::Started => {}
        Begun::Undone => return Err(StartError::Undone),
        Begun::Refused(error) => {
            // The runtime records the attempt as exited: the next one gets the next number.
            entry.lock().own.unsure = true;
            return Err(StartError::Trouble("RunContainerError", error.message()));
        }
        Begun::Unanswered(error) => return Err(unanswered(context, entry, error, what())),
        Begun::GivenUp => return Err(StartError::Stopping),
    }
    if let Some(run) = entry.lock().run(name, &id) {
        run.started_at.get_or_insert_with(|| context.config.wall.now());
    }
    entry.bump();
    shares::give_late(context, entry).await;
    match observe::ask(context, entry, &id, true).await {
        Ok(seen) => {
            exits::enter(context, entry, &seen);
        }
        // It runs; the next listing notices its exit.
        Err(error) => {
            tracing::warn!(
                pod = %pod.pod_ref(), container = %name, error = error_chain(&error),
                "cannot inspect a container that was started"
            );
            entry.lock().own.unsure = true;
        }
    }
    Ok(id)
}

/// The container of the newest attempt, if an earlier agent created it and did not start it.
fn created(state: &mut PodState, name: &str) -> Option<Arc<str>> {
    let sandbox = state.own.sandbox().map(|s| Arc::clone(&s.id))?;
    let run = state.container(name)?.run.as_ref()?;
    let is_here = run.own.sandbox == sandbox && run.end.is_none() && run.started_at.is_none();
    is_here.then(|| Arc::clone(&run.id))
}

async fn make(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    found: &SpecContainer<'_>,
) -> Result<Arc<str>, StartError> {
    let container = &*found.container;
    let name = &container.name;
    let (plan, target) = {
        let state = entry.lock();
        let target = found.target.and_then(|target| state.running_id(target));
        let sandbox = state.own.sandbox().map(|s| (Arc::clone(&s.id), s.attempt));
        let next = state.next(name, &context.config.backoff);
        (sandbox.zip(next).map(|(sandbox, next)| (sandbox, next, state.ips.clone())), target)
    };
    if let (Some(name), None) = (found.target, &target) {
        let why = format!("unable to find target container {name:?}");
        return Err(StartError::Trouble(CONFIG_ERROR, why));
    }
    let Some(((sandbox_id, sandbox_attempt), (attempt, backoff), ips)) = plan else {
        return Err(StartError::Stopping);
    };
    let sandbox_config = sandbox::config(context, pod, sandbox_attempt).await?;
    let image::FoundImage { image, stop_signal } = tokio::select! {
        image = image::ensure(context, entry, container, &sandbox_config) => image?,
        () = pod::stopping(entry) => return Err(StartError::Stopping),
    };
    spec::user_of_image(pod, container, &image)
        .map_err(|why| StartError::Trouble(CONFIG_ERROR, why))?;
    let is_alone = entry.lock().own.alone.as_ref() == Some(&sandbox_id);
    let attempt = attempt_after_others(context, pod, name, attempt, is_alone).await?;
    let start = ContainerStart {
        config: &context.config,
        pod,
        ips: &ips,
        container,
        field: &found.field,
        kind: found.kind,
        place: found.place,
        target: target.as_deref(),
        attempt,
        backoff,
        image: &image,
        image_signal: stop_signal.as_deref(),
        kernel: &KernelLimits::read(&context.config),
        masked: &masked_paths(&context.config.paths.sys),
    };
    let mut config = spec::container(&start).map_err(config_error)?;
    let notice;
    (config.mounts, notice) = prepare(context, entry, pod, container, attempt, &ips).await?;
    config.envs.extend(notice);
    let request = api::CreateContainerRequest {
        pod_sandbox_id: sandbox_id.to_string(),
        config: Some(config),
        sandbox_config: Some(sandbox_config),
    };
    create(context, entry, pod, container, (attempt, backoff), request).await
}

/// The number of the container's next run, after `attempt`, which is 0 if no run is known, and after those that others made
/// unless the pod `is_alone` in its sandbox.
async fn attempt_after_others(
    context: &CriContext,
    pod: &Pod,
    name: &str,
    attempt: u32,
    is_alone: bool,
) -> Result<u32, StartError> {
    let after_others = match is_alone {
        true => 0,
        false => name_conflict::after_containers_of_others(context, pod, name).await?,
    };
    let attempt = if attempt == 0 { first_attempt::of(context, pod, name).await? } else { attempt };
    Ok(attempt.max(after_others))
}

/// Has the runtime create the container, or finds that it did, and records the run.
async fn create(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    container: &k8s_openapi::api::core::v1::Container,
    (attempt, backoff): (u32, Duration),
    request: api::CreateContainerRequest,
) -> Result<Arc<str>, StartError> {
    let name = &container.name;
    let _turn = context.turn().await;
    if entry.lock().stopping {
        return Err(StartError::Stopping);
    }
    let what = || format!("creating container {name} of pod {}", pod.pod_ref());
    let call = || {
        let call = context.client.create_container(request.clone());
        async { Ok(call.await?.container_id) }
    };
    let (uid, sandbox) = (pod.uid().as_str(), &request.pod_sandbox_id);
    let found = || name_conflict::container(context, uid, sandbox, (name, attempt));
    let id = match patient(context, entry, name_conflict::create_or_find(call, found)).await {
        Some(Ok(id)) => id,
        Some(Err(error @ CallError::Refused { .. })) => {
            // Its name may be taken by an attempt whose answer was lost; a listing shows it.
            entry.lock().own.unsure = true;
            return Err(StartError::Trouble("CreateContainerError", error.message()));
        }
        Some(Err(error)) => return Err(unanswered(context, entry, error, what())),
        None => return Err(StartError::Stopping),
    };
    let mut run = pod::created(&id, attempt, sandbox, backoff);
    run.image = container.image.as_deref().map(Into::into);
    let id = Arc::clone(&run.id);
    if let Some(container) = entry.lock().container(name) {
        pod::begin(container, run);
    }
    context.pods.record_event(entry, Some(name), PodEventKind::Created);
    Ok(id)
}

/// Creates the container's files. Returns its mounts, and the variable with the path of the pod's termination notice.
async fn prepare(
    context: &Arc<CriContext>,
    entry: &PodEntry,
    pod: &Pod,
    container: &k8s_openapi::api::core::v1::Container,
    attempt: u32,
    ips: &[String],
) -> Result<(Vec<api::Mount>, Option<api::KeyValue>), StartError> {
    let (config, pod) = (context.config.clone(), pod.clone());
    let (container, ips, context) = (container.clone(), ips.to_vec(), Arc::clone(context));
    let work = move || {
        volumes::prepare_run(&config, &pod, &container.name, attempt, &ips)?;
        let mut all = volumes::mounts(&config, &pod, &container, attempt, &ips)?;
        let notices = context.termination_notices.make_room(pod.uid());
        let notice = notices.and_then(|dir| volumes::notice(&dir, &all));
        let (notice, variable) = notice.unzip();
        all.extend(notice);
        Ok((all, variable))
    };
    pod::make_files(entry, work).await.map_err(config_error)?.ok_or(StartError::Stopping)
}

fn config_error(error: RuntimeError) -> StartError {
    match error {
        RuntimeError::NotYet { what } => StartError::NotYet(what),
        other => StartError::Trouble(CONFIG_ERROR, error_chain(&other)),
    }
}

/// Waits for a call that creates something, but only for a short time once the pod is asked to stop. The wait is
/// there because a stop must know whether the object was created. Returns `None` if the call was abandoned.
async fn patient<T>(
    context: &CriContext,
    entry: &PodEntry,
    call: impl Future<Output = Result<T, CallError>>,
) -> Option<Result<T, CallError>> {
    tokio::select! {
        answer = call => Some(answer),
        () = given_up(context, entry) => None,
    }
}

/// Resolves a while after the pod was asked to stop, and marks its state as unsure.
pub(super) async fn given_up(context: &CriContext, entry: &PodEntry) {
    pod::stopping(entry).await;
    tokio::time::sleep(context.config.times.start_patience).await;
    entry.lock().own.unsure = true;
}

fn unanswered(
    context: &CriContext,
    entry: &PodEntry,
    error: CallError,
    what: String,
) -> StartError {
    entry.lock().own.unsure = true;
    health::note_unreachable(context, &error);
    StartError::Runtime(error.during(what))
}

impl From<RuntimeError> for StartError {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

impl From<ImageError> for StartError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Trouble(reason, message) => Self::Trouble(reason, message),
            ImageError::Runtime(error) => Self::Runtime(error),
        }
    }
}
