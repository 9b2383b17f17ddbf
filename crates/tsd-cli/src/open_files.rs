//! The limit on open files, and how many of them connections may use.
//!
//! Connections and files of the store both need descriptors. If sockets took all descriptors, the daemon could not
//! store anything. So the store has a reserved share, and the rest limits the connections.

use std::{fs, num::NonZeroUsize};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Minimum descriptors of a daemon: about 50 for threads, the log and locks, and some for store files and
/// connections.
const FEWEST: u64 = 128;
/// Bounds of the files that the embedded store keeps open, and of the connections to HBase.
const STORE: std::ops::RangeInclusive<u64> = 24..=512;
/// Bounds of the descriptors for flushes, compactions, new log segments and refused connections.
const MARGIN: std::ops::RangeInclusive<u64> = 24..=128;

/// The limit is too low for a daemon.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the limit on open files is {limit}; the daemon needs at least {FEWEST}; raise it (ulimit \
     -n, or LimitNOFILE of the service)"
)]
pub(crate) struct TooFewDescriptors {
    limit: u64,
}

/// Shares of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorPlan {
    limit: u64,
    /// Files that the store keeps open.
    pub(crate) store: usize,
    margin: u64,
}

/// Raises the soft limit to the hard limit. Most systems set the soft limit to 1 024 for programs that use `select`.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit on open files");
    }
}

/// Divides the limit of this process.
pub(crate) fn plan() -> Result<DescriptorPlan, TooFewDescriptors> {
    DescriptorPlan::new(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

impl DescriptorPlan {
    fn new(limit: u64) -> Result<Self, TooFewDescriptors> {
        if limit < FEWEST {
            return Err(TooFewDescriptors { limit });
        }
        let part = |share: u64, bounds: std::ops::RangeInclusive<u64>| {
            (limit / share).clamp(*bounds.start(), *bounds.end())
        };
        Ok(Self { limit, store: part(4, STORE) as usize, margin: part(8, MARGIN) })
    }

    /// Maximum connections, by the descriptors that are left now that the store is open. `configured` is the
    /// configured limit, if any.
    pub(crate) fn connections(self, configured: Option<NonZeroUsize>) -> NonZeroUsize {
        let open = fs::read_dir("/proc/self/fd").map_or(FEWEST / 2, |open| open.count() as u64);
        let most = self.most_connections(open);
        if let Some(configured) = configured
            && configured > most
        {
            tracing::warn!(
                configured,
                limit = most,
                open_files = self.limit,
                "tsd.core.connections.limit is more than the limit on open files allows"
            );
        }
        configured.map_or(most, |configured| configured.min(most))
    }

    fn most_connections(self, open: u64) -> NonZeroUsize {
        let rest = self.limit.saturating_sub(open).saturating_sub(self.store as u64 + self.margin);
        NonZeroUsize::new(usize::try_from(rest).unwrap_or(usize::MAX)).unwrap_or(NonZeroUsize::MIN)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn store_files_and_connections_share_the_limit() {
        for (limit, store, connections) in
            [(128, 32, 22), (200, 50, 75), (1_024, 256, 590), (1 << 20, 512, 1_047_886)]
        {
            let plan = DescriptorPlan::new(limit).unwrap();
            let most = plan.most_connections(50).get();
            assert_eq!((plan.store, most), (store, connections), "limit {limit}");
        }
    }

    #[test]
    fn too_few_descriptors_are_an_error_with_the_numbers() {
        let error = DescriptorPlan::new(100).unwrap_err().to_string();
        assert!(error.contains("is 100") && error.contains("at least 128"), "{error}");
    }

    #[test]
    fn one_connection_is_served_even_if_all_descriptors_are_open() {
        assert_eq!(DescriptorPlan::new(128).unwrap().most_connections(500).get(), 1);
    }

    #[test]
    fn configured_limit_is_lowered_to_what_fits() {
        let plan = DescriptorPlan { limit: 1 << 20, store: 512, margin: 128 };
        assert_eq!(plan.connections(NonZeroUsize::new(10)).get(), 10);
        assert!(plan.connections(NonZeroUsize::new(1 << 21)).get() < 1 << 20);
    }
}
