//! The tables that are printed, in the form tests/bench/notebook.md has them in.

use std::fmt;

use crate::figure::{Figure, Target};

/// Cells in rows and columns, as Markdown. The first column is text, the others are figures.
#[derive(Debug)]
pub(crate) struct Grid {
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// What was measured, line by line, with what we are after beside it.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    rows: Vec<Row>,
}

/// One line of a [`Table`].
#[derive(Debug)]
pub(crate) struct Row {
    what: String,
    measured: Measured,
    target: Option<Target>,
    floor: Option<Figure>,
    kubelet: String,
}

/// What a line says.
#[derive(Debug)]
pub(crate) enum Measured {
    Figure(Figure),
    Text(String),
}

impl From<Figure> for Measured {
    fn from(figure: Figure) -> Self {
        Self::Figure(figure)
    }
}

impl From<String> for Measured {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

const MET: &str = "met";
/// The verdict on a target that was not met.
const MISSED: &str = "**missed**";
/// The same where the floor does not meet the target either, and what was measured is near the floor.
const FLOOR_ABOVE: &str = "**floor above**";
/// How many times as large as its floor such a figure is at most.
const NEAR: f64 = 1.5;
/// What a row says that has no figure because of an error.
pub(crate) const NOT_MEASURED: &str = "not measured";

/// The rows of tables, as text, that say that a target was missed or that something could not be measured.
pub(crate) fn missed(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains(MISSED) || line.contains(NOT_MEASURED)).collect()
}

// === impl Grid ===

impl Grid {
    pub(crate) fn titled(title: String, head: &[&str]) -> Self {
        let head = head.iter().map(|name| (*name).to_owned()).collect();
        Self { title, head, rows: Vec::new() }
    }

