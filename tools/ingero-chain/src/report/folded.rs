//! A report as folded stacks, `process;call;cause;who;functions nanoseconds`, one a line: what flame graph tools read (inferno,
//! flamegraph.pl, speedscope). Gaps, slow calls and stalls, so that no nanosecond counts twice.

use std::io::{self, Write};

use ingero_common::text::Traced;

use crate::blame::{CauseLine, FoldedLine};
use crate::report::model::{Finding, Kind, Report};
use crate::report::sentences;

pub(crate) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let counts = |finding: &&Finding| matches!(finding.op, Kind::Gap | Kind::SlowCall | Kind::Stall);
    report.findings.iter().filter(counts).try_for_each(|finding| stacks(out, finding))
}

fn stacks(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    let below = format!("{};{}", frame(&sentences::name(finding)), frame(&sentences::call(finding)));
    for line in &finding.lost.causes {
        let mut left_ns = line.ns;
        for (parts, ns) in parts(finding, line) {
            let stack: String = parts.iter().map(|part| format!(";{}", frame(part))).collect();
            writeln!(out, "{below};{}{stack} {ns}", line.cause.name())?;
            left_ns = left_ns.saturating_sub(ns);
        }
        if left_ns > 0 {
            writeln!(out, "{below};{} {left_ns}", line.cause.name())?;
        }
    }
    if finding.lost.unexplained_ns > 0 {
        writeln!(out, "{below};unexplained {}", finding.lost.unexplained_ns)?;
    }
    Ok(())
}

/// What is known below a cause: who, in which stacks as far as these were sampled, or in which CUDA operations.
fn parts(finding: &Finding, line: &CauseLine) -> Vec<(Vec<String>, u64)> {
    let folded: Vec<&FoldedLine> = finding.lost.folded.iter().filter(|stack| stack.cause == line.cause).collect();
    if folded.is_empty() && !line.ops.is_empty() {
        return line.ops.iter().map(|op| (vec![op.op.to_string()], op.ns)).collect();
    }
    let mut parts = Vec::new();
    for who in &line.who {
        let name = sentences::process(&who.comm, who.pid);
        let mut left_ns = who.ns;
        for stack in folded.iter().filter(|stack| (stack.who.pid, &stack.who.comm) == (who.pid, &who.comm)) {
            let ns = stack.who.ns.min(left_ns);
            left_ns -= ns;
            parts.push(([name.clone()].into_iter().chain(stack.frames.iter().cloned()).collect(), ns));
        }
        parts.push((vec![name], left_ns));
    }
    parts.retain(|(_, ns)| *ns > 0);
    parts
}

/// A semicolon ends a frame, and a frame is text from a traced process.
fn frame(name: &str) -> String {
    Traced::from(name).to_string().replace(';', ":")
}
