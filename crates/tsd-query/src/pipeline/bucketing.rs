//! Assigns times to downsampling buckets: of a fixed interval, of calendar intervals, or one for
//! the whole query.

use jiff::tz::TimeZone;

use super::calendar::Calendar;
use crate::request::DownsampleWindow;

/// The buckets of a sub query. Points before `from_ms` (epoch milliseconds) are in no bucket.
#[derive(Clone, Debug)]
pub(super) enum Bucketing {
    Fixed { interval_ms: i64, from_ms: i64 },
    Calendar { calendar: Calendar, from_ms: i64 },
    All,
}

impl Bucketing {
    /// The buckets of a scan that begins at `scan_start_ms`. The first bucket is the first that the
    /// scan covers completely.
    pub(super) fn new(window: &DownsampleWindow, scan_start_ms: i64, zone: &TimeZone) -> Self {
        match *window {
            DownsampleWindow::All => Self::All,
            DownsampleWindow::Fixed { interval_ms } => {
                let below = scan_start_ms.rem_euclid(interval_ms);
                let from_ms =
                    if below == 0 { scan_start_ms } else { scan_start_ms - below + interval_ms };
                Self::Fixed { interval_ms, from_ms }
            }
            DownsampleWindow::Calendar { count, unit, .. } => {
                let calendar = Calendar::new(count, unit, zone.clone());
                let anchor = calendar.anchor(scan_start_ms);
                let from_ms =
                    if anchor < scan_start_ms { calendar.next(anchor) } else { scan_start_ms };
                Self::Calendar { calendar, from_ms }
            }
        }
    }
}
