//! The fake's state: images, sandboxes, containers, and scripted faults.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;
use winddown_shared::WallClock;

use super::Fault;
use super::act::{Act, Signals};
use crate::api;

/// The state of the fake. It outlives the server.
#[derive(Debug)]
pub(super) struct World {
    wall: WallClock,
    next_id: u64,
    images: HashSet<String>,
    pub(super) sandboxes: BTreeMap<String, Sandbox>,
    pub(super) containers: BTreeMap<String, Container>,
    faults: Vec<(&'static str, usize, Fault)>,
    calls: Vec<String>,
    /// The number of commands in containers whose callers gave up before the commands had ended.
    pub(super) commands_given_up: usize,
    /// The number of commands in containers that ended.
    pub(super) commands_ended: usize,
    /// The URL at which streams are reported to be served.
    pub(super) stream_url: String,
    pub(super) network_ready: bool,
    /// The configuration in the verbose status; empty for none.
    pub(super) config: String,
    /// Whether what is created under a taken name is what has the name, as with CRI-O, and not refused.
    pub(super) finds_taken_names: bool,
    /// Where the groups of pods are made with their first containers.
    pub(super) cgroups: Option<PathBuf>,
    starts: HashMap<String, usize>,
    pub(super) events: broadcast::Sender<api::ContainerEventResponse>,
}

#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) config: api::PodSandboxConfig,
    pub(super) handler: String,
    pub(super) ready: bool,
    pub(super) created_at: i64,
    /// Empty if its network is gone.
    pub(super) ip: String,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) sandbox: String,
    pub(super) config: api::ContainerConfig,
    pub(super) status: api::ContainerStatus,
    pub(super) signals: Arc<Signals>,
    /// Whether the stop signal was sent; it is sent only once.
    pub(super) asked: bool,
}

impl World {
    pub(super) fn new(wall: WallClock) -> Self {
        Self {
            wall,
            next_id: 0,
            images: HashSet::new(),
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            faults: Vec::new(),
            calls: Vec::new(),
            commands_given_up: 0,
            commands_ended: 0,
            stream_url: String::new(),
            network_ready: true,
            config: String::new(),
            finds_taken_names: false,
            cgroups: None,
            starts: HashMap::new(),
            events: broadcast::Sender::new(256),
        }
    }

    pub(super) fn script(&mut self, call: &'static str, times: usize, fault: Fault) {
        self.faults.push((call, times, fault));
    }

    pub(super) fn heal(&mut self) {
        self.faults.clear();
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.clone()
    }

    /// Records a call and returns its scripted fault.
    pub(super) fn begin(&mut self, call: &str, about: &str) -> Option<Fault> {
        self.calls.push(format!("{call} {about}").trim_end().to_owned());
        let scripted = self
            .faults
            .iter_mut()
            .find(|(name, left, _)| *left > 0 && (*name == call || *name == "*"));
        scripted.map(|(_, left, fault)| {
            *left = left.saturating_sub(1);
            fault.clone()
        })
    }

