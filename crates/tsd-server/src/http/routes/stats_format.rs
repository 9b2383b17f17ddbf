//! Query statistics under OpenTSDB's names. Times are in milliseconds.

use std::time::Duration;

use tsd_engine::{QueryStats, ScannerStats, SubQueryStats};
use tsd_protocol::StatValue;

/// Statistics in the order of the response.
pub(super) type NamedStats = Vec<(String, StatValue)>;

/// Statistics of every series of a sub query; `serialization` is the time spent writing so far.
pub(super) fn series_stats(stats: &SubQueryStats, serialization: Duration) -> NamedStats {
    let mut named = StatsBuilder::default();
    named
        .time("aggregationTime", stats.aggregation)
        .count("emittedDPs", stats.emitted_points)
        .time("groupByTime", stats.group_by)
        .count("queryIndex", stats.index as u64)
        .time("queryScanTime", stats.query_scan)
        .time("saltScannerMergeTime", stats.scanner_merge)
        .time("serializationTime", serialization)
        .time("uidToStringTime", stats.uid_to_string);
    named.sorted()
}

/// Statistics at the end of a response: the query, its sub queries and their scans.
pub(super) fn summary(stats: &QueryStats) -> NamedStats {
    let mut named = totals(stats);
    for sub in &stats.sub_queries {
        named.0.push((format!("queryIdx_{:02}", sub.index), StatValue::Part(sub_query(sub))));
    }
    named.sorted()
}

/// Totals of a query.
pub(super) fn overall(stats: &QueryStats) -> NamedStats {
    totals(stats).sorted()
}

fn totals(stats: &QueryStats) -> StatsBuilder {
    let subs = &stats.sub_queries;
    let scanners: Vec<&ScannerStats> = subs.iter().flat_map(|sub| &sub.scanners).collect();
    let mut named = StatsBuilder::default();
    named
        .time("stringToUidTime", stats.string_to_uid)
        .time("processingPreWriteTime", stats.processing_pre_write)
        .count("emittedDPs", subs.iter().map(|sub| sub.emitted_points).sum())
        .count("nanDPs", subs.iter().map(|sub| sub.nan_points).sum())
        .time("cpuTime", stats.cpu)
        .time("waitTime", stats.waited)
        .count("peakMemoryBytes", stats.peak_memory_bytes)
        .avg_and_max("ScannerMergeTime", "Salt", &times(subs, |sub| sub.scanner_merge))
        .avg_and_max("QueryScanTime", "", &times(subs, |sub| sub.query_scan))
        .avg_and_max("AggregationTime", "", &times(subs, |sub| sub.aggregation))
        .avg_and_max("UidToStringTime", "", &times(subs, |sub| sub.uid_to_string));
    // The response writes the series of all sub queries sequentially.
    named.avg_and_max("SerializationTime", "", &[stats.serialization]);
    if !stats.total.is_zero() {
        named.time("totalTime", stats.total);
    }
    add_scanner_totals(&mut named, &scanners);
    named
}

fn sub_query(stats: &SubQueryStats) -> NamedStats {
    let scanners: Vec<&ScannerStats> = stats.scanners.iter().collect();
    let mut named = StatsBuilder::default();
    named
        .count("queryIndex", stats.index as u64)
        .time("stringToUidTime", stats.string_to_uid)
        .time("saltScannerMergeTime", stats.scanner_merge)
        .time("queryScanTime", stats.query_scan)
        .time("groupByTime", stats.group_by)
        .time("aggregationTime", stats.aggregation)
        .time("uidToStringTime", stats.uid_to_string)
        .time("serializationTime", stats.serialization)
        .time("totalTime", stats.total)
        .count("emittedDPs", stats.emitted_points)
        .count("nanDPs", stats.nan_points);
    add_scanner_totals(&mut named, &scanners);
    let each = stats
        .scanners
        .iter()
        .enumerate()
        .map(|(at, scan)| (format!("scannerIdx_{at:02}"), StatValue::Part(scanner(scan))));
    named.0.push(("scannerStats".to_owned(), StatValue::Part(each.collect())));
    named.sorted()
}

/// Adds the sums of scan counts, and averages and maxima of scan times.
fn add_scanner_totals(named: &mut StatsBuilder, scanners: &[&ScannerStats]) {
    let sum = |count: fn(&ScannerStats) -> u64| scanners.iter().map(|scan| count(scan)).sum();
    let times = |time: fn(&ScannerStats) -> Duration| -> Vec<Duration> {
        scanners.iter().map(|scan| time(scan)).collect()
    };
    named
        .count("rowsFromStorage", sum(|scan| scan.rows))
        .count("columnsFromStorage", sum(|scan| scan.cells))
        .count("bytesFromStorage", sum(|scan| scan.bytes))
        .count("rowsPreFilter", sum(|scan| scan.rows_pre_filter))
        .count("dpsPreFilter", sum(|scan| scan.cells_pre_filter))
        .count("rowsPostFilter", sum(|scan| scan.rows_post_filter))
        .count("dpsPostFilter", sum(|scan| scan.cells_post_filter))
        .count("successfulScan", sum(|scan| u64::from(scan.successful)))
        .count("uidPairsResolved", sum(|scan| scan.uid_pairs_resolved))
        .avg_and_max("HBaseTime", "", &times(|scan| scan.store))
        .avg_and_max("ScannerTime", "", &times(|scan| scan.total))
        .avg_and_max("CompactionTime", "", &times(|scan| scan.compaction))
        .avg_and_max("ScannerUidToStringTime", "", &times(|scan| scan.uid_to_string));
}

