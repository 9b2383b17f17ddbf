//! The memory limit of the process and its shares.
//!
//! Memtables, caches and queues have fixed shares; connections, request bodies and queries share the rest
//! ([`ProcessMemory`]). Shares that are not configured scale with the limit. If the configured shares do not fit
//! together, the start fails with an error that names them.

use std::{fmt, fs, path::Path};

use tsd_engine::{FixedShare, MEMORY_LIMIT_KEY, MemoryConsumer, ProcessMemory};

const MB: u64 = 1 << 20;
/// Smallest limit that a daemon works with.
pub(crate) const SMALLEST_LIMIT: u64 = 256 * MB;
/// The default limit, in percent of the memory.
const DEFAULT_PERCENT: u64 = 60;
/// Assumed memory of the machine if it is not known.
const UNKNOWN_MEMORY: u64 = 4 << 30;
/// Code, stacks of threads, and memory that the allocator keeps for each thread: about 30 MiB without load, and 110
/// MiB in addition to the memtables while points are stored.
const BASE: u64 = 96 * MB;
/// Minimum of the shared rest, as a divisor of the limit.
const SHARED_DIVISOR: u64 = 8;
/// A cached series: an entry of 128 bytes, its index slot and spare capacity of both.
const SERIES_BYTES: u64 = 256;
/// A cached name: entries for both directions, each with a copy of the name.
const NAME_BYTES: u64 = 256;
/// Maximum series in the cache, and maximum names of a kind.
const MOST_SERIES: u64 = 1_000_000;
const MOST_NAMES: u64 = 5_000_000;
/// Kinds of names that have UIDs.
const NAME_KINDS: u64 = 3;
/// Smallest value of `memory.limit_in_bytes` that means no limit (cgroup v1).
const NO_LIMIT: u64 = 1 << 60;

/// Source of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The key.
    Configured,
    /// A share of the limit of the control group.
    ControlGroup,
    /// A share of the memory of the machine.
    Machine,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => f.write_str(MEMORY_LIMIT_KEY),
            Self::ControlGroup => {
                write!(f, "{DEFAULT_PERCENT}% of the memory limit of the control group")
            }
            Self::Machine => write!(f, "{DEFAULT_PERCENT}% of the memory of the machine"),
        }
    }
}

/// A limit and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// Its source.
    pub source: LimitSource,
}

/// Configured sizes of shares, in bytes or entries; `None` derives them from the limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConfiguredShares {
    pub(crate) memtables: Option<u64>,
    pub(crate) block_cache: Option<u64>,
    pub(crate) query_cache: Option<u64>,
    pub(crate) series: Option<u64>,
    pub(crate) series_index: Option<u64>,
    pub(crate) write_queue: Option<u64>,
    pub(crate) bodies: Option<u64>,
    pub(crate) queries: Option<u64>,
}

/// Sizes of all shares.
#[derive(Clone, Debug)]
pub struct MemoryPlan {
    /// The limit.
    pub limit: MemoryLimit,
    /// The budget of the shared rest.
    pub budget: ProcessMemory,
    /// Bound of all memtables, bytes.
    pub memtables: u64,
    /// Block cache, bytes.
    pub block_cache: u64,
    /// Cache of queries, bytes.
    pub query_cache: u64,
    /// True if identical queries share an execution, which needs the cache of queries.
    pub shares_queries: bool,
    /// Entries of the series cache.
    pub series: u64,
    /// The series index of a table in HBase, bytes.
    pub series_index: u64,
    /// Cached names of each kind.
    pub names: u64,
    /// Writes that wait for the store, for each salt bucket, bytes.
    pub write_queue: u64,
    /// Writes that wait for the store, for all salt buckets together, bytes.
    pub write_queues: u64,
    /// Queues of row compaction, bytes.
    pub compaction_queue: u64,
    /// All request bodies, bytes.
    pub bodies: u64,
    /// All queries, bytes.
    pub queries: u64,
}

/// Inputs of the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanInput {
    pub(crate) limit: MemoryLimit,
    pub(crate) shares: ConfiguredShares,
    /// Maximum size of the memtables, bytes.
    pub(crate) most_memtables: u64,
    /// True if there is a log, with memtables.
    pub(crate) has_log: bool,
    /// True if the store has a block cache.
    pub(crate) has_block_cache: bool,
    /// True if the series of a table in HBase are indexed.
    pub(crate) has_series_index: bool,
    pub(crate) write_shards: u64,
    /// Queues of the plug-ins that get points, bytes.
    pub(crate) plugin_queues: u64,
}