    /// Adds a row with as many cells as there are columns.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.title)?;
        let width = |column: usize| {
            let cells = std::iter::once(&self.head).chain(&self.rows);
            cells.filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        for (line, row) in std::iter::once(&self.head).chain(&self.rows).enumerate() {
            write!(f, "|")?;
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(f, " {cell:width$} |")?,
                    _ => write!(f, " {cell:>width$} |")?,
                }
            }
            writeln!(f)?;
            if line == 0 {
                write!(f, "|")?;
                for (column, width) in widths.iter().enumerate() {
                    let rule = "-".repeat(*width);
                    write!(f, "-{rule}{}|", if column == 0 { "-" } else { ":" })?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

// === impl Table ===

impl Table {
    pub(crate) fn titled(title: String) -> Self {
        Self { title, rows: Vec::new() }
    }

    /// Adds a line.
    pub(crate) fn row(&mut self, what: &str, measured: impl Into<Measured>) -> &mut Row {
        let at = self.rows.len();
        self.rows.push(Row {
            what: what.to_owned(),
            measured: measured.into(),
            target: None,
            floor: None,
            kubelet: String::new(),
        });
        &mut self.rows[at]
    }

    /// Adds the lines of another table, under its title.
    pub(crate) fn append(&mut self, other: Self) {
        self.row(&format!("**{}**", other.title), String::new());
        self.rows.extend(other.rows);
    }

    /// The line that is nearest to its target or furthest beyond it, and how much of what is
    /// allowed it used.
    fn worst(&self) -> Option<(&Row, f64)> {
        let used = self.rows.iter().filter_map(|row| Some((row, row.used()?)));
        used.max_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let judged = self.rows.iter().any(|row| row.target.is_some());
        let floors = self.rows.iter().any(|row| row.floor.is_some());
        let beside = self.rows.iter().any(|row| !row.kubelet.is_empty());
        let mut head = vec!["what", "measured"];
        head.extend(judged.then_some("target"));
        head.extend(floors.then_some("floor"));
        head.extend(judged.then_some("verdict"));
        head.extend(beside.then_some("kubelet"));
        let mut grid = Grid::titled(self.title.clone(), &head);
        for row in &self.rows {
            let mut cells = vec![row.what.clone(), row.measured.to_string()];
            let shown = |figure: Option<String>| figure.unwrap_or_default();
            cells.extend(judged.then(|| shown(row.target.map(|target| target.to_string()))));
            cells.extend(floors.then(|| shown(row.floor.map(|floor| floor.to_string()))));
            cells.extend(judged.then(|| row.verdict().to_owned()));
            cells.extend(beside.then(|| row.kubelet.clone()));
            grid.row(cells);
        }
        grid.fmt(f)?;
        if floors {
            writeln!(
                f,
                "\n*Floor*: the least that a program needs for this, by the same run. {FLOOR_ABOVE}: that misses the \
                 target too, and the figure is at most {NEAR} times as much."
            )?;
        }
        let all = self.rows.iter().filter(|row| row.used().is_some()).count();
        let met = self.rows.iter().filter(|row| row.verdict() == MET).count();
        if let Some((row, used)) = self.worst() {
            writeln!(
                f,
                "\n{met} of {all} targets are met. The highest: {}, \
                 {:.0} % of what is allowed.",
                row.what,
                used * 100.0
            )?;
        }
        Ok(())
    }
}

// === impl Row ===

impl Row {
    /// It is to be less than this.
    pub(crate) fn below(&mut self, most: Figure) -> &mut Self {
        self.target = Some(Target::Below(most));
        self
    }

    /// The same, where there is a target.
    pub(crate) fn below_if(&mut self, most: Option<Figure>) -> &mut Self {
        self.target = most.map(Target::Below).or(self.target);
        self
    }

    /// It is to be more than this.
    pub(crate) fn above(&mut self, least: Figure) -> &mut Self {
        self.target = Some(Target::Above(least));
        self
    }

    /// What the kubelet needs, in the same run.
    pub(crate) fn kubelet(&mut self, figure: Figure) -> &mut Self {
        self.kubelet = figure.to_string();
        self
    }

    /// What no program that does this goes below, measured in the same run.
    pub(crate) fn floor(&mut self, floor: Option<Figure>) -> &mut Self {
        self.floor = floor;
        self
    }

    fn used(&self) -> Option<f64> {
        match self.measured {
            Measured::Figure(figure) => Some(self.target?.used_by(figure)),
            Measured::Text(_) => None,
        }
    }

    fn floor_explains(&self, figure: Figure) -> bool {
        let both = self.target.zip(self.floor);
        both.is_some_and(|(target, floor)| {
            target.used_by(floor) >= 1.0 && figure.over(floor) <= NEAR
        })
    }

    fn verdict(&self) -> &'static str {
        let Measured::Figure(figure) = self.measured else { return "" };
        match self.used() {
            None => "",
            Some(used) if used < 1.0 => MET,
            Some(_) if self.floor_explains(figure) => FLOOR_ABOVE,
            Some(_) => MISSED,
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Figure(figure) => figure.fmt(f),
            Self::Text(text) => f.pad(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Table;
    use crate::figure::millis;

    #[test]
    fn a_table_says_which_targets_are_missed_and_which_line_is_worst() {
        let ms = |n| millis(Duration::from_millis(n));
        let mut table = Table::titled("two gaps".to_owned());
        table.row("first gap", ms(10)).below(ms(50)).kubelet(ms(3300));
        table.row("second gap", ms(60)).below(ms(50));
        table.row("a note", "none".to_owned());
        let text = table.to_string();
        assert!(
            text.contains("| first gap  |  10.0 ms | < 50.0 ms |        met | 3300 ms |"),
            "{text}"
        );
        assert!(
            text.contains("| second gap |  60.0 ms | < 50.0 ms | **missed** |         |"),
            "{text}"
        );
        assert!(text.contains("1 of 2 targets are met."), "{text}");
        let [missed] = super::missed(&text)[..] else { panic!("{text}") };
        assert!(missed.contains("second gap"), "{text}");
        assert!(text.contains("second gap, 120 % of what is allowed"), "{text}");
    }

    #[test]
    fn the_check_lets_a_miss_pass_only_where_the_floor_misses_too_and_is_near() {
        let ms = |n| millis(Duration::from_millis(n));
        let mut table = Table::titled("gaps".to_owned());
        table.row("no floor", ms(60)).below(ms(50));
        table.row("far above", ms(91)).below(ms(50)).floor(Some(ms(60)));
        table.row("floor meets", ms(60)).below(ms(50)).floor(Some(ms(49)));
        table.row("near", ms(90)).below(ms(50)).floor(Some(ms(60)));
        table.row("not missed", ms(40)).below(ms(50)).floor(Some(ms(30)));
        let text = table.to_string();
        let failed = super::missed(&text);
        assert_eq!(failed.len(), 3, "{text}");
        for (row, what) in failed.iter().zip(["no floor", "far above", "floor meets"]) {
            assert!(row.contains(what), "{text}");
        }
        let head = "| what        | measured |    target |   floor |         verdict |";
        assert!(text.contains(head), "{text}");
        assert!(text.contains("|  90.0 ms | < 50.0 ms | 60.0 ms | **floor above** |"), "{text}");
        assert!(text.contains("1 of 5 targets are met."), "{text}");
    }

    #[test]
    fn empty_columns_are_left_out() {
        let mut table = Table::titled("one".to_owned());
        table.row("a", millis(Duration::from_millis(1)));
        assert_eq!(
            table.to_string(),
            "one\n\n| what | measured |\n|------|---------:|\n| a    |  1.00 ms |\n"
        );
    }
}
