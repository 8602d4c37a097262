//! A report as `key=value` lines, one for each account, each finding and the summary: what log collectors read.

use std::fmt::Display;
use std::io::{self, Write};

use crate::report::model::{AccountLine, Finding, Report, Summary};

pub(crate) fn write(out: &mut impl Write, report: &Report, list: bool) -> io::Result<()> {
    if !list {
        report.accounts.iter().try_for_each(|one| account(one).end(out))?;
    }
    report.findings.iter().try_for_each(|one| finding(one).end(out))?;
    if list { Ok(()) } else { summary(&report.summary).end(out) }
}

fn account(account: &AccountLine) -> Line {
    let mut line = Line::new("account");
    line.put("pid", account.pid).put("comm", &account.comm);
    line.put("mono_ns", account.mono_ns).put("observed_ns", account.observed_ns);
    line.put("loop_ns", account.loop_ns).put("lost_ns", account.lost_ns).put("lost_share", account.lost_share);
    for (class, ns) in account.classes.iter() {
        line.put(&format!("{}_ns", class.name()), ns);
    }
    line
}

fn finding(finding: &Finding) -> Line {
    let mut line = Line::new(finding.op.name());
    line.put("severity", finding.severity.name()).put("id", finding.id.whole());
    line.put("pid", finding.pid).put("comm", &finding.comm);
    line.put("mono_ns", finding.lost.mono_ns).put("dur_ns", finding.lost.dur_ns).put("n", finding.lost.n);
    line.put("lost_ns", finding.lost.lost_ns).put("lost_share", finding.lost.lost_share);
    for cause in &finding.lost.causes {
        line.put(&format!("{}_ns", cause.cause.name()), cause.ns);
    }
    line.put("unexplained_ns", finding.lost.unexplained_ns).put("summary", &finding.story.summary);
    line
}

fn summary(summary: &Summary) -> Line {
    let (stream, found) = (&summary.stream, summary.chains);
    let mut line = Line::new("summary");
    line.put("mono_ns", summary.mono_ns).put("dur_ns", summary.dur_ns);
    line.put("records", stream.records).put("calls", stream.calls).put("processes", stream.processes);
    line.put("bad_lines", stream.bad_lines).put("lost", stream.lost).put("late", stream.late);
    line.put("high", found.high).put("medium", found.medium).put("low", found.low);
    if let Some(why) = stream.nothing_seen {
        line.put("nothing_seen", why);
    }
    line
}

struct Line(String);

impl Line {
    fn new(op: &str) -> Self {
        Self(format!("src=chain op={op}"))
    }

    /// A value with anything but plain characters is quoted.
    fn put(&mut self, key: &str, value: impl Display) -> &mut Self {
        let value = value.to_string();
        let plain = |c: char| c.is_alphanumeric() || "_-.:/+".contains(c);
        if !value.is_empty() && value.chars().all(plain) {
            self.0.push_str(&format!(" {key}={value}"));
        } else {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            self.0.push_str(&format!(" {key}=\"{value}\""));
        }
        self
    }

    fn end(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_common::text::Traced;

    #[test]
    fn values_are_quoted_where_they_need_it() {
        let mut line = Line::new("gap");
        line.put("n", 3).put("comm", Traced::from("a \"b\u{1b}")).put("none", "");
        assert_eq!(line.0, r#"src=chain op=gap n=3 comm="a \"b\\u{1b}" none="""#);
    }
}
