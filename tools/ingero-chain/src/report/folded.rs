//! A report as folded stacks, `process;call;cause;who nanoseconds`, one a line: what flame graph tools read (inferno,
//! flamegraph.pl, speedscope). Gaps, slow calls and stalls, so that no nanosecond counts twice.

use std::io::{self, Write};

use crate::report::model::{Finding, Kind, Report};
use crate::report::sentences;

pub(crate) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let counts = |finding: &&Finding| matches!(finding.op, Kind::Gap | Kind::SlowCall | Kind::Stall);
    report.findings.iter().filter(counts).try_for_each(|finding| stacks(out, finding))
}

fn stacks(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    let below = format!("{};{}", frame(sentences::name(finding)), frame(sentences::call(finding)));
    for line in &finding.lost.causes {
        let cause = line.cause.name();
        for who in &line.who {
            let who_name = frame(sentences::process(&who.comm, who.pid));
            writeln!(out, "{below};{cause};{who_name} {}", who.ns)?;
        }
        for op in &line.ops {
            writeln!(out, "{below};{cause};{} {}", frame(op.op.to_string()), op.ns)?;
        }
        let named_ns: u64 = line.who.iter().map(|who| who.ns).chain(line.ops.iter().map(|op| op.ns)).sum();
        if line.ns > named_ns {
            writeln!(out, "{below};{cause} {}", line.ns - named_ns)?;
        }
    }
    if finding.lost.unexplained_ns > 0 {
        writeln!(out, "{below};unexplained {}", finding.lost.unexplained_ns)?;
    }
    Ok(())
}

/// A semicolon ends a frame.
fn frame(name: String) -> String {
    name.replace(';', ":")
}
