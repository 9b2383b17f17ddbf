//! The last acknowledged value of each instant, as each daemon may read it.

use std::collections::{BTreeMap, BTreeSet};

use tsd_model::Value;

use super::{
    Mode,
    hbase::READ_BACK_DELAY,
    history::{OFFSETS_MS, Point, ShortStep},
};

/// How far a daemon may stamp a point ahead of its clock: points of one instant in different columns are a millisecond
/// apart.
const MAX_LEAD_MS: i64 = 64;

/// How long a point waits to be read back, and how often. A point that is put again waits again.
const READ_BACK_MS: i64 = READ_BACK_DELAY.as_millis() as i64;
const WAITS: i64 = 3;

/// Number of the daemon that is the OpenTSDB.
pub(crate) const OPENTSDB: usize = 2;

/// An acknowledged write of an instant.
#[derive(Clone, Copy, Debug)]
struct Write {
    daemon: usize,
    at_ms: i64,
    /// Time at which HBase got it; `None` before.
    arrived_ms: Option<i64>,
    /// The value; `None` for a delete.
    value: Option<Value>,
    /// True if its daemon acknowledged it from its log.
    is_logged: bool,
    /// Number of steps at its acknowledgement, and at its flush.
    acked: u64,
    flushed: Option<u64>,
    /// True if a daemon that had not read it deleted the row: it may be deleted or not.
    may_be_deleted: bool,
    /// Doubt from a compaction of OpenTSDB during which HBase got it, and which may have superseded or hidden it.
    doubt: Doubt,
    /// True if HBase may have forgotten that it is later than earlier writes of other daemons.
    is_order_forgotten: bool,
}

/// Whether a read may also return an earlier value, or no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Doubt {
    No,
    UntilReadBack,
    /// Its daemon ended before it read the write back.
    Forever,
}

impl Write {
    const fn is_of_opentsdb(&self) -> bool {
        self.daemon == OPENTSDB
    }

    /// True if its daemon has not read it back yet.
    fn is_waiting(&self, now_ms: i64) -> bool {
        let is_due = self.arrived_ms.is_none_or(|at_ms| at_ms + READ_BACK_MS < now_ms);
        !is_due && !self.is_of_opentsdb() && self.value.is_some()
    }

    /// True if only its own daemon can read it yet.
    const fn is_held(&self) -> bool {
        self.is_logged && self.flushed.is_none()
    }

    /// True if the logs of two daemons hold both writes at the same time. The columns of their flushes do not show
    /// which write is newer.
    fn is_held_beside(&self, later: &Self) -> bool {
        let is_flushed_before = self.flushed.is_some_and(|flushed| flushed <= later.acked);
        self.is_logged && later.is_logged && self.daemon != later.daemon && !is_flushed_before
    }
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    /// Writes by series and offset, in the order of their acknowledgements.
    points: BTreeMap<(u8, u32), Vec<Write>>,
    /// Largest difference of a daemon's clock from the time.
    max_skew_ms: i64,
    steps: u64,
    /// True if an OpenTSDB compacts rows, with a timestamp later than those of held writes.
    has_opentsdb: bool,
    /// Number of compactions of OpenTSDB of each series that are between their read and their delete.
    compactions: [usize; 2],
}

impl Model {
    pub(crate) fn new(max_skew_ms: i64, has_opentsdb: bool) -> Self {
        Self { max_skew_ms, has_opentsdb, ..Self::default() }
    }

    /// Applies an acknowledged step of a daemon.
    pub(crate) fn apply(&mut self, daemon: usize, at_ms: i64, is_logged: bool, step: &ShortStep) {
        self.steps += 1;
        let (acked, flushed, may_be_deleted) = (self.steps, None, false);
        let compactions = self.compactions;
        let doubt = |series: u8| {
            let is_compacting =
                compactions.get(usize::from(series)).is_some_and(|count| *count > 0);
            if is_compacting { Doubt::UntilReadBack } else { Doubt::No }
        };
        let arrived_ms = (!is_logged).then_some(at_ms);
        let write = |series, value| Write {
            daemon,
            at_ms,
            arrived_ms,
            value,
            is_logged,
            acked,
            flushed,
            may_be_deleted,
            doubt: doubt(series),
            is_order_forgotten: false,
        };
        match step {
            ShortStep::Put(points) => points.iter().for_each(|point| self.put(point, write)),
            ShortStep::Delete(series) => {
                for offset in OFFSETS_MS {
                    let writes = self.points.entry((*series, offset)).or_default();
                    for earlier in writes.iter_mut() {
                        earlier.may_be_deleted |= earlier.is_held() && earlier.daemon != daemon;
                    }
                    writes.push(write(*series, None));
                }
            }
            ShortStep::Flush => {
                for ((series, _), writes) in &mut self.points {
                    let writes = writes.iter_mut().filter(|w| w.daemon == daemon);
                    for held in writes.filter(|w| w.flushed.is_none()) {
                        held.flushed = Some(acked);
                        if held.is_logged {
                            held.doubt = held.doubt.max(doubt(*series));
                            held.arrived_ms = Some(at_ms);
                        }
                    }
                }
            }
        }
    }

    /// Sets the number of compactions of OpenTSDB that are between their read and their delete.
    ///
    /// Two compactions of one row may delete each other's columns, and so any point of the row. Only points that wait
    /// to be read back are put again.
    pub(crate) fn set_compactions(&mut self, compactions: [usize; 2], now_ms: i64) {
        self.compactions = compactions;
        for ((series, _), writes) in &mut self.points {
            if compactions.get(usize::from(*series)).is_none_or(|count| *count < 2) {
                continue;
            }
            for write in writes.iter_mut().filter(|w| !w.is_held()) {
                write.doubt = if write.is_waiting(now_ms) {
                    write.doubt.max(Doubt::UntilReadBack)
                } else {
                    Doubt::Forever
                };
            }
        }
    }

