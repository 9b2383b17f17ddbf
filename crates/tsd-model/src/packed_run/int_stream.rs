//! Encoding of 64-bit integer sequences of known length, in the smallest of several forms.
//!
//! ```text
//! stream  = mode u8 | body           mode: low bits = form, 08 = several blocks
//! form 0  = value                                   all are equal
//! form 1  = packed                                  the numbers themselves
//! form 2  = first | packed                          differences
//! form 3  = first | first difference | packed       differences of differences
//! form 4  = count | stream of values | stream of lengths − 1      run-length encoding
//! packed  = block, or one block for every 64 numbers
//! block   = base | width u8 | [shift u8] | [exceptions] | bits
//! exceptions = count | (gap to the position, number − base) *
//! ```
//!
//! A number of a block is `base + (packed << shift)`. Outliers are exceptions, so that they do not
//! widen the other numbers: their bits are zero and their value follows the head. Single numbers
//! are varints, zigzag if signed. Arithmetic wraps, so every sequence can be encoded.

use super::{
    bit_packing::{is_usable, pack, packed_len, unpack, usable_width},
    error::PackedRunError,
    varint::{self, Reader, unzigzag, zigzag},
};

const CONSTANT: u8 = 0;
const PLAIN: u8 = 1;
const DELTA: u8 = 2;
const DELTA_OF_DELTA: u8 = 3;
const STRETCHES: u8 = 4;
const FORM: u8 = 7;
const BLOCKED: u8 = 8;

const BLOCK: usize = 64;

/// Maximum length of a block that is encoded without searching for outliers.
const SHORT: usize = 12;

const WIDTH: u8 = 0x7F;
/// Head bit of a block: the width byte is followed by a shift and by exceptions, either may be empty.
const EXTENDED: u8 = 0x80;

/// Encoder with reusable buffers.
#[derive(Debug, Default)]
pub(super) struct IntEncoder {
    deltas: Vec<i64>,
    second: Vec<i64>,
}

/// Parameters of one block.
#[derive(Clone, Copy)]
struct BlockPlan {
    base: i64,
    shift: u32,
    width: u32,
    exceptions: usize,
    cost: usize,
}

impl IntEncoder {
    /// Appends the stream of `values`; appends nothing if empty.
    pub(super) fn encode(&mut self, values: &[i64], out: &mut Vec<u8>) {
        let Some((&first, rest)) = values.split_first() else { return };
        if rest.iter().all(|&v| v == first) {
            out.push(CONSTANT);
            varint::put(out, zigzag(first));
            return;
        }
        differences(values, &mut self.deltas);
        differences(&self.deltas, &mut self.second);
        let first_delta = self.deltas.first().copied().unwrap_or(0);

        let lead = varint::len(zigzag(first));
        let second_lead = lead + varint::len(zigzag(first_delta));
        let forms = [
            (PLAIN, 0, values),
            (DELTA, lead, self.deltas.as_slice()),
            (DELTA_OF_DELTA, second_lead, self.second.as_slice()),
        ];
        // Cost, form, the plan unless there are several blocks, numbers.
        let mut best = (usize::MAX, PLAIN, None, values);
        for (form, lead, numbers) in forms {
            let whole = plan(numbers);
            if lead + whole.cost < best.0 {
                best = (lead + whole.cost, form, Some(whole), numbers);
            }
            // Blocks are useful only if there are several.
            if numbers.len() >= 2 * BLOCK {
                let blocked = lead + numbers.chunks(BLOCK).map(|c| plan(c).cost).sum::<usize>();
                if blocked < best.0 {
                    best = (blocked, form, None, numbers);
                }
            }
        }
        if let Some(stretches) = encode_run_lengths(values, best.0) {
            out.extend_from_slice(&stretches);
            return;
        }
        let (_, form, whole, numbers) = best;
        out.push(form | if whole.is_none() { BLOCKED } else { 0 });
        if form != PLAIN {
            varint::put(out, zigzag(first));
        }
        if form == DELTA_OF_DELTA {
            varint::put(out, zigzag(first_delta));
        }
        match whole {
            // Two numbers have no differences of differences.
            Some(_) if numbers.is_empty() => {}
            Some(whole) => put_block(numbers, &whole, out),
            None => numbers.chunks(BLOCK).for_each(|block| put_block(block, &plan(block), out)),
        }
    }
}

