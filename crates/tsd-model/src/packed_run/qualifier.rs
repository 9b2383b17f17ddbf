//! The qualifiers of points that a run reproduces.

use crate::base_time::BaseTime;

/// Upper bound of the offsets in a row, seconds.
pub(super) const ROW_SECS: u32 = BaseTime::SPAN_SECONDS;

/// A point qualifier without reserved bits.
pub(super) struct QualifierParts {
    pub(super) offset: u32,
    pub(super) millis: bool,
    pub(super) flags: u8,
}

/// Parses a point qualifier; `None` if a run cannot reproduce it.
pub(super) fn parse_qualifier(qualifier: &[u8]) -> Option<QualifierParts> {
    match *qualifier {
        [a, b] if a < 0xF0 => {
            let both = u16::from_be_bytes([a, b]);
            let offset = u32::from(both >> 4);
            let flags = (both & 0x0F) as u8;
            (offset < ROW_SECS).then_some(QualifierParts { offset, millis: false, flags })
        }
        [a, b, c, d] if a >= 0xF0 => {
            let all = u32::from_be_bytes([a, b, c, d]);
            let offset = (all & 0x0FFF_FFC0) >> 6;
            let flags = (all & 0x0F) as u8;
            (offset < ROW_SECS * 1_000 && all & 0x30 == 0).then_some(QualifierParts {
                offset,
                millis: true,
                flags,
            })
        }
        _ => None,
    }
}
