use std::fs;
use std::future::pending;
use std::sync::Arc;

use http::HeaderValue;
use k8s_openapi::api::core::v1::Namespace;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use tokio::time::{Instant, timeout};
use winddown_shared::{WallClock, WallTime};

use super::*;
use crate::limit::RequestLimits;
use crate::refusal;
use crate::reloading::{Pauses, Reloading};
use crate::source::CredentialsSource;
use crate::transport::TransportConfig;
use crate::within::within;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Credentials in this kubeconfig, whose files are looked at once an hour unless they change.
fn shared(path: PathBuf) -> ConnectionShared {
    let transport_config = TransportConfig {
        user_agent: HeaderValue::from_static("agent"),
        connect_timeout: HOUR,
        answer_timeout: HOUR,
    };
    let pauses = Pauses { look_every: HOUR, command_again_after: HOUR };
    let (limits, wall) =
        (RequestLimits::new(1, 1, Instant::now()), WallClock::fixed(WallTime::UNIX_EPOCH));
    ConnectionShared::new(
        CredentialsSource::Kubeconfig { path, context: None },
        transport_config,
        pauses,
        limits,
        wall,
    )
}

/// Waits until the health says that this is missing.
async fn misses(shared: &ConnectionShared, what: &str) {
    let mut health = shared.health.watch();
    let says = |state: &ConnectionState| matches!(state, ConnectionState::Unsigned { why } if why.contains(what));
    let said = health.wait_for(|health| says(&health.state));
    let said = timeout(Duration::from_secs(30), said).await.map(drop);
    assert!(said.is_ok(), "{what}: {:?}", shared.health.watch().borrow());
}

#[tokio::test]
async fn credentials_are_read_as_soon_as_the_last_of_their_files_is_there() {
    let dir = tempfile::tempdir().unwrap();
    // As on a node that joins: neither the directories nor the files are there.
    let [etc, lib] = ["etc/kubernetes", "lib/kubelet/pki"].map(|name| dir.path().join(name));
    let kubeconfig = etc.join("kubelet.conf");
    let shared = shared(kubeconfig.clone());
    let joins = async {
        misses(&shared, "kubelet.conf does not exist").await;
        let authority = CertificateParams::default().self_signed(&KeyPair::generate().unwrap());
        fs::create_dir_all(&etc).unwrap();
        fs::write(etc.join("ca.crt"), authority.unwrap().pem()).unwrap();
        fs::write(&kubeconfig, "not yet").unwrap();
        misses(&shared, "is not a kubeconfig").await;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {
                "server": "https://10.0.0.1", "certificate-authority": etc.join("ca.crt"),
            }}],
            "users": [{"name": "u", "user": {"tokenFile": lib.join("token")}}],
        });
        fs::write(&kubeconfig, config.to_string()).unwrap();
        misses(&shared, "lib/kubelet/pki/token does not exist").await;
        fs::create_dir_all(&lib).unwrap();
        fs::write(lib.join("token"), "abc").unwrap();
    };
    let both = async { tokio::join!(shared.await_credentials(), joins) };
    timeout(Duration::from_secs(60), both).await.unwrap();
    assert_eq!(shared.current().unwrap().material.authorization.as_ref().unwrap(), "Bearer abc");
}

#[test]
fn the_way_to_a_file_is_watched_from_the_root_on() {
    let way = places(Path::new("/etc/kubernetes/kubelet.conf"));
    let wanted = [("/", "etc"), ("/etc", "kubernetes"), ("/etc/kubernetes", "kubelet.conf")];
    assert_eq!(way, wanted.map(|(directory, entry)| (directory.into(), entry.into())));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_passes_before_anything_is_sent_blames_no_server() {
    let dir = tempfile::tempdir().unwrap();
    let shared = Arc::new(shared(dir.path().join("kubelet.conf")));
    shared.not_yet(&shared.begin().await.unwrap_err());
    let client = kube::Client::new(Reloading(Arc::clone(&shared)), "default");
    let spaces = kube::Api::<Namespace>::all(client);
    let limit = 5 * SECOND;
    let asked = || async { within(limit, spaces.get("default")).await.unwrap_err() };
    let unsigned = asked().await;
    let why = refusal::text(&unsigned);
    assert!(why.contains("no credentials") && why.contains("conf does not exist"), "{why}");
    assert!(refusal::is_unsigned(&unsigned));
    shared.limits.pause(HOUR);
    let unsent = asked().await;
    let why = refusal::text(&unsent);
    assert!(why.contains("not sent within 5s") && !refusal::is_unsigned(&unsent), "{why}");
    let silent = within(limit, pending::<()>()).await.unwrap_err();
    assert_eq!(refusal::text(&silent), "no answer within 5s");
}
