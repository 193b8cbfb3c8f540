//! What is made of a report that is found on disk, or that names of pods were written into.

use winddown_render::report::{html, svg, text};
use winddown_shutdown::ShutdownReport;

pub(crate) fn laws(json: &[u8]) {
    let Ok(report) = serde_json::from_slice::<ShutdownReport>(json) else { return };
    let again = serde_json::to_vec(&report).unwrap_or_default();
    assert_eq!(serde_json::from_slice::<ShutdownReport>(&again).ok(), Some(report.clone()));

    let svg = svg(&report);
    let parsed = roxmltree::Document::parse(&svg);
    assert!(parsed.is_ok(), "the picture is not XML: {:?}", parsed.err());
    let is_active = |svg: &roxmltree::Document<'_>| {
        svg.descendants().any(|node| {
            node.has_tag_name("script")
                || node.attributes().any(|given| given.name().starts_with("on"))
        })
    };
    assert!(parsed.is_ok_and(|svg| !is_active(&svg)), "the picture does nothing");

    let html = html(&report);
    let page = html.to_lowercase();
    assert!(!page.contains("<script") && !page.contains("javascript:"), "the page does nothing");
    // The page's own, and those of the picture on it.
    let titles = |text: &str| text.matches("<title>").count();
    assert_eq!(titles(&page), 1 + titles(&svg.to_lowercase()), "no tag is added");

    let text = text(&report, false);
    assert!(!text.contains(|c: char| c != '\n' && c.is_control()), "{text:?}");
}
