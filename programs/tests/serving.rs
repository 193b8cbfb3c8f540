//! What an agent has its cluster certify.

#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers are tests")]

use k8s_openapi::ByteString;
use serde_json::Value;
use winddown_apiserver::ApiServer;

use crate::agent::Bed;

const CONFIG: &str = "mode: cluster\nkubeconfig: /etc/winddown/kubeconfig\nnodeIP: 192.0.2.7\n\
     nodeApiAddress: 127.0.0.1:10250\n";

fn decoded(base64: &str) -> Vec<u8> {
    serde_json::from_value::<ByteString>(Value::from(base64)).unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_a_node_is_for_the_address_by_which_an_api_server_reaches_it() {
    let server = ApiServer::start().await.unwrap();
    // Signed, it would have the agent listen.
    server.sign_requests(None);
    let bed = Bed::start(CONFIG, &[]);
    std::fs::write(bed.root().join("etc/winddown/kubeconfig"), server.kubeconfig()).unwrap();
    let asked = server.until("a certificate is requested", |all| {
        all.requests().find(|one| one.is("create", "certificatesigningrequests")).cloned()
    });
    let asked = asked.await.unwrap_or_else(|_| panic!("{}", bed.log()));
    let pem = decoded(asked.body["spec"]["request"].as_str().unwrap());
    let lines = String::from_utf8(pem).unwrap();
    let body: String = lines.lines().filter(|line| !line.starts_with('-')).collect();
    let request = decoded(&body);
    let names = |name: &[u8]| request.windows(name.len()).any(|part| part == name);
    // Subject alternative names in DER: an IP address has the tag 0x87, a host name 0x82, and the length follows.
    assert!(names(b"\x87\x04\xc0\x00\x02\x07"), "the address: {body}");
    assert!(names(b"\x82\x02n1"), "the host name: {body}");
}
