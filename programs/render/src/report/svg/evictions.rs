//! The available memory around each eviction, as a picture.

use winddown_control::api::{EvictionPlan, EvictionRecord, MemoryCurve};
use winddown_shared::display::{clean, seconds};

use super::THEME;
use super::canvas::Canvas;
use super::sizes::{MARGIN, fit};
use crate::preemption::byte_text;

/// The width of one value: the picture must be readable on a phone.
const VALUE_WIDTH: f64 = 6.0;
/// The maximum number of values of a curve that are drawn.
const MAX_DRAWN_VALUES: usize = 72;
/// The width of the amounts at the left.
const AMOUNTS_WIDTH: f64 = 60.0;
const HEIGHT: f64 = 120.0;
/// The minimum distance of two labels.
const MIN_LABEL_DISTANCE: f64 = 14.0;
/// The maximum width of a heading, in columns.
const MAX_HEADING_COLUMNS: usize = 56;

/// The available memory around the memory evictions of `plan`, newest first, as a self-contained SVG 1.1 document; none
/// if there was no such eviction.
///
/// A bar is the minimum of one interval; bars below the threshold are marked. The same plan produces the same bytes.
pub fn evictions(plan: &EvictionPlan) -> Option<String> {
    let mut drawn = Canvas::default();
    let mut y = MARGIN;
    let newest = plan.history.iter().rev();
    for (record, curve) in newest.filter_map(|record| Some((record, record.curve.as_ref()?))) {
        Chart { curve, y, out: &mut drawn }.draw(record);
        y += HEIGHT + 122.0;
    }
    (y > MARGIN).then(|| page(&drawn, y))
}

fn page(drawn: &Canvas, height: f64) -> String {
    let width = x(MAX_DRAWN_VALUES) + MARGIN;
    let mut page = Canvas::default();
    page.markup(format_args!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="what">"#
    ));
    page.element("title", "what", "Available memory before and after each eviction");
    page.markup(format_args!("<style>\n{THEME}</style>"));
    page.rect("paper", 0.0, 0.0, width, height);
    page.append(drawn);
    page.markup(format_args!("</svg>\n"));
    page.into_string().trim_start().to_owned()
}

/// The left edge of a value.
fn x(place: usize) -> f64 {
    MARGIN
        + AMOUNTS_WIDTH
        + VALUE_WIDTH * u32::try_from(place.min(MAX_DRAWN_VALUES)).map_or(0.0, f64::from)
}

struct Chart<'a> {
    curve: &'a MemoryCurve,
    y: f64,
    out: &'a mut Canvas,
}

