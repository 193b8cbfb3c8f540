//! Types the commands for `kubectl` that the program's texts have.

use std::process::Command;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, PostParams};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use winddown_node_tests::packages::repository;

use super::RealApi;
use super::kubectl::program;
use super::printed::{self, Printed};

/// Makes a request for a client's certificate that waits to be approved.
async fn request(api: &RealApi, name: &str) {
    let made = CertificateParams::default().serialize_request(&KeyPair::generate().unwrap());
    let request = json!({
        "metadata": {"name": name},
        "spec": {
            "request": k8s_openapi::ByteString(made.unwrap().pem().unwrap().into_bytes()),
            "signerName": "example.com/of-the-test", "usages": ["client auth"],
        },
    });
    let requests: Api<CertificateSigningRequest> = Api::all(api.admin().await);
    let request = serde_json::from_value(request).unwrap();
    requests.create(&PostParams::default(), &request).await.unwrap();
}

#[tokio::test]
async fn what_a_text_tells_to_ask_of_the_api_server_is_typed_as_it_is() {
    let test = "what_a_text_tells_to_ask_of_the_api_server_is_typed_as_it_is";
    let Some(kubectl) = program(test).await else { return };
    let Some(api) = RealApi::own(test).await else { return };
    request(api, "of-a-text").await;
    // Where the packages put it.
    let rbac = repository().join("cluster/rbac").display().to_string();
    let mut typed = 0;
    for Printed { at, line, .. } in printed::commands(repository()) {
        let Some(arguments) = line.strip_prefix("kubectl ") else { continue };
        let arguments = arguments
            .replace("/usr/share/winddown/rbac", &rbac)
            .replace("{name}", "of-a-text")
            // A server that has no schemas as protobuf in /openapi/v2 fails a validation.
            .replace("apply ", "apply --validate=false ")
            .replace("{}", "'node-role.kubernetes.io/control-plane'");
        let command = format!("exec {} {arguments}", kubectl.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).env("KUBECONFIG", api.folder.join("admin.kubeconfig"));
        let ran = tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{at}: `{line}`: {}: {said}", ran.status);
        typed += 1;
    }
    assert!(typed >= 5, "{typed}");
}
