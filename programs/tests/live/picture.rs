//! Draws a screen as an SVG picture, for the documentation.

use anstyle::{AnsiColor, Color, Effects};
use unicode_width::UnicodeWidthStr;
use winddown_render::{Line, Span};

const CELL: (usize, usize) = (9, 19);
const MARGIN: usize = 14;

/// Draws `lines` on a terminal with this many columns. The output is reproducible.
pub(crate) fn draw(title: &str, lines: &[Line], columns: usize) -> String {
    let mut svg = head(title, columns, lines.len());
    for (number, line) in lines.iter().enumerate() {
        row(line, number, &mut svg);
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Returns the beginning of a picture, up to its rows.
pub(crate) fn head(title: &str, columns: usize, rows: usize) -> String {
    let (wide, high) = (columns * CELL.0 + 2 * MARGIN, rows * CELL.1 + 2 * MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" viewBox=\"0 0 \
         {wide} {high}\" role=\"img\" aria-labelledby=\"what\">\n<title id=\"what\">{title}</title>\n\
         <rect width=\"{wide}\" height=\"{high}\" rx=\"8\" fill=\"#0d1117\"/>\n<g font-size=\"15\" \
         font-family=\"ui-monospace,SF Mono,Menlo,Consolas,DejaVu Sans Mono,monospace\">\n"
    )
}

/// Draws one row.
pub(crate) fn row(line: &Line, number: usize, svg: &mut String) {
    let y = MARGIN + number * CELL.1 + 14;
    let mut column = 0;
    for span in line {
        let width = span.text.width();
        let text = span.text.trim();
        if !text.is_empty() {
            // Not all viewers preserve spaces, so position the text without them.
            let before = width - span.text.trim_start().width();
            let x = MARGIN + (column + before) * CELL.0;
            let (length, text) = (text.width() * CELL.0, text.replace(' ', "\u{a0}"));
            svg.push_str(&format!(
                "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\" {}>{}</text>\n",
                look(span),
                escaped(&text)
            ));
        }
        column += width;
    }
}

fn look(span: &Span) -> String {
    let dim = span.style.get_effects().contains(Effects::DIMMED);
    let color = match span.style.get_fg_color() {
        Some(Color::Ansi(AnsiColor::Green)) => "#5fd07a",
        Some(Color::Ansi(AnsiColor::Yellow)) => "#f0a860",
        Some(Color::Ansi(AnsiColor::Red)) => "#ff9088",
        _ if dim => "#9aa4af",
        _ => "#e6edf3",
    };
    let bold = span.style.get_effects().contains(Effects::BOLD);
    format!("fill=\"{color}\"{}", if bold { " font-weight=\"700\"" } else { "" })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
