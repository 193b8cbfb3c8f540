//! Draws a recording of a terminal by `script` as an animated SVG picture.

use std::collections::BTreeMap;
use std::time::Duration;

use anstyle::{AnsiColor, Color, Style};
use winddown_render::{Line, Span};

use super::bed::cells;
use super::picture::{head, row};

/// Output within this time, in seconds, is shown together.
const TOGETHER: f64 = 0.04;
/// How long the last picture stays before the animation restarts, in seconds.
const REST: f64 = 8.0;

/// Draws a recording on a terminal of this size: the bytes sent, and their timing as lines of `seconds bytes`. A row of
/// the screen is drawn once while it does not change. The output is reproducible.
pub(crate) fn film(title: &str, sent: &[u8], timing: &str, (columns, rows): (u16, u16)) -> String {
    let mut screen = vt100::Parser::new(cells(rows), cells(columns), 0);
    let mut rest = sent;
    let mut now = 0.0;
    let mut standing: Vec<(f64, Line)> = vec![(0.0, Line::new()); rows.into()];
    // The rows by the time range in which they are visible, in milliseconds.
    let mut drawn: BTreeMap<(u32, Option<u32>), String> = BTreeMap::new();
    let mut keep = |number: usize, line: &Line, from: f64, to: Option<f64>| {
        let millis =
            |seconds: f64| u32::try_from(Duration::from_secs_f64(seconds).as_millis()).unwrap();
        row(line, number, drawn.entry((millis(from), to.map(millis))).or_default());
    };
    let mut pieces = timing.lines().filter_map(|line| line.split_once(' ')).peekable();
    while let Some((pause, bytes)) = pieces.next() {
        now += pause.parse::<f64>().unwrap();
        let (piece, left) = rest.split_at(bytes.trim().parse().unwrap());
        rest = left;
        screen.process(piece);
        if pieces.peek().is_some_and(|(pause, _)| pause.parse::<f64>().unwrap() < TOGETHER) {
            continue;
        }
        // The animation begins with the first visible row.
        if standing.iter().all(|(_, line)| line.is_empty()) {
            now = 0.0;
        }
        for (number, (since, line)) in standing.iter_mut().enumerate() {
            let new = line_of(screen.screen(), number, columns);
            if *line != new {
                keep(number, line, *since, Some(now));
                (*since, *line) = (now, new);
            }
        }
    }
    for (number, (since, line)) in standing.iter().enumerate() {
        keep(number, line, *since, None);
    }
    let whole = now + REST;
    let mut svg = head(title, columns.into(), rows.into());
    let mut style = String::from("@media (prefers-reduced-motion:no-preference){\n");
    let mut body = String::new();
    for (number, ((from, to), rows)) in
        drawn.iter().filter(|(_, rows)| !rows.is_empty()).enumerate()
    {
        let percent = |millis: u32| format!("{:.2}", f64::from(millis) / 10.0 / whole);
        let mut frames = format!("0%{{opacity:{}}}", u8::from(*from == 0));
        if *from > 0 {
            frames.push_str(&format!("{}%{{opacity:1}}", percent(*from)));
        }
        if let Some(to) = to {
            frames.push_str(&format!("{}%,to{{opacity:0}}", percent(*to)));
        }
        style.push_str(&format!(
            "#r{number}{{animation:k{number} {whole:.1}s step-end infinite}}@keyframes k{number}{{{frames}}}\n"
        ));
        let hidden = if to.is_some() { " opacity=\"0\"" } else { "" };
        body.push_str(&format!("<g id=\"r{number}\"{hidden}>\n{rows}</g>\n"));
    }
    svg.push_str(&format!("<style>\n{style}}}\n</style>\n{body}</g>\n</svg>\n"));
    svg
}

/// Returns a row of a terminal's screen, without trailing blanks.
fn line_of(screen: &vt100::Screen, row: usize, columns: u16) -> Line {
    let mut line = Line::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row.try_into().unwrap(), column) else { continue };
        let color = match cell.fgcolor() {
            vt100::Color::Idx(1 | 9) => Some(Color::Ansi(AnsiColor::Red)),
            vt100::Color::Idx(2 | 10) => Some(Color::Ansi(AnsiColor::Green)),
            vt100::Color::Idx(3 | 11) => Some(Color::Ansi(AnsiColor::Yellow)),
            _ => None,
        };
        let mut style = Style::new().fg_color(color);
        if cell.bold() {
            style = style.bold();
        }
        if cell.dim() {
            style = style.dimmed();
        }
        let contents = if cell.has_contents() { cell.contents() } else { " " };
        match line.last_mut() {
            Some(Span { text, style: last }) if *last == style => text.push_str(contents),
            _ => line.push(Span { text: contents.to_owned(), style }),
        }
    }
    if let Some(last) = line.last_mut() {
        last.text.truncate(last.text.trim_end().len());
    }
    line
}
