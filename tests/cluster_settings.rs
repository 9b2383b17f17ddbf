//! Tests `tsdb cluster settings`, which shows and changes the common settings of all nodes of a cluster, on a fake
//! HBase.

use std::process::Output;

use crate::{
    WRONG_CONFIGURATION,
    cluster_forward::node,
    hbase_fake::{HBase, check, put},
    in_process::directory,
};

const BY_POD: [(&str, &str); 1] = [("TSD_CLUSTER_SLOT_TAGS", "pod, host")];

/// The output or the error of a command with this exit status.
#[track_caller]
fn printed(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    let text = if status == 0 { &output.stdout } else { &output.stderr };
    String::from_utf8_lossy(text).into_owned()
}

#[test]
fn a_cluster_changes_its_slot_tags_while_all_nodes_are_stopped() {
    let hbase = HBase::with_tables();
    let settings = |more: &[&str], variables: &[(&str, &str)]| {
        hbase.tool(&[&["cluster", "settings"], more].concat(), variables)
    };
    assert!(printed(&settings(&[], &[]), 1).contains("no node has stored settings"));
    let data = directory();
    let daemon = node(&hbase, "tsd0", data.path()).start();
    put(daemon.address(), "m", 0, 10);
    let stored = printed(&settings(&[], &[]), 0);
    for line in [
        "tsd.cluster.slot_tag_uids = 000001,000002,000003\n",
        "tsd.cluster.slot_tags = host, instance, pod\n",
        "tsd.cluster.slots = 16384\n",
        "tsd.storage.salt.buckets = ",
    ] {
        assert!(stored.contains(line), "{line} in {stored}");
    }
    let differs = "tsd.cluster.slot_tags is pod, host, and host, instance, pod in the cluster";
    assert!(printed(&settings(&[], &BY_POD), 1).contains(differs));
    assert_eq!(printed(&settings(&["--adopt"], &[]), 0), "nothing differs\n");
    assert!(printed(&settings(&["--adopt"], &BY_POD), 1).contains("tsd0 is not stopped"));
    let width = [("TSD_STORAGE_UID_WIDTH_TAGV", "4")];
    let refused = printed(&settings(&["--adopt"], &width), 1);
    assert!(refused.contains("tsd.storage.uid.width.tagv is 4, and 3 in the cluster"), "{refused}");

    // Its log has points that HBase lacks.
    daemon.kill();
    assert!(printed(&settings(&["--adopt"], &BY_POD), 1).contains("tsd0 is not stopped"));
    let refused = node(&hbase, "tsd0", data.path()).env(BY_POD[0].0, BY_POD[0].1).run_to_exit();
    assert!(
        refused.0.code() == Some(WRONG_CONFIGURATION)
            && refused.1.contains("tsdb cluster settings --adopt"),
        "{}",
        refused.1
    );
    let daemon = node(&hbase, "tsd0", data.path()).start();
    assert!(daemon.terminate().success());

    let changed = printed(&settings(&["--adopt"], &BY_POD), 0);
    assert_eq!(
        changed,
        "tsd.cluster.slot_tag_uids: 000001,000002,000003 -> 000003,000001\n\
         tsd.cluster.slot_tags: host, instance, pod -> pod, host\n"
    );
    assert!(printed(&settings(&["--json"], &BY_POD), 0).contains(r#""differences": []"#));
    let refused = node(&hbase, "tsd0", data.path()).run_to_exit();
    assert!(
        refused.0.code() == Some(WRONG_CONFIGURATION)
            && refused.1.contains("is host, instance, pod, and pod, host in the cluster")
    );
    let daemon = node(&hbase, "tsd0", data.path()).env(BY_POD[0].0, BY_POD[0].1).start();
    put(daemon.address(), "m", 10, 20);
    check(daemon.address(), "m", 20);
    assert!(daemon.terminate().success());
}
