//! Held rows.

use tsd_testkit::hbase::{Fault, Misdeed};

use crate::{
    common::ingest,
    kit::{cluster, store},
};

#[tokio::test]
async fn held_rows_read_the_same_as_single_cells() {
    let cluster = cluster().await;
    let fail = || {
        let (class, text) = ("security.AccessDeniedException", "");
        cluster.fault(Fault::once("Multi", Misdeed::RegionException { class, text }).after(1));
        true
    };
    ingest::held_rows_read_the_same_as_single_cells(&store(&cluster, ""), fail).await;
}

#[tokio::test]
async fn the_points_of_a_row_are_one_column() {
    let cluster = cluster().await;
    ingest::the_points_of_a_row_are_one_column(&store(&cluster, "")).await;
}

#[tokio::test]
async fn deletes_reach_up_to_their_times_and_no_further() {
    let cluster = cluster().await;
    ingest::deletes_reach_up_to_their_times_and_no_further(&store(&cluster, "")).await;
}
