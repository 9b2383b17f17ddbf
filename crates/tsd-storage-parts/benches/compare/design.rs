//! Parts and the tree behind one interface.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use tsd_model::{BaseTime, MergeRule, PointColumns, Row, RowExtras, TableSchema, decode_row};
use tsd_storage::{DiskDir, DiskSpace, FlushTarget, Scan, Storage, Table, system_clock_ms};
use tsd_storage_lsm::{LsmConfig, LsmStorage, TableSpec};
use tsd_storage_parts::{
    PartConfig, PartLayout, PartResources, PartStore, SeriesReader, SeriesSelection,
};

use crate::{
    load::{BenchRows, DAY, HOUR, KeyOrder, row_key, split},
    queries::{Answer, Query},
    report::thread_cpu,
};

pub(crate) enum Design {
    Parts { store: Box<PartStore>, layout: PartLayout },
    Lsm { lsm: Box<LsmStorage>, table: Table, runtime: tokio::runtime::Runtime, order: KeyOrder },
}

impl Design {
    pub(crate) fn order(&self) -> KeyOrder {
        match self {
            Self::Parts { .. } => KeyOrder::HourSeries,
            Self::Lsm { order, .. } => *order,
        }
    }

    pub(crate) fn flush(&self, mut rows: BenchRows) {
        match self {
            Self::Parts { store, .. } => store.flush(&mut rows).unwrap(),
            Self::Lsm { lsm, table, runtime, .. } => {
                runtime.block_on(lsm.flush_rows(table, Box::new(rows))).unwrap();
            }
        }
    }

    /// Merges that are due, or all.
    pub(crate) fn merge(&self, closed_before: u32) {
        if let Self::Parts { store, .. } = self {
            while store.merge_due(closed_before).unwrap() {}
        }
    }

    pub(crate) fn settle(&self) {
        match self {
            Self::Parts { store, .. } => while store.merge_closed(u32::MAX).unwrap() {},
            Self::Lsm { lsm, .. } => wait_for_compaction(lsm),
        }
    }

    pub(crate) fn disk_bytes(&self) -> f64 {
        match self {
            Self::Parts { store, .. } => store.disk_bytes() as f64,
            Self::Lsm { lsm, .. } => gauge(lsm, "tsd_lsm_disk_bytes"),
        }
    }

    pub(crate) fn ask(&self, query: &Query) -> Answer {
        let mut answer = Answer::default();
        match self {
            Self::Parts { store, layout } => {
                let snapshot = store.snapshot();
                let selection = query.series.as_ref().map_or(SeriesSelection::All, |wanted| {
                    let series = |&s: &u32| {
                        let mut series = Vec::new();
                        layout.split_key(&row_key(KeyOrder::HourSeries, s, 0), &mut series);
                        series
                    };
                    SeriesSelection::Some(wanted.iter().map(series).collect())
                });
                let range =
                    (i64::from(query.range.0) * 1_000, i64::from(query.range.1) * 1_000 + 999);
                let mut reader = SeriesReader::new(&snapshot, &selection, range);
                while let Some(item) = reader.next_series().unwrap() {
                    item.settle(*layout, MergeRule::Newest, range).unwrap();
                    answer.add(&item.columns);
                }
            }
            Self::Lsm { lsm, table, runtime, order } => {
                let (from, to) = query.range;
                let (first, last) = (from / HOUR * HOUR, to / HOUR * HOUR);
                let mut ranges = Vec::new();
                match (order, &query.series) {
                    (KeyOrder::SeriesHour, Some(wanted)) => {
                        for day in (first / DAY..=last / DAY).map(|d| d * DAY) {
                            for &series in wanted {
                                let start = row_key(*order, series, day.max(first));
                                let mut stop = row_key(*order, series, last.min(day + DAY - HOUR));
                                stop.push(0);
                                ranges.push((start, stop));
                            }
                        }
                    }
                    (KeyOrder::SeriesHour, None) => {
                        let start = row_key(*order, 0, first);
                        ranges.push((start, row_key(*order, 0, last + DAY)));
                    }
                    (KeyOrder::HourSeries, _) => {
                        let start = row_key(*order, 0, first);
                        ranges.push((start, row_key(*order, 0, last + HOUR)));
                    }
                }
                let mut columns = PointColumns::default();
                let mut extras = RowExtras::default();
                let mut read = |rows: Vec<Row>, answer: &mut Answer| {
                    for row in rows {
                        let (base, series) = split(*order, &row.key);
                        if base < first
                            || base > last
                            || query
                                .series
                                .as_ref()
                                .is_some_and(|w| w.binary_search(&series).is_err())
                        {
                            continue;
                        }
                        columns.clear();
                        let time = BaseTime::from_stored(base.to_be_bytes());
                        decode_row(&row, time, MergeRule::Newest, &mut columns, &mut extras)
                            .unwrap();
                        let times = &columns.times_ms;
                        let keep = (
                            times.partition_point(|&t| t < i64::from(from) * 1_000),
                            times.partition_point(|&t| t <= i64::from(to) * 1_000 + 999),
                        );
                        columns.keep(keep.0, keep.1);
                        answer.add(&columns);
                    }
                };
                runtime.block_on(async {
                    for (start, stop) in ranges {
                        let scan = Scan {
                            start: Bytes::from(start),
                            stop: Bytes::from(stop),
                            ..Scan::default()
                        };
                        let mut scanner = lsm.scan(table, scan);
                        while let Some(rows) = scanner.next_rows().await.unwrap() {
                            read(rows, &mut answer);
                        }
                    }
                });
            }
        }
        answer
    }
}

pub(crate) fn gauge(lsm: &LsmStorage, name: &str) -> f64 {
    lsm.gauges().into_iter().find(|(n, _)| *n == name).map_or(0.0, |(_, v)| v)
}

pub(crate) fn wait_for_compaction(lsm: &LsmStorage) {
    let mut before = (-1.0, -1.0);
    loop {
        let cpu = thread_cpu("lsm-compactor");
        let now = (gauge(lsm, "tsd_lsm_compaction_steps_total"), cpu);
        if now == before {
            return;
        }
        before = now;
        std::thread::sleep(Duration::from_millis(300));
    }
}

pub(crate) fn open(name: &str, dir: &Path, span: u32) -> Design {
    match name {
        "parts" => {
            let layout = PartLayout::try_new(&TableSchema::opentsdb_default(), span).unwrap();
            let dir = Arc::new(DiskDir::unlocked(dir).unwrap());
            let space = Arc::new(DiskSpace::new("/", 0));
            let resources = PartResources::new(PartResources::DEFAULT_CACHE_BYTES, 512, space);
            let resources = Arc::new(resources);
            let config =
                PartConfig { table: "tsdb".into(), layout, resources, clock: system_clock_ms };
            let store = PartStore::open(dir, config).unwrap();
            Design::Parts { store: Box::new(store), layout }
        }
        other => {
            let table = Table::new("tsdb");
            let specs = vec![TableSpec::points(table.clone())];
            let lsm = LsmStorage::open(&LsmConfig::new(dir, specs)).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let order =
                if other == "lsm-hour" { KeyOrder::HourSeries } else { KeyOrder::SeriesHour };
            Design::Lsm { lsm: Box::new(lsm), table, runtime, order }
        }
    }
}
