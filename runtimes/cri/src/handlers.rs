//! Which containers are ordinary processes of this kernel: no virtual machine, no sandboxing kernel.
//!
//! containerd reports the runtime type with each container. CRI-O reports the handler with each sandbox, and what its
//! handlers are in its verbose status.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use tokio::sync::OnceCell;

use super::api;
use super::client::{CallError, CriClient};

use winddown_shared::Mutex;

/// The type of containerd's runtime for ordinary processes.
const PLAIN_TYPE: &str = "io.containerd.runc.v2";
/// The types of CRI-O's runtimes that start a program for each container. An empty one is the default.
const CRIOS_TYPES: [&str; 2] = ["", "oci"];
/// How the names of programs end that make an ordinary process of a container. Packages put `crio-` before them.
const PLAIN_PROGRAMS: [&str; 2] = ["runc", "crun"];

/// The names of the handlers for ordinary processes, determined once for each time that the runtime came back.
#[derive(Debug, Default)]
pub(crate) struct Handlers(Mutex<(u64, Arc<OnceCell<HashSet<String>>>)>);

/// The part of CRI-O's verbose status that is needed here.
#[derive(Deserialize)]
struct Config {
    crio: Crio,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Crio {
    default_runtime: String,
    runtimes: HashMap<String, Program>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct Program {
    runtime_path: PathBuf,
    runtime_type: String,
}

// === impl Handlers ===

impl Handlers {
    /// Whether a container of this runtime type is an ordinary process; without a type, one in a sandbox of this
    /// handler. One of which neither is known is not. `epoch` is another one when the runtime has come back.
    pub(super) async fn is_plain(
        &self,
        (client, epoch): (&CriClient, u64),
        runtime_type: &str,
        handler: Option<&str>,
    ) -> Result<bool, CallError> {
        if !runtime_type.is_empty() {
            return Ok(runtime_type == PLAIN_TYPE);
        }
        let Some(handler) = handler else { return Ok(false) };
        let plain = {
            let mut known = self.0.lock();
            if known.0 != epoch {
                *known = (epoch, Arc::default());
            }
            Arc::clone(&known.1)
        };
        Ok(plain.get_or_try_init(|| ask(client)).await?.contains(handler))
    }
}

async fn ask(client: &CriClient) -> Result<HashSet<String>, CallError> {
    let answer = client.status(api::StatusRequest { verbose: true }).await?;
    Ok(answer.info.get("config").map(|json| plain(json)).unwrap_or_default())
}

/// The handlers for ordinary processes in CRI-O's configuration; the empty name is the default one.
fn plain(json: &str) -> HashSet<String> {
    let Ok(Config { crio: Crio { default_runtime, runtimes } }) = serde_json::from_str(json) else {
        return HashSet::new();
    };
    let is_plain = |program: &Program| {
        let name = program.runtime_path.file_name().unwrap_or_default().to_string_lossy();
        CRIOS_TYPES.contains(&program.runtime_type.as_str())
            && PLAIN_PROGRAMS.iter().any(|ending| name.ends_with(ending))
    };
    let mut plain: HashSet<String> = runtimes
        .into_iter()
        .filter(|(_, program)| is_plain(program))
        .map(|(name, _)| name)
        .collect();
    if plain.contains(&default_runtime) {
        plain.insert(String::new());
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use winddown_runtimes_tests::FakeCri;

    use super::*;
    use crate::{CriConfig, CriRuntime};

    const RUNC: &str = r#"{"sandboxImage": "pause", "crio": {"DefaultRuntime": "runc",
        "Runtimes": {"runc": {"RuntimePath": "/usr/sbin/runc", "RuntimeType": "oci"}}}}"#;

    #[test]
    fn a_handler_is_plain_if_its_program_makes_processes_of_containers() {
        for (path, kind, expected) in [
            ("/usr/sbin/runc", "oci", true),
            ("/usr/libexec/crio/crun", "", true),
            ("/usr/bin/crio-crun", "oci", true),
            ("/usr/bin/kata-runtime", "oci", false),
            ("/usr/bin/runsc", "oci", false),
            ("/usr/bin/crun-vm", "oci", false),
            ("/opt/crun/bin/krun", "oci", false),
            ("/usr/bin/containerd-shim-kata-v2", "vm", false),
            ("/usr/bin/runc", "vm", false),
            ("", "oci", false),
        ] {
            let handler = serde_json::json!({"RuntimePath": path, "RuntimeType": kind});
            let runtimes = serde_json::json!({"one": handler});
            let crio = |default| serde_json::json!({"crio": {"DefaultRuntime": default, "Runtimes": runtimes}});
            let found = plain(&crio("one").to_string());
            assert_eq!((found.contains("one"), found.contains("")), (expected, expected), "{path}");
            assert!(
                !plain(&crio("two").to_string()).contains(""),
                "{path}: the default is another"
            );
        }
        for text in ["", "{}", r#"{"crio": {}}"#, r#"{"containerd": {}}"#, "[]"] {
            assert_eq!(plain(text), HashSet::new(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_runtime_is_asked_for_its_handlers_once_and_again_when_it_has_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let config = CriConfig::below(dir.path());
        let mut cri = FakeCri::start(&dir.path().join("cri.sock"), config.wall.clone());
        cri.set_config(RUNC);
        let runtime = CriRuntime::open(config).await.unwrap();
        let mut health = runtime.health();
        let mut is_at = async |epoch| {
            let there = health.wait_for(|health| health.epoch == epoch);
            tokio::time::timeout(Duration::from_secs(10), there).await.unwrap().unwrap();
        };
        is_at(1).await;
        let (context, handlers) = (&runtime.context, &runtime.context.handlers);
        let asked =
            |cri: &FakeCri| cri.calls().iter().filter(|call| *call == "Status verbose").count();
        let runtime = || (&context.client, context.health.borrow().epoch);
        assert!(handlers.is_plain(runtime(), PLAIN_TYPE, None).await.unwrap());
        assert!(!handlers.is_plain(runtime(), "io.containerd.kata.v2", Some("")).await.unwrap());
        assert_eq!(asked(&cri), 0, "containerd says it with the container");
        for (handler, expected) in
            [(Some(""), true), (Some("runc"), true), (Some("kata"), false), (None, false)]
        {
            assert_eq!(handlers.is_plain(runtime(), "", handler).await.unwrap(), expected);
        }
        assert_eq!(asked(&cri), 1);
        cri.kill();
        cri.set_config("{}");
        cri.resume();
        is_at(2).await;
        assert!(!handlers.is_plain(runtime(), "", Some("runc")).await.unwrap());
    }
}
