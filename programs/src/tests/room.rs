//! `winddown plan preemption`, answered by an agent.

use super::commands::with_agent;
use super::world::run;
use crate::Exit;

#[test]
fn the_room_of_the_node_is_asked_of_the_agent_for_a_manifest_if_one_is_named() {
    with_agent(|socket| {
        let ran = run(&format!("winddown {socket} plan preemption"));
        assert_eq!((ran.exit, &*ran.out), (Exit::Success, "this node's resources are unknown\n"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dns.yaml");
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: dns}\n\
                   spec: {containers: [{name: a, command: [a]}]}\n";
        std::fs::write(&file, pod).unwrap();
        let file = file.display();
        let ran = run(&format!("winddown {socket} plan preemption -f {file}"));
        assert!(ran.out.contains("{name: dns}"), "{}", ran.out);
        assert!(ran.out.ends_with(" would start\n"), "{}", ran.out);
        let minimal = "--strategy minimal -o json";
        let ran = run(&format!("winddown {socket} plan preemption -f {file} {minimal}"));
        let told: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(
            (&told["strategy"], &told["pod"]["verdict"]),
            (&"minimal".into(), &"starts".into())
        );
        let ran = run(&format!("winddown {socket} plan preemption -f {file}.gone"));
        assert_eq!(ran.exit, Exit::Failure);
        assert!(ran.err.contains(".gone: cannot be read"), "{}", ran.err);
    });
}

#[test]
fn the_largest_manifest_that_can_be_read_is_also_sent() {
    with_agent(|socket| {
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: dns}\n\
                   spec: {containers: [{name: a, command: [a]}]}\n";
        let mut text = pod.to_owned() + &"#\n".repeat(winddown_yaml::MAX_BYTES / 2);
        text.truncate(winddown_yaml::MAX_BYTES);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let file = file.path().display();
        let ran = run(&format!("winddown {socket} plan preemption -o json -f {file}"));
        assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
    });
}