/// Appends a stream of `values` in a form that is cheap to find: for runs that are not stored.
pub(super) fn encode_quickly(values: &[i64], out: &mut Vec<u8>) {
    let Some((&first, rest)) = values.split_first() else { return };
    if rest.iter().all(|&v| v == first) {
        out.push(CONSTANT);
        varint::put(out, zigzag(first));
    } else {
        out.push(PLAIN);
        put_block(values, &plan_short(values), out);
    }
}

fn differences(values: &[i64], out: &mut Vec<i64>) {
    out.clear();
    out.extend(values.iter().zip(values.iter().skip(1)).map(|(a, b)| b.wrapping_sub(*a)));
}

/// Run-length encoding, if shorter than `limit` bytes.
fn encode_run_lengths(values: &[i64], limit: usize) -> Option<Vec<u8>> {
    let changes = values.iter().zip(values.iter().skip(1)).filter(|(a, b)| a != b).count();
    if changes * 3 > values.len() {
        return None;
    }
    let (mut heads, mut lengths) = (Vec::new(), Vec::new());
    for stretch in values.chunk_by(|a, b| a == b) {
        heads.extend(stretch.first());
        lengths.push(stretch.len() as i64 - 1);
    }
    let mut out = vec![STRETCHES];
    varint::put(&mut out, heads.len() as u64);
    let mut nested = IntEncoder::default();
    // Neighbouring values differ, so run-length encoding never nests twice.
    nested.encode(&heads, &mut out);
    nested.encode_flat(&lengths, &mut out);
    (out.len() < limit).then_some(out)
}

impl IntEncoder {
    /// As [`Self::encode`], without run-length encoding: a stream nests once.
    fn encode_flat(&mut self, values: &[i64], out: &mut Vec<u8>) {
        match values.split_first() {
            Some((first, rest)) if rest.iter().any(|v| v != first) => {
                out.push(PLAIN);
                put_block(values, &plan(values), out);
            }
            _ => self.encode(values, out),
        }
    }
}

/// Plan for few numbers, without exceptions, which save little: flushed runs are short and many.
fn plan_short(values: &[i64]) -> BlockPlan {
    let (mut min, mut max) = (i64::MAX, i64::MIN);
    for &v in values {
        min = min.min(v);
        max = max.max(v);
    }
    let all = values.iter().fold(0, |all, v| all | v.wrapping_sub(min));
    let shift = if all == 0 { 0 } else { all.trailing_zeros() };
    // A shift costs two bytes.
    let shift = if shift as usize * values.len() > 16 { shift } else { 0 };
    let width = usable_width(bits(max.wrapping_sub(min) as u64 >> shift));
    let head = varint::len(zigzag(min)) + if shift > 0 { 3 } else { 1 };
    let cost = head + packed_len(values.len(), width);
    BlockPlan { base: min, shift, width, exceptions: 0, cost }
}

/// The smallest plan for one block.
fn plan(values: &[i64]) -> BlockPlan {
    if (1..=SHORT).contains(&values.len()) {
        return plan_short(values);
    }
    // The minimum, and the third smallest, for a block with one or two low outliers.
    let (mut low, mut max) = ([i64::MAX; 3], i64::MIN);
    for &v in values {
        max = max.max(v);
        if v < low[2] {
            low = if v < low[0] {
                [v, low[0], low[1]]
            } else if v < low[1] {
                [low[0], v, low[1]]
            } else {
                [low[0], low[1], v]
            };
        }
    }
    if values.is_empty() {
        return BlockPlan { base: 0, shift: 0, width: 0, exceptions: 0, cost: 2 };
    }
    let [min, _, third] = low;
    let all = values.iter().fold(0, |all, v| all | v.wrapping_sub(min));
    let shift = if all == 0 { 0 } else { all.trailing_zeros() };
    let best = plan_from(values, min, max, shift);
    if bits(max.wrapping_sub(third) as u64) < bits(max.wrapping_sub(min) as u64) {
        let other = plan_from(values, third, max, shift);
        if other.cost < best.cost {
            return other;
        }
    }
    best
}

