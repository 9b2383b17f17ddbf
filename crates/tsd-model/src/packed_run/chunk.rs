//! Packed chunks: points of one series over many rows, in the number streams of packed runs.
//!
//! A run ends with its hour, so the headers of runs cost more than the points of a series that has a
//! few points an hour. A chunk has one header, one step and one exponent for thousands of points. The
//! row of a point follows from its time: rows whose base time is not a multiple of an hour are not
//! packed.
//!
//! ```text
//! chunk  = version and flags u8 | kinds u8 | count | first time | span
//!          | [time steps] | [integer marks] | [width marks] | [exponent u8] | values | cell times
//! flags  : 20 version 2, 01 a compacted column for each row, 02 milliseconds, 04 steps differ
//! kinds  : as of a run
//! ```
//!
//! The first time is relative to an origin that the container knows, in the chunk's resolution. `cell
//! times` are relative to the time of the point, one for each point; of compacted columns they are
//! relative to the base time, one for each row.

use bytes::Bytes;

use super::{
    encoder::{PackablePoint, RunEncoder},
    error::PackedRunError,
    header::{Header, RunShape},
    int_stream,
    number::Number,
    qualifier::ROW_SECS,
};
use crate::{
    cell::{Cell, Family},
    columns::PointColumns,
};

const VERSION: u8 = 0x20;
/// End of the last row that a row key can have, seconds. It is beyond 32 bits: a millisecond point of
/// the last hour may be.
const END_SECS: u64 = (u32::MAX - u32::MAX % ROW_SECS) as u64 + ROW_SECS as u64;

/// A point of a chunk, with its row and its cell timestamp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChunkPoint {
    /// Base time of its row, epoch seconds; a multiple of an hour.
    pub base_secs: u32,
    /// The point; of [`RunShape::Singles`] also its cell.
    pub point: PackablePoint,
    /// Cell timestamp, epoch milliseconds. Equal for all points of a compacted column.
    pub timestamp_ms: i64,
}

impl ChunkPoint {
    /// Epoch milliseconds of the point.
    #[must_use]
    pub const fn time_ms(&self) -> i64 {
        self.base_secs as i64 * 1_000 + self.point.offset_ms() as i64
    }

    /// The cell of the point under its own qualifier.
    #[must_use]
    pub fn cell(&self) -> Cell {
        let (mut qualifier, mut value) = (Vec::with_capacity(4), Vec::with_capacity(8));
        self.point.write_qualifier(&mut qualifier);
        self.point.write_value(&mut value);
        Cell {
            family: Family::T,
            qualifier: qualifier.into(),
            value: value.into(),
            timestamp_ms: self.timestamp_ms,
        }
    }
}

/// Encodes packed chunks; reuses its buffers.
#[derive(Debug, Default)]
pub struct ChunkEncoder {
    run: RunEncoder,
}

impl ChunkEncoder {
    /// Appends the chunk of `points` to `out`. There are at most [`PackedChunk::MAX_POINTS`]
    /// points, of one resolution, with rising times from `origin_secs` (epoch seconds) on. In
    /// [`RunShape::Compacted`] the points of a row share one cell timestamp. After an error `out`
    /// is unchanged.
    pub fn encode(
        &mut self,
        points: &[ChunkPoint],
        shape: RunShape,
        origin_secs: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), PackedRunError> {
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return Err(PackedRunError::NotPackable("no points"));
        };
        if points.len() > PackedChunk::MAX_POINTS {
            return Err(PackedRunError::NotPackable("too many points"));
        }
        let millis = first.point.millis;
        if points.iter().any(|p| p.point.millis != millis) {
            return Err(PackedRunError::NotPackable("seconds beside milliseconds"));
        }
        if points.iter().any(|p| !p.base_secs.is_multiple_of(ROW_SECS)) {
            return Err(PackedRunError::NotPackable("a base time that is no hour"));
        }
        let unit = if millis { 1_000 } else { 1 };
        let time = |p: &ChunkPoint| u64::from(p.base_secs) * unit + u64::from(p.point.offset);
        if !points.is_sorted_by(|a, b| time(a) < time(b)) {
            return Err(PackedRunError::NotPackable("times that do not rise"));
        }
        let Some(start) = time(first).checked_sub(u64::from(origin_secs) * unit) else {
            return Err(PackedRunError::NotPackable("a time before the origin"));
        };
        let same_row = |a: &ChunkPoint, b: &ChunkPoint| a.base_secs == b.base_secs;
        let compacted = shape == RunShape::Compacted;
        if compacted
            && points.chunk_by(same_row).any(|row| {
                row.iter().zip(row.iter().skip(1)).any(|(a, b)| a.timestamp_ms != b.timestamp_ms)
            })
        {
            return Err(PackedRunError::NotPackable("several cell timestamps in one column"));
        }

