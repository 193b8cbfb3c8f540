//! The service of a kubelet that is a service of its own, which can be stopped without stopping anything else.

use std::io;
use std::path::{Path, PathBuf};

use winddown_host::regular;

use super::{installed, processes};

/// The name of the service where nothing on the machine says otherwise.
pub const USUAL: &str = "kubelet.service";
/// The file in an agent's volatile directory that names the service while the agent has it stopped.
const STOPPED: &str = "kubelet-stopped";
/// Maximum number of bytes read from it.
const MAX_NAME_BYTES: u64 = 256;

/// The service of this machine's kubelet: the one in which it runs or, if none runs, one that would start it. `None` if it
/// has none, or if another program starts it or contains it, as in RKE2 and k3s.
pub fn own(root: &Path) -> Option<String> {
    let running = processes::own_service(root).unwrap_or_default();
    running.or_else(|| {
        let mut own = installed(root).into_iter().filter(|kubelet| !kubelet.is_contained());
        own.find_map(|kubelet| kubelet.unit)
    })
}

/// The file by which an agent with this volatile directory says that it has the service stopped.
pub fn stopped_file(volatile: &Path) -> PathBuf {
    volatile.join(STOPPED)
}

/// The service that an agent with this volatile directory has stopped, if any.
pub fn stopped(volatile: &Path) -> Option<String> {
    let name = match regular::read_to_string(&stopped_file(volatile), MAX_NAME_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        name => name.unwrap_or_default(),
    };
    let is_name = name.ends_with(".service") && !name.contains(['/', ' ', '\n']);
    Some(if is_name { name } else { USUAL.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_file_of_an_agent_names_the_service_that_is_stopped() {
        let volatile = tempfile::tempdir().unwrap();
        assert_eq!(stopped(volatile.path()), None);
        for (text, wanted) in [
            ("snap.k8s.kubelet.service", "snap.k8s.kubelet.service"),
            // Whatever else it says, the service is stopped.
            ("", USUAL),
            ("../kubelet.service", USUAL),
        ] {
            fs::write(stopped_file(volatile.path()), text).unwrap();
            assert_eq!(stopped(volatile.path()).as_deref(), Some(wanted), "{text}");
        }
    }
}