/// Shares that do not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartsTooLarge {
    /// Key of the share to change first.
    pub(crate) key: &'static str,
    /// Description of the error.
    pub(crate) text: String,
}

pub(crate) const MEMTABLES_KEY: &str = "tsd.storage.memtable.size";
pub(crate) const BLOCK_CACHE_KEY: &str = "tsd.storage.cache.size";
pub(crate) const QUERY_CACHE_KEY: &str = "tsd.query.cache.size";
pub(crate) const SERIES_INDEX_SIZE_KEY: &str = "tsd.storage.hbase.series_index.size";
pub(crate) const SERIES_KEY: &str = "tsd.core.series_cache.size";
pub(crate) const WRITE_QUEUE_KEY: &str = "tsd.storage.write.queue_size";
pub(crate) const BODIES_KEY: &str = "tsd.http.request.max_total";
pub(crate) const QUERIES_KEY: &str = "tsd.query.max_total_memory_bytes";

impl MemoryPlan {
    pub(crate) fn try_new(input: PlanInput) -> Result<Self, PartsTooLarge> {
        let PlanInput { limit, shares, write_shards, .. } = input;
        let all = limit.bytes;
        let share = |divisor: u64, most: u64| (all / divisor).min(most);
        let memtables = shares.memtables.unwrap_or_else(|| share(10, input.most_memtables));
        let block_cache = shares.block_cache.unwrap_or_else(|| share(16, 64 * MB));
        // Stores on HBase do not report changes.
        let query_cache = shares.query_cache.unwrap_or_else(|| share(64, 128 * MB));
        let query_cache = if input.has_block_cache { query_cache } else { 0 };
        let series = shares.series.unwrap_or_else(|| (all / 16 / SERIES_BYTES).min(MOST_SERIES));
        let series_index = shares.series_index.unwrap_or_else(|| share(8, 1_024 * MB));
        let for_names = all.saturating_sub(SMALLEST_LIMIT / 2) / 8;
        let names = (for_names / NAME_BYTES / NAME_KINDS).min(MOST_NAMES);
        let write_queue =
            shares.write_queue.unwrap_or_else(|| (all / 32 / write_shards.max(1)).min(8 * MB));
        let write_queues = write_queue.saturating_mul(write_shards);
        let compaction_queue = share(64, 256 * MB);
        let if_any = |has: bool, bytes: u64| if has { bytes } else { 0 };
        let fixed = vec![
            // Includes fragmentation, which grows with the other shares.
            ("base", BASE + share(10, 1_024 * MB)),
            // Deletes may exceed the bound by an eighth, and a flush copies some rows.
            ("memtables", if_any(input.has_log, memtables + memtables / 4)),
            ("block_cache", if_any(input.has_block_cache, block_cache)),
            ("series_cache", series.saturating_mul(SERIES_BYTES)),
            ("uid_cache", names * NAME_BYTES * NAME_KINDS),
            ("write_queues", write_queues),
            // Records of a group are encoded outside the queue.
            ("log_group", if_any(input.has_log, share(256, 4 * MB))),
            ("compaction_queues", compaction_queue),
            ("query_cache", query_cache),
            ("series_index", if_any(input.has_series_index, series_index)),
            ("plugin_queues", input.plugin_queues),
        ];
        let fixed_bytes = fixed.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        if fixed_bytes.saturating_add(all / SHARED_DIVISOR) > all {
            let share_of = |name: &str| fixed.iter().find(|(of, _)| *of == name);
            let set = [
                (MEMTABLES_KEY, shares.memtables, share_of("memtables")),
                (BLOCK_CACHE_KEY, shares.block_cache, share_of("block_cache")),
                (SERIES_KEY, shares.series, share_of("series_cache")),
                (WRITE_QUEUE_KEY, shares.write_queue, share_of("write_queues")),
                (QUERY_CACHE_KEY, shares.query_cache, share_of("query_cache")),
                (SERIES_INDEX_SIZE_KEY, shares.series_index, share_of("series_index")),
            ];
            return Err(too_large(limit, fixed_bytes, &set));
        }
        let budget = ProcessMemory::new(all, fixed);
        // The budget limits a larger default.
        let ceiling = |consumer: MemoryConsumer,
                       key: &'static str,
                       configured: Option<u64>,
                       most: u64| {
            let available = budget.most(consumer);
            match configured {
                Some(bytes) if bytes > available => Err(PartsTooLarge {
                    key,
                    text: format!(
                        "{key} = {bytes} does not fit into {MEMORY_LIMIT_KEY} = {all} ({}): at most {available} \
                         bytes are left for it",
                        limit.source
                    ),
                }),
                Some(bytes) => Ok(bytes),
                None => Ok(most),
            }
        };
        Ok(Self {
            bodies: ceiling(MemoryConsumer::Bodies, BODIES_KEY, shares.bodies, 256 * MB)?,
            // With the default limit, a quarter of the machine's memory.
            queries: ceiling(MemoryConsumer::Queries, QUERIES_KEY, shares.queries, all / 12 * 5)?,
            limit,
            budget,
            memtables,
            block_cache,
            query_cache,
            shares_queries: shares.query_cache != Some(0),
            series,
            series_index,
            names,
            write_queue,
            write_queues,
            compaction_queue,
        })
    }
}

