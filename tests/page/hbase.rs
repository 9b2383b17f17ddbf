//! A fake HBase with the tables, and daemons on it that the page is opened from.

use std::{path::Path, process::Command, time::Duration};

use hbase_fake::{FakeCluster, FakeEnsemble, FaultKind, InjectedFault};
use tokio::runtime::Runtime;
use tsd_testkit::{Daemon, DaemonBuilder};

use crate::{Bench, TSDB};

/// It ends when dropped.
pub(crate) struct HBase {
    _runtime: Runtime,
    cluster: FakeCluster,
    ensemble: FakeEnsemble,
}

impl HBase {
    /// Two region servers, with the tables.
    pub(crate) fn with_tables() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let (cluster, ensemble) =
            runtime.block_on(async { (FakeCluster::start(2).await, FakeEnsemble::start().await) });
        cluster.publish(&ensemble, "/hbase");
        let created = Command::new(TSDB)
            .args(["table", "create", "--zkquorum", ensemble.quorum()])
            .output()
            .expect("run tsdb");
        assert!(created.status.success(), "{created:?}");
        Self { _runtime: runtime, cluster, ensemble }
    }

    /// Delays all scans from now on, longer than a check takes.
    pub(crate) fn delay_scans(&self) {
        let delay = FaultKind::Delay(Duration::from_mins(10));
        self.cluster.inject(InjectedFault::once("Scan", delay).times(usize::MAX));
    }

    /// A daemon on it, not yet started.
    pub(crate) fn daemon(&self, data: &Path) -> DaemonBuilder {
        let quorum = ["--zkquorum", self.ensemble.quorum(), "--auto-metric"];
        DaemonBuilder::new(TSDB, data).args(&quorum)
    }
}

/// Address of the page of another daemon.
pub(crate) fn page_of(bench: &Bench, daemon: &Daemon) -> String {
    let address = format!("http://{}/", daemon.address());
    bench.others.borrow_mut().push(address.clone());
    address
}