impl Chart<'_> {
    fn draw(mut self, record: &EvictionRecord) {
        let victim = clean(record.victim.as_deref().unwrap_or_default());
        self.out.text("head", 14.0, (MARGIN, self.y + 14.0), &fit(&victim, MAX_HEADING_COLUMNS));
        let at = record.at.strftime("%Y-%m-%d %H:%M:%S UTC");
        let became = format!("{at} · {}", clean(&record.outcome));
        self.out.text(
            "dim",
            12.0,
            (MARGIN, self.y + 34.0),
            &fit(&became, MAX_HEADING_COLUMNS + 10),
        );
        let said = |text: &Option<String>| text.as_deref().map(|text| clean(text).into_owned());
        let of = said(&record.available).zip(said(&record.threshold));
        let of = of.map_or(String::new(), |(available, least)| format!(": {available} of {least}"));
        let each = self.curve.seconds_each;
        let what = format!("{}{of}; a bar is the least in {each} s", clean(&record.signal));
        self.out.text("dim", 12.0, (MARGIN, self.y + 52.0), &fit(&what, MAX_HEADING_COLUMNS + 10));
        self.y += 64.0;
        // Drawn first, so that the mark is behind the bar of its interval.
        self.times();
        self.bars();
    }

    fn bars(&mut self) {
        let MemoryCurve { available, threshold, .. } = self.curve;
        let threshold = *threshold;
        let values = || available.iter().copied().take(MAX_DRAWN_VALUES).enumerate();
        let top = values().filter_map(|(_, value)| value).fold(threshold.max(1), i64::max);
        let bottom = self.y + HEIGHT;
        let level = |value: i64| HEIGHT * value.max(0) as f64 / top as f64;
        let (left, right) = (x(0), x(available.len()));
        for (place, value) in values().filter_map(|(place, value)| Some((place, value?))) {
            let class = if value < threshold { "arrow" } else { "bar" };
            // Tiny values stay visible.
            let height = level(value).max(2.0);
            self.out.rect(class, x(place) + 1.0, bottom - height, VALUE_WIDTH - 1.0, height);
        }
        let limit = bottom - level(threshold);
        self.out.line("limit", (left, limit), (right, limit));
        self.out.line("over", (left, bottom), (right, bottom));
        let mut amount = |y: f64, value: i64| {
            self.out.text("dim end", 11.0, (left - 8.0, y + 4.0), &byte_text(value));
        };
        amount(limit, threshold);
        if limit - self.y >= MIN_LABEL_DISTANCE {
            amount(self.y, top);
        }
        if bottom - limit >= MIN_LABEL_DISTANCE {
            amount(bottom, 0);
        }
    }

    /// Draws the moment of the choice, and the minutes before it.
    fn times(&mut self) {
        let (chosen, each) = (self.curve.chosen_at, self.curve.seconds_each.max(1));
        let bottom = self.y + HEIGHT;
        let middle = x(chosen) + VALUE_WIDTH / 2.0;
        self.out.line("held", (middle, self.y - 4.0), (middle, bottom + 6.0));
        self.out.text("head mid", 11.0, (middle, bottom + 20.0), "chosen");
        let per_minute = usize::try_from(60 / each).unwrap_or(1).max(1);
        let before = (1..).map(|minutes| (minutes, minutes * per_minute));
        for (minutes, back) in before.take_while(|(_, back)| *back <= chosen.min(MAX_DRAWN_VALUES))
        {
            let at = x(chosen - back) + VALUE_WIDTH / 2.0;
            self.out.line("grid", (at, bottom), (at, bottom + 6.0));
            self.out.text("dim mid", 11.0, (at, bottom + 20.0), &format!("−{minutes} min"));
        }
        let after = self.curve.available.len().saturating_sub(chosen.saturating_add(1));
        if after >= 9 {
            let at = x(chosen + after) + VALUE_WIDTH / 2.0;
            let later = seconds(u32::try_from(after).map_or(0.0, f64::from) * each as f64);
            self.out.text("dim mid", 11.0, (at, bottom + 20.0), &format!("+{later}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;
    use winddown_control::api::PressureStatus;

    use super::*;

    const MI: i64 = 1 << 20;

    fn plan(curves: &[(&str, &[i64], usize)]) -> EvictionPlan {
        let record = |(name, available, chosen_at): &(&str, &[i64], usize)| EvictionRecord {
            id: 1,
            at: "2026-11-20T12:00:05Z".parse().unwrap(),
            signal: "memory.available".to_owned(),
            threshold: Some("100Mi".to_owned()),
            available: Some("90Mi".to_owned()),
            hard: true,
            short_for_ms: None,
            hook: None,
            victim: Some((*name).to_owned()),
            outcome: "ended in 12 ms".to_owned(),
            ranking: Vec::new(),
            curve: (!available.is_empty()).then(|| MemoryCurve {
                seconds_each: 3,
                available: available
                    .iter()
                    .map(|value| (*value >= 0).then_some(value * MI))
                    .collect(),
                chosen_at: *chosen_at,
                threshold: 100 * MI,
            }),
            times: 1,
        };
        let history = curves.iter().map(record).collect();
        EvictionPlan { history, ..EvictionPlan::new(PressureStatus::default()) }
    }

    fn count(svg: &str, class: &str) -> usize {
        let document = Document::parse(svg).unwrap();
        document.descendants().filter(|node| node.attribute("class") == Some(class)).count()
    }

    #[test]
    fn each_eviction_has_its_bars_its_threshold_and_the_moment_it_was_decided() {
        let long: Vec<i64> = (0..60).map(|n| 800 - n * 10).chain([90, 700]).collect();
        let told = plan(&[
            ("default/first", &[300, -1, 90], 2),
            ("a/disk", &[], 0),
            ("default/hog", &long, 60),
        ]);
        let svg = evictions(&told).unwrap();
        assert_eq!((count(&svg, "bar"), count(&svg, "arrow")), (62, 2));
        assert_eq!((count(&svg, "limit"), count(&svg, "held")), (2, 2));
        assert!(svg.find("default/hog") < svg.find("default/first"), "the newest first");
        assert!(!svg.contains("a/disk"), "it was not for want of memory");
        for label in [">chosen<", ">−1 min<", ">−3 min<", ">100Mi<", ">800Mi<", ">0<"] {
            assert!(svg.contains(label), "{label}: {svg}");
        }
        assert_eq!(evictions(&plan(&[("a/disk", &[], 0)])), None);
    }

    #[test]
    fn labels_that_would_cover_each_other_are_left_out() {
        // The threshold is all there is, and next to nothing of all there is.
        for (available, wanted) in [(&[90][..], "100Mi"), (&[24_000, 90][..], "23.4Gi")] {
            let svg = evictions(&plan(&[("default/hog", available, available.len() - 1)])).unwrap();
            let document = Document::parse(&svg).unwrap();
            let amounts =
                document.descendants().filter(|node| node.attribute("class") == Some("dim end"));
            let mut at: Vec<f64> =
                amounts.map(|text| text.attribute("y").unwrap().parse().unwrap()).collect();
            at.sort_by(f64::total_cmp);
            assert!(at.len() == 2 && at[1] - at[0] >= MIN_LABEL_DISTANCE, "{at:?}");
            assert!(svg.contains(&format!(">{wanted}<")), "{svg}");
        }
    }

    #[test]
    fn what_no_agent_says_is_drawn_and_is_no_markup() {
        let name = "</text><script>x</script>".repeat(20);
        let mut told = plan(&[(&name, &[1; 500], usize::MAX), ("b", &[-1], 0)]);
        if let Some(curve) = told.history[1].curve.as_mut() {
            (curve.seconds_each, curve.threshold, curve.available) =
                (0, i64::MIN, vec![Some(i64::MIN)]);
        }
        let svg = evictions(&told).unwrap();
        assert!(Document::parse(&svg).is_ok() && !svg.contains("<script"), "{svg}");
    }
}
