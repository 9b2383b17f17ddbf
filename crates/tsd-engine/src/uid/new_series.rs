//! Limits the new series that the points of one sender add.

use tsd_meta::UidError;

use crate::ingest::NameList;

/// Decides whether a sender may add a series. Clones of a session's handle share one allowance.
pub trait SeriesAllowance: std::fmt::Debug + Send + Sync {
    /// Takes one new series from the allowance; the error names the limit and the time of the next one.
    fn take(&self) -> Result<(), String>;

    /// Returns a series that was not added.
    fn put_back(&self);
}

/// The new series among the points of one chunk. A series with several points is taken once.
#[derive(Debug)]
pub(crate) struct NewSeriesCheck<'a> {
    allowance: &'a dyn SeriesAllowance,
    /// True if the series index knows series of these points: it lacks series with rolled-up values only.
    pub(super) uses_index: bool,
    decided: hashbrown::HashMap<&'a NameList, Result<(), UidError>, foldhash::fast::RandomState>,
}

impl<'a> NewSeriesCheck<'a> {
    pub(crate) fn new(allowance: &'a dyn SeriesAllowance, uses_index: bool) -> Self {
        Self { allowance, uses_index, decided: hashbrown::HashMap::default() }
    }

    /// Takes a new series, unless an earlier point of the chunk did.
    pub(super) fn take(&mut self, names: &'a NameList) -> Result<(), UidError> {
        let allowance = self.allowance;
        let decision = self.decided.entry(names);
        decision.or_insert_with(|| allowance.take().map_err(UidError::NewSeriesLimit)).clone()
    }

    /// Returns a series that was taken, but got no UIDs.
    pub(super) fn put_back(&mut self, names: &NameList) {
        if let Some(Ok(())) = self.decided.remove(names) {
            self.allowance.put_back();
        }
    }
}
