//! When a container is started again: `restartPolicy`, `restartPolicyRules`.

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::FieldCheck;

use super::rules;

const MOST_RULES: usize = 20;
const MOST_EXIT_CODES: usize = 255;

pub(super) fn all(check: &mut FieldCheck<'_>, container: &api::Container) {
    let policies = ["Always", "OnFailure", "Never"];
    rules::word_if_any(check, "restartPolicy", container.restart_policy.as_ref(), &policies);
    let list = container.restart_policy_rules.as_deref().unwrap_or_default();
    if !list.is_empty() && container.restart_policy.is_none() {
        check.fail_at("restartPolicy", "is missing: `restartPolicyRules` are exceptions from it");
    }
    if list.len() > MOST_RULES {
        let what = format!("has {} entries: write {MOST_RULES} at most", list.len());
        check.fail_at("restartPolicyRules", what);
    }
    check.each("restartPolicyRules", list, |check, rule| {
        rules::word(check, "action", &rule.action, &["Restart", "RestartAllContainers"]);
        let Some(codes) = &rule.exit_codes else {
            return check.fail_at("exitCodes", "is missing: write for which the rule is");
        };
        check.key("exitCodes", |check| {
            rules::word(check, "operator", &codes.operator, &["In", "NotIn"]);
            if codes.values.as_ref().is_some_and(|values| values.len() > MOST_EXIT_CODES) {
                check.fail_at("values", format!("has more than {MOST_EXIT_CODES} entries"));
            }
        });
    });
}
