//! The fields of an `httpGet` of a probe or hook that no request can hold.

use k8s_openapi::api::core::v1 as api;
use winddown_shared::http_fields;

/// Lists the fields of an `httpGet` that cannot be sent in a request, by their path below it, and why not.
pub(crate) fn invalid_fields(action: &api::HTTPGetAction) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let mut check = |field: String, checked: Result<(), &'static str>| {
        found.extend(checked.err().map(|why| (field, why)));
    };
    check("path".into(), action.path.as_deref().map_or(Ok(()), http_fields::path));
    check("host".into(), action.host.as_deref().map_or(Ok(()), http_fields::host));
    for (index, header) in action.http_headers.iter().flatten().enumerate() {
        let field = |key| format!("httpHeaders[{index}].{key}");
        check(field("name"), http_fields::header_name(&header.name));
        check(field("value"), http_fields::header_value(&header.value));
    }
    found
}
