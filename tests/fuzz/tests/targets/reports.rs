//! What is made of a report that is found on disk, or that names of pods were written into.

use winddown_render::report::{html, text};
use winddown_shutdown::ShutdownReport;

pub(crate) fn laws(json: &[u8]) {
    let Ok(report) = serde_json::from_slice::<ShutdownReport>(json) else { return };
    let again = serde_json::to_vec(&report).unwrap_or_default();
    assert_eq!(serde_json::from_slice::<ShutdownReport>(&again).ok(), Some(report.clone()));

    let page = html(&report);
    let parsed = roxmltree::Document::parse(page.trim_start_matches("<!DOCTYPE html>"));
    assert!(parsed.is_ok(), "the page is not healthy-formed: {:?}", parsed.err());
    let is_active = |page: &roxmltree::Document<'_>| {
        page.descendants().any(|node| {
            ["script", "img", "iframe", "object", "base", "form"].contains(&node.tag_name().name())
                || node.attributes().any(|given| given.name().starts_with("on"))
        })
    };
    assert!(parsed.is_ok_and(|page| !is_active(&page)), "the page does nothing");
    assert!(!page.to_lowercase().contains("javascript:"), "the page does nothing");

    let text = text(&report, false);
    assert!(!text.contains(|c: char| c != '\n' && c.is_control()), "{text:?}");
}