/// Key, configured value and size of a share.
type ConfiguredShare<'a> = (&'static str, Option<u64>, Option<&'a FixedShare>);

/// The error for fixed shares that leave too little.
fn too_large(limit: MemoryLimit, fixed_bytes: u64, set: &[ConfiguredShare<'_>]) -> PartsTooLarge {
    let mut set: Vec<_> = set
        .iter()
        .filter_map(|(key, value, share)| Some((*key, (*value)?, share.map_or(0, |it| it.1))))
        .collect();
    // The largest first.
    set.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
    let named: Vec<_> = set
        .iter()
        .map(|(key, value, bytes)| match bytes {
            bytes if bytes == value => format!("{key} = {value}"),
            bytes => format!("{key} = {value} ({bytes} bytes)"),
        })
        .collect();
    let all = limit.bytes;
    let text = format!(
        "the parts of {MEMORY_LIMIT_KEY} = {all} ({}) need {fixed_bytes} bytes and must leave {} \
         for connections and queries: lower {}, or raise the limit",
        limit.source,
        all / SHARED_DIVISOR,
        if named.is_empty() { "its parts".to_owned() } else { named.join(", ") }
    );
    PartsTooLarge { key: set.first().map_or(MEMORY_LIMIT_KEY, |(key, ..)| *key), text }
}

/// The configured limit, or the default one.
pub(crate) fn find_limit(configured: Option<u64>) -> MemoryLimit {
    if let Some(bytes) = configured {
        return MemoryLimit { bytes, source: LimitSource::Configured };
    }
    default_limit(machine_memory(), group_limit(Path::new("/proc/self/cgroup"), Path::new("/")))
}

fn default_limit(machine: Option<u64>, group: Option<u64>) -> MemoryLimit {
    let machine = machine.unwrap_or(UNKNOWN_MEMORY);
    let (memory, source) = match group {
        Some(group) if group < machine => (group, LimitSource::ControlGroup),
        _ => (machine, LimitSource::Machine),
    };
    MemoryLimit { bytes: (memory / 100 * DEFAULT_PERCENT).max(SMALLEST_LIMIT), source }
}

/// Memory of the machine.
fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1_024)
}

/// The smallest limit of the control groups of this process, in either version of the interface. `memberships` lists
/// the groups; the file systems are mounted below `root`.
fn group_limit(memberships: &Path, root: &Path) -> Option<u64> {
    let memberships = fs::read_to_string(memberships).unwrap_or_default();
    let mut limits = Vec::new();
    for line in memberships.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|controller| controller == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // Each parent group has a limit too. In a container, the mount may begin at its group.
        let mount = root.join(mount);
        let group = Path::new(group.trim_start_matches('/'));
        for above in group.ancestors() {
            limits.extend(read_limit(&mount.join(above).join(file)));
        }
    }
    limits.into_iter().min()
}

