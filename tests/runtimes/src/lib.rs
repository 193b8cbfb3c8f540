//! A scripted container runtime that speaks CRI over a socket, for tests.
//!
//! Its containers are small programs named `act` (see [`FakeCri`]); its answers can be made to fail,
//! to be late, to never come, or to be lost after the deed. It can be taken down and brought up again
//! with everything it knew.

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
mod images;
mod service;
mod stats;
mod world;

pub use api::health;
use service::Service;
use world::World;

/// A scripted runtime. Clones are not needed: share it by reference.
///
/// A container's command is `[any, RUN, CODE, STOP, STOP_CODE]`: it runs for RUN seconds (or
/// `forever`) and exits with CODE; asked to end, it takes STOP seconds (or `never` does) and exits with
/// STOP_CODE. A command that is executed in a container is `[.., "exit CODE"]`, `[.., "sleep
/// SECONDS"]` or `[.., "complain WORDS"]`, which fails. Processes have no pid: exits are told by events.
#[derive(Debug)]
pub struct FakeCri {
    socket: PathBuf,
    world: Arc<Mutex<World>>,
    life: Option<Life>,
}

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with this error, and nothing was done.
    Error(&'static str),
    /// It is not answered, and nothing was done.
    Hang,
    /// It is answered this much later.
    Slow(Duration),
    /// It is done, and the answer is lost.
    Lost,
    /// It is done, and answered with this error.
    Misreported(&'static str),
    /// The runtime had begun to start the container for another caller, and gave it up: it has
    /// ended without having run, and the call is refused.
    Undone,
    /// The runtime does not have it.
    Unimplemented,
}

/// One serving thread.
#[derive(Debug)]
struct Life {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl FakeCri {
    /// Listens at `socket`, in a thread of its own.
    ///
    /// # Panics
    /// The socket cannot be made.
    pub fn start(socket: &Path, wall: WallClock) -> Self {
        let world = Arc::new(Mutex::new(World::new(wall)));
        let mut fake = Self { socket: socket.to_owned(), world, life: None };
        fake.resume();
        fake
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Commands in containers that came to their end, and those whose callers gave them up before.
    pub fn commands(&self) -> (usize, usize) {
        let world = self.world();
        (world.commands_ended, world.commands_given_up)
    }

    /// Drops every connection and listens no more. Its containers go on.
    pub fn kill(&mut self) {
        if let Some(life) = self.life.take() {
            let _ = life.end.send(());
            let _ = life.thread.join();
            let _ = std::fs::remove_file(&self.socket);
        }
    }

    /// Listens again, with everything it knew.
    ///
    /// # Panics
    /// The socket cannot be made.
    #[allow(clippy::expect_used, reason = "for tests only")]
    pub fn resume(&mut self) {
        self.kill();
        let listener = std::os::unix::net::UnixListener::bind(&self.socket).expect("a socket");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let service = Service::new(Arc::clone(&self.world));
        let (end, ended) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // Ending the runtime drops every connection at once.
            runtime.expect("a thread to serve in").block_on(async {
                tokio::select! {
                    () = serve(listener, service) => {}
                    _ = ended => {}
                }
            });
        });
        self.life = Some(Life { end, thread });
    }

    /// From now on the next `times` calls of this name (`StopContainer`, or `*` for all) go wrong.
    pub fn script(&self, call: &'static str, times: usize, fault: Fault) {
        self.world().script(call, times, fault);
    }

    /// Nothing goes wrong any more. Calls that hang stay hung.
    pub fn heal(&self) {
        self.world().heal();
    }

    /// The calls so far, each with what it concerned: `StopContainer main 10`.
    pub fn calls(&self) -> Vec<String> {
        self.world().calls()
    }

    /// Containers that run now, as `pod/container#attempt`.
    pub fn running(&self) -> Vec<String> {
        self.world().running()
    }

    /// How many containers and sandboxes there are, dead ones included.
    pub fn holds(&self) -> (usize, usize) {
        self.world().holds()
    }

    /// The image is on the node, or not any more.
    pub fn set_image(&self, name: &str, is_there: bool) {
        self.world().set_image(name, is_there);
    }

    /// A sandbox dies, as when its process is killed; its containers go on.
    pub fn kill_sandboxes(&self) {
        self.world().kill_sandboxes();
    }

    /// The caller of a start is gone: containers that were made and do not run yet never will.
    pub fn give_up_starts(&self) {
        self.world().give_up_starts();
    }

    /// The most starts of one attempt of one container that were ever seen; 1 is as it should be.
    pub fn most_starts(&self) -> usize {
        self.world().most_starts()
    }

    /// Streams are said to be served here from now on.
    pub fn serve_streams_at(&self, url: &str) {
        url.clone_into(&mut self.world().stream_url);
    }

    /// Makes a foreign pod, as a kubelet would; returns its container's id.
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
    // An error ends the serving, which the test sees as a runtime that went away.
    let _ = server.serve_with_incoming(incoming).await;
}
