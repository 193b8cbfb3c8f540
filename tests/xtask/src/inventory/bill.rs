//! The bill of materials, in CycloneDX 1.5.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::crates::{Crate, Key};

/// The crate that the bill describes.
const PROGRAM: &str = "winddown";

/// Builds the bill as JSON text. `made_at` is in seconds since 1970.
pub(super) fn json(crates: &[Crate], made_at: i64) -> Result<String> {
    let program = crates
        .iter()
        .find(|one| one.key.0 == PROGRAM)
        .with_context(|| format!("there is no crate {PROGRAM}"))?;
    let made_at = jiff::Timestamp::from_second(made_at).context("the date is out of range")?;
    let others = crates.iter().filter(|one| one.key != program.key);
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": made_at.to_string(),
            "component": component(program, "application"),
        },
        "components": others.map(|one| component(one, "library")).collect::<Vec<_>>(),
        "dependencies": crates
            .iter()
            .map(|one| json!({
                "ref": reference(&one.key),
                "dependsOn": one.uses.iter().map(reference).collect::<Vec<_>>(),
            }))
            .collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&bill).context("the bill cannot be written as JSON")? + "\n")
}

fn component(one: &Crate, kind: &str) -> Value {
    let (name, version) = &one.key;
    let mut component = json!({
        "type": kind,
        "bom-ref": reference(&one.key),
        "name": name,
        "version": version,
        "licenses": [{ "expression": one.licence }],
    });
    if let Some(description) = &one.description {
        component["description"] = json!(description);
    }
    if let Some(checksum) = &one.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        // A crate that is not from the registry has no address there.
        component["purl"] = json!(reference(&one.key));
    }
    if let Some(repository) = &one.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

/// The package's URL, which also identifies the crate within the bill. A version's build metadata starts with a plus
/// sign, which would mean a space in a URL.
fn reference((name, version): &Key) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}
