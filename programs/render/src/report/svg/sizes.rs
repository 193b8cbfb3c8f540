//! Sizes of elements, and text that fits into them.

use std::borrow::Cow;

use winddown_shutdown::ShutdownReport;

use super::super::sentences;

/// The width of the picture. Pages and phones show it at a third to twice this size; fonts are chosen so that it is
/// readable at half of it.
pub(super) const WIDTH: f64 = 900.0;

/// The margin around the picture.
pub(super) const MARGIN: f64 = 14.0;

/// The width of the remark about a pod, at the right.
const REMARK: f64 = 228.0;

/// The width of a monospaced character, relative to the font size.
const MONO: f64 = 0.602;

/// The width of a proportional character, relative to the font size; slightly more than the average.
const SANS: f64 = 0.56;

/// The maximum and minimum width of a pod's name, in columns.
const NAME: (usize, usize) = (30, 12);

/// The sizes of one picture: the more rows, the lower they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The height of a pod's row.
    pub(super) row: f64,
    /// The height of its bar.
    pub(super) bar: f64,
    /// The font size of its name.
    pub(super) font: f64,
    /// The width of its name, in columns.
    pub(super) name: usize,
    /// The number of rows after which the time labels are repeated; 0 for never.
    pub(super) ruler: usize,
}

impl Sizes {
    /// The sizes for the number of rows and the lengths of names in `report`.
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

    /// The left edge of the bars.
    pub(super) fn left(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "at most 30")]
        let name = self.name as f64 * self.font * MONO;
        MARGIN + name.ceil() + 16.0
    }

    /// The right edge of the bars.
    pub(super) fn right(&self) -> f64 {
        WIDTH - MARGIN - REMARK - 12.0
    }
}

/// The width of a monospaced `text`, in columns. Characters that may be wide count twice.
fn columns(text: &str) -> usize {
    text.chars().map(column).sum()
}

fn column(c: char) -> usize {
    // Hangul and everything after it.
    if u32::from(c) < 0x1100 { 1 } else { 2 }
}

/// The estimated width of `text` in the proportional font.
pub(super) fn width(text: &str, font: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a length of text")]
    let columns = columns(text) as f64;
    columns * font * SANS
}

/// Cuts `text` to at most `room` columns. The cut is in the middle, because related names differ at the end.
pub(super) fn fit(text: &str, room: usize) -> Cow<'_, str> {
    if columns(text) <= room {
        return Cow::Borrowed(text);
    }
    // The ellipsis counts as two.
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

/// Cuts `text` at its end so that it fits into the space of a remark.
pub(super) fn fit_remark(text: &str, font: f64) -> Cow<'_, str> {
    fit_end(text, font, REMARK)
}

/// Cuts `text` at its end so that it is at most `room` wide.
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