    /// HBase flushes its memory and forgets deleted cells. The column of a compaction does not show when its values
    /// were written. So a daemon that reads an earlier point back takes these values for older ones.
    pub(crate) fn forget_deleted(&mut self, now_ms: i64) {
        if !self.has_opentsdb {
            return;
        }
        for writes in self.points.values_mut() {
            let mut waiting: Vec<usize> = Vec::new();
            for write in writes {
                write.is_order_forgotten |= waiting.iter().any(|daemon| *daemon != write.daemon);
                if write.is_held() || write.is_waiting(now_ms - WAITS * READ_BACK_MS) {
                    waiting.push(write.daemon);
                }
            }
        }
    }

    fn put(&mut self, point: &Point, write: impl Fn(u8, Option<Value>) -> Write) {
        let writes = self.points.entry((point.series, point.offset_ms)).or_default();
        writes.push(write(point.series, Some(point.value())));
    }

    /// Every daemon has flushed its writes and read them back. A delete is not repeated. OpenTSDB does not read back,
    /// so points that it put during its compaction may be lost.
    pub(crate) fn settle(&mut self) {
        let is_read_back = |w: &&mut Write| {
            w.doubt == Doubt::UntilReadBack && w.value.is_some() && !w.is_of_opentsdb()
        };
        let writes = self.points.values_mut().flatten();
        writes.filter(is_read_back).for_each(|w| w.doubt = Doubt::No);
    }

    /// A daemon ended. It had in memory which of its writes it had not read back yet.
    pub(crate) fn end(&mut self, daemon: usize) {
        let writes = self.points.values_mut().flatten().filter(|w| w.daemon == daemon);
        let waiting = writes.filter(|w| w.doubt == Doubt::UntilReadBack);
        waiting.for_each(|w| w.doubt = Doubt::Forever);
    }

    /// Time of the first write that the daemon still holds; `None` if it holds no write.
    pub(crate) fn held_since(&self, daemon: usize) -> Option<i64> {
        let writes = self.points.values().flatten();
        writes.filter(|w| w.daemon == daemon && w.is_held()).map(|w| w.at_ms).min()
    }

    /// True if an instant of the series got several values.
    pub(crate) fn has_corrections(&self, series: u8) -> bool {
        let of_series = self.points.iter().filter(|((of, _), _)| *of == series);
        of_series
            .into_iter()
            .any(|(_, writes)| writes.iter().filter(|w| w.value.is_some()).count() > 1)
    }

    /// Values of an instant that a daemon may read: the last write, and writes of other daemons that their clocks
    /// cannot tell from it.
    fn allowed(&self, reader: usize, writes: &[Write]) -> Vec<Option<Value>> {
        let visible: Vec<&Write> =
            writes.iter().filter(|w| !w.is_held() || w.daemon == reader).collect();
        let Some((last, earlier)) = visible.split_last() else { return vec![None] };
        let mut allowed = vec![last.value];
        let mut daemons = BTreeSet::from([last.daemon]);
        for write in earlier.iter().rev() {
            let is_close = last.at_ms - write.at_ms <= 2 * self.max_skew_ms + MAX_LEAD_MS;
            if daemons.insert(write.daemon) && is_close {
                allowed.push(write.value);
            }
        }
        // Until the flush has read the row, and for a delete that a log held.
        if self.has_opentsdb && last.is_logged && (last.is_held() || last.value.is_none()) {
            allowed.extend(earlier.iter().map(|write| write.value));
        }
        if last.doubt != Doubt::No {
            allowed.extend(earlier.iter().map(|write| write.value));
            allowed.push(None);
        }
        if last.is_order_forgotten {
            let of_others = earlier.iter().filter(|w| w.daemon != last.daemon);
            allowed.extend(of_others.map(|w| w.value));
        }
        allowed.extend(earlier.iter().filter(|w| w.is_held_beside(last)).map(|w| w.value));
        if last.value.is_none() {
            allowed.extend(earlier.iter().filter(|w| w.may_be_deleted).map(|w| w.value));
        }
        allowed
    }

    /// Compares the values that a daemon read of a series. The error describes the difference.
    pub(crate) fn compare(
        &self,
        reader: usize,
        series: u8,
        mode: Mode,
        read: &BTreeMap<u32, Value>,
    ) -> Result<(), String> {
        for ((_, offset), writes) in self.points.iter().filter(|((of, _), _)| *of == series) {
            let allowed = self.allowed(reader, writes);
            let found = read.get(offset).copied();
            let is_right = |allowed: &Option<Value>| match (found, *allowed, mode) {
                // No smaller value may hide the last one.
                (Some(found), Some(expected), Mode::Largest) => number(found) >= number(expected),
                (Some(found), Some(expected), Mode::Smallest) => number(found) <= number(expected),
                (found, expected, _) => found == expected,
            };
            if !allowed.iter().any(is_right) {
                return Err(format!(
                    "series {series}, offset {offset}: {found:?}, not {allowed:?}; {writes:#?}"
                ));
            }
        }
        let is_known = |offset: &u32| self.points.contains_key(&(series, *offset));
        match read.keys().find(|offset| !is_known(offset)) {
            Some(offset) => Err(format!("series {series}, offset {offset}: never written")),
            None => Ok(()),
        }
    }
}

fn number(value: Value) -> f64 {
    match value {
        Value::Integer(value) => value as f64,
        Value::Float(value) => value,
    }
}
