//! Histogram queries: percentiles and bucket counts instead of numbers.
//!
//! Histograms are only added: within a downsampling bucket, and within a group at equal times.
//! Interpolation, fill and rate do not apply.

use std::collections::BTreeMap;

use bytes::Bytes;
use tsd_model::{PointColumns, SimpleHistogram, Value};

use crate::{
    error::QueryError,
    limits::ExecutionLimits,
    pipeline::{BucketCursor, GroupTags, OutputSeries, SeriesPipeline, Span, group_spans},
    plan::SubQueryPlan,
    request::SubQuery,
};

/// The histograms of one series, in time order.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSeries {
    /// Metric and tag UIDs, without salt.
    pub tsuid: Bytes,
    /// Epoch milliseconds and histograms.
    pub points: Vec<(i64, SimpleHistogram)>,
}

/// One series of the result of a histogram query.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramOutput {
    /// Suffix of the metric name: `_pct_99.9`, `_10.0_20.0`, `_UNDERFLOW`.
    pub suffix: String,
    /// The series.
    pub series: OutputSeries,
}

impl HistogramSeries {
    /// Approximate memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let points = self.points.iter().map(|(_, histogram)| 8 + histogram.memory_bytes());
        size_of::<Self>() + self.tsuid.len() + points.sum::<usize>()
    }
}

/// Groups and merges histograms, and computes the requested percentiles and buckets. The caller has
/// reserved the memory of `series`.
pub fn evaluate_histograms(
    sub: &SubQuery,
    plan: &SubQueryPlan,
    pipeline: &SeriesPipeline,
    series: Vec<HistogramSeries>,
    limits: &mut dyn ExecutionLimits,
) -> Result<Vec<HistogramOutput>, QueryError> {
    // Histograms by series, until groups are determined as for numbers.
    let mut downsampled: BTreeMap<Bytes, BTreeMap<i64, SimpleHistogram>> = BTreeMap::new();
    for HistogramSeries { tsuid, points } in series {
        if is_in_scan_range(plan, &points) {
            downsample(pipeline, points, downsampled.entry(tsuid).or_default(), limits)?;
        }
    }
    let spans = downsampled
        .keys()
        .map(|tsuid| Span { tsuid: tsuid.clone(), points: PointColumns::default() });
    let mut outputs = Vec::new();
    for group in group_spans(plan, sub.aggregator, spans.collect()) {
        let tsuids = group.tsuids();
        let mut merged: BTreeMap<i64, SimpleHistogram> = BTreeMap::new();
        for tsuid in &tsuids {
            for (time, histogram) in downsampled.remove(tsuid).unwrap_or_default() {
                limits.check()?;
                merged.entry(time).or_default().add(&histogram);
            }
        }
        let template = OutputSeries {
            group_tags: GroupTags::of(plan, tsuids.iter().map(AsRef::as_ref)),
            group_key: group.key,
            tsuids,
            points: PointColumns::default(),
        };
        MergedGroup { template, histograms: merged }.push_outputs(
            sub,
            plan,
            &mut outputs,
            limits,
        )?;
    }
    Ok(outputs)
}

/// Bytes of a time and a value.
const BYTES_PER_POINT: usize = 16;

/// True if the times of a series overlap the range of the scan.
fn is_in_scan_range(plan: &SubQueryPlan, points: &[(i64, SimpleHistogram)]) -> bool {
    match (points.first(), points.last()) {
        (Some((first, _)), Some((last, _))) => {
            *first <= plan.window.scan_end_ms() && *last >= plan.window.scan_start_ms()
        }
        _ => false,
    }
}

/// Adds the histograms of each bucket; without downsampling every time is a bucket.
fn downsample(
    pipeline: &SeriesPipeline,
    points: Vec<(i64, SimpleHistogram)>,
    buckets: &mut BTreeMap<i64, SimpleHistogram>,
    limits: &mut dyn ExecutionLimits,
) -> Result<(), QueryError> {
    let mut chain = BucketCursor::default();
    for (time, histogram) in points {
        limits.check()?;
        if let Some(start) = chain.bucket_start(pipeline, time) {
            buckets.entry(start).or_default().add(&histogram);
        }
    }
    Ok(())
}

