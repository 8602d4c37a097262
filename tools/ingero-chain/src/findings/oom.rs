//! Processes that the kernel killed for memory.

use ingero_common::host::Name;

use crate::blame::Breakdown;
use crate::findings::bare;
use crate::findings::severity::Severity;
use crate::input::ingest::Engine;
use crate::input::kills::Kill;
use crate::report::model::{Extra, Finding, Kind};

pub(crate) const CHECKED: &str = "oom: processes that the kernel killed for memory, where the scheduler tracer tells";

pub(crate) fn all(engine: &Engine) -> Vec<Finding> {
    engine.kills.iter().map(|kill| finding(engine, kill)).collect()
}

fn finding(engine: &Engine, kill: &Kill) -> Finding {
    let instance = kill.life.and_then(|id| engine.tasks.instance(kill.victim.pid, id));
    let role = instance.map_or("other", |instance| engine.role(instance));
    // By what it does to the GPU's work: there are no nanoseconds to go by.
    let severity = match role {
        "cuda" => Severity::High,
        "worker" => Severity::Medium,
        _ => Severity::Low,
    };
    let name = instance.map(|instance| instance.name).filter(|_| kill.victim.name == Name::default());
    let name = name.unwrap_or(kill.victim.name);
    let mut finding = bare(engine, Kind::Oom, kill.victim.pid, name, severity, &Breakdown::default());
    (finding.lost.mono_ns, finding.lost.n) = (kill.at_ns, 1);
    finding.extra = Extra { role: Some(role), resident_bytes: kill.resident_bytes, ..Extra::default() };
    finding
}
