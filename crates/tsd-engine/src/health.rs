//! Current problems of the engine and its store.
//!
//! Finding them reads nothing. The store reports problems that its own work has met, and the engine reports what it
//! knows of the UID space.

use std::sync::Arc;

use tsd_model::{Uid, UidKind};
use tsd_runtime::{MEMORY_LIMIT_KEY, MemoryConsumer, ProcessMemory};
use tsd_storage::{HealthImpact, StoreComponent};

use crate::engine_shared::EngineShared;

/// A warning begins when less than this fraction of the UID space is left, given as a divisor.
const WARN_BELOW: u64 = 10;

/// A component of the daemon that can have a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthComponent {
    /// A component of the store.
    Store(StoreComponent),
    /// UIDs for new names.
    Uid,
    /// The memory budget of the process.
    Memory,
    /// Files that are re-read while the daemon runs, and the audit log.
    Files,
}

impl HealthComponent {
    /// Every component.
    pub fn all() -> impl Iterator<Item = Self> {
        StoreComponent::ALL.into_iter().map(Self::Store).chain([
            Self::Uid,
            Self::Memory,
            Self::Files,
        ])
    }

    /// The value of the label `part`, and the `part` in `/api/status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store(component) => component.as_str(),
            Self::Uid => "uid",
            Self::Memory => "memory",
            Self::Files => "files",
        }
    }
}

/// A current problem of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The component that has it.
    pub component: HealthComponent,
    /// Its impact.
    pub impact: HealthImpact,
    /// Its cause, as text.
    pub reason: Arc<str>,
    /// Other daemons on the same data have it too.
    pub is_common: bool,
}

/// UIDs of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UidSpace {
    /// Kind of the names.
    pub kind: UidKind,
    /// UIDs that are assigned, or were taken and not used.
    pub used: u64,
    /// UIDs that can still be assigned.
    pub left: u64,
}

/// The UID space of each kind whose counter is known; empty for kinds with random UIDs.
pub(crate) fn uid_space(shared: &EngineShared) -> Vec<UidSpace> {
    let space = |kind: UidKind| {
        let all = Uid::max_number(kind.width(&shared.config.schema));
        let used = shared.names.stats.highest(kind)?.min(all);
        let random = shared.config.uids.random_metrics && kind == UidKind::Metric;
        (!random).then_some(UidSpace { kind, used, left: all - used })
    };
    UidKind::ALL.into_iter().filter_map(space).collect()
}

/// All problems, those of the store first.
pub(crate) fn problems(shared: &EngineShared) -> Vec<Problem> {
    let of_store = shared.storage.maintenance().health().into_iter().map(|problem| Problem {
        component: HealthComponent::Store(problem.component),
        impact: problem.impact,
        reason: problem.reason,
        is_common: problem.is_common,
    });
    let of_uids = uid_space(shared).into_iter().filter_map(UidSpace::problem);
    let of_files = shared.config.file_problems.list().into_iter().map(|problem| Problem {
        component: HealthComponent::Files,
        impact: HealthImpact::Degraded,
        reason: problem.into(),
        is_common: false,
    });
    of_store.chain(of_uids).chain(of_memory(&shared.config.memory)).chain(of_files).collect()
}

fn of_memory(memory: &ProcessMemory) -> Option<Problem> {
    let what = match memory.refused_recently()? {
        MemoryConsumer::Connections => "connections are",
        MemoryConsumer::Reads => "telnet lines are",
        MemoryConsumer::Bodies => "request bodies are",
        MemoryConsumer::Queries => "queries are",
    };
    let limit_mb = memory.limit() >> 20;
    let reason =
        format!("{what} refused: the memory of {limit_mb}MB ({MEMORY_LIMIT_KEY}) is used up");
    Some(Problem {
        component: HealthComponent::Memory,
        impact: HealthImpact::Degraded,
        reason: reason.into(),
        is_common: false,
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
            component: HealthComponent::Uid,
            impact: HealthImpact::Degraded,
            reason: reason.into(),
            is_common: true,
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