        self.run.points.clear();
        self.run.points.extend(points.iter().map(|p| p.point));
        let numbers = &mut self.run.numbers;
        numbers.clear();
        let neighbours = points.iter().zip(points.iter().skip(1));
        numbers.extend(neighbours.map(|(a, b)| (time(b) - time(a)) as i64));
        self.run.write_points(VERSION, shape, (start, time(last) - time(first)), out);
        let numbers = &mut self.run.numbers;
        numbers.clear();
        if compacted {
            numbers.extend(
                points
                    .chunk_by(same_row)
                    .filter_map(<[ChunkPoint]>::first)
                    .map(|p| p.timestamp_ms.wrapping_sub(i64::from(p.base_secs) * 1_000)),
            );
        } else {
            numbers.extend(points.iter().map(|p| p.timestamp_ms.wrapping_sub(p.time_ms())));
        }
        self.run.ints.encode(numbers, out);
        Ok(())
    }
}

/// Points of one series in packed form; immutable.
#[derive(Clone, Debug)]
pub struct PackedChunk {
    bytes: Bytes,
    header: Header,
    /// Origin of the header's times, epoch seconds.
    origin_secs: u32,
}

impl PackedChunk {
    /// Maximum number of points of one chunk.
    pub const MAX_POINTS: usize = 1 << 16;

    /// Opens bytes written by [`ChunkEncoder`] with the same origin and validates the header.
    pub fn open(bytes: Bytes, origin_secs: u32) -> Result<Self, PackedRunError> {
        let limit_secs = END_SECS - u64::from(origin_secs);
        let header = Header::parse(&bytes, VERSION, Self::MAX_POINTS, limit_secs)?;
        Ok(Self { bytes, header, origin_secs })
    }

    /// The cells that the chunk expands to.
    #[must_use]
    pub const fn shape(&self) -> RunShape {
        self.header.shape
    }

    /// Number of points, at least 1.
    #[must_use]
    pub const fn point_count(&self) -> usize {
        self.header.count
    }

    /// Size of the packed form, bytes.
    #[must_use]
    pub const fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// True if the qualifiers have millisecond form.
    #[must_use]
    pub const fn is_millis(&self) -> bool {
        self.header.millis
    }

    /// Epoch milliseconds of the first and the last point.
    #[must_use]
    pub const fn time_range_ms(&self) -> (i64, i64) {
        let (first, last) = self.header.offset_range_ms();
        (self.origin_ms() + first as i64, self.origin_ms() + last as i64)
    }

    const fn origin_ms(&self) -> i64 {
        self.origin_secs as i64 * 1_000
    }

    /// Appends the points, in time order, to `columns`. After an error `columns` is unchanged.
    pub fn decode_into(&self, columns: &mut PointColumns) -> Result<(), PackedRunError> {
        self.header.decode_points(&self.bytes, self.origin_ms(), columns, None).map(|_| ())
    }

