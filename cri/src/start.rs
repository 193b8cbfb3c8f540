//! Starts one attempt of a container.
//!
//! The order of steps makes the death of the agent between any two of them safe: the container carries
//! its labels and its attempt from the moment the runtime has it, its name with that attempt can be
//! taken only once, and one that is found created is started instead of made again.

use std::sync::Arc;
use std::time::Duration;

use winddown_engine::plan::{self, Found};
use winddown_engine::pod::{IMAGE_PULL, IMAGE_PULL_BACK_OFF};
use winddown_shared::{Happening, Pod, RuntimeError, error_chain};

use super::client::CallError;
use super::image::{self, ImageError};
use super::pod::{self, PodEntry, PodState, Starting};
use super::spec::{self, Start};
use super::{Context, api, blocking, exits, health, name_conflict, observe, sandbox, volumes};

mod attempt;

use attempt::Begun;

/// The kubelet's word for a container whose configuration cannot be made.
const CONFIG_ERROR: &str = "CreateContainerConfigError";
/// How long a container waits for what the node is about to have, such as an address.
const SOON: Duration = Duration::from_secs(1);

/// Why a container was not started.
enum StartError {
    /// The pod is being stopped.
    Stopping,
    /// A reason for the container's status, and a message. It is tried again after a while.
    Trouble(&'static str, String),
    /// The node lacks something that it is about to have: it is tried again soon.
    NotYet(String),
    /// What an earlier agent had begun came to nothing: it is tried again at once.
    Undone,
    /// The runtime did not answer: the pod workers try again.
    Runtime(RuntimeError),
}

/// Starts the next attempt of the pod's container `name`. None if it does not run, which its status tells.
///
/// # Errors
/// The runtime did not answer. What is wrong with the container itself goes to its status.
pub(super) async fn start(
    context: &Arc<Context>,
    starting: Starting,
    pod: &Pod,
    name: &Arc<str>,
) -> Result<Option<Arc<str>>, RuntimeError> {
    let Some(found) = plan::find(pod, name) else { return Ok(None) };
    let entry = starting.entry();
    match run(context, entry, pod, &found).await {
        Ok(id) => return Ok(Some(id)),
        Err(StartError::Stopping) => {}
        Err(StartError::Undone) => {
            tracing::info!(pod = %pod.label(), container = %name, "a start that was begun earlier came to nothing: starting anew");
        }
        Err(StartError::Runtime(error)) => return Err(error),
        Err(StartError::NotYet(message)) => {
            log_trouble(pod, name, CONFIG_ERROR, &message);
            context.pods.tell(entry, Some(name), Happening::Failed { error: message.clone() });
            if let Some(container) = entry.lock().container(name) {
                container.wait(CONFIG_ERROR, message, SOON);
            }
        }
        Err(StartError::Trouble(reason, message)) => {
            log_trouble(pod, name, reason, &message);
            let error = if is_of_image(reason) { reason.to_owned() } else { message.clone() };
            context.pods.tell(entry, Some(name), Happening::Failed { error });
            let is_back_off = entry.lock().container(name).is_some_and(|container| {
                container.fail(reason, message, &context.config.retry) == IMAGE_PULL_BACK_OFF
            });
            if is_back_off {
                let image = found.container.image.clone().unwrap_or_default();
                context.pods.tell(entry, Some(name), Happening::PullBackOff { image });
                let error = IMAGE_PULL_BACK_OFF.to_owned();
                context.pods.tell(entry, Some(name), Happening::Failed { error });
            }
        }
    }
    Ok(None)
}

/// The kubelet's event for one of these names the reason alone; another one before it has the message.
fn is_of_image(reason: &str) -> bool {
    matches!(reason, IMAGE_PULL | "ErrImageNeverPull" | "ImageInspectError")
}

fn log_trouble(pod: &Pod, container: &str, reason: &'static str, why: &str) {
    let pod = pod.label();
    tracing::warn!(%pod, %container, reason, "cannot start container {container} of pod {pod}: {why}");
}

/// Makes the container if it is not there yet, and starts it. Gives its id.
async fn run(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    found: &Found<'_>,
) -> Result<Arc<str>, StartError> {
    let name = &found.container.name;
    let made = created(&mut entry.lock(), name);
    let id = match made {
        Some(id) => id,
        // Boxed: it is large, and is moved several times until it is first polled.
        None => Box::pin(make(context, entry, pod, found)).await?,
    };
    if entry.lock().stopping {
        return Err(StartError::Stopping);
    }
    let what = || format!("starting container {name} of pod {}", pod.label());
    match attempt::begin(context, entry, name, &id).await {
        Begun::Started => {}
        Begun::Undone => return Err(StartError::Undone),
        Begun::Refused(error) => {
            // The runtime remembers the attempt as one that ended: the next one is numbered after it.
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
    match observe::ask(context, entry, &id, true).await {
        Ok(seen) => {
            exits::enter(context, entry, &seen);
        }
        // It runs; the next listing says when it ends.
        Err(error) => {
            tracing::warn!(pod = %pod.label(), container = %name, error = error_chain(&error), "cannot ask about a container that was started");
            entry.lock().own.unsure = true;
        }
    }
    Ok(id)
}

/// A container of the newest attempt that an earlier agent made and did not start.
fn created(state: &mut PodState, name: &str) -> Option<Arc<str>> {
    let sandbox = state.own.sandbox().map(|s| Arc::clone(&s.id))?;
    let run = state.container(name)?.run.as_ref()?;
    let is_here = run.own.sandbox == sandbox && run.end.is_none() && run.started_at.is_none();
    is_here.then(|| Arc::clone(&run.id))
}

async fn make(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    found: &Found<'_>,
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
    let image = tokio::select! {
        image = image::ensure(context, entry, container, &sandbox_config) => image?,
        () = pod::stopping(entry) => return Err(StartError::Stopping),
    };
    let image::Found { image, stop_signal } = image;
    spec::user_of_image(pod, container, &image)
        .map_err(|why| StartError::Trouble(CONFIG_ERROR, why))?;
    let field = &found.field;
    let start = Start {
        config: &context.config,
        pod,
        ips: &ips,
        container,
        field,
        kind: found.kind,
        place: found.place,
        target: target.as_deref(),
        attempt,
        backoff,
        image: &image,
        image_signal: stop_signal.as_deref(),
    };
    let mut config = spec::container(&start).map_err(config_error)?;
    let notice;
    (config.mounts, notice) = prepare(context, pod, container, attempt, &ips).await?;
    config.envs.extend(notice);
    let request = api::CreateContainerRequest {
        pod_sandbox_id: sandbox_id.to_string(),
        config: Some(config),
        sandbox_config: Some(sandbox_config),
    };
    let _turn = context.turn().await;
    if entry.lock().stopping {
        return Err(StartError::Stopping);
    }
    let what = || format!("making container {name} of pod {}", pod.label());
    let call = || {
        let call = context.client.create_container(request.clone());
        async { Ok(call.await?.container_id) }
    };
    let found =
        || name_conflict::container(context, pod.uid().as_str(), &sandbox_id, (name, attempt));
    let id = match patient(context, entry, name_conflict::or_make(call, found)).await {
        Some(Ok(id)) => id,
        Some(Err(error @ CallError::Refused { .. })) => {
            // Its name may be taken by an attempt whose answer was lost: a listing shows it.
            entry.lock().own.unsure = true;
            return Err(StartError::Trouble("CreateContainerError", error.message()));
        }
        Some(Err(error)) => return Err(unanswered(context, entry, error, what())),
        None => return Err(StartError::Stopping),
    };
    let mut run = pod::created(&id, attempt, &sandbox_id, backoff);
    run.image = container.image.as_deref().map(Into::into);
    let id = Arc::clone(&run.id);
    if let Some(container) = entry.lock().container(name) {
        pod::begin(container, run);
    }
    context.pods.tell(entry, Some(name), Happening::Created);
    Ok(id)
}

/// Makes the container's files and gives its mounts, and the variable that names the notice of its pod's end.
async fn prepare(
    context: &Arc<Context>,
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
        let notices = context.end_notices.make_room(pod.uid());
        let notice = notices.and_then(|dir| volumes::notice(&dir, &all));
        let (notice, variable) = notice.unzip();
        all.extend(notice);
        Ok((all, variable))
    };
    blocking(work).await.map_err(config_error)
}

fn config_error(error: RuntimeError) -> StartError {
    match error {
        RuntimeError::NotYet { what } => StartError::NotYet(what),
        other => StartError::Trouble(CONFIG_ERROR, error_chain(&other)),
    }
}

/// Waits for a call that makes something; when the pod is asked to stop meanwhile, only for a short
/// time: a stop must know whether the thing was made. None if it was given up.
async fn patient<T>(
    context: &Context,
    entry: &PodEntry,
    call: impl Future<Output = Result<T, CallError>>,
) -> Option<Result<T, CallError>> {
    tokio::select! {
        answer = call => Some(answer),
        () = given_up(context, entry) => None,
    }
}

/// Resolves a while after the pod was asked to stop. Then it is not known what there is.
pub(super) async fn given_up(context: &Context, entry: &PodEntry) {
    pod::stopping(entry).await;
    tokio::time::sleep(context.config.times.start_patience).await;
    entry.lock().own.unsure = true;
}

fn unanswered(context: &Context, entry: &PodEntry, error: CallError, what: String) -> StartError {
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
