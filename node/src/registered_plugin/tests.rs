use winddown_shared::Counter;

use super::*;

const NAME: PluginName = PluginName::new("max-age");

fn listed(name: PluginName, metrics: &[&Counter]) -> RegisteredPlugin {
    RegisteredPlugin { name, metrics: metrics.iter().map(|counter| (*counter).into()).collect() }
}

fn refused(plugins: &[RegisteredPlugin]) -> String {
    RegisteredPlugin::check(plugins).unwrap_err().to_string()
}

#[test]
fn what_a_scrape_could_not_tell_apart_is_refused_with_what_to_write_instead() {
    let good = Counter::new("max_age_looks", "Looks");
    assert_eq!(RegisteredPlugin::check(&[listed(NAME, &[&good])]), Ok(()));
    for wrong in ["looks", "max_age_", "max_age_Looks", "max_age_looks_total", "kubelet_looks"] {
        let text = refused(&[listed(NAME, &[&Counter::new(wrong, "")])]);
        assert!(text.contains(&format!("{wrong:?}; call it max_age_ and then")), "{text}");
    }
    for ours in [PluginName::new("winddown"), PluginName::new("process-max")] {
        let clash = Counter::new("process_max_fds", "Ours");
        assert_eq!(
            RegisteredPlugin::check(&[listed(ours, &[&clash])]),
            Err(PluginError::MetricOfNode { plugin: ours })
        );
        assert_eq!(RegisteredPlugin::check(&[listed(ours, &[])]), Ok(()), "it has none");
    }
    // A plug-in whose name starts with that of another one.
    let max = PluginName::new("max");
    let both = [
        listed(NAME, &[&Counter::new("max_age_looks", "")]),
        listed(max, &[&Counter::new("max_age_looks", "")]),
    ];
    let taken = PluginError::MetricTaken { plugin: max, metric: "max_age_looks" };
    assert_eq!(RegisteredPlugin::check(&both), Err(taken));
    for ours in ["shutdown", "preemption", "eviction", "drain", "operator", "removed"] {
        let text = refused(&[listed(PluginName::new(ours), &[])]);
        let why = format!(
            "a plug-in is called {ours}, as a reason of the node's own to terminate a pod; give it another name"
        );
        assert_eq!(text, why);
    }
    let twice = [listed(NAME, &[]), listed(NAME, &[])];
    assert_eq!(refused(&twice), "two plug-ins are called max-age; give one of them another name");
}
