//! What a tool wrote, as the tests ask about it.

use std::io::BufRead;

use serde_json::Value;

/// The records of one stream, in order.
#[derive(Clone, Debug, Default)]
pub struct Records(pub Vec<Value>);

impl Records {
    /// Reads NDJSON; the error names the line that is no object.
    pub fn parse(input: impl BufRead) -> Result<Self, String> {
        let mut all = Vec::new();
        for (at, line) in input.lines().enumerate() {
            let line = line.map_err(|e| format!("line {}: {e}", at + 1))?;
            match serde_json::from_str(&line) {
                Ok(value @ Value::Object(_)) => all.push(value),
                Ok(_) => return Err(format!("line {} is no object: {line}", at + 1)),
                Err(e) => return Err(format!("line {} is no JSON: {e}: {line}", at + 1)),
            }
        }
        Ok(Self(all))
    }

    /// Those with this `src` and `op`.
    pub fn of<'a>(&'a self, src: &'a str, op: &'a str) -> impl Iterator<Item = &'a Value> + Clone {
        self.0.iter().filter(move |r| r["src"] == src && r["op"] == op)
    }

    /// Calls of both layers, at every depth.
    pub fn calls(&self) -> impl Iterator<Item = &Value> + Clone {
        self.0.iter().filter(|r| r["src"] == "cudart" || r["src"] == "cuda")
    }

    /// Outermost calls of a process.
    pub fn outermost(&self, pid: u32) -> impl Iterator<Item = &Value> + Clone {
        self.calls().filter(move |r| r["pid"] == pid && r["depth"] == 0)
    }

    /// The one record with this `src` and `op`.
    #[track_caller]
    pub fn only(&self, src: &str, op: &str) -> &Value {
        let mut found = self.0.iter().filter(|r| r["src"] == src && r["op"] == op);
        let first = found.next().unwrap_or_else(|| panic!("no {src} {op} record"));
        assert!(found.next().is_none(), "more than one {src} {op} record");
        first
    }

    /// Records that the tracer says are missing, by its `lost` records. Those over a time in which a file had no probes have no
    /// count.
    #[track_caller]
    pub fn lost(&self) -> u64 {
        self.of("ingero", "lost")
            .filter(|r| r["why"] != "replaced")
            .map(|r| r["count"].as_u64().unwrap_or_else(|| panic!("lost without a count: {r}")))
            .sum()
    }

    /// Records that the tracer says are missing, by its `end` record; all reasons together.
    #[track_caller]
    pub fn lost_in_all(&self) -> u64 {
        let end = self.only("ingero", "end");
        let reasons = end["lost"].as_object().unwrap_or_else(|| panic!("lost is no object in {end}"));
        reasons.values().map(|n| n.as_u64().unwrap_or_else(|| panic!("lost is no number in {end}"))).sum()
    }

    /// The books must balance: `seen` = `written` + `lost`, and the `lost` records tell of each of them.
    #[track_caller]
    pub fn balance(&self) {
        let end = self.only("ingero", "end");
        let (seen, written, lost) =
            (end["seen"].as_u64().unwrap(), end["written"].as_u64().unwrap(), self.lost_in_all());
        assert_eq!(seen, written + lost, "seen = written + lost in {end}");
        assert_eq!(self.lost(), lost, "the lost records against {end}");
    }

    /// Chains, as `ingero-chain` writes them: findings only.
    pub fn chains(&self) -> impl Iterator<Item = &Value> + Clone {
        self.0.iter().filter(|r| r["src"] == "chain" && !r["severity"].is_null())
    }
}