/// The cheapest width over a given base.
fn plan_from(values: &[i64], base: i64, max: i64, shift: u32) -> BlockPlan {
    // Histogram of bit widths, a bit for each width that occurs, and the bytes of numbers below the base.
    let mut needing = [0_u32; 65];
    let mut occurring = 0_u128;
    let (mut below, mut below_cost) = (0, 0);
    for &v in values {
        if v < base {
            below += 1;
            below_cost += 1 + varint::len(zigzag(v.wrapping_sub(base) >> shift));
        } else {
            let width = bits(v.wrapping_sub(base) as u64 >> shift);
            if let Some(n) = needing.get_mut(width as usize) {
                *n += 1;
            }
            occurring |= 1 << width;
        }
    }
    let head = varint::len(zigzag(base)) + 1;
    let widest = bits(max.wrapping_sub(base) as u64 >> shift);
    let (mut exceptions, mut exception_cost) = (below, below_cost);
    let mut best: Option<BlockPlan> = None;
    let mut width = widest;
    loop {
        let usable = usable_width(width);
        let extended = if shift > 0 || exceptions > 0 { 1 + varint::len(exceptions) } else { 0 };
        let cost = head + extended + exception_cost + packed_len(values.len(), usable);
        if best.is_none_or(|b| cost < b.cost) {
            let exceptions = exceptions as usize;
            best = Some(BlockPlan { base, shift, width: usable, exceptions, cost });
        }
        let leaving = needing.get(width as usize).copied().unwrap_or(0) as usize;
        exceptions += leaving as u64;
        // One byte for the gap, and one bit for zigzag.
        exception_cost += leaving * (1 + (width as usize + 1).div_ceil(7).max(1));
        if width == 0 {
            break;
        }
        // A width that does not occur has the exceptions of the next occurring width below, and
        // more bits.
        let below = occurring & ((1 << width) - 1);
        width = below.checked_ilog2().unwrap_or(0);
    }
    best.unwrap_or(BlockPlan { base, shift, width: 64, exceptions: 0, cost: usize::MAX })
}

const fn bits(v: u64) -> u32 {
    64 - v.leading_zeros()
}

fn put_block(values: &[i64], plan: &BlockPlan, out: &mut Vec<u8>) {
    let &BlockPlan { base, shift, width, .. } = plan;
    let fits = |v: i64| v >= base && bits(v.wrapping_sub(base) as u64 >> shift) <= width;
    varint::put(out, zigzag(base));
    if shift > 0 || plan.exceptions > 0 {
        out.push(width as u8 | EXTENDED);
        out.push(shift as u8);
        let count = values.iter().filter(|&&v| !fits(v)).count();
        varint::put(out, count as u64);
        let mut next = 0;
        for (i, v) in values.iter().enumerate().filter(|&(_, &v)| !fits(v)) {
            varint::put(out, (i - next) as u64);
            varint::put(out, zigzag(v.wrapping_sub(base) >> shift));
            next = i + 1;
        }
    } else {
        out.push(width as u8);
    }
    let packed =
        values.iter().map(|&v| if fits(v) { v.wrapping_sub(base) as u64 >> shift } else { 0 });
    pack(packed, width, out);
}

/// Fills `out` with the next stream, as two's complement.
pub(super) fn decode(reader: &mut Reader<'_>, out: &mut [u64]) -> Result<(), PackedRunError> {
    if out.is_empty() {
        return Ok(());
    }
    let mode = reader.byte()?;
    if mode == STRETCHES {
        return decode_run_lengths(reader, out);
    }
    decode_flat(mode, reader, out)
}

