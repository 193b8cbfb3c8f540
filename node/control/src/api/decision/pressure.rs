//! Decisions about resource shortages.

use std::time::Duration;

use winddown_shared::Event;
use winddown_shared::display::duration;

use super::Decision;

impl Decision {
    pub(super) fn pressure_event(&mut self, event: &Event) {
        match event {
            Event::EvictionThresholdMet { signal, resource, stats_age, short_for } => {
                let text = format!("{signal}: too little {resource} for {}", duration(*short_for));
                self.node("evictionThresholdMet", text);
                self.field("signal", *signal)
                    .field("resource", *resource)
                    .field("shortForSeconds", short_for.as_secs_f64())
                    .field("statsAgeSeconds", stats_age.as_ref().map(Duration::as_secs_f64));
            }
            Event::EvictionStarted { pod, signal, message, annotations, grace } => {
                let message_line = message.trim_end();
                self.pod("evictionStarted", pod, &format!("evicted for {signal}: {message_line}"));
                self.field("signal", *signal)
                    .field("message", &**message)
                    .field("graceSeconds", grace.as_secs_f64());
                for (name, value) in annotations {
                    self.field(name, value.as_str());
                }
            }
            Event::PodEvicted { pod, signal, took } => {
                self.pod(
                    "podEvicted",
                    pod,
                    &format!("evicted for {signal}, terminated in {}", duration(*took)),
                );
                self.field("signal", *signal).field("tookSeconds", took.as_secs_f64());
            }
            Event::EvictionFailed { pod, signal, error } => {
                self.pod("evictionFailed", pod, &format!("not evicted for {signal}: {error}"));
                self.field("signal", *signal).field("error", error.as_str());
            }
            Event::EvictionShadowed { pod, signal, message } => {
                let text = format!("would be evicted for {signal}: {}", message.trim_end());
                self.pod("evictionShadowed", pod, &text);
                self.field("signal", *signal).field("message", &**message);
            }
            Event::NodePressure { condition, on, reason } => {
                let now = if *on { "holds" } else { "is over" };
                self.node("nodePressure", format!("{condition} {now} ({reason})"));
                self.field("condition", *condition).field("on", *on).field("reason", *reason);
            }
            _ => {}
        }
    }
}