    /// Whether this fault is scripted for the next call of this name; if so, uses it up.
    pub(super) fn takes(&mut self, call: &str, fault: &Fault) -> bool {
        let next = self.faults.iter_mut().find(|(name, left, _)| *left > 0 && *name == call);
        match next {
            Some((_, left, scripted)) if scripted == fault => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Gives up the start of a container.
    pub(super) fn undo(&mut self, id: &str) {
        let now = self.now();
        if let Some(container) = self.containers.get_mut(id) {
            container.status.set_state(api::ContainerState::ContainerExited);
            container.status.finished_at = now;
            container.status.exit_code = 128;
            container.status.reason = "StartError".to_owned();
        }
    }

    pub(super) fn give_up_starts(&mut self) {
        let created = api::ContainerState::ContainerCreated;
        let all = self.containers.iter().filter(|(_, c)| c.status.state() == created);
        let ids: Vec<String> = all.map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| self.undo(id));
    }

    pub(super) fn lose_states(&mut self) {
        for container in self.containers.values_mut().filter(|c| c.is_running()) {
            container.status.set_state(api::ContainerState::ContainerUnknown);
        }
    }

    pub(super) fn running(&self) -> Vec<String> {
        let running = self.containers.values().filter(|c| c.is_running());
        running.map(Container::title).collect()
    }

    pub(super) fn limits(&self) -> Vec<String> {
        let of = |container: &Container| {
            let linux = container.config.linux.as_ref();
            let limits = linux.and_then(|linux| linux.resources.clone()).unwrap_or_default();
            let pages = limits.hugepage_limits.iter();
            let pages = pages.map(|pages| format!(" {}={}", pages.page_size, pages.limit));
            let unified = limits.unified.iter().map(|(file, value)| format!(" {file}={value}"));
            container.title() + &pages.chain(unified).collect::<String>()
        };
        self.containers.values().map(of).collect()
    }

    pub(super) fn holds(&self) -> (usize, usize) {
        (self.containers.len(), self.sandboxes.len())
    }

    pub(super) fn set_image(&mut self, name: &str, is_there: bool) {
        if is_there {
            self.images.insert(name.to_owned());
        } else {
            self.images.remove(name);
        }
    }

    pub(super) fn images(&self) -> impl Iterator<Item = &String> {
        self.images.iter()
    }

    pub(super) fn has_image(&self, name: &str) -> bool {
        self.images.contains(name)
    }

    pub(super) fn most_starts(&self) -> usize {
        self.starts.values().copied().max().unwrap_or(0)
    }

    pub(super) fn forget_everything(&mut self) {
        self.containers.clear();
        self.sandboxes.clear();
    }

    pub(super) fn plant_foreign_sandbox(
        &mut self,
        (name, uid): (&str, &str),
        attempt: u32,
        ready: bool,
    ) {
        let labels = HashMap::from([("io.kubernetes.pod.uid".to_owned(), uid.to_owned())]);
        let config = api::PodSandboxConfig {
            metadata: Some(api::PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.to_owned(),
                namespace: "default".to_owned(),
                attempt,
            }),
            labels: labels.clone(),
            ..api::PodSandboxConfig::default()
        };
        let id = self.add_sandbox(config, String::new()).unwrap_or_default();
        if ready {
            return;
        }
        let config = api::ContainerConfig {
            metadata: Some(api::ContainerMetadata { name: "main".to_owned(), attempt }),
            labels,
            ..api::ContainerConfig::default()
        };
        let run = self.add_container(&id, config).unwrap_or_default();
        self.end(&run, 0);
        if let Some(sandbox) = self.sandboxes.get_mut(&id) {
            sandbox.ready = false;
        }
    }

    pub(super) fn kill_sandboxes(&mut self) {
        let ids: Vec<String> = self.sandboxes.keys().cloned().collect();
        for id in ids {
            if let Some(sandbox) = self.sandboxes.get_mut(&id) {
                sandbox.ready = false;
            }
            self.tell(&id, &id);
        }
    }

    pub(super) fn lose_networks(&mut self) {
        self.sandboxes.values_mut().for_each(|sandbox| sandbox.ip.clear());
    }

    pub(super) fn now(&self) -> i64 {
        i64::try_from(self.wall.now().as_nanosecond()).unwrap_or(i64::MAX)
    }

    pub(super) fn new_id(&mut self) -> String {
        self.next_id += 1;
        format!("{:064x}", self.next_id)
    }

    /// Creates a sandbox.
    ///
    /// # Errors
    /// The name is taken.
    pub(super) fn add_sandbox(
        &mut self,
        config: api::PodSandboxConfig,
        handler: String,
    ) -> Result<String, String> {
        let metadata = config.metadata.clone().unwrap_or_default();
        let taken =
            self.sandboxes.iter().find(|(_, s)| s.config.metadata.as_ref() == Some(&metadata));
        if let Some((id, _)) = taken {
            return self.name_of("sandbox", id);
        }
        let (id, created_at) = (self.new_id(), self.now());
        let ip = "10.88.0.2".to_owned();
        let sandbox = Sandbox { config, handler, ready: true, created_at, ip };
        self.sandboxes.insert(id.clone(), sandbox);
        Ok(id)
    }

