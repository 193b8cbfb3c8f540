//! A client as kube makes it from a kubeconfig: over TLS, without retries of its own.

pub(crate) async fn client(kubeconfig: &str) -> kube::Client {
    let config = kube::config::Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}
