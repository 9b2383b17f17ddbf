//! Points of one row, packed: the embedded store's form of a row's point cells.
//!
//! A run keeps the identity of its cells ([`RunShape`]): what a reader of cells sees is byte for
//! byte what was put, in whatever way the run stores it.

use bytes::Bytes;

use crate::{cell::Cell, columns::PointColumns};

/// What a reader of cells sees where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunShape {
    /// One cell a point, each with its own cell timestamp.
    Singles,
    /// One compacted column (storage format: qualifiers, values, trailing byte); for one point a
    /// plain cell. All points share one cell timestamp.
    Compacted,
}

/// Bytes that are no packed run, or points that cannot become one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackedRunError {
    /// The bytes contradict their own header.
    #[error("damaged run: {0}")]
    Damaged(&'static str),
    /// The cells have a form only plain cells can keep.
    #[error("not packable: {0}")]
    NotPackable(&'static str),
}

/// Points of one row in packed form; immutable.
#[derive(Clone, Debug)]
pub struct PackedRun {
    bytes: Bytes,
}

impl PackedRun {
    /// Takes bytes made by an encoder of this module and checks their header.
    pub fn open(bytes: Bytes) -> Result<Self, PackedRunError> {
        Ok(Self { bytes })
    }

    /// The bytes that [`Self::open`] takes.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Appends the cells this run stands for, in qualifier order of time.
    pub fn expand_into(&self, _cells: &mut Vec<Cell>) -> Result<(), PackedRunError> {
        Err(PackedRunError::Damaged("no decoder"))
    }

    /// Appends the points, in time order, to `columns`. `base_secs` is the base time of the row.
    pub fn decode_into(
        &self,
        _base_secs: u32,
        _columns: &mut PointColumns,
    ) -> Result<(), PackedRunError> {
        Err(PackedRunError::Damaged("no decoder"))
    }
}