    /// Appends the points with their rows and cell timestamps, in time order. After an error
    /// `points` is unchanged.
    pub fn points_into(&self, points: &mut Vec<ChunkPoint>) -> Result<(), PackedRunError> {
        let header = self.header;
        let (mut columns, mut marks) = (PointColumns::default(), Vec::new());
        let mut reader =
            header.decode_points(&self.bytes, self.origin_ms(), &mut columns, Some(&mut marks))?;
        // The seconds of the last row's points may be beyond 32 bits, its base time is not.
        let hour = i64::from(ROW_SECS);
        let base_of = |time_ms: i64| (time_ms / (hour * 1_000) * hour) as u32;
        let same_row = |a: &i64, b: &i64| base_of(*a) == base_of(*b);
        let compacted = header.shape == RunShape::Compacted;
        let cells =
            if compacted { columns.times_ms.chunk_by(same_row).count() } else { header.count };
        let mut cell_times = vec![0; cells];
        int_stream::decode(&mut reader, &mut cell_times)?;
        reader.ended()?;
        let mut cell_times = cell_times.into_iter().map(|t| t as i64);
        let mut row = None;
        points.reserve(header.count);
        for (i, (&time_ms, &bits)) in columns.times_ms.iter().zip(&columns.bits).enumerate() {
            let value = if columns.is_integer(i) {
                Number::Integer(bits as i64)
            } else {
                header.float(i, f64::from_bits(bits), &marks)
            };
            let base_secs = base_of(time_ms);
            let timestamp_ms = match row {
                Some((base, timestamp_ms)) if compacted && base == base_secs => timestamp_ms,
                _ => {
                    let relative = cell_times.next().unwrap_or_default();
                    let from = if compacted { i64::from(base_secs) * 1_000 } else { time_ms };
                    relative.wrapping_add(from)
                }
            };
            row = Some((base_secs, timestamp_ms));
            let offset_ms = (time_ms - i64::from(base_secs) * 1_000) as u32;
            let offset = offset_ms / header.unit_ms() as u32;
            let point = PackablePoint { offset, millis: header.millis, value };
            points.push(ChunkPoint { base_secs, point, timestamp_ms });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn values() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (-200_i64..200).prop_map(|v| v.to_be_bytes().to_vec()),
            2 => any::<i64>().prop_map(|v| v.to_be_bytes().to_vec()),
            4 => (-9_999_i32..9_999).prop_map(|v| (f64::from(v) / 100.0).to_be_bytes().to_vec()),
            2 => any::<f64>().prop_map(|v| v.to_be_bytes().to_vec()),
            2 => any::<f32>().prop_map(|v| v.to_be_bytes().to_vec()),
        ]
    }

    /// Points from (step, kind, value bytes, cell time); points that do not pack are left out.
    fn points(millis: bool, steps: &[(u32, u8, Vec<u8>, i64)], compacted: bool) -> Vec<ChunkPoint> {
        let mut time = 1_356_998_400_000_u64;
        let mut points: Vec<ChunkPoint> = Vec::new();
        for (step, kind, value, timestamp_ms) in steps {
            time += u64::from(*step) * if millis { 1 } else { 1_000 };
            let base_secs = (time / 1_000) as u32 / ROW_SECS * ROW_SECS;
            let offset = (time - u64::from(base_secs) * 1_000) as u32;
            let number = match (kind % 3, value.as_slice()) {
                (0, &[a, b, c, d]) => Number::Single(f32::from_be_bytes([a, b, c, d])),
                (_, &[_, _, _, _]) => continue,
                (1, value) => Number::Integer(i64::from_be_bytes(value.try_into().unwrap())),
                (_, value) => Number::Double(f64::from_be_bytes(value.try_into().unwrap())),
            };
            if matches!(number, Number::Single(v) if !v.is_finite())
                || matches!(number, Number::Double(v) if !v.is_finite())
            {
                continue;
            }
            let point = PackablePoint {
                offset: if millis { offset } else { offset / 1_000 },
                millis,
                value: number,
            };
            let last = points.last().filter(|p| compacted && p.base_secs == base_secs);
            let timestamp_ms = last.map_or(*timestamp_ms, |p| p.timestamp_ms);
            points.push(ChunkPoint { base_secs, point, timestamp_ms });
        }
        points
    }

    fn steps() -> impl Strategy<Value = Vec<(u32, u8, Vec<u8>, i64)>> {
        let step = prop_oneof![4 => Just(60_u32), 2 => 1..5_000_u32, 1 => 1..10_000_000_u32];
        let cell_time = prop_oneof![1_356_998_400_000..1_356_998_500_000_i64, any::<i64>()];
        prop::collection::vec((step, any::<u8>(), values(), cell_time), 1..300)
    }

