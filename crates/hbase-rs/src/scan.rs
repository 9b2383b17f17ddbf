//! How a scan goes on: through the calls of one scanner, the pieces of a row, the regions of a
//! table, and faults in between.

pub(crate) mod calls;
pub(crate) mod position;
pub(crate) mod rows;