fn decode_flat(mode: u8, reader: &mut Reader<'_>, out: &mut [u64]) -> Result<(), PackedRunError> {
    if mode & !(FORM | BLOCKED) != 0 {
        return Err(PackedRunError::Damaged("unknown stream form"));
    }
    let blocked = mode & BLOCKED != 0;
    match mode & FORM {
        CONSTANT => out.fill(reader.zigzag()? as u64),
        PLAIN => decode_packed(reader, blocked, out)?,
        DELTA => {
            let mut value = reader.zigzag()? as u64;
            let Some((first, rest)) = out.split_first_mut() else { return Ok(()) };
            *first = value;
            decode_packed(reader, blocked, rest)?;
            for v in rest {
                value = value.wrapping_add(*v);
                *v = value;
            }
        }
        DELTA_OF_DELTA => {
            let mut value = reader.zigzag()? as u64;
            let mut delta = reader.zigzag()? as u64;
            let [first, second, rest @ ..] = out else {
                return Err(PackedRunError::Damaged("differences of one number"));
            };
            *first = value;
            value = value.wrapping_add(delta);
            *second = value;
            decode_packed(reader, blocked, rest)?;
            for v in rest {
                delta = delta.wrapping_add(*v);
                value = value.wrapping_add(delta);
                *v = value;
            }
        }
        _ => return Err(PackedRunError::Damaged("unknown stream form")),
    }
    Ok(())
}

fn decode_run_lengths(reader: &mut Reader<'_>, out: &mut [u64]) -> Result<(), PackedRunError> {
    const WRONG: PackedRunError = PackedRunError::Damaged("stretches of another length");
    let count = reader.varint()? as usize;
    if count > out.len() {
        return Err(WRONG);
    }
    let mut both = vec![0; 2 * count];
    let (heads, lengths) = both.split_at_mut(count);
    for part in [&mut *heads, &mut *lengths] {
        if !part.is_empty() {
            let mode = reader.byte()?;
            decode_flat(mode, reader, part)?;
        }
    }
    let mut rest = out;
    for (&head, &length) in heads.iter().zip(&*lengths) {
        let length = usize::try_from(length).ok().and_then(|n| n.checked_add(1)).ok_or(WRONG)?;
        let (stretch, after) = rest.split_at_mut_checked(length).ok_or(WRONG)?;
        stretch.fill(head);
        rest = after;
    }
    if rest.is_empty() { Ok(()) } else { Err(WRONG) }
}

fn decode_packed(
    reader: &mut Reader<'_>,
    blocked: bool,
    out: &mut [u64],
) -> Result<(), PackedRunError> {
    let size = if blocked { BLOCK } else { out.len().max(1) };
    // A stream of two numbers has an empty block.
    if out.is_empty() {
        return Ok(());
    }
    for block in out.chunks_mut(size) {
        decode_block(reader, block)?;
    }
    Ok(())
}

