//! How large things are, and what fits into them.

use std::borrow::Cow;

use winddown_shutdown::ShutdownReport;

use super::super::sentences;

/// The width of the picture. Pages and phones show it at a third to twice of this: fonts are chosen so that it can
/// be read at half of it.
pub(super) const WIDTH: f64 = 900.0;

/// Free space around it.
pub(super) const MARGIN: f64 = 14.0;

/// The width of what is said about a pod, at the right.
const REMARK: f64 = 228.0;

/// A monospaced character's width in parts of the font's size.
const MONO: f64 = 0.602;

/// A usual character's width in parts of the font's size, a little more than the average.
const SANS: f64 = 0.56;

/// Columns of a pod's name, at most and at least.
const NAME: (usize, usize) = (30, 12);

/// The sizes of one picture: rows get lower where there are many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Height of a pod's row.
    pub(super) row: f64,
    /// Height of its bar.
    pub(super) bar: f64,
    /// Font size of its name.
    pub(super) font: f64,
    /// Columns of its name.
    pub(super) name: usize,
    /// Rows after which the times are written again; zero for never.
    pub(super) ruler: usize,
}

impl Sizes {
    /// What suits the number of rows for `report` and the length of names.
    pub(super) fn of(report: &ShutdownReport) -> Self {
        let groups = report.groups.iter().filter(|group| group.started.is_some());
        let rows: usize = groups.map(|group| sentences::fold(group).0.len()).sum();
        let (row, bar, font, ruler) = match rows {
            0..=40 => (24.0, 13.0, 15.0, 0),
            41..=100 => (20.0, 11.0, 14.0, 40),
            _ => (17.0, 9.0, 13.0, 50),
        };
        let longest = report.pods().map(|(_, pod)| columns(&pod.full_name())).max().unwrap_or(0);
        Self { row, bar, font, name: longest.clamp(NAME.1, NAME.0), ruler }
    }

    /// Where the bars begin.
    pub(super) fn left(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "at most 30")]
        let name = self.name as f64 * self.font * MONO;
        MARGIN + name.ceil() + 16.0
    }

    /// Where the bars end.
    pub(super) fn right(&self) -> f64 {
        WIDTH - MARGIN - REMARK - 12.0
    }
}

/// How many columns a monospaced `text` takes. Scripts that may be wide are counted double.
fn columns(text: &str) -> usize {
    text.chars().map(column).sum()
}

fn column(c: char) -> usize {
    // From Hangul on.
    if u32::from(c) < 0x1100 { 1 } else { 2 }
}

/// How wide `text` is at most, set in the ordinary font.
pub(super) fn width(text: &str, font: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a length of text")]
    let columns = columns(text) as f64;
    columns * font * SANS
}

/// `text` in at most `room` columns. What does not fit is cut out of its middle: names that
/// belong together differ at the end.
pub(super) fn fit(text: &str, room: usize) -> Cow<'_, str> {
    if columns(text) <= room {
        return Cow::Borrowed(text);
    }
    // The mark counts as two.
    let room = room.saturating_sub(2);
    let tail_room = room / 2;
    let taken = |chars: &mut dyn Iterator<Item = char>, room: usize| {
        let mut used = 0;
        chars
            .take_while(|c| {
                used += column(*c);
                used <= room
            })
            .collect::<Vec<char>>()
    };
    let head = taken(&mut text.chars(), room - tail_room);
    let tail = taken(&mut text.chars().rev(), tail_room);
    Cow::Owned(head.into_iter().chain(['…']).chain(tail.into_iter().rev()).collect())
}

/// `text` cut at its end so that it fits into the remark's place.
pub(super) fn fit_remark(text: &str, font: f64) -> Cow<'_, str> {
    fit_end(text, font, REMARK)
}

/// `text` cut at its end so that it is at most as wide as `room`.
pub(super) fn fit_end(text: &str, font: f64, room: f64) -> Cow<'_, str> {
    if width(text, font) <= room {
        return Cow::Borrowed(text);
    }
    let mut cut = String::with_capacity(text.len());
    for c in text.chars() {
        cut.push(c);
        if width(&cut, font) > room - font {
            cut.pop();
            break;
        }
    }
    cut.push('…');
    Cow::Owned(cut)
}

/// `text` in lines that fit between the margins, broken at spaces; never more than `most` lines.
pub(super) fn wrap(text: &str, font: f64, most: usize) -> Vec<String> {
    let room = WIDTH - 2.0 * MARGIN;
    let columns = (1..).take_while(|columns| f64::from(*columns) * font * SANS <= room).count();
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().map_or("", |line| line);
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if line.is_empty() || width(&longer, font) <= room {
            lines.pop();
            lines.push(longer);
        } else {
            lines.push(word.to_owned());
        }
    }
    let cut = lines.len() > most;
    lines.truncate(most);
    for line in &mut lines {
        if width(line, font) > room {
            // One word that is longer than the picture is wide.
            *line = fit(line, columns).into_owned();
        }
    }
    if let Some(last) = lines.last_mut().filter(|_| cut) {
        last.push_str(" …");
    }
    lines
}
