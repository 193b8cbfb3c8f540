//! Reads the colours back from the style sheet and measures their contrast as WCAG 2 does.

use std::collections::HashMap;

use super::super::THEME;

type Colours = HashMap<String, [f64; 3]>;

/// The fills of the light and of the dark scheme.
fn schemes() -> [Colours; 2] {
    let (light, dark) = THEME.split_once("@media (prefers-color-scheme:dark){").unwrap();
    let light = fills(light);
    let mut whole = light.clone();
    whole.extend(fills(dark));
    [light, whole]
}

fn fills(css: &str) -> Colours {
    let rules = css.lines().flat_map(|line| line.split_inclusive('}'));
    rules
        .filter_map(|rule| {
            let (selector, body) = rule.split_once('{')?;
            let value = body.split(['{', ';', '}']).find_map(|part| part.strip_prefix("fill:#"))?;
            Some((selector.to_owned(), rgb(value)))
        })
        .collect()
}

fn rgb(hex: &str) -> [f64; 3] {
    let wide: String = match hex.len() {
        3 => hex.chars().flat_map(|c| [c, c]).collect(),
        _ => hex.to_owned(),
    };
    [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&wide[at..at + 2], 16).unwrap()) / 255.0)
}

fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let light = |rgb: [f64; 3]| {
        let [r, g, b] = rgb.map(|c| match c {
            c if c <= 0.03928 => c / 12.92,
            c => ((c + 0.055) / 1.055).powf(2.4),
        });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (a, b) = (light(a), light(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn words_and_bars_stand_out_in_both_schemes() {
    for colours in schemes() {
        for paper in [".paper", ".strip"] {
            for (ink, least) in [
                ("text", 4.5),
                (".dim", 4.5),
                (".warn", 4.5),
                (".bad", 4.5),
                (".good", 4.5),
                (".bar", 3.0),
            ] {
                let found = contrast(colours[ink], colours[paper]);
                assert!(found >= least, "{ink} on {paper}: {found:.2}");
            }
        }
    }
}

#[test]
fn every_colour_of_the_light_scheme_has_one_for_the_dark() {
    let (light, dark) = THEME.split_once("@media (prefers-color-scheme:dark){").unwrap();
    for rule in light.lines().flat_map(|line| line.split_inclusive('}')) {
        let Some((selector, body)) = rule.split_once('{') else { continue };
        if body.contains('#') && !body.contains("url(") {
            assert!(dark.contains(&format!("{selector}{{")), "{selector}");
        }
    }
}
