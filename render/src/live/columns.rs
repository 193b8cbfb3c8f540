//! Columns that fit the screen: the first one takes what the others leave.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::{Look, Page};
use crate::fit;

/// One column; the first of a table is as wide as there is room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// Numbers stand at the right.
    pub(super) right: bool,
}

pub(super) type Cell = (String, Look);

const GAP: usize = 2;

impl Page<'_> {
    /// Rows below each other. Columns at the right go first where there is no room for all. The
    /// widths are those of `all` rows, so that scrolling moves nothing sideways.
    pub(super) fn table(&self, columns: &[Column], all: &[Vec<Cell>]) -> Table {
        let width = |index: usize, name: &str| {
            let cells = all.iter().filter_map(|row| row.get(index)).map(|cell| cell.0.width());
            cells.max().unwrap_or(0).max(name.width())
        };
        let mut widths: Vec<usize> =
            columns.iter().enumerate().map(|(index, column)| width(index, column.name)).collect();
        let longest = widths.first().copied().unwrap_or(0);
        // What the row is about has to be told apart before anything else is of use.
        let least = longest.min(self.columns * 2 / 5);
        let others = |widths: &[usize]| -> usize {
            widths.iter().skip(1).map(|width| width + GAP).sum::<usize>()
        };
        while widths.len() > 1 && others(&widths) + least > self.columns {
            widths.pop();
        }
        let room = self.columns.saturating_sub(others(&widths));
        if let Some(first) = widths.first_mut() {
            *first = longest.min(room);
        }
        Table { columns: columns.iter().copied().zip(widths).collect() }
    }

    pub(super) fn table_head(&self, table: &Table) -> Line<'static> {
        let names = table.columns.iter().map(|(column, _)| (column.name.to_owned(), Look::Head));
        self.table_row(table, &names.collect::<Vec<_>>())
    }

    pub(super) fn table_row(&self, table: &Table, cells: &[Cell]) -> Line<'static> {
        let mut spans = Vec::new();
        for (index, ((column, width), (text, look))) in table.columns.iter().zip(cells).enumerate()
        {
            if index > 0 {
                spans.push(Span::raw(" ".repeat(GAP)));
            }
            let text = fit(text, *width);
            let blank = Span::raw(" ".repeat(width.saturating_sub(text.width())));
            let text = self.span(*look, &text);
            spans.extend(if column.right { [blank, text] } else { [text, blank] });
        }
        Line::from(self.cut(spans))
    }
}

/// The columns that are shown, with their widths.
pub(super) struct Table {
    columns: Vec<(Column, usize)>,
}
