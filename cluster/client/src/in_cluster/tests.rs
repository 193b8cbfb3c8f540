use rcgen::{CertificateParams, KeyPair};
use winddown_shared::error_chain;

use super::*;

fn environment(host: &'static str, port: &'static str) -> impl Fn(&str) -> Option<String> {
    move |name| match name {
        "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
        "KUBERNETES_SERVICE_PORT" => Some(port.to_owned()),
        _ => None,
    }
}

#[test]
fn the_address_is_what_kubernetes_sets_in_each_pod() {
    for (host, server) in [
        ("10.0.0.1", "https://10.0.0.1:443"),
        ("fd00::1", "https://[fd00::1]:443"),
        ("kubernetes.default", "https://kubernetes.default:443"),
    ] {
        let account = ServiceAccount::from_environment(environment(host, "443")).unwrap();
        assert_eq!(account.server(), server);
        assert_eq!(account.folder, Path::new(ServiceAccount::FOLDER));
    }
}

#[test]
fn outside_of_a_pod_the_missing_variable_is_named() {
    let table = [
        ("", "443", "KUBERNETES_SERVICE_HOST is not set"),
        ("10.0.0.1", "", "KUBERNETES_SERVICE_PORT is not set"),
        ("10.0.0.1", "https", "KUBERNETES_SERVICE_PORT is \"https\", which is not a port"),
    ];
    for (host, port, wanted) in table {
        let error = ServiceAccount::from_environment(environment(host, port)).unwrap_err();
        let rest = ": in-cluster credentials need what Kubernetes sets in each pod";
        assert_eq!(error.to_string(), format!("{wanted}{rest}"));
    }
}

#[tokio::test]
async fn the_service_account_is_read_from_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_path_buf();
    let account = ServiceAccount { folder: folder.clone(), host: "10.0.0.1".into(), port: 443 };
    let error = read(&account).map(drop).unwrap_err();
    assert_eq!(
        error_chain(&error),
        format!(
            "cannot read certificate authority {}/ca.crt: No such file or directory (os error 2)",
            folder.display()
        )
    );

    let key = KeyPair::generate().unwrap();
    let authority = CertificateParams::default().self_signed(&key).unwrap().pem();
    std::fs::write(folder.join("ca.crt"), authority).unwrap();
    std::fs::write(folder.join("token"), "abc\n").unwrap();
    std::fs::write(folder.join("namespace"), "kube-system\n").unwrap();
    let material = read(&account).unwrap().finish().await.unwrap();
    assert_eq!(material.authorization.unwrap(), "Bearer abc");
    assert_eq!(material.config.default_namespace, "kube-system");
    assert_eq!(material.config.cluster_url, "https://10.0.0.1:443/");
}
