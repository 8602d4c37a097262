//! `get_causal_chains`: where time was lost, and why.

use ingero_chain::Severity;
use ingero_chain::model::Finding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::finding::{FindingOut, LISTED_SLICES, OccurrenceOut, finding, occurrence};
use super::{Context, Problem, ToolEntry, limit};
use crate::answer::{Filler, PageInfo, offset, plain, quoted};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Name of the recording; the first one if absent
    recording: Option<String>,
    /// Only findings of this severity or above: high from 20 % of the process's loop lost, medium from 5 %, low from 1 %
    severity: Option<AtLeast>,
    /// Only findings about this process
    pid: Option<u32>,
    /// Only this finding, with its occurrences that are kept one by one, the longest first
    id: Option<String>,
    /// Findings, or occurrences of one, in one answer (1 to 100, usually 10)
    limit: Option<u32>,
    /// next_cursor of the answer before
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AtLeast {
    High,
    Medium,
    Low,
}

impl From<AtLeast> for Severity {
    fn from(severity: AtLeast) -> Self {
        match severity {
            AtLeast::High => Severity::High,
            AtLeast::Medium => Severity::Medium,
            AtLeast::Low => Severity::Low,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Chains {
    recording: String,
    /// Findings, the worst first
    #[schemars(with = "Vec<FindingOut>")]
    findings: Vec<Value>,
    /// Of the one finding that was asked for by id: when it happened. The longest and the latest are kept one by one;
    /// when.grid has all
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<OccurrenceOut>")]
    occurrences: Vec<Value>,
    /// Where nothing was found: what was looked for
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checked: Vec<String>,
    /// Why nothing could be judged, where that is so: nothing found is no proof then
    #[serde(skip_serializing_if = "Option::is_none")]
    nothing_seen: Option<String>,
    #[serde(flatten)]
    page: PageInfo,
}

pub(super) fn tool() -> ToolEntry {
    ToolEntry::new(
        "get_causal_chains",
        "Where time was lost, and why",
        "The findings, worst first: gaps in which the GPU waited, slow calls, calls that keep the host from feeding the GPU, \
         loops bound by their launches, stalls, processes killed for memory. Each with the time lost, when, causes that add up \
         to it, what to try with what that could bring at most, and how complete the data is. With `id`, one finding and its \
         occurrences. A cause below 10 % of the lost time is not the reason; `unexplained_ns` is not to be explained away.",
        r#"{"severity": "medium"} or {"id": "gap-4242-cudaMemcpyAsync-h2d"}"#,
        |context, arguments: Arguments| chains(context, &arguments),
    )
}

fn chains(context: &Context<'_>, arguments: &Arguments) -> Result<Chains, Problem> {
    let recording = context.recording(arguments.recording.as_deref())?;
    let limit = limit(arguments.limit, 10, 100)?;
    let offset = offset(arguments.cursor.as_deref())?;
    let view = context.view(recording)?;
    let report = &view.report;
    let mut answer = Chains {
        recording: recording.name.clone(),
        findings: Vec::new(),
        occurrences: Vec::new(),
        checked: Vec::new(),
        nothing_seen: report.summary.stream.nothing_seen.map(str::to_owned),
        page: PageInfo::default(),
    };
    if let Some(id) = &arguments.id {
        let Some(found) = report.findings.iter().find(|f| f.id.raw() == *id) else {
            let known: Vec<String> = report.findings.iter().take(20).map(|f| quoted(f.id.raw())).collect();
            let known =
                if known.is_empty() { "nothing was found".into() } else { format!("there are {}", known.join(", ")) };
            return Err(Problem::Told(format!("no finding has the id {}; {known}", quoted(id))));
        };
        answer.findings = vec![plain(&finding(found, usize::MAX))];
        let filler = Filler::new(limit, &answer);
        (answer.occurrences, answer.page) = filler.page(found.occurrences.iter().map(occurrence), offset);
        return Ok(answer);
    }
    let wanted: Vec<&Finding> = report
        .findings
        .iter()
        .filter(|f| arguments.severity.is_none_or(|s| f.severity >= s.into()))
        .filter(|f| arguments.pid.is_none_or(|pid| f.pid == pid))
        .collect();
    if wanted.is_empty() {
        answer.checked = report.summary.checked.clone();
    }
    let filler = Filler::new(limit, &answer);
    (answer.findings, answer.page) = filler.page(wanted.into_iter().map(|f| finding(f, LISTED_SLICES)), offset);
    Ok(answer)
}
