//! Recovery from failed calls to regions: decides what a failure invalidates, and whether the call
//! is repeated. Single calls, batches, buffers and lookups in hbase:meta share this code.

use super::Locator;
use crate::{
    connection::CallError,
    exception::{ExceptionClass, Recovery},
    region::info::RegionLocation,
    retry::Retry,
};

impl Locator {
    /// Invalidates the locations that a failed call shows to be stale, and returns when to repeat
    /// the call.
    ///
    /// `first` is true if no attempt has failed before. A call of one action is never split.
    pub(crate) fn classify_failure(
        &self,
        location: &RegionLocation,
        error: &CallError,
        first: bool,
        actions: usize,
    ) -> Retry {
        match error.recovery() {
            Recovery::Relocate | Recovery::FindMaster | Recovery::ReopenScanner => {
                self.invalidate(location);
                Retry::Backoff { overloaded: error.is_overload() }
            }
            Recovery::RelocateOnce => {
                self.invalidate(location);
                if first { Retry::Immediately } else { Retry::Never }
            }
            Recovery::Moved(to) if self.region_moved(location, &to) => Retry::Immediately,
            Recovery::Moved(_) | Recovery::SamePlace => Retry::Backoff { overloaded: false },
            Recovery::Overloaded => Retry::Backoff { overloaded: true },
            Recovery::ServerGone => {
                self.server_gone(location, error);
                Retry::Backoff { overloaded: false }
            }
            Recovery::ResendNow => Retry::Immediately,
            Recovery::Wait(wait) => Retry::After(wait),
            Recovery::SplitBatch if actions > 1 => Retry::Split,
            Recovery::SplitBatch | Recovery::CloseConnection | Recovery::Fail => {
                if error.class() == Some(ExceptionClass::TableNotFound) {
                    self.table_gone(location.region.table());
                }
                Retry::Never
            }
        }
    }
}
