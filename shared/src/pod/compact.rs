//! Frees the spare capacity of the lists in a pod object.

use k8s_openapi::api::core::v1 as api;

/// A deserialized list of unknown length starts with capacity for four elements, or for one if the element takes more
/// than a kilobyte, as a container does, and doubles. An object is kept as long as its pod: without this, most pods of
/// an API server would have spare capacity for three container statuses of 752 bytes each.
pub(super) fn compact(object: &mut api::Pod) {
    if let Some(spec) = &mut object.spec {
        let lists = [Some(&mut spec.containers), spec.init_containers.as_mut()];
        for list in lists.into_iter().flatten() {
            list.shrink_to_fit();
            list.iter_mut().for_each(container);
        }
        fit(&mut spec.ephemeral_containers);
        fit(&mut spec.volumes);
        fit(&mut spec.tolerations);
    }
    if let Some(status) = &mut object.status {
        fit(&mut status.conditions);
        fit(&mut status.init_container_statuses);
        fit(&mut status.container_statuses);
        fit(&mut status.ephemeral_container_statuses);
    }
}

fn container(container: &mut api::Container) {
    fit(&mut container.command);
    fit(&mut container.args);
    fit(&mut container.env);
    fit(&mut container.env_from);
    fit(&mut container.ports);
    fit(&mut container.volume_mounts);
}

fn fit<T>(list: &mut Option<Vec<T>>) {
    if let Some(list) = list {
        list.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1 as api;

    use crate::Pod;

    #[test]
    fn the_lists_of_a_pod_that_was_read_have_no_room_to_spare() {
        // As text: of values it is known how many they are.
        let text = serde_json::json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "1" },
            "spec": {
                "containers": [{ "name": "main", "command": ["a"], "env": [{ "name": "A" }] }],
                "initContainers": [{ "name": "first", "args": ["a"] }],
                "tolerations": [{ "operator": "Exists" }],
                "volumes": [{ "name": "data" }],
            },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "containerStatuses": [{
                    "name": "main", "image": "a", "imageID": "", "ready": true, "restartCount": 0,
                }],
            },
        })
        .to_string();
        let object: api::Pod = serde_json::from_str(&text).unwrap();
        let read = object.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
        assert!(read.capacity() > 1, "reading makes no room to spare any more");
        let pod = Pod::new(object).unwrap();
        let (spec, status) = (pod.spec.as_ref().unwrap(), pod.status.as_ref().unwrap());
        let main = &spec.containers[0];
        assert_eq!(spec.containers.capacity(), 1);
        assert_eq!(spec.init_containers.as_ref().unwrap().capacity(), 1);
        assert_eq!(spec.tolerations.as_ref().unwrap().capacity(), 1);
        assert_eq!(spec.volumes.as_ref().unwrap().capacity(), 1);
        assert_eq!(main.command.as_ref().unwrap().capacity(), 1);
        assert_eq!(main.env.as_ref().unwrap().capacity(), 1);
        assert_eq!(status.conditions.as_ref().unwrap().capacity(), 1);
        assert_eq!(status.container_statuses.as_ref().unwrap().capacity(), 1);
    }
}
