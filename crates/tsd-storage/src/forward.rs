//! Generates the methods of store decorators that only forward a call.

/// Defines methods of [`Storage`](crate::Storage) that call the same method of a field:
/// `forward_storage!(inner: get, write)` inside of an `impl Storage`.
///
/// A decorator names the methods that it forwards, so the compiler reports each missing required method. It must also name the methods
/// with a default, since the default stands for a store without the ability.
#[macro_export]
macro_rules! forward_storage {
    ($inner:ident: $($method:ident),+ $(,)?) => {
        $($crate::forward_storage!(@$method $inner);)+
    };
    (@get $inner:ident) => {
        fn get<'a>(
            &'a self,
            table: &'a $crate::Table,
            get: $crate::Get,
        ) -> $crate::StorageFuture<'a, Option<$crate::forward::types::Row>> {
            self.$inner.get(table, get)
        }
    };
    (@multi_get $inner:ident) => {
        fn multi_get<'a>(
            &'a self,
            table: &'a $crate::Table,
            gets: Vec<$crate::Get>,
        ) -> $crate::StorageFuture<'a, Vec<Option<$crate::forward::types::Row>>> {
            self.$inner.multi_get(table, gets)
        }
    };
    (@scan $inner:ident) => {
        fn scan(&self, table: &$crate::Table, scan: $crate::Scan) -> Box<dyn $crate::RowScanner> {
            self.$inner.scan(table, scan)
        }
    };
    (@read_series $inner:ident) => {
        fn read_series(
            &self,
            table: &$crate::Table,
            read: &$crate::SeriesRead,
        ) -> Option<Box<dyn $crate::SeriesScanner>> {
            self.$inner.read_series(table, read)
        }
    };
    (@series_version $inner:ident) => {
        fn series_version(
            &self,
            table: &$crate::Table,
            read: &$crate::SeriesRead,
        ) -> Option<$crate::SeriesVersion> {
            self.$inner.series_version(table, read)
        }
    };
    (@series_splits $inner:ident) => {
        fn series_splits<'a>(
            &'a self,
            table: &'a $crate::Table,
            read: &'a $crate::SeriesRead,
            goal: $crate::SplitGoal,
        ) -> $crate::StorageFuture<'a, Vec<$crate::forward::types::Bytes>> {
            self.$inner.series_splits(table, read, goal)
        }
    };
    (@write $inner:ident) => {
        fn write<'a>(
            &'a self,
            table: &'a $crate::Table,
            write: $crate::Write,
            permit: Option<&'a $crate::BytePermit>,
        ) -> $crate::StorageFuture<'a, $crate::WriteResult> {
            self.$inner.write(table, write, permit)
        }
    };
    (@read_version $inner:ident) => {
        fn read_version(&self, table: &$crate::Table) -> $crate::ReadVersion {
            self.$inner.read_version(table)
        }
    };
    (@table_exists $inner:ident) => {
        fn table_exists<'a>(&'a self, table: &'a $crate::Table) -> $crate::StorageFuture<'a, bool> {
            self.$inner.table_exists(table)
        }
    };
    (@flush $inner:ident) => {
        fn flush(&self) -> $crate::StorageFuture<'_, ()> {
            self.$inner.flush()
        }
    };
    (@close $inner:ident) => {
        fn close(&self) -> $crate::StorageFuture<'_, ()> {
            self.$inner.close()
        }
    };
    (@quarantine $inner:ident) => {
        fn quarantine(&self) -> Option<$crate::forward::types::Arc<dyn $crate::Quarantine>> {
            self.$inner.quarantine()
        }
    };
    (@verifier $inner:ident) => {
        fn verifier(&self) -> Option<$crate::forward::types::Arc<dyn $crate::Verifier>> {
            self.$inner.verifier()
        }
    };
    (@pin_files $inner:ident) => {
        fn pin_files(&self) -> $crate::StorageFuture<'_, $crate::PinnedFiles> {
            self.$inner.pin_files()
        }
    };
    (@series_index $inner:ident) => {
        fn series_index(
            &self,
            table: &$crate::Table,
        ) -> Option<$crate::forward::types::Arc<$crate::forward::types::SeriesIndex>> {
            self.$inner.series_index(table)
        }
    };
    (@refresh_series_index $inner:ident) => {
        fn refresh_series_index<'a>(
            &'a self,
            table: &'a $crate::Table,
        ) -> $crate::StorageFuture<'a, ()> {
            self.$inner.refresh_series_index(table)
        }
    };
    (@compacts_rows $inner:ident) => {
        fn compacts_rows(&self, table: &$crate::Table) -> bool {
            self.$inner.compacts_rows(table)
        }
    };
    (@health $inner:ident) => {
        fn health(&self) -> Vec<$crate::HealthProblem> {
            self.$inner.health()
        }
    };
    (@gauges $inner:ident) => {
        fn gauges(&self) -> Vec<(&'static str, f64)> {
            self.$inner.gauges()
        }
    };
}

/// Types of other crates in the signatures of [`forward_storage!`].
#[doc(hidden)]
pub mod types {
    pub use std::sync::Arc;

    pub use bytes::Bytes;
    pub use tsd_model::Row;
    pub use tsd_series_index::SeriesIndex;
}
