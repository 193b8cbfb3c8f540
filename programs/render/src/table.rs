//! Tables whose columns are aligned by display width.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use winddown_shared::display::clean;

use super::line::{Line, cut, painted, span};
use super::paint::{HEAD, PLAIN};
use super::{View, fit};

/// The alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// One column of a [`Table`].
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading.
    name: &'static str,
    align: Align,
    /// Whether cells may be cut if the table is wider than the screen.
    may_shrink: bool,
    /// The least width, so that columns of like tables are equally wide.
    least: usize,
}

/// A table, aligned when it is rendered.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug)]
struct Cell {
    text: String,
    style: Option<Style>,
}

const GAP: &str = "  ";

/// The narrowest width to which a column is cut.
const MIN_COLUMN_WIDTH: usize = 8;

impl Column {
    /// Creates a column of words that may be cut.
    pub const fn words(name: &'static str) -> Self {
        Self { name, align: Align::Left, may_shrink: true, least: 0 }
    }

    /// Creates a column of words that are never cut.
    pub const fn fixed(name: &'static str) -> Self {
        Self { name, align: Align::Left, may_shrink: false, least: 0 }
    }

    /// Creates a column of numbers.
    pub const fn numbers(name: &'static str) -> Self {
        Self { name, align: Align::Right, may_shrink: false, least: 0 }
    }

    /// Makes the column at least this wide.
    pub(super) const fn at_least(self, least: usize) -> Self {
        Self { least, ..self }
    }
}

impl Table {
    /// Creates a table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Renders the table, indented by three columns.
    pub(super) fn indented(&self, view: &View) -> String {
        let inner = View { width: view.width.map(|width| width.saturating_sub(3)), ..*view };
        self.render(&inner).lines().map(|line| format!("   {}\n", line.trim_end())).collect()
    }

    /// Adds a row. Cells are made safe to print; missing ones are empty, surplus ones are dropped.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = (S, Option<Style>)>) {
        let row = cells.into_iter().take(self.columns.len()).map(|(text, style)| {
            let text: String = text.into();
            Cell { text: clean(&text).into_owned(), style }
        });
        self.rows.push(row.collect());
    }

    /// Renders the table, headings first, one line per row, each with a newline.
    pub fn render(&self, view: &View) -> String {
        let lines = self.lines(&self.widths(view.width));
        lines.iter().map(|line| format!("{}\n", painted(line, view.color))).collect()
    }

    /// The table as lines that fit on a screen: if there is not enough room, columns at the right are dropped, and the
    /// first column gets what the others leave.
    pub(super) fn on_screen(&self, columns: usize) -> Vec<Line> {
        let mut widths = self.widths(None);
        let longest = widths.first().copied().unwrap_or(0);
        // The first column says what a row is about, so it must stay distinguishable.
        let least = longest.min(columns * 2 / 5);
        let others = |widths: &[usize]| -> usize {
            widths.iter().skip(1).map(|width| width + GAP.len()).sum::<usize>()
        };
        while widths.len() > 1 && others(&widths) + least > columns {
            widths.pop();
        }
        let room = columns.saturating_sub(others(&widths));
        if let Some(first) = widths.first_mut() {
            *first = longest.min(room);
        }
        self.lines(&widths).into_iter().map(|line| cut(line, columns)).collect()
    }

    /// The lines, with as many columns as there are widths.
    fn lines(&self, widths: &[usize]) -> Vec<Line> {
        let heads: Vec<Cell> = self
            .columns
            .iter()
            .map(|column| Cell { text: column.name.to_owned(), style: Some(HEAD) })
            .collect();
        let line = |row: &Vec<Cell>| {
            let mut line = Line::new();
            let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
            let cells = row.iter().zip(&self.columns).zip(widths).enumerate();
            for (index, ((cell, column), width)) in cells.take(last + 1) {
                let shown = fit(&cell.text, *width);
                let blank = span(PLAIN, " ".repeat(width.saturating_sub(shown.width())));
                let text = span(cell.style.unwrap_or(PLAIN), shown);
                if index > 0 {
                    line.push(span(PLAIN, GAP));
                }
                match column.align {
                    Align::Right => line.extend([blank, text]),
                    Align::Left if index == last => line.push(text),
                    Align::Left => line.extend([text, blank]),
                }
            }
            line
        };
        std::iter::once(&heads).chain(&self.rows).map(line).collect()
    }

    /// The width of each column. If the table is too wide, the widest shrinkable column shrinks first.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let cells = self.rows.iter().filter_map(|row| row.get(index));
                let widest = cells.map(|cell| cell.text.width()).max().unwrap_or(0);
                widest.max(column.name.width()).max(column.least)
            })
            .collect();
        let Some(limit) = limit else { return widths };
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(limit);
        while excess > 0 {
            let shrinkable = widths.iter().zip(&self.columns).enumerate();
            let widest = shrinkable
                .filter(|(_, (width, column))| column.may_shrink && **width > MIN_COLUMN_WIDTH)
                .max_by_key(|(_, (width, _))| **width)
                .map(|(index, _)| index);
            let Some(width) = widest.and_then(|index| widths.get_mut(index)) else { break };
            *width -= 1;
            excess -= 1;
        }
        widths
    }
}
