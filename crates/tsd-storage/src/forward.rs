//! Generates the methods of store decorators that only forward a call.

/// Methods of [`Storage`](crate::Storage) that call the same method of a field: `forward_storage!(inner: get, write)`
/// inside of an `impl Storage`.
///
/// A decorator must also have the methods with a default (`read_version`, `series`, `maintenance`), since the default
/// stands for a store without the ability.
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
        ) -> $crate::StorageFuture<'a, Option<$crate::forward::Row>> {
            self.$inner.get(table, get)
        }
    };
    (@multi_get $inner:ident) => {
        fn multi_get<'a>(
            &'a self,
            table: &'a $crate::Table,
            gets: Vec<$crate::Get>,
        ) -> $crate::StorageFuture<'a, Vec<Option<$crate::forward::Row>>> {
            self.$inner.multi_get(table, gets)
        }
    };
    (@scan $inner:ident) => {
        fn scan(&self, table: &$crate::Table, scan: $crate::Scan) -> Box<dyn $crate::RowScanner> {
            self.$inner.scan(table, scan)
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

        fn flush_all_nodes(&self) -> $crate::StorageFuture<'_, ()> {
            self.$inner.flush_all_nodes()
        }

        fn may_be_held_elsewhere(&self) -> bool {
            self.$inner.may_be_held_elsewhere()
        }
    };
    (@close $inner:ident) => {
        fn close(&self) -> $crate::StorageFuture<'_, ()> {
            self.$inner.close()
        }
    };
}

#[doc(hidden)]
pub use tsd_model::Row;