    #[test]
    fn last_row_reaches_beyond_32_bits() {
        let base_secs = u32::MAX - u32::MAX % ROW_SECS;
        let offset = ROW_SECS * 1_000 - 1;
        let qualifier = (0xF000_0000_u32 | offset << 6).to_be_bytes();
        let point = PackablePoint::try_from_cell(&qualifier, &[7]).unwrap();
        let points = [ChunkPoint { base_secs, point, timestamp_ms: 1 }];
        let origin = base_secs - base_secs % 86_400;
        let mut bytes = Vec::new();
        ChunkEncoder::default().encode(&points, RunShape::Singles, origin, &mut bytes).unwrap();
        let chunk = PackedChunk::open(bytes.into(), origin).unwrap();
        let mut decoded = Vec::new();
        chunk.points_into(&mut decoded).unwrap();
        assert_eq!(decoded, points);
        assert_eq!(chunk.time_range_ms(), (4_294_969_199_999, 4_294_969_199_999));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn decode_inverts_encode(millis: bool, compacted: bool, steps in steps()) {
            let points = points(millis, &steps, compacted);
            let shape = if compacted { RunShape::Compacted } else { RunShape::Singles };
            let origin = 1_356_998_400;
            let mut bytes = Vec::new();
            let encoded = ChunkEncoder::default().encode(&points, shape, origin, &mut bytes);
            if points.is_empty() {
                prop_assert!(encoded.is_err());
                return Ok(());
            }
            encoded.unwrap();
            let chunk = PackedChunk::open(bytes.into(), origin).unwrap();
            let mut decoded = Vec::new();
            chunk.points_into(&mut decoded).unwrap();
            prop_assert_eq!(&decoded, &points);
            let mut columns = PointColumns::default();
            chunk.decode_into(&mut columns).unwrap();
            prop_assert_eq!(columns.len(), points.len());
            for (i, p) in points.iter().enumerate() {
                prop_assert_eq!(columns.times_ms[i], p.time_ms());
                prop_assert_eq!(columns.value(i), Some(p.point.value()));
                let cell = p.cell();
                let again = PackablePoint::try_from_cell(&cell.qualifier, &cell.value);
                prop_assert_eq!(again, Some(p.point));
            }
            let ends = (points[0].time_ms(), points[points.len() - 1].time_ms());
            prop_assert_eq!(chunk.time_range_ms(), ends);
        }

        #[test]
        fn changed_bytes_do_not_panic(
            millis: bool, compacted: bool, steps in steps(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(), cuts: bool,
        ) {
            let points = points(millis, &steps, compacted);
            let shape = if compacted { RunShape::Compacted } else { RunShape::Singles };
            let mut bytes = Vec::new();
            if ChunkEncoder::default().encode(&points, shape, 0, &mut bytes).is_err() {
                return Ok(());
            }
            for (at, to) in changes {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            if cuts {
                bytes.truncate(cut.index(bytes.len()));
            }
            survive(bytes);
        }

        #[test]
        fn random_bytes_do_not_panic(
            head in prop::collection::vec(0_u8..40, 2..7),
            bytes in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            survive([&[VERSION], head.as_slice(), &bytes].concat());
            survive(bytes);
        }
    }

    fn survive(bytes: Vec<u8>) {
        let Ok(chunk) = PackedChunk::open(bytes.into(), 0) else { return };
        let mut columns = PointColumns::default();
        if chunk.decode_into(&mut columns).is_ok() {
            assert_eq!(columns.len(), chunk.point_count());
            assert!(columns.times_ms.is_sorted_by(|a, b| a < b));
        } else {
            assert!(columns.is_empty());
        }
        let mut points = Vec::new();
        if chunk.points_into(&mut points).is_err() {
            assert!(points.is_empty());
        }
    }

    #[test]
    fn what_a_chunk_cannot_represent_is_refused() {
        let all = points(
            false,
            &[(1, 1, vec![0; 8], 1), (1, 1, vec![0; 8], 2), (4_000, 1, vec![0; 8], 3)],
            false,
        );
        let mut encoder = ChunkEncoder::default();
        let mut refused = |points: &[ChunkPoint], shape, origin| {
            let mut out = Vec::new();
            encoder.encode(points, shape, origin, &mut out).is_err() && out.is_empty()
        };
        assert!(!refused(&all, RunShape::Singles, 0));
        assert!(refused(&all, RunShape::Compacted, 0));
        assert!(refused(&all, RunShape::Singles, 1_356_998_402));
        assert!(refused(&[all[1], all[0]], RunShape::Singles, 0));
        assert!(refused(&[all[0], all[0]], RunShape::Singles, 0));
        let unaligned = ChunkPoint { base_secs: all[0].base_secs + 1, ..all[0] };
        assert!(refused(&[unaligned], RunShape::Singles, 0));
    }
}