#[inline]
fn decode_block(reader: &mut Reader<'_>, out: &mut [u64]) -> Result<(), PackedRunError> {
    const WRONG: PackedRunError = PackedRunError::Damaged("block head");
    let base = reader.zigzag()? as u64;
    let head = reader.byte()?;
    let width = u32::from(head & WIDTH);
    if !is_usable(width) {
        return Err(WRONG);
    }
    let (mut shift, mut exceptions, mut list) = (0, 0, Reader::new(&[]));
    if head & EXTENDED != 0 {
        shift = u32::from(reader.byte()?);
        exceptions = reader.varint()?;
        if shift > 63 || exceptions > out.len() as u64 {
            return Err(WRONG);
        }
        list = reader.fork();
        for _ in 0..exceptions {
            reader.varint()?;
            reader.varint()?;
        }
    }
    unpack(reader.take(packed_len(out.len(), width))?, width, out);
    if shift == 0 {
        for v in &mut *out {
            *v = v.wrapping_add(base);
        }
    } else {
        for v in &mut *out {
            *v = (*v << shift).wrapping_add(base);
        }
    }
    let mut rest = out;
    for _ in 0..exceptions {
        let gap = usize::try_from(list.varint()?).map_err(|_| WRONG)?;
        let number = (unzigzag(list.varint()?) as u64) << shift;
        let (at, after) = rest.get_mut(gap..).and_then(<[u64]>::split_first_mut).ok_or(WRONG)?;
        *at = base.wrapping_add(number);
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn encode(values: &[i64]) -> Vec<u8> {
        let mut out = Vec::new();
        IntEncoder::default().encode(values, &mut out);
        out
    }

    #[track_caller]
    fn check(values: &[i64], at_most: usize) {
        let bytes = encode(values);
        let mut out = vec![0; values.len()];
        let mut reader = Reader::new(&bytes);
        decode(&mut reader, &mut out).unwrap();
        assert_eq!(reader.remaining(), 0);
        assert_eq!(out.iter().map(|&v| v as i64).collect::<Vec<_>>(), values);
        let mut quick = Vec::new();
        encode_quickly(values, &mut quick);
        let mut again = vec![0; values.len()];
        let mut reader = Reader::new(&quick);
        decode(&mut reader, &mut again).unwrap();
        assert_eq!((reader.remaining(), again), (0, out));
        assert!(bytes.len() <= at_most, "{} bytes, not {at_most}", bytes.len());
    }

    #[test]
    fn common_sequences_have_small_encodings() {
        check(&[], 0);
        check(&[-3], 2);
        check(&[7; 1000], 2);
        check(&[1, 2], 5);
        // Small range around a large base.
        check(&(0..80).map(|i| 1_000_000_000 + i * 37 % 16).collect::<Vec<_>>(), 50);
        // A line, and a parabola.
        check(&(0..500).map(|i| 5_000 + 90 * i).collect::<Vec<_>>(), 8);
        check(&(0..500).map(|i| i * i).collect::<Vec<_>>(), 8);
        // Multiples of a page.
        check(&(0..80).map(|i| 4096 * (i * 37 % 16)).collect::<Vec<_>>(), 50);
        // One outlier of either sign.
        let mut line = vec![10; 100];
        *line.get_mut(40).unwrap() = 1_000_000;
        check(&line, 12);
        *line.get_mut(41).unwrap() = -1_000_000;
        check(&line, 18);
        // A counter reset.
        check(
            &(0..360).map(|i| (i % 200) * 1_000 + i * 7 % 4).collect::<Vec<_>>(),
            360 * 3 / 8 + 20,
        );
        // A half of small and a half of large numbers.
        let halves =
            (0..512).map(|i| if i < 256 { i % 2 } else { i * 7_919 % 1_024 }).collect::<Vec<_>>();
        check(&halves, 256 / 8 + 256 * 10 / 8 + 40);
        // A gauge with constant stretches.
        let gauge = (3..363).map(|i| (i / 7) * 7_919 % 2_000).collect::<Vec<_>>();
        check(&gauge, 53 * 11 / 8 + 20);
        check(&[i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MIN], 64);
    }

    fn numbers() -> impl Strategy<Value = Vec<i64>> {
        let far = prop::collection::vec(any::<i64>(), 0..200);
        let near = (any::<i64>(), 0_u32..40, prop::collection::vec(any::<u64>(), 0..300)).prop_map(
            |(base, bits, v)| {
                v.iter().map(|&v| base.wrapping_add((v & ((1 << bits) - 1)) as i64)).collect()
            },
        );
        let stretches =
            prop::collection::vec((any::<i16>(), 1_usize..40), 0..30).prop_map(|runs| {
                runs.into_iter()
                    .flat_map(|(v, n)| std::iter::repeat_n(i64::from(v) << 8, n))
                    .collect()
            });
        let walk = (any::<i64>(), prop::collection::vec(-50_i64..50, 0..300)).prop_map(
            |(start, steps)| {
                let mut at = start;
                steps
                    .iter()
                    .map(|s| {
                        at = at.wrapping_add(*s);
                        at
                    })
                    .collect()
            },
        );
        let rare = prop::collection::vec(prop_oneof![20 => 0_i64..4, 1 => any::<i64>()], 0..300);
        prop_oneof![far, near, stretches, walk, rare]
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(values in numbers()) {
            check(&values, usize::MAX);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            mode in 0_u8..16,
            count in 0_usize..200,
        ) {
            let mut out = vec![0; count];
            let _ = decode(&mut Reader::new(&bytes), &mut out);
            let with_mode: Vec<u8> = std::iter::once(mode).chain(bytes).collect();
            let _ = decode(&mut Reader::new(&with_mode), &mut out);
        }
    }
}
