//! The report as an HTML page: timeline, table and decisions.

mod decisions;
mod markup;
mod scale;
mod table;
#[cfg(test)]
mod tests;
mod timeline;

use winddown_shared::display::in_seconds;
use winddown_shutdown::{PodEnd, ShutdownReport};

use super::marks;
use super::sentences::{self, occasion, shortage};
use markup::{Escaped, Markup};

/// The style sheet, for wide screens, phones and paper.
const STYLE: &str = include_str!("html/page.css");

/// The content security policy: nothing may be fetched or run, whatever the report contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
                      base-uri 'none'; form-action 'none'";

/// The report as a self-contained HTML document, without scripts or external resources. The same report produces the
/// same bytes.
///
/// It contains a timeline with one bar per pod, a table of all pods, and the decisions with their times. It
/// follows the reader's light or dark scheme and the width of the screen, and conveys nothing by colour alone. Names
/// are shown without control characters and never become markup.
pub fn html(report: &ShutdownReport) -> String {
    let mut page = Page { report, out: Markup::default() };
    page.head();
    page.summary();
    page.main();
    page.out.line(format_args!("</body>\n</html>"));
    page.out.into_string()
}

struct Page<'a> {
    report: &'a ShutdownReport,
    out: Markup,
}

impl Page<'_> {
    fn head(&mut self) {
        let title = self.report.headline();
        self.out.line(format_args!(
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
{STYLE}</style>
</head>
<body>"#,
            Escaped(&title)
        ));
    }

    fn summary(&mut self) {
        let report = self.report;
        let class = marks::class_of(Some(report.outcome.text().tone));
        let (title, occasion) = (report.headline(), occasion(report));
        let (title, occasion) = (Escaped(&title), Escaped(&occasion));
        self.out.line(format_args!(
            "<header>\n<h1 class=\"{class}\">{title}</h1>\n<p class=\"dim\">{occasion}</p>"
        ));
        for said in sentences::origin(report) {
            self.out.line(format_args!("<p>{}</p>", Escaped(&said)));
        }
        if report.budget.is_short() {
            let said = shortage(report);
            self.out.line(format_args!("<p class=\"warn\">{}</p>", Escaped(&said)));
        }
        self.counts();
        let pods = report.pods().next().is_some();
        let links = [("timeline", "Timeline", pods), ("pods", "Pods", pods)];
        let links = links.into_iter().filter(|(.., shown)| *shown).chain([
            ("plugins", "Plug-ins", !report.work.is_empty()),
            ("decisions", "Decisions", true),
            ("warnings", "Warnings", !sentences::warnings(report).is_empty()),
        ]);
        self.out.line(format_args!("<nav aria-label=\"Sections of this report\">\n<ul>"));
        for (id, name, _) in links.filter(|(.., shown)| *shown) {
            self.out.line(format_args!("<li><a href=\"#{id}\">{name}</a></li>"));
        }
        self.out.line(format_args!("</ul>\n</nav>\n</header>"));
    }

    /// Writes how many pods stopped in which way.
    fn counts(&mut self) {
        self.out.line(format_args!("<dl class=\"counts\">"));
        for end in PodEnd::ALL {
            let (count, text) = (self.report.count(end), end.text());
            if count > 0 {
                let (name, class) = (text.several, marks::class_of(text.tone));
                self.out.line(format_args!(
                    "<div><dt>{name}</dt><dd class=\"{class}\">{count}</dd></div>"
                ));
            }
        }
        let (took, pods) = (in_seconds(self.report.took), in_seconds(self.report.budget.pods));
        self.out.line(format_args!(
            "<div><dt>took, of {pods} for the pods</dt><dd>{took}</dd></div>\n</dl>"
        ));
    }

    fn main(&mut self) {
        self.out.line(format_args!("<main>"));
        if self.report.pods().next().is_some() {
            open(&mut self.out, "timeline", "Timeline");
            timeline::write(self.report, &mut self.out);
            self.out.line(format_args!("</section>"));
            table::write(self.report, &mut self.out);
        }
        self.work();
        decisions::write(self.report, &mut self.out);
        self.warnings();
        self.out.line(format_args!("</main>"));
    }

    fn work(&mut self) {
        if self.report.work.is_empty() {
            return;
        }
        open(&mut self.out, "plugins", "Plug-ins");
        self.out.line(format_args!("<ul>"));
        for (said, is_done) in self.report.work.iter().map(sentences::work) {
            let class = if is_done { "good" } else { "warn" };
            self.out.line(format_args!("<li class=\"{class}\">{}</li>", Escaped(&said)));
        }
        self.out.line(format_args!("</ul>\n</section>"));
    }

    fn warnings(&mut self) {
        let warnings = sentences::warnings(self.report);
        if warnings.is_empty() {
            return;
        }
        open(&mut self.out, "warnings", "Warnings");
        self.out.line(format_args!("<ul>"));
        for warning in &warnings {
            self.out.line(format_args!("<li class=\"warn\">{}</li>", Escaped(warning)));
        }
        self.out.line(format_args!("</ul>\n</section>"));
    }
}

/// Opens a section that is labelled by its heading.
fn open(out: &mut Markup, id: &str, heading: &str) {
    out.line(format_args!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-heading\">\n\
         <h2 id=\"{id}-heading\">{heading}</h2>"
    ));
}
