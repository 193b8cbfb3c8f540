//! The table of all pods. On a narrow screen each row becomes a block.

use winddown_shared::display::{clean, pod_count};
use winddown_shutdown::{EndDetail, PodEnd, PodReport, ShutdownReport};

use super::super::marks;
use super::{Escaped, Markup, sentences};
use crate::priority;

/// The headings, which also label the cells where the table is folded.
const COLUMNS: [&str; 7] = ["Pod", "Priority", "Grace", "Asked", "SIGTERM", "Exit", "Outcome"];

pub(super) fn write(report: &ShutdownReport, out: &mut Markup) {
    super::open(out, "pods", "Pods");
    head(
        out,
        "The pods in the order of the groups; in a group those that went wrong come first. Asked, SIGTERM and exit \
         are seconds since the signal.",
    );
    let mut rest = Vec::new();
    for group in sentences::groups(report) {
        let (name, facts) = (sentences::group(group), sentences::group_facts(group));
        out.line(format_args!(
            "<tbody role=\"rowgroup\">\n<tr role=\"row\" class=\"group\"><th scope=\"rowgroup\" \
             role=\"rowheader\" colspan=\"{}\">{} <span class=\"dim\">{}</span></th></tr>",
            COLUMNS.len(),
            Escaped(&name),
            Escaped(&facts)
        ));
        let (shown, folded) = sentences::fold(group);
        shown.into_iter().for_each(|pod| row(pod, out));
        if !folded.is_empty() {
            let (more, how) = sentences::folded(&folded);
            out.line(format_args!(
                "<tr role=\"row\"><td role=\"cell\" class=\"dim\" colspan=\"{}\">… {more}: {how}; \
                 listed below</td></tr>",
                COLUMNS.len()
            ));
            rest.push((name, folded));
        }
        out.line(format_args!("</tbody>"));
    }
    out.line(format_args!("</table>"));
    for (group, pods) in rest {
        let (group, count) = (Escaped(&group), pod_count(pods.len()));
        out.line(format_args!("<details>\n<summary>{group}: the other {count}</summary>"));
        let exited = PodEnd::Exited.text().several;
        head(out, &format!("Those that {exited}, and sooner; the slowest first."));
        out.line(format_args!("<tbody role=\"rowgroup\">"));
        pods.into_iter().for_each(|pod| row(pod, out));
        out.line(format_args!("</tbody>\n</table>\n</details>"));
    }
    out.line(format_args!("</section>"));
}

/// Opens a table.
fn head(out: &mut Markup, caption: &str) {
    // The roles repeat what the elements are: browsers drop it where the style sheet changes their `display`.
    out.line(format_args!(
        "<table role=\"table\">\n<caption>{caption}</caption>\n<thead role=\"rowgroup\">\n<tr \
         role=\"row\">"
    ));
    for name in COLUMNS {
        out.line(format_args!("<th scope=\"col\" role=\"columnheader\">{name}</th>"));
    }
    out.line(format_args!("</tr>\n</thead>"));
}

fn row(pod: &PodReport, out: &mut Markup) {
    let name = pod.full_name();
    out.line(format_args!(
        "<tr role=\"row\"><th scope=\"row\" role=\"rowheader\"><bdi>{}</bdi></th>",
        Escaped(&name)
    ));
    let numbers = [
        priority(pod.priority),
        sentences::grace(pod),
        sentences::offset(pod.asked),
        sentences::offset(pod.sigterm),
        sentences::offset(pod.exit),
    ];
    let columns = COLUMNS.iter().skip(1);
    for (name, number) in columns.zip(numbers) {
        out.line(format_args!(
            "<td role=\"cell\" class=\"number\" data-name=\"{name}\">{number}</td>"
        ));
    }
    let (said, class) = (how(pod), marks::class(pod));
    let last = COLUMNS.last().copied().unwrap_or_default();
    out.line(format_args!(
        "<td role=\"cell\" class=\"{class}\" data-name=\"{last}\">{}",
        Escaped(&said)
    ));
    for mount in &pod.mounts {
        let mount = clean(mount);
        out.line(format_args!("<span class=\"more\">still held: {}</span>", Escaped(&mount)));
    }
    if let Some(error) = pod.error.as_deref().filter(|_| !pod.containers.is_empty()) {
        out.line(format_args!("<span class=\"more\">{}</span>", Escaped(error)));
    }
    out.line(format_args!("</td></tr>"));
}

fn how(pod: &PodReport) -> String {
    let said = sentences::remark(pod);
    let text = pod.end.text();
    match text.detail == EndDetail::Duration {
        true if said.is_empty() => text.word.to_owned(),
        true => format!("{}; {said}", text.word),
        false => said,
    }
}