/// The histograms of a group, added.
struct MergedGroup {
    /// The result without points.
    template: OutputSeries,
    histograms: BTreeMap<i64, SimpleHistogram>,
}

impl MergedGroup {
    /// Appends percentiles, ascending, then bucket counts for the buckets of the group's first
    /// histogram.
    fn push_outputs(
        &self,
        sub: &SubQuery,
        plan: &SubQueryPlan,
        outputs: &mut Vec<HistogramOutput>,
        limits: &mut dyn ExecutionLimits,
    ) -> Result<(), QueryError> {
        let Self { template, histograms } = self;
        let in_range = || histograms.range(plan.window.start_ms..=plan.window.end_ms);
        let template_bytes = size_of::<OutputSeries>() + template.tsuids.len() * size_of::<Bytes>();
        let bytes =
            template_bytes.saturating_add(in_range().count().saturating_mul(BYTES_PER_POINT));
        let mut push = |suffix: String, value: &dyn Fn(&SimpleHistogram) -> Value| {
            limits.reserve(bytes)?;
            let mut series = template.clone();
            for (time, histogram) in in_range() {
                limits.check()?;
                series.points.push(*time, value(histogram));
            }
            outputs.push(HistogramOutput { suffix, series });
            Ok(())
        };
        let mut percentiles = sub.percentiles.clone();
        percentiles.sort_by(f32::total_cmp);
        for p in percentiles {
            push(format!("_pct_{}", java_single(p)), &|histogram| {
                Value::Float(percentile(histogram, f64::from(p)))
            })?;
        }
        let Some(first) = histograms.values().next().filter(|_| sub.show_histogram_buckets) else {
            return Ok(());
        };
        push("_UNDERFLOW".to_owned(), &|histogram| Value::Integer(histogram.underflow))?;
        for bucket in first.buckets() {
            let (lower, upper) = (java_single(bucket.lower), java_single(bucket.upper));
            push(format!("_{lower}_{upper}"), &|histogram| {
                Value::Integer(histogram.count_of(bucket.lower, bucket.upper))
            })?;
        }
        push("_OVERFLOW".to_owned(), &|histogram| Value::Integer(histogram.overflow))
    }
}

/// Midpoint of the bucket that contains a percentile. Underflow and overflow are not counted.
fn percentile(histogram: &SimpleHistogram, p: f64) -> f64 {
    if !(1.0..=100.0).contains(&p) {
        return -1.0;
    }
    let total: i64 = histogram.buckets().iter().map(|bucket| bucket.count).sum();
    let mut seen = 0;
    for bucket in histogram.buckets() {
        seen += bucket.count;
        if total != 0 && seen as f64 * 100.0 / total as f64 >= p {
            return f64::from(f32::midpoint(bucket.lower, bucket.upper));
        }
    }
    0.0
}

/// Formats a 32-bit float as Java does.
fn java_single(value: f32) -> String {
    let size = value.abs();
    if value == 0.0 || (1e-3..1e7).contains(&size) || !value.is_finite() {
        return match value {
            f32::INFINITY => "Infinity".to_owned(),
            f32::NEG_INFINITY => "-Infinity".to_owned(),
            _ => format!("{value:?}"),
        };
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let fraction = if digits.contains('.') { "" } else { ".0" };
    format!("{digits}{fraction}E{exponent}")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn floats_are_formatted_as_in_java() {
        for (value, text) in [
            (50.0, "50.0"),
            (99.9, "99.9"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1e7, "1.0E7"),
            (1.25e-4, "1.25E-4"),
            (9_999_999.0, "9999999.0"),
            (0.001, "0.001"),
            (f32::NAN, "NaN"),
            (f32::INFINITY, "Infinity"),
        ] {
            assert_eq!(java_single(value), text);
        }
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "middles of buckets are exact")]
    fn percentiles_are_bucket_midpoints() {
        let histogram = SimpleHistogram::parse("u=9:o=9:0,10=1:10,20=2:20,30=7").unwrap();
        assert_eq!(percentile(&histogram, 10.0), 5.0);
        assert_eq!(percentile(&histogram, 30.0), 15.0);
        assert_eq!(percentile(&histogram, 30.1), 25.0);
        assert_eq!(percentile(&histogram, 0.5), -1.0);
        assert_eq!(percentile(&SimpleHistogram::default(), 50.0), 0.0);
    }
}
