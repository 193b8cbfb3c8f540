//! Many requests at once, as when a group of pods ends.

use futures_util::future::join_all;
use kube::api::DeleteParams;
use winddown_apiserver::Fault;

use super::*;

/// Sends as many deletions, of which none is answered before all have come.
async fn delete_at_once(scene: &Scene, connection: &Connection, count: usize) {
    scene.server.forget_requests();
    let held = scene.server.fault(Fault::on("delete", "pods").hold());
    let pods: Api<Pod> = Api::default_namespaced(connection.client());
    let params = DeleteParams::default();
    let names: Vec<String> = (0..count).map(|number| format!("web-{number}")).collect();
    let deletions = join_all(names.iter().map(|name| pods.delete(name, &params)));
    let answered = async {
        let all = |o: &winddown_apiserver::Objects<'_>| {
            (o.count("delete", "pods") == count).then_some(())
        };
        scene.server.until("all have come", all).await.unwrap();
        scene.server.lift(held);
    };
    let (answers, ()) = tokio::join!(deletions, answered);
    assert_eq!(answers.len(), count);
}

#[tokio::test]
async fn the_next_group_of_pods_waits_for_no_handshakes() {
    let scene = Scene::new().await;
    let connection = open(scene.with_certificate()).await;
    delete_at_once(&scene, &connection, 40).await;
    let made = scene.server.connections();
    delete_at_once(&scene, &connection, 40).await;
    assert_eq!(scene.server.connections(), made, "connections of the first forty serve the others");
}