fn scanner(stats: &ScannerStats) -> NamedStats {
    let mut named = StatsBuilder::default();
    named
        .time("compactionTime", stats.compaction)
        .count("dpsPostFilter", stats.cells_post_filter)
        .count("dpsPreFilter", stats.cells_pre_filter)
        .time("hbaseTime", stats.store)
        .count("rowsPostFilter", stats.rows_post_filter)
        .count("rowsPreFilter", stats.rows_pre_filter)
        .count("rowsFromStorage", stats.rows)
        .count("columnsFromStorage", stats.cells)
        .count("bytesFromStorage", stats.bytes)
        .time("scannerTime", stats.total)
        .time("scannerUidToStringTime", stats.uid_to_string)
        .count("successfulScan", u64::from(stats.successful))
        .count("uidPairsResolved", stats.uid_pairs_resolved);
    named.0.push(("scannerId".to_owned(), StatValue::Text(stats.id.clone())));
    named.sorted()
}

fn times(subs: &[SubQueryStats], time: fn(&SubQueryStats) -> Duration) -> Vec<Duration> {
    subs.iter().map(time).collect()
}

/// Collects named statistics in any order.
#[derive(Debug, Default)]
struct StatsBuilder(NamedStats);

impl StatsBuilder {
    fn count(&mut self, name: &str, count: u64) -> &mut Self {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.0.push((name.to_owned(), StatValue::Count(count)));
        self
    }

    fn time(&mut self, name: &str, time: Duration) -> &mut Self {
        self.0.push((name.to_owned(), StatValue::Millis(time.as_secs_f64() * 1_000.0)));
        self
    }

    /// Adds average and maximum of the times; nothing without times.
    fn avg_and_max(&mut self, name: &str, before: &str, times: &[Duration]) -> &mut Self {
        if let Some(greatest) = times.iter().max() {
            let sum: Duration = times.iter().sum();
            let count = u32::try_from(times.len()).unwrap_or(u32::MAX);
            self.time(&format!("avg{before}{name}"), sum / count);
            self.time(&format!("max{before}{name}"), *greatest);
        }
        self
    }

    /// Sorts by name, as OpenTSDB shows them.
    fn sorted(mut self) -> NamedStats {
        self.0.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(named: &NamedStats) -> Vec<&str> {
        named.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn stats() -> QueryStats {
        let scanner = |millis| ScannerStats {
            rows: 2,
            successful: true,
            store: Duration::from_millis(millis),
            ..ScannerStats::default()
        };
        let sub = SubQueryStats {
            emitted_points: 5,
            scanners: vec![scanner(1), scanner(3)],
            ..SubQueryStats::default()
        };
        QueryStats { sub_queries: vec![sub], ..QueryStats::default() }
    }

    #[test]
    fn series_show_opentsdbs_eight_statistics() {
        let named = series_stats(&SubQueryStats::default(), Duration::ZERO);
        assert_eq!(
            names(&named),
            [
                "aggregationTime",
                "emittedDPs",
                "groupByTime",
                "queryIndex",
                "queryScanTime",
                "saltScannerMergeTime",
                "serializationTime",
                "uidToStringTime"
            ]
        );
    }

    #[test]
    fn scan_counts_are_summed_and_times_averaged() {
        let summary = summary(&stats());
        let value = |name: &str| {
            summary.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        };
        assert_eq!(value("rowsFromStorage"), Some(StatValue::Count(4)));
        assert_eq!(value("successfulScan"), Some(StatValue::Count(2)));
        assert_eq!(value("emittedDPs"), Some(StatValue::Count(5)));
        assert_eq!(value("avgHBaseTime"), Some(StatValue::Millis(2.0)));
        assert_eq!(value("maxHBaseTime"), Some(StatValue::Millis(3.0)));
        assert!(names(&summary).is_sorted());
        let Some(StatValue::Part(sub)) = value("queryIdx_00") else { panic!("no sub query") };
        let scanners = sub.iter().find(|(name, _)| name == "scannerStats");
        let Some((_, StatValue::Part(scanners))) = scanners else { panic!("no scans") };
        assert_eq!(names(scanners), ["scannerIdx_00", "scannerIdx_01"]);
        assert!(names(&sub).is_sorted());
    }
}