    /// What is answered if `id` has the name already.
    fn name_of(&self, what: &str, id: &str) -> Result<String, String> {
        match self.finds_taken_names {
            true => Ok(id.to_owned()),
            false => Err(format!("failed to reserve {what} name: it is reserved for {id}")),
        }
    }

    /// Creates a container.
    ///
    /// # Errors
    /// The name is taken, or the sandbox is not ready.
    pub(super) fn add_container(
        &mut self,
        sandbox: &str,
        config: api::ContainerConfig,
    ) -> Result<String, String> {
        if !self.sandboxes.get(sandbox).is_some_and(|s| s.ready) {
            return Err(format!("sandbox {sandbox} is not ready"));
        }
        let metadata = config.metadata.clone().unwrap_or_default();
        let pod_of =
            |sandbox: &str| Some(self.sandboxes.get(sandbox)?.config.metadata.clone()?.uid);
        let taken = self.containers.iter().find(|(_, c)| {
            c.config.metadata.as_ref() == Some(&metadata) && pod_of(&c.sandbox) == pod_of(sandbox)
        });
        if let Some((id, _)) = taken {
            return self.name_of("container", id);
        }
        let (id, created_at) = (self.new_id(), self.now());
        let log = self.sandboxes.get(sandbox).map(|s| s.config.log_directory.clone());
        let status = api::ContainerStatus {
            id: id.clone(),
            metadata: Some(metadata),
            state: api::ContainerState::ContainerCreated.into(),
            created_at,
            image_ref: format!("{}@sha256:0", config.image.clone().unwrap_or_default().image),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            log_path: format!("{}/{}", log.unwrap_or_default(), config.log_path),
            ..api::ContainerStatus::default()
        };
        let (signals, sandbox) = (Arc::default(), sandbox.to_owned());
        let container = Container { sandbox, config, status, signals, asked: false };
        self.containers.insert(id.clone(), container);
        Ok(id)
    }

