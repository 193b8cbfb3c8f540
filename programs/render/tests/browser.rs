//! The report's page in a real browser: how it looks in light and dark mode, on a desktop and on a phone, what a screen
//! reader gets, and that the page fetches nothing, runs nothing and logs no errors.
//! `WINDDOWN_BLESS=1` retakes the documentation's screenshots.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

#[path = "browser/driver.rs"]
mod driver;

use std::fs;
use std::path::{Path, PathBuf};

use driver::Browser;
use serde_json::{Value, json};
use winddown_render::report;
use winddown_shutdown::ShutdownReport;

const DESK: u32 = 1200;
const TABLET: u32 = 820;
const PHONE: u32 = 390;

/// A script that finds the text with the worst contrast against its background, and the smallest text.
const LEGIBLE: &str = r#"
const parse = text => { const n = text.match(/[\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
const lum = c => { const [r, g, b] = c.map(v => { v /= 255;
  return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const contrast = (a, b) => { a = lum(a); b = lum(b); return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); };
const worst = { contrast: 99, size: 99, contrastOf: '', sizeOf: '' };
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const text = walk.currentNode.data.trim(), of = walk.currentNode.parentElement;
  if (!text || of.closest('title, style') || getComputedStyle(of).display === 'none') continue;
  const style = getComputedStyle(of);
  const ink = parse(style.color).slice(0, 3);
  let behind = of, paper = [0, 0, 0, 0];
  while (behind && paper[3] === 0) { paper = parse(getComputedStyle(behind).backgroundColor); behind = behind.parentElement; }
  const found = contrast(ink, paper.slice(0, 3)), size = parseFloat(style.fontSize);
  if (found < worst.contrast) { worst.contrast = found; worst.contrastOf = text; }
  if (size < worst.size) { worst.size = size; worst.sizeOf = text; }
}
return worst;"#;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn example(name: &str) -> ShutdownReport {
    let path = root().join(format!("programs/render/tests/reports/{name}.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The report of a node with pods whose names try to break the page.
fn hostile() -> (ShutdownReport, Vec<String>) {
    let long = "x".repeat(253);
    let names = [
        "<script>window.hacked=1</script>",
        "</title></style></svg><img src=x onerror=window.hacked=1>",
        "\" onload=\"window.hacked=1\" x='",
        "'&lt;b&gt;&amp;",
        "\u{5e9}\u{5dc}\u{5d5}\u{5dd}-\u{645}\u{631}\u{62d}\u{628}\u{627}",
        "--></script><!--]]>",
        &long,
    ];
    let mut told = serde_json::to_value(example("thirty")).unwrap();
    for (group, name) in told["groups"].as_array_mut().unwrap().iter_mut().zip(names) {
        group["name"] = json!(name);
    }
    for (pod, name) in told["groups"][0]["pods"].as_array_mut().unwrap().iter_mut().zip(names) {
        for field in ["namespace", "name", "uid", "error"] {
            pod[field] = json!(name);
        }
        pod["containers"] = json!([name]);
        pod["mounts"] = json!([name]);
    }
    told["bootId"] = json!(names[1]);
    told["notice"] = json!({ "source": "aws", "text": names[0], "deadlineSeconds": 40.0 });
    told["warnings"] = json!(names);
    let shown = names.map(|name| format!("{name}/{name}")).to_vec();
    (serde_json::from_value(told).unwrap(), shown)
}

fn browser_or_skip(test: &str) -> Option<Browser> {
    match Browser::start() {
        Ok(browser) => Some(browser),
        Err(why) => {
            assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test}: {why}");
            println!("SKIPPED: {test}: {why}");
            None
        }
    }
}

/// Writes the page of `report` to a file, which exists for as long as the folder lives.
fn page(report: &ShutdownReport) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    fs::write(&path, report::html(report)).unwrap();
    (folder, path)
}

fn reports() -> Vec<(&'static str, ShutdownReport)> {
    let mut all: Vec<_> = ["five", "thirty", "twohundred"].map(|name| (name, example(name))).into();
    all.push(("hostile", hostile().0));
    all
}

#[test]
fn a_page_is_legible_in_light_and_dark_on_a_desk_and_on_a_phone_and_fetches_nothing() {
    let test = "a_page_is_legible_in_light_and_dark_on_a_desk_and_on_a_phone_and_fetches_nothing";
    let Some(browser) = browser_or_skip(test) else { return };
    for (name, report) in reports() {
        let (_folder, path) = page(&report);
        for (width, dark) in
            [(DESK, false), (DESK, true), (PHONE, false), (PHONE, true), (320, false)]
        {
            browser.requests();
            browser.show(&path, width, dark);
            let what = format!("{name}, {width} pixels wide, dark: {dark}");
            let wide = browser.run("return document.documentElement.scrollWidth");
            assert_eq!(wide, json!(width), "{what}: it has to be moved sideways");
            let paper = browser.run("return getComputedStyle(document.body).backgroundColor");
            let wanted = if dark { "rgb(13, 17, 23)" } else { "rgb(255, 255, 255)" };
            assert_eq!(paper, json!(wanted), "{what}");
            let worst = browser.run(LEGIBLE);
            assert!(worst["contrast"].as_f64().unwrap() >= 4.5, "{what}: {worst}");
            assert!(worst["size"].as_f64().unwrap() >= 12.0, "{what}: {worst}");
            assert_eq!(browser.console(), Vec::<String>::new(), "{what}");
            let asked = browser.requests();
            let outside = |address: &&String| !address.starts_with("data:,");
            let outside: Vec<_> = asked.iter().filter(outside).collect();
            assert_eq!(outside, [&format!("file://{}", path.display())], "{what}");
        }
    }
}

#[test]
fn a_screen_reader_is_given_landmarks_tables_and_a_name_for_the_picture() {
    let test = "a_screen_reader_is_given_landmarks_tables_and_a_name_for_the_picture";
    let Some(browser) = browser_or_skip(test) else { return };
    let (_folder, path) = page(&example("thirty"));
    for width in [DESK, PHONE] {
        browser.show(&path, width, false);
        let one = |selector: &str| browser.heard(selector).into_iter().next().unwrap_or_default();
        for (selector, role, name) in [
            ("header", "banner", ""),
            ("main", "main", ""),
            ("nav", "navigation", "Sections of this report"),
            ("#timeline", "region", "Timeline"),
            ("#pods", "region", "Pods"),
            ("#decisions", "region", "Decisions"),
            ("tbody", "rowgroup", ""),
            ("tbody td", "cell", "0"),
        ] {
            let (found, called) = one(selector);
            assert_eq!(
                (found.as_str(), called.contains(name)),
                (role, true),
                "{selector}: {called}"
            );
        }
        let (role, name) = one("table");
        assert_eq!(role, "table");
        assert!(name.starts_with("The pods in the order of the groups"), "{name}");
        let heads = browser.heard("thead th");
        let wanted = ["Pod", "Priority", "Grace", "Asked", "SIGTERM", "Exit", "Outcome"];
        let heads: Vec<_> =
            heads.iter().map(|(role, name)| (role.as_str(), name.as_str())).collect();
        assert_eq!(heads, wanted.map(|name| ("columnheader", name)), "{width}");
        let rows = browser.heard("tbody th[scope=row]");
        assert_eq!(rows.len(), 30);
        assert!(rows.iter().all(|(role, _)| role == "rowheader"), "{rows:?}");
        let (role, name) = one("#timeline .chart");
        assert!(matches!(&*role, "img" | "image"), "{role}");
        assert!(name.starts_with("Forced shutdown: 2 of 30 pods had to be killed"), "{name}");
        let levels = browser.run(
            "return [...document.querySelectorAll('h1,h2,h3')].map(h => Number(h.tagName[1]))",
        );
        let levels: Vec<i64> = serde_json::from_value(levels).unwrap();
        assert_eq!(levels.iter().filter(|level| **level == 1).count(), 1);
        assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");
        let ids = "const ids = [...document.querySelectorAll('[id]')].map(e => e.id); \
                   return ids.length - new Set(ids).size";
        assert_eq!(browser.run(ids), json!(0), "an id stands twice");
    }
}

#[test]
fn names_made_to_break_the_page_are_shown_as_they_are() {
    let test = "names_made_to_break_the_page_are_shown_as_they_are";
    let Some(browser) = browser_or_skip(test) else { return };
    let (report, names) = hostile();
    let (_folder, path) = page(&report);
    browser.show(&path, PHONE, false);
    assert_eq!(browser.run("return window.hacked ?? null"), Value::Null);
    let found = "return document.querySelectorAll('script,img,iframe,object,form,input').length";
    assert_eq!(browser.run(found), json!(0));
    let rows =
        "return [...document.querySelectorAll('tbody th[scope=row]')].map(e => e.textContent)";
    let rows: Vec<String> = serde_json::from_value(browser.run(rows)).unwrap();
    for name in names {
        assert!(rows.contains(&name), "{name}: {rows:?}");
    }
    let bars = "return document.querySelectorAll('#timeline .pod').length";
    assert_eq!(browser.run(bars), json!(30));
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn the_screenshots_of_the_documentation_can_be_taken() {
    let test = "the_screenshots_of_the_documentation_can_be_taken";
    let bless = std::env::var_os("WINDDOWN_BLESS").is_some();
    let (_folder, path) = page(&example("thirty"));
    // Browsers render the same page slightly differently, so the pages are compared and not the images.
    let of = root().join("docs/img/report-html.of");
    let hash =
        fs::read(&path).unwrap().into_iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    if !bless {
        let kept = fs::read_to_string(&of).unwrap_or_default();
        assert_eq!(
            kept,
            format!("{hash:x}\n"),
            "they show another page: WINDDOWN_BLESS=1 takes them"
        );
    }
    let Some(browser) = browser_or_skip(test) else { return };
    if bless {
        fs::write(of, format!("{hash:x}\n")).unwrap();
    }
    for (name, width, height, dark) in
        [("light", DESK, 1240, false), ("dark", TABLET, 1400, true), ("phone", PHONE, 1700, false)]
    {
        browser.show(&path, width, dark);
        let image = browser.picture(width, height);
        assert_eq!(size(&image), Some((width, height)), "{name} is no such image");
        let kept = root().join(format!("docs/img/report-html-{name}.png"));
        if bless {
            fs::write(&kept, image).unwrap();
        }
        let kept_image = fs::read(&kept).unwrap_or_default();
        let same = size(&kept_image) == Some((width, height));
        assert!(same, "{}: WINDDOWN_BLESS=1 takes it", kept.display());
    }
}

/// The width and height of a PNG image; none if it is incomplete.
fn size(image: &[u8]) -> Option<(u32, u32)> {
    let header = image.strip_prefix(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")?;
    let number = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
    // The last chunk: its name and checksum.
    image.ends_with(b"IEND\xaeB\x60\x82").then_some((number(0)?, number(4)?))
}
