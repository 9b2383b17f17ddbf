//! Puts and queries keep the request that log lines name, on whatever task or thread they work.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use tsd_runtime::LogOrigin;
use tsd_storage::{
    BytePermit, MemoryStorage, RowScanner, Scan, Storage, StorageFuture, Table, Write, WriteResult,
    forward_storage,
};

use super::*;
use crate::{Engine, QueryClient};

/// A store that records the request of each write and scan of the data table.
#[derive(Debug)]
struct Recording {
    inner: Arc<MemoryStorage>,
    data: Table,
    seen: Mutex<BTreeSet<(&'static str, Option<String>)>>,
}

impl Recording {
    fn record(&self, call: &'static str, table: &Table) {
        if *table == self.data {
            let id = LogOrigin::current().request().map(str::to_owned);
            self.seen.lock().unwrap().insert((call, id));
        }
    }
}

impl Storage for Recording {
    forward_storage!(inner: get, multi_get, read_version, table_exists, flush, close);

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        self.record("scan", table);
        self.inner.scan(table, scan)
    }

    fn write<'a>(
        &'a self,
        table: &'a Table,
        write: Write,
        permit: Option<&'a BytePermit>,
    ) -> StorageFuture<'a, WriteResult> {
        self.record("write", table);
        self.inner.write(table, write, permit)
    }
}

#[tokio::test]
async fn the_store_knows_the_request() {
    let tables = EngineConfig::default().tables;
    let data = tables.data.clone();
    let inner = Arc::new(MemoryStorage::new([tables.data, tables.uid, tables.meta, tables.tree]));
    let store = Arc::new(Recording { inner, data, seen: Mutex::default() });
    let mut settings = settings(1, 4);
    settings.compaction.on_read = false;
    let engine = Engine::start(settings, Arc::<Recording>::clone(&store)).unwrap();
    let put = put_one(&engine, "m", "host=a", HOUR, 1);
    LogOrigin::of_request("a-put".into()).scope(put).await.unwrap();
    let client =
        QueryClient { origin: LogOrigin::of_request("a-query".into()), ..QueryClient::default() };
    let control = QueryControl { client: Arc::new(client), ..QueryControl::default() };
    let result = engine.reads().query(query(HOUR, HOUR + 60, &["sum:m"]), control).await.unwrap();
    assert_eq!(values(&result.sub_results[0].series[0]), [(0, 1.0)]);
    let expected = [("scan", Some("a-query".to_owned())), ("write", Some("a-put".to_owned()))];
    assert_eq!(*store.seen.lock().unwrap(), BTreeSet::from(expected));
}
