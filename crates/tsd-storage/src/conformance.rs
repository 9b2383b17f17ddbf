//! One suite that every store passes.
//!
//! Each case is a function of its own, so that a failure names what is broken; [`run_all`] runs
//! them in turn, each on a fresh store. A case panics where the store is wrong.
//!
//! Stores are compared by their cells, with packed runs expanded: how a store packs is its own
//! business.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test suite: it panics where a store is wrong"
)]

use std::{ops::AsyncFn, sync::Arc};

use crate::{BoxFuture, Storage, Table};

mod conditional;
mod kit;
mod reads;
mod scans;
mod writes;

/// A case: its name, and what it does to a fresh store.
pub type Case = (&'static str, fn(Arc<dyn Storage>) -> BoxFuture<'static, ()>);

/// Tables a store under test must have.
#[must_use]
pub fn tables() -> [Table; 2] {
    [Table::new("tsdb"), Table::new("tsdb-uid")]
}

macro_rules! cases {
    ($($module:ident :: $case:ident,)*) => {
        /// Every case.
        pub const CASES: &[Case] = &[$((stringify!($case), |store| {
            Box::pin($module::$case(store))
        }),)*];
    };
}

cases! {
    reads::a_row_that_was_never_put_is_absent,
    reads::cells_of_a_row_come_sorted_by_family_then_qualifier,
    reads::a_get_reads_only_the_family_and_qualifiers_it_names,
    reads::a_multi_get_answers_in_the_order_asked,
    reads::tables_keep_apart,
    reads::cells_carry_the_stores_clock_unless_given_a_timestamp,
    reads::a_table_that_does_not_exist_is_named,
    reads::a_flush_changes_nothing_a_reader_sees,
    reads::a_closed_store_says_so,
    writes::the_last_put_to_a_column_wins,
    writes::an_empty_batch_changes_nothing,
    writes::row_keys_may_be_prefixes_of_each_other,
    writes::values_and_qualifiers_may_be_empty_or_any_bytes,
    writes::deleting_columns_leaves_the_others,
    writes::a_delete_reaches_one_family_only,
    writes::what_is_put_after_a_delete_is_there,
    writes::an_append_extends_the_value_or_starts_it,
    writes::one_append_may_touch_a_column_twice_and_many_rows,
    writes::appends_at_once_all_land,
    writes::a_rewrite_puts_one_cell_for_many,
    writes::a_rewrite_without_a_put_only_deletes,
    writes::a_rewrite_leaves_what_was_written_after_the_row_was_read,
    writes::points_of_an_hour_come_back_as_they_were_put,
    writes::a_batch_of_many_rows_lands_whole,
    writes::a_counter_column_is_a_column_like_any_other,
    conditional::an_increment_starts_at_zero_and_adds_up,
    conditional::an_increment_refuses_what_is_no_counter,
    conditional::increments_at_once_all_count,
    conditional::a_compare_and_set_needs_the_expected_value,
    conditional::a_compare_and_set_may_fix_the_time_of_its_cell,
    conditional::a_compare_and_delete_needs_the_expected_value,
    conditional::one_of_many_compare_and_sets_wins,
    scans::rows_come_in_key_order_whatever_the_order_of_puts,
    scans::the_start_is_included_and_the_stop_is_not,
    scans::a_limit_ends_the_scan,
    scans::small_batches_lose_and_repeat_nothing,
    scans::a_scan_goes_on_where_another_was_dropped,
    scans::a_family_or_column_leaves_out_rows_without_it,
    scans::row_filters_choose_by_key,
    scans::a_time_range_chooses_cells_by_timestamp,
    scans::deleted_rows_and_columns_are_not_scanned,
    scans::writes_during_a_scan_disturb_no_other_row,
}

/// Runs every case on a store that `make` makes, empty and with [`tables`], and closes the store.
/// Closing a store twice must be fine.
pub async fn run_all<S: Storage>(make: impl AsyncFn() -> Arc<S>) {
    for (name, case) in CASES {
        // Shown by the test harness only where the case fails.
        println!("conformance: {name}");
        let store: Arc<dyn Storage> = make().await;
        case(Arc::clone(&store)).await;
        store.close().await.expect("close");
    }
}