    /// Starts a created container; its exit is announced as an event.
    ///
    /// # Errors
    /// The container does not exist, or was started before.
    pub(super) fn start(world: &Arc<Mutex<Self>>, id: &str) -> Result<(), String> {
        let (act, signals) = {
            let mut state = world.lock().unwrap_or_else(PoisonError::into_inner);
            let now = state.now();
            let container = state.containers.get_mut(id).ok_or("there is no such container")?;
            if container.status.state() != api::ContainerState::ContainerCreated {
                let state = container.status.state().as_str_name();
                return Err(format!("container {id} is in {state} state"));
            }
            container.status.set_state(api::ContainerState::ContainerRunning);
            container.status.started_at = now;
            let (title, sandbox) = (container.title(), container.sandbox.clone());
            let act = (Act::read(&container.config.command), Arc::clone(&container.signals));
            *state.starts.entry(title).or_default() += 1;
            state.make_cgroup(&sandbox);
            act
        };
        let (world, id) = (Arc::clone(world), id.to_owned());
        // In its own thread, because it outlives the server.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let Ok(runtime) = runtime else { return };
            let code = runtime.block_on(act.run(&signals));
            world.lock().unwrap_or_else(PoisonError::into_inner).end(&id, code);
        });
        Ok(())
    }

    /// Makes the group of the container's pod, with its parents, each with the usual weight.
    fn make_cgroup(&self, sandbox: &str) {
        let (Some(mount), Some(sandbox)) = (&self.cgroups, self.sandboxes.get(sandbox)) else {
            return;
        };
        let linux = sandbox.config.linux.as_ref();
        let parent = linux.map_or("", |linux| linux.cgroup_parent.trim_start_matches('/'));
        for group in Path::new(parent).ancestors().filter(|group| *group != Path::new("")) {
            let group = mount.join(group);
            let weight = group.join("cpu.weight");
            if !weight.exists() {
                let _ = std::fs::create_dir_all(&group);
                let _ = std::fs::write(weight, "100\n");
            }
        }
    }

    fn end(&mut self, id: &str, code: i32) {
        let now = self.now();
        let Some(container) = self.containers.get_mut(id) else { return };
        container.status.set_state(api::ContainerState::ContainerExited);
        container.status.finished_at = now;
        container.status.exit_code = code;
        let sandbox = container.sandbox.clone();
        self.tell(id, &sandbox);
    }

    fn tell(&self, id: &str, sandbox: &str) {
        let event = api::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: api::ContainerEventType::ContainerStoppedEvent.into(),
            created_at: self.now(),
            pod_sandbox_status: self.sandbox_status(sandbox),
            containers_statuses: Vec::new(),
        };
        let _ = self.events.send(event);
    }

    pub(super) fn sandbox_status(&self, id: &str) -> Option<api::PodSandboxStatus> {
        let sandbox = self.sandboxes.get(id)?;
        let linux = sandbox.config.linux.as_ref();
        let security = linux.and_then(|linux| linux.security_context.as_ref());
        let options = security.and_then(|context| context.namespace_options.clone());
        let on_host = options.as_ref().is_some_and(|o| o.network() == api::NamespaceMode::Node);
        Some(api::PodSandboxStatus {
            id: id.to_owned(),
            metadata: sandbox.config.metadata.clone(),
            state: sandbox.state().into(),
            created_at: sandbox.created_at,
            network: Some(api::PodSandboxNetworkStatus {
                ip: if on_host { String::new() } else { sandbox.ip.clone() },
                additional_ips: Vec::new(),
            }),
            linux: Some(api::LinuxPodSandboxStatus {
                namespaces: Some(api::Namespace { options }),
            }),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: sandbox.handler.clone(),
        })
    }

    pub(super) fn plant_foreign_pod(world: &Arc<Mutex<Self>>) -> String {
        let id = {
            let mut state = world.lock().unwrap_or_else(PoisonError::into_inner);
            let uid = ("io.kubernetes.pod.uid".to_owned(), "foreign".to_owned());
            let config = api::PodSandboxConfig {
                metadata: Some(api::PodSandboxMetadata {
                    name: "foreign".to_owned(),
                    // Makes it unique.
                    uid: state.sandboxes.len().to_string(),
                    ..api::PodSandboxMetadata::default()
                }),
                labels: HashMap::from([uid.clone()]),
                ..api::PodSandboxConfig::default()
            };
            let sandbox = state.add_sandbox(config, String::new()).unwrap_or_default();
            let name = ("io.kubernetes.container.name".to_owned(), "main".to_owned());
            let config = api::ContainerConfig {
                metadata: Some(api::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
                labels: HashMap::from([uid, name]),
                ..api::ContainerConfig::default()
            };
            state.add_container(&sandbox, config).unwrap_or_default()
        };
        let _ = Self::start(world, &id);
        id
    }
}

impl Sandbox {
    pub(super) fn state(&self) -> api::PodSandboxState {
        if self.ready {
            api::PodSandboxState::SandboxReady
        } else {
            api::PodSandboxState::SandboxNotready
        }
    }
}

impl Container {
    pub(super) fn is_running(&self) -> bool {
        self.status.state() == api::ContainerState::ContainerRunning
    }

    /// Whether there is something to stop.
    pub(super) fn may_run(&self) -> bool {
        self.is_running() || self.status.state() == api::ContainerState::ContainerUnknown
    }

    /// `pod/container#attempt`.
    pub(super) fn title(&self) -> String {
        let metadata = self.config.metadata.clone().unwrap_or_default();
        let pod = self.config.labels.get("io.kubernetes.pod.name").map_or("?", String::as_str);
        format!("{pod}/{}#{}", metadata.name, metadata.attempt)
    }
}
