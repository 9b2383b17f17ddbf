//! A log that is unavailable and whose appends fail slowly.

use parking_lot::Mutex;
use std::{
    pin::pin,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, Receiver},
    },
};

use futures_util::{future::join_all, poll};
use tsd_storage::StoreComponent;

use super::*;
use crate::{CommitLog, FormerLogs, LogPosition, RecordGroup, SectionSize};

#[derive(Debug, Default)]
struct OutageLog {
    is_down: AtomicBool,
    appends: AtomicUsize,
    /// The next append waits for its end.
    gate: Mutex<Option<Receiver<()>>>,
}

impl OutageLog {
    fn appends(&self) -> usize {
        self.appends.load(Ordering::SeqCst)
    }
}

impl CommitLog for OutageLog {
    fn name(&self) -> String {
        "a log".to_owned()
    }

    fn append(&self, _: &mut RecordGroup) -> Result<(), StorageError> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        let gate = self.gate.lock().take();
        if let Some(gate) = gate {
            let _ = gate.recv();
        }
        self.probe()
    }

    fn probe(&self) -> Result<(), StorageError> {
        if self.is_down.load(Ordering::SeqCst) {
            return Err(StorageError::Unavailable("no answer".into()));
        }
        Ok(())
    }

    fn section_size(&self) -> SectionSize {
        SectionSize::default()
    }

    fn end_section(&self) -> LogPosition {
        LogPosition { incarnation: 1, sequence: 1 }
    }

    fn trim(&self, _: LogPosition, _: i64) -> Result<(), StorageError> {
        Ok(())
    }

    fn finish_trim(&self, _: i64) -> Result<(), StorageError> {
        Ok(())
    }

    fn closed_segments(&self) -> u64 {
        0
    }
}

#[tokio::test]
async fn writes_behind_a_failed_one_do_not_wait_for_the_log_one_after_the_other() {
    let log = Arc::new(OutageLog::default());
    // Each write is its own group.
    let config = WalConfig { backend: BackendSharing::MultiWriter, group_bytes: 1, ..lazy() };
    let commit_log: Arc<dyn CommitLog> = Arc::<OutageLog>::clone(&log);
    let opened = Store::open_on(config, commit_log, FormerLogs::default(), memory_backend()).await;
    let (store, _) = opened.unwrap();
    put(&store, b"before", b"1").await.unwrap();
    let before = log.appends();

    log.is_down.store(true, Ordering::SeqCst);
    let (held, gate) = mpsc::channel();
    *log.gate.lock() = Some(gate);
    let rows: Vec<[u8; 1]> = (0..20).map(|row| [row]).collect();
    let mut queued = pin!(join_all(rows.iter().map(|row| put(&store, row, b"1"))));
    assert!(poll!(queued.as_mut()).is_pending());
    drop(held);
    let is_refused = |result: &Result<(), StorageError>| matches!(result, Err(StorageError::Unavailable(text)) if &**text == "no answer");
    assert!(queued.await.iter().all(is_refused));
    assert!(is_refused(&put(&store, b"later", b"1").await));
    assert_eq!(log.appends(), before + 1, "the others were refused at once");
    assert!(
        store
            .maintenance()
            .health()
            .iter()
            .any(|problem| problem.component == StoreComponent::Commit)
    );

    log.is_down.store(false, Ordering::SeqCst);
    while put(&store, b"after", b"1").await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(log.appends(), before + 2, "a probe has ended the outage");
    assert_eq!(store.maintenance().health(), []);
    assert_eq!(value(&store, b"after").await.unwrap(), "1");
    assert_eq!(value(&store, b"later").await, None);
    store.stop().await;
}
