//! What must hold of the kubelet's files, whatever is in them.

use serde_json::Value;

use super::*;

/// The pod that is asked for.
const POD: &str = "u1";

/// A file of the kubelet's that is read is read as plain JSON would be: `dra_manager_state` and `vol_data.json`.
///
/// # Panics
/// If it is not.
pub fn kubelet_file(text: &[u8]) {
    // What is passed over need not be right.
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
    if let Some(found) = volume(text) {
        assert_eq!(plain["driverName"], found.driver_name);
        assert_eq!(plain["volumeHandle"], found.volume_handle);
    }
}
