//! A scripted container runtime that speaks CRI over a socket, for tests.
//!
//! Its containers run a scripted behaviour (see [`FakeCri`]). Its answers can be made to fail, to be late, to never
//! come, or to be lost after the call was carried out. It can be stopped and started again without losing its state.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tonic::transport::Server;
use winddown_shared::WallClock;

use api::image_service_server::ImageServiceServer;
use api::runtime_service_server::RuntimeServiceServer;

mod act;
mod api;
pub mod crio;
mod images;
mod service;
mod stats;
mod world;

pub use api::health;
use service::Service;
use world::World;

/// A scripted runtime. It need not be cloned: share it by reference.
///
/// A container's command is `[any, RUN, CODE, STOP, STOP_CODE, GATE]`: it runs for RUN seconds (or `never` ends) and
/// exits with CODE; on SIGTERM, it takes STOP seconds (or `never` stops) and exits with STOP_CODE. RUN or STOP may be
/// `gate`: then it ends when the file GATE exists. A command that is executed in a container is `[.., "exit CODE"]`,
/// `[.., "sleep SECONDS"]` or `[.., "complain WORDS"]`, which fails. Processes have no PID: exits are reported as
/// events.
#[derive(Debug)]
pub struct FakeCri {
    socket: PathBuf,
    world: Arc<Mutex<World>>,
    life: Option<Life>,
}

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this error, without having been carried out.
    Error(&'static str),
    /// The call is neither answered nor carried out.
    Hang,
    /// The call is answered this much later.
    Slow(Duration),
    /// The call is carried out, but the answer is lost.
    Lost,
    /// The call is carried out, but answered with this error.
    Misreported(&'static str),
    /// The runtime had started the container for another caller and given up: the container exits without having run,
    /// and the call fails.
    Undone,
    /// The runtime does not implement the call.
    Unimplemented,
}

/// A serving thread.
#[derive(Debug)]
struct Life {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl FakeCri {
    /// Starts a runtime that listens on `socket`, in its own thread.
    ///
    /// # Panics
    /// The socket cannot be created.
    pub fn start(socket: &Path, wall: WallClock) -> Self {
        let world = Arc::new(Mutex::new(World::new(wall)));
        let mut fake = Self { socket: socket.to_owned(), world, life: None };
        fake.resume();
        fake
    }

    /// The path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The numbers of commands in containers that ended, and of those whose callers gave up before that.
    pub fn commands(&self) -> (usize, usize) {
        let world = self.world();
        (world.commands_ended, world.commands_given_up)
    }

    /// Drops every connection and stops listening. Containers keep running.
    pub fn kill(&mut self) {
        if let Some(life) = self.life.take() {
            let _ = life.end.send(());
            let _ = life.thread.join();
            let _ = std::fs::remove_file(&self.socket);
        }
    }

    /// Listens again, with the state from before.
    ///
    /// # Panics
    /// The socket cannot be created.
    #[allow(clippy::expect_used, reason = "for tests only")]
    pub fn resume(&mut self) {
        self.kill();
        let listener = std::os::unix::net::UnixListener::bind(&self.socket).expect("a socket");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let service = Service::new(Arc::clone(&self.world));
        let (end, ended) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // Dropping the runtime drops every connection at once.
            runtime.expect("a thread to serve in").block_on(async {
                tokio::select! {
                    () = serve(listener, service) => {}
                    _ = ended => {}
                }
            });
        });
        self.life = Some(Life { end, thread });
    }

    /// Makes the next `times` calls of this name (`StopContainer`, or `*` for all) go wrong.
    pub fn script(&self, call: &'static str, times: usize, fault: Fault) {
        self.world().script(call, times, fault);
    }

    /// Removes all faults. Calls that already hang stay hung.
    pub fn heal(&self) {
        self.world().heal();
    }

    /// The calls so far, each with its subject: `StopContainer main 10`.
    pub fn calls(&self) -> Vec<String> {
        self.world().calls()
    }

    /// The containers that are running, as `pod/container#attempt`.
    pub fn running(&self) -> Vec<String> {
        self.world().running()
    }

    /// The huge pages and the settings of control groups of version 2 that each container may have, as
    /// `pod/container#attempt 2MB=0 memory.oom.group=1`.
    pub fn limits(&self) -> Vec<String> {
        self.world().limits()
    }

    /// The numbers of containers and sandboxes, including dead ones.
    pub fn holds(&self) -> (usize, usize) {
        self.world().holds()
    }

    /// Adds the image to the node, or removes it.
    pub fn set_image(&self, name: &str, is_there: bool) {
        self.world().set_image(name, is_there);
    }

    /// Kills all sandboxes, as if their processes had been killed; their containers keep running.
    pub fn kill_sandboxes(&self) {
        self.world().kill_sandboxes();
    }

    /// Removes the network namespaces of all sandboxes, whose processes keep running.
    pub fn lose_networks(&self) {
        self.world().lose_networks();
    }

    /// Loses the states of running containers, as containerd may when it is restarted; they keep running.
    pub fn lose_states(&self) {
        self.world().lose_states();
    }

    /// Gives up all starts: containers that were created but are not running never will be.
    pub fn give_up_starts(&self) {
        self.world().give_up_starts();
    }

    /// The highest number of starts of any attempt of any container; should be 1.
    pub fn most_starts(&self) -> usize {
        self.world().most_starts()
    }

    /// Sets the URL at which streams are reported to be served.
    pub fn serve_streams_at(&self, url: &str) {
        url.clone_into(&mut self.world().stream_url);
    }

    /// Sets whether pods can have a network of their own.
    pub fn set_network_ready(&self, is_ready: bool) {
        self.world().network_ready = is_ready;
    }

    /// Sets the configuration that the verbose status contains, as JSON.
    pub fn set_config(&self, json: &str) {
        json.clone_into(&mut self.world().config);
    }

    /// Makes the groups of pods below `mount` with their first containers, as CRI-O does, instead of none.
    pub fn make_cgroups(&self, mount: &Path) {
        self.world().cgroups = Some(mount.to_owned());
    }

    /// Loses all sandboxes and containers, as CRI-O does when the machine boots.
    pub fn forget_everything(&self) {
        self.world().forget_everything();
    }

    /// From now on what is created under a taken name is what has the name, as with CRI-O, and not refused.
    pub fn find_taken_names(&self) {
        self.world().finds_taken_names = true;
    }

    /// Creates a sandbox of a pod (its name and its UID), as a kubelet would; if it is not ready, with a container `main`
    /// that has exited, of the same attempt.
    pub fn plant_foreign_sandbox(&self, pod: (&str, &str), attempt: u32, ready: bool) {
        self.world().plant_foreign_sandbox(pod, attempt, ready);
    }

    /// Creates a foreign pod, as a kubelet would; returns its container's ID.
    pub fn plant_foreign_pod(&self) -> String {
        World::plant_foreign_pod(&self.world)
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FakeCri {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn serve(listener: std::os::unix::net::UnixListener, service: Service) {
    let Ok(listener) = UnixListener::from_std(listener) else { return };
    let incoming = futures_util::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let server = Server::builder()
        .add_service(RuntimeServiceServer::new(service.clone()))
        .add_service(ImageServiceServer::new(service));
    // An error ends the server, which tests see as a runtime that went away.
    let _ = server.serve_with_incoming(incoming).await;
}