/// A limit in bytes; `None` if the group is unlimited.
fn read_limit(file: &Path) -> Option<u64> {
    let bytes = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (bytes < NO_LIMIT).then_some(bytes)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn input(bytes: u64, shares: ConfiguredShares) -> PlanInput {
        PlanInput {
            limit: MemoryLimit { bytes, source: LimitSource::Configured },
            shares,
            most_memtables: 128 * MB,
            has_log: true,
            has_block_cache: true,
            has_series_index: false,
            write_shards: 20,
            plugin_queues: 0,
        }
    }

    #[test]
    fn parts_scale_with_the_limit_and_stay_within_it() {
        for (limit, memtables, block_cache, series) in [
            (256 * MB, 26_843_545, 16 * MB, 65_536),
            (1 << 30, 107_374_182, 64 * MB, 262_144),
            (1 << 36, 128 * MB, 64 * MB, 1_000_000),
        ] {
            let plan = MemoryPlan::try_new(input(limit, ConfiguredShares::default())).unwrap();
            assert_eq!(plan.memtables, memtables, "{limit}");
            assert_eq!((plan.block_cache, plan.series), (block_cache, series), "{limit}");
            let fixed: u64 = plan.budget.fixed().iter().map(|(_, bytes)| bytes).sum();
            assert!(fixed + limit / SHARED_DIVISOR <= limit, "{limit}: {fixed}");
            assert!(plan.queries > 0 && plan.bodies > 0 && plan.names > 0);
        }
    }

    #[test]
    fn configured_parts_stay_as_they_are() {
        let shares = ConfiguredShares {
            memtables: Some(64 * MB),
            block_cache: Some(5 * MB),
            query_cache: Some(3 * MB),
            series: Some(7),
            series_index: None,
            write_queue: Some(MB),
            bodies: Some(MB),
            queries: Some(9 * MB),
        };
        let plan = MemoryPlan::try_new(input(512 * MB, shares)).unwrap();
        assert_eq!((plan.memtables, plan.block_cache, plan.series), (64 * MB, 5 * MB, 7));
        assert_eq!(plan.query_cache, 3 * MB);
        assert_eq!((plan.write_queue, plan.bodies, plan.queries), (MB, MB, 9 * MB));
    }

    #[test]
    fn parts_that_do_not_fit_are_named_with_their_values() {
        let shares = ConfiguredShares {
            memtables: Some(128 * MB),
            block_cache: Some(130 * MB),
            ..ConfiguredShares::default()
        };
        let error = MemoryPlan::try_new(input(256 * MB, shares)).unwrap_err();
        assert_eq!(error.key, MEMTABLES_KEY, "the largest share");
        for word in [
            "tsd.memory.limit = 268435456 (tsd.memory.limit)",
            "tsd.storage.memtable.size = 134217728 (167772160 bytes), tsd.storage.cache.size = \
             136314880",
        ] {
            assert!(error.text.contains(word), "{}", error.text);
        }
        let shares = ConfiguredShares { queries: Some(1 << 30), ..ConfiguredShares::default() };
        let error = MemoryPlan::try_new(input(256 * MB, shares)).unwrap_err();
        assert!(
            error.text.starts_with("tsd.query.max_total_memory_bytes = 1073741824 does not fit"),
            "{}",
            error.text
        );
        let shares = ConfiguredShares { series: Some(u64::MAX), ..ConfiguredShares::default() };
        assert_eq!(MemoryPlan::try_new(input(256 * MB, shares)).unwrap_err().key, SERIES_KEY);
    }

    #[test]
    fn the_default_is_a_share_of_the_smaller_memory() {
        for (machine, group, bytes, source) in [
            (Some(1_000 * MB), None, 600 * MB, LimitSource::Machine),
            (Some(1_000 * MB), Some(2_000 * MB), 600 * MB, LimitSource::Machine),
            (Some(1_000 * MB), Some(500 * MB), 300 * MB, LimitSource::ControlGroup),
            (Some(100 * MB), None, SMALLEST_LIMIT, LimitSource::Machine),
            (None, None, 2_457 * MB, LimitSource::Machine),
        ] {
            let limit = default_limit(machine, group);
            assert_eq!(limit.bytes / MB, bytes / MB, "{machine:?} {group:?}");
            assert_eq!(limit.source, source);
        }
        assert!(machine_memory().unwrap() > 0);
    }

    #[test]
    fn limits_of_control_groups_are_read_in_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let list = root.path().join("list");
        let limit = |memberships: &str| {
            fs::write(&list, memberships).unwrap();
            group_limit(&list, root.path())
        };
        assert_eq!(limit("0::/\n"), None);
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None);
        write("sys/fs/cgroup/a/memory.max", "1000\n");
        assert_eq!(limit("0::/a/b\n"), Some(1_000), "a group above limits, too");
        write("sys/fs/cgroup/a/b/memory.max", "500\n");
        assert_eq!(limit("0::/a/b\n"), Some(500));
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit("4:cpu:/x\n3:blkio,memory:/x\n"), None, "version 1 has no word for none");
        write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "700\n");
        assert_eq!(limit("4:cpu:/x\n3:blkio,memory:/x\n"), Some(700));
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "600\n");
        assert_eq!(limit("3:memory:/not-mounted-here\n"), Some(600), "inside a container");
    }
}
