//! Properties that must hold for any content of the kubelet's files.

use serde_json::Value;

use super::*;

/// The UID of the pod in question.
const POD: &str = "u1";

/// Checks that a file of the kubelet (`dra_manager_state`) is read as plain JSON would be.
///
/// # Panics
/// If it is not.
pub fn kubelet_file(text: &[u8]) {
    // The reader skips unknown fields, which may be invalid; such files are not compared.
    let Ok(plain) = serde_json::from_slice::<Value>(text) else { return };
    if let Ok(all) = claims(text) {
        let found: Vec<_> = claims_of(&all, &PodUid::new(POD)).collect();
        let inner = plain["Data"].as_str().and_then(|data| serde_json::from_str(data).ok());
        let Some(inner): Option<Value> = inner else { return };
        assert_eq!(inner["apiVersion"], CLAIMS_VERSION);
        let all = inner["ClaimInfoStateList"].as_array().into_iter().flatten();
        let of_pod = all.filter(|claim| claim["PodUIDs"].get(POD).is_some());
        let named = of_pod.map(|claim| {
            let text = |key: &str| claim[key].as_str().unwrap_or_default().to_owned();
            format!("the devices of claim {}/{}", text("Namespace"), text("ClaimName"))
        });
        assert_eq!(found, named.collect::<Vec<_>>());
    }
}

#[test]
fn any_file_of_a_kubelet_keeps_the_laws() {
    winddown_fuzz::short("kubelet_files", kubelet_file);
}
