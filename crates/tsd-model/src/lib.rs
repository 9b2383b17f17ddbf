//! Every byte OpenTSDB keeps in its tables, encoded and decoded without I/O.
//!
//! Nothing here waits, reads a clock or logs, and no input makes it panic. The layouts are drawn
//! in `docs/storage-format.md`.

mod cell;
mod columns;
mod packed_run;
mod table_schema;

pub use cell::{Cell, Family, Row};
pub use columns::{PointColumns, Value, ValueKinds};
pub use packed_run::{PackablePoint, PackedRun, PackedRunError, RunEncoder, RunShape};
pub use table_schema::{SchemaError, TableSchema};
