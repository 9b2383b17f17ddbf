//! The conformance suite that every store passes.
//!
//! Each case is a function that panics on a violation; [`run_all`] runs them one after the other,
//! each on an empty store. Stores are compared by their cells, with packed runs expanded; the
//! packing itself is not tested here.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test suite: it panics on a violation"
)]

use std::{ops::AsyncFn, sync::Arc};

use crate::{BoxFuture, Storage, Table};

mod conditional;
mod fixture;
mod maintenance;
mod reads;
mod scans;
mod series;
mod writes;

/// Name and function of a case; the function gets an empty store.
pub type ConformanceCase = (&'static str, fn(Arc<dyn Storage>) -> BoxFuture<'static, ()>);

/// Tables that a store under test must have.
#[must_use]
pub fn tables() -> [Table; 2] {
    [Table::new("tsdb"), Table::new("tsdb-uid")]
}

macro_rules! cases {
    ($($module:ident :: $case:ident,)*) => {
        /// Every case.
        pub const CASES: &[ConformanceCase] = &[$((stringify!($case), |store| {
            Box::pin($module::$case(store))
        }),)*];
    };
}

cases! {
    reads::row_that_was_never_put_is_absent,
    reads::cells_of_a_row_are_sorted_by_family_then_qualifier,
    reads::get_reads_only_the_selected_family_and_qualifiers,
    reads::multi_get_returns_rows_in_request_order,
    reads::tables_are_isolated,
    reads::cells_without_a_timestamp_take_the_stores_clock,
    reads::missing_table_is_named_in_the_error,
    reads::flush_does_not_change_reads,
    reads::closed_store_returns_closed,
    writes::last_put_to_a_column_wins,
    writes::empty_batch_changes_nothing,
    writes::row_keys_may_be_prefixes_of_each_other,
    writes::values_and_qualifiers_may_be_empty_or_any_bytes,
    writes::column_delete_keeps_other_columns,
    writes::column_delete_applies_to_one_family,
    writes::put_after_a_delete_is_visible,
    writes::append_extends_or_creates_the_value,
    writes::one_append_may_contain_a_column_twice_and_many_rows,
    writes::concurrent_appends_all_apply,
    writes::rewrite_replaces_many_cells_by_one,
    writes::rewrite_without_a_put_only_deletes,
    writes::rewrite_loses_nothing_written_since_the_read,
    writes::unchanged_row_is_rewritten,
    writes::points_of_an_hour_read_back_unchanged,
    writes::batch_of_many_rows_is_written_completely,
    writes::counter_column_is_an_ordinary_column,
    conditional::increments_start_at_zero_and_accumulate,
    conditional::increment_of_a_non_counter_is_an_error,
    conditional::concurrent_increments_all_apply,
    conditional::compare_and_set_requires_the_expected_value,
    conditional::compare_and_set_at_sets_the_timestamp,
    conditional::compare_and_delete_requires_the_expected_value,
    conditional::one_of_many_concurrent_compare_and_sets_wins,
    scans::rows_are_scanned_in_key_order,
    scans::start_is_inclusive_and_stop_is_exclusive,
    scans::limit_ends_the_scan,
    scans::small_batches_neither_lose_nor_repeat_rows,
    scans::scan_resumes_after_the_last_row_of_a_dropped_one,
    scans::rows_without_a_selected_cell_are_not_returned,
    scans::row_filters_match_keys,
    scans::time_range_selects_cells_by_timestamp,
    scans::deleted_rows_and_columns_are_not_scanned,
    scans::writes_during_a_scan_do_not_affect_other_rows,
    series::reads_of_series_return_what_scans_return,
    series::reads_of_many_days_return_what_scans_return,
    series::equal_reads_of_one_version_return_the_same,
    series::reads_of_an_unknown_table_fail,
    maintenance::undamaged_store_reports_no_problems,
    maintenance::names_of_gauges_are_different,
    maintenance::pinned_files_have_different_paths,
}

/// Runs every case on a store from `create`, which must be empty and have [`tables`], and closes
/// the store. Closing twice must succeed.
pub async fn run_all<S: Storage>(create: impl AsyncFn() -> Arc<S>) {
    for (name, case) in CASES {
        // The test harness shows this only if the case fails.
        println!("conformance: {name}");
        let store: Arc<dyn Storage> = create().await;
        case(Arc::clone(&store)).await;
        store.close().await.expect("close");
    }
}
