//! Chooses the summaries that a read gets instead of points.

use tsd_model::{
    BaseTime, DAY_MS, DAY_SECS, DaySummaries, SumBucket, Summary, SummaryFold, SummaryUse,
};

/// The chosen summaries of a UTC day.
#[derive(Debug)]
pub(crate) struct ChosenSummaries {
    /// In time order, never empty.
    pub(crate) summaries: Vec<Summary>,
    /// Time that the summaries cover: start, inclusive, and end, exclusive, epoch milliseconds.
    pub(crate) range_ms: (i64, i64),
    /// True if the read also needs points of other hours of the day.
    pub(crate) needs_others: bool,
    /// True if each summary needs its points.
    pub(crate) needs_points: bool,
}

/// Chooses summaries of a series on the UTC day that begins at `span`, for a read of rows with these base times.
/// `all` covers all points of the series on that day. `None` if the read must use points.
pub(crate) fn choose(
    mut all: DaySummaries,
    read: &SummaryUse,
    span: u32,
    bases: (u32, u32),
) -> Option<ChosenSummaries> {
    let (start_ms, end_ms) = read.range_ms;
    let day_ms = i64::from(span) * 1_000;
    let day_end_ms = day_ms + DAY_MS;
    let has_day = read.has_days
        && (start_ms..=end_ms).contains(&day_ms)
        && day_end_ms <= end_ms
        && bases.0 <= span
        && bases.1 >= span.saturating_add(DAY_SECS - BaseTime::SPAN_SECONDS);
    match read.fold {
        SummaryFold::Sums(SumBucket::Day) if !has_day => return None,
        // If the sum of the day is exact, so are the sums of its hours.
        SummaryFold::Sums(SumBucket::Longer) => {
            all.day()?.exact_magnitude()?;
        }
        SummaryFold::Sums(_) | SummaryFold::Extremes | SummaryFold::Ends => {}
    }
    let needs_points = read.with_points || read.fold == SummaryFold::Sums(SumBucket::Longer);
    if has_day {
        let (summaries, range_ms) = (vec![all.day()?], (day_ms, day_end_ms));
        return Some(ChosenSummaries { summaries, range_ms, needs_others: false, needs_points });
    }
    // The usable hours are adjacent.
    let base_ms = |base: u32| i64::from(base) * 1_000;
    let is_read = |hour: &Summary| (base_ms(bases.0)..=base_ms(bases.1)).contains(&hour.start_ms);
    let is_used =
        |hour: &Summary| is_read(hour) && start_ms <= hour.start_ms && hour.end_ms <= end_ms;
    let needs_others = all.hours.iter().any(|hour| is_read(hour) && !is_used(hour));
    all.hours.retain(is_used);
    let range_ms = (all.hours.first()?.start_ms, all.hours.last()?.end_ms);
    Some(ChosenSummaries { summaries: all.hours, range_ms, needs_others, needs_points })
}
