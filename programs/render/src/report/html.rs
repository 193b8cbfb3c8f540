//! The report as an HTML page: timeline, table and decisions.

mod decisions;
mod table;
#[cfg(test)]
mod tests;

use winddown_shared::display::in_seconds;
use winddown_shutdown::{PodEnd, ShutdownReport, Tone};

use super::sentences::{self, occasion, shortage};
use super::svg::canvas::{Canvas, Escaped};
use super::svg::{self, THEME};

/// The style sheet, for wide screens, phones and paper.
const STYLE: &str = include_str!("html/page.css");

/// The content security policy: nothing may be fetched or run, whatever the report contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
                      base-uri 'none'; form-action 'none'";

/// The report as a self-contained HTML document, without scripts or external resources. The same report produces the
/// same bytes.
///
/// It contains the timeline of [`svg()`](super::svg()), a table of all pods, and the decisions with their times. It
/// follows the reader's light or dark scheme and the width of the screen, and conveys nothing by colour alone. Names
/// are shown without control characters and never become markup.
pub fn html(report: &ShutdownReport) -> String {
    let mut page = Page { report, out: Canvas::default() };
    page.head();
    page.summary();
    page.main();
    page.out.markup(format_args!("</body>\n</html>\n"));
    page.out.into_string().trim_start().to_owned()
}

struct Page<'a> {
    report: &'a ShutdownReport,
    out: Canvas,
}

impl Page<'_> {
    fn head(&mut self) {
        let title = self.report.headline();
        self.out.markup(format_args!(
            r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>
<link rel="icon" href="data:,"/>
<title>{}</title>
<style>
{THEME}{STYLE}</style>
</head>
<body>"#,
            Escaped(&title)
        ));
    }

    fn summary(&mut self) {
        let report = self.report;
        let class = match report.outcome.text().tone {
            Tone::Good => "good",
            Tone::Warn => "warn",
            Tone::Bad => "bad",
        };
        let (title, occasion) = (report.headline(), occasion(report));
        let (title, occasion) = (Escaped(&title), Escaped(&occasion));
        self.out.markup(format_args!(
            "<header>\n<h1 class=\"{class}\">{title}</h1>\n<p class=\"dim\">{occasion}</p>"
        ));
        for said in sentences::origin(report) {
            self.out.markup(format_args!("<p>{}</p>", Escaped(&said)));
        }
        if report.budget.is_short() {
            let said = shortage(report);
            self.out.markup(format_args!("<p class=\"warn\">{}</p>", Escaped(&said)));
        }
        self.counts();
        let pods = report.pods().next().is_some();
        let links = [("timeline", "Timeline", pods), ("pods", "Pods", pods)];
        let links = links.into_iter().filter(|(.., shown)| *shown).chain([
            ("plugins", "Plug-ins", !report.work.is_empty()),
            ("decisions", "Decisions", true),
            ("warnings", "Warnings", !sentences::warnings(report).is_empty()),
        ]);
        self.out.markup(format_args!("<nav aria-label=\"Sections of this report\">\n<ul>"));
        for (id, name, _) in links.filter(|(.., shown)| *shown) {
            self.out.markup(format_args!("<li><a href=\"#{id}\">{name}</a></li>"));
        }
        self.out.markup(format_args!("</ul>\n</nav>\n</header>"));
    }

    /// Writes how many pods stopped in which way.
    fn counts(&mut self) {
        let ways = [
            (PodEnd::Exited, "ended by themselves", "good"),
            (PodEnd::Killed, "needed SIGKILL", "warn"),
            (PodEnd::Left, "not seen to end", "bad"),
            (PodEnd::Ending, "still ending", "warn"),
            (PodEnd::Spared, "spared", "dim"),
            (PodEnd::Survives, "survived", "good"),
            (PodEnd::Stays, "stay", "dim"),
        ];
        self.out.markup(format_args!("<dl class=\"counts\">"));
        for (end, name, class) in ways {
            let count = self.report.count(end);
            if count > 0 {
                self.out.markup(format_args!(
                    "<div><dt>{name}</dt><dd class=\"{class}\">{count}</dd></div>"
                ));
            }
        }
        let (took, pods) = (in_seconds(self.report.took), in_seconds(self.report.budget.pods));
        self.out.markup(format_args!(
            "<div><dt>took, of {pods} for the pods</dt><dd>{took}</dd></div>\n</dl>"
        ));
    }

    fn main(&mut self) {
        self.out.markup(format_args!("<main>"));
        if self.report.pods().next().is_some() {
            open(&mut self.out, "timeline", "Timeline");
            // A timeline that is wider than the screen scrolls separately.
            self.out.markup(format_args!("<div class=\"picture\" tabindex=\"0\">"));
            self.out.append(&svg::timeline(self.report));
            self.out.markup(format_args!("</div>\n</section>"));
            table::write(self.report, &mut self.out);
        }
        self.work();
        decisions::write(self.report, &mut self.out);
        self.warnings();
        self.out.markup(format_args!("</main>"));
    }

    fn work(&mut self) {
        if self.report.work.is_empty() {
            return;
        }
        open(&mut self.out, "plugins", "Plug-ins");
        self.out.markup(format_args!("<ul>"));
        for (said, is_done) in self.report.work.iter().map(sentences::work) {
            let class = if is_done { "good" } else { "warn" };
            self.out.markup(format_args!("<li class=\"{class}\">{}</li>", Escaped(&said)));
        }
        self.out.markup(format_args!("</ul>\n</section>"));
    }

    fn warnings(&mut self) {
        let warnings = sentences::warnings(self.report);
        if warnings.is_empty() {
            return;
        }
        open(&mut self.out, "warnings", "Warnings");
        self.out.markup(format_args!("<ul>"));
        for warning in &warnings {
            self.out.markup(format_args!("<li class=\"warn\">{}</li>", Escaped(warning)));
        }
        self.out.markup(format_args!("</ul>\n</section>"));
    }
}

/// Opens a section that is labelled by its heading.
fn open(out: &mut Canvas, id: &str, heading: &str) {
    out.markup(format_args!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-heading\">\n\
         <h2 id=\"{id}-heading\">{heading}</h2>"
    ));
}
