//! Problems that the engine and its store have now.
//!
//! Nothing is read to find out: the store reports what its own work has met, and the engine what it
//! knows of the UID space.

use std::sync::Arc;

use tsd_model::{Uid, UidKind};
use tsd_storage::{HealthImpact, StorePart};

use crate::{
    engine_shared::EngineShared,
    process_memory::{MEMORY_LIMIT_KEY, MemoryPart, ProcessMemory},
};

/// Part of the UID space that is left when a warning begins: a tenth.
const WARN_BELOW: u64 = 10;

/// A part of the daemon that can have a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthPart {
    /// A part of the store.
    Store(StorePart),
    /// UIDs for new names.
    Uid,
    /// The memory limit of the process.
    Memory,
}

impl HealthPart {
    /// Every part.
    pub fn all() -> impl Iterator<Item = Self> {
        StorePart::ALL.into_iter().map(Self::Store).chain([Self::Uid, Self::Memory])
    }

    /// The value of the label `part`, and the `part` in `/api/status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store(part) => part.as_str(),
            Self::Uid => "uid",
            Self::Memory => "memory",
        }
    }
}

/// A problem that the daemon has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub part: HealthPart,
    /// What it prevents.
    pub impact: HealthImpact,
    /// What is wrong.
    pub reason: Arc<str>,
}

/// UIDs of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UidSpace {
    /// Kind of the names.
    pub kind: UidKind,
    /// UIDs that are assigned, or were taken and given up.
    pub used: u64,
    /// UIDs that can still be assigned.
    pub left: u64,
}

/// The UID space of each kind whose counter is known; none of randomly assigned ones.
pub(crate) fn uid_space(shared: &EngineShared) -> Vec<UidSpace> {
    let space = |kind: UidKind| {
        let all = Uid::max_number(kind.width(&shared.config.schema));
        let used = shared.uid_stats.highest(kind)?.min(all);
        let random = shared.config.uids.random_metrics && kind == UidKind::Metric;
        (!random).then_some(UidSpace { kind, used, left: all - used })
    };
    UidKind::ALL.into_iter().filter_map(space).collect()
}

/// All problems, those of the store first.
pub(crate) fn problems(shared: &EngineShared) -> Vec<Problem> {
    let of_store = shared.storage.health().into_iter().map(|problem| Problem {
        part: HealthPart::Store(problem.part),
        impact: problem.impact,
        reason: problem.reason,
    });
    let of_uids = uid_space(shared).into_iter().filter_map(UidSpace::problem);
    of_store.chain(of_uids).chain(of_memory(&shared.config.memory)).collect()
}

fn of_memory(memory: &ProcessMemory) -> Option<Problem> {
    let what = match memory.refused_recently()? {
        MemoryPart::Connections => "connections are",
        MemoryPart::Reads => "telnet lines are",
        MemoryPart::Bodies => "request bodies are",
        MemoryPart::Queries => "queries are",
    };
    let limit_mb = memory.limit() >> 20;
    let reason =
        format!("{what} refused: the memory of {limit_mb}MB ({MEMORY_LIMIT_KEY}) is used up");
    Some(Problem {
        part: HealthPart::Memory,
        impact: HealthImpact::Degraded,
        reason: reason.into(),
    })
}

impl UidSpace {
    fn problem(self) -> Option<Problem> {
        let Self { kind, used, left } = self;
        if left > (used + left) / WARN_BELOW {
            return None;
        }
        let reason = if left == 0 {
            format!("all {used} UIDs for {kind} are assigned: points with new names are rejected")
        } else {
            format!("{left} of {} UIDs for {kind} are left", used + left)
        };
        Some(Problem {
            part: HealthPart::Uid,
            impact: HealthImpact::Degraded,
            reason: reason.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_uid_space_is_a_warning() {
        let reason = |used, left| {
            let problem = UidSpace { kind: UidKind::Tagv, used, left }.problem();
            problem.map(|problem| problem.reason.to_string())
        };
        assert_eq!(reason(0, 255), None);
        assert_eq!(reason(229, 26), None);
        assert_eq!(reason(230, 25).as_deref(), Some("25 of 255 UIDs for tagv are left"));
        let all = "all 255 UIDs for tagv are assigned: points with new names are rejected";
        assert_eq!(reason(255, 0).as_deref(), Some(all));
        assert_eq!(reason(0, u64::MAX >> 1), None);
    }
}
