//! How bad: one rule for all findings.

use serde::{Serialize, Serializer};

use crate::limits::{HIGH_SHARE, LOW_SHARE, MEDIUM_SHARE};

/// How bad, by the share of the process's loop that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the contract")]
pub enum Severity {
    Low,
    Medium,
    High,
}

/// How sure it is that the time was lost to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// It was, or nothing on record speaks against it.
    Likely,
    /// It may be as it should: a remark.
    Doubtful,
}

impl Severity {
    /// By the share of the loop that was lost; `None` where that isn't worth a word.
    pub fn of(lost_share: f64) -> Option<Self> {
        match lost_share {
            s if s >= HIGH_SHARE => Some(Severity::High),
            s if s >= MEDIUM_SHARE => Some(Severity::Medium),
            s if s >= LOW_SHARE => Some(Severity::Low),
            _ => None,
        }
    }

    /// The same, no more than a remark where it is doubtful.
    pub(crate) fn judge(lost_share: f64, certainty: Certainty) -> Option<Self> {
        let severity = Self::of(lost_share)?;
        Some(if certainty == Certainty::Doubtful { Severity::Low } else { severity })
    }

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
        }
    }
}

impl Serialize for Severity {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}
