//! Encodes a batch as differences between its keys and cells, which shortens the records of a log.
//!
//! The rows of a batch are similar: the same metric or tags, and the same second. So each key is stored as its
//! difference from the previous key, and each cell as its difference from the previous cell. Decoding needs nothing
//! outside of the batch.
//!
//! ```text
//! delta   = item *                           the items of the batch, in order: a key or a cell, each with its header
//! item    = token *                          up to the first with e; what follows is as in the item before
//! token   = e cccc lll | copied u8 (c = 15) | literals u8 (l = 7) | bytes
//! ```
//!
//! A token copies `c` bytes from the same position of the previous item of its kind, and adds `l` own bytes. For
//! counts of 15 and 7 or more, a further byte has the excess. The header of an item determines its length.

use super::{BatchError, CellBatch, GENERAL_CELL, LONG_KEY, LONG_QUALIFIER, MORE, WITH_TIMESTAMP};

/// Most bytes of a decoded batch that is stored as differences. A byte can stand for an item of any length, so without
/// a limit a damaged record could request any amount of memory.
pub const MAX_DELTA_BATCH_BYTES: usize = 64 << 20;

/// Bit of the last token of an item.
const LAST: u8 = 0x80;
const MAX_COPIED: usize = 15;
const MAX_LITERALS: usize = 7;
/// Most bytes of a token, copied or its own.
const MAX_RUN: usize = u8::MAX as usize;
/// Bytes of an item that are compared at once; the most literals of a window.
const WINDOW: usize = u64::BITS as usize;

/// Kind of an item: a row or a cell, with its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    Key,
    Cell,
}

impl ItemKind {
    /// Length of an item whose first bytes `byte` returns, and its first byte.
    fn measure(self, byte: impl Fn(usize) -> Option<u8>) -> Option<(usize, u8)> {
        let header = byte(0)?;
        let number = |at: usize, bytes: usize| {
            (at..at + bytes).try_fold(0_usize, |n, at| Some(n << 8 | usize::from(byte(at)?)))
        };
        let len = match self {
            Self::Key if header & LONG_KEY == 0 => 1 + usize::from(header & !MORE),
            Self::Key => 3 + number(1, 2)?,
            Self::Cell => {
                let time = if header & WITH_TIMESTAMP == 0 { 0 } else { 8 };
                if header & GENERAL_CELL == 0 {
                    let qualifier = if header & LONG_QUALIFIER == 0 { 2 } else { 4 };
                    2 + time + qualifier + usize::from(header >> 2 & 7)
                } else {
                    7 + time + number(1, 2)? + number(3, 4)?
                }
            }
        };
        Some((len, header))
    }
}

impl CellBatch {
    /// Appends the batch as differences between its rows and cells, in the format of the log.
    pub fn encode_delta(&self, out: &mut Vec<u8>) {
        let (mut rest, mut kind) = (self.as_bytes(), ItemKind::Key);
        let (mut key, mut cell) = (Item::default(), Item::default());
        // Only the methods of this type encode a batch, so all items are whole.
        while let Some((len, header)) = kind.measure(|at| rest.get(at).copied())
            && let Some(after) = rest.get(len..)
        {
            let item = Item { bytes: rest, len };
            let before = match kind {
                ItemKind::Key => std::mem::replace(&mut key, item),
                ItemKind::Cell => std::mem::replace(&mut cell, item),
            };
            encode_item(item, before, out);
            kind = if header & MORE == 0 { ItemKind::Key } else { ItemKind::Cell };
            rest = after;
        }
    }

    /// Decodes the output of [`Self::encode_delta`], and validates all of it.
    ///
    /// # Errors
    ///
    /// If the bytes are not an encoded batch, or the batch exceeds [`MAX_DELTA_BATCH_BYTES`].
    pub fn from_delta(bytes: &[u8]) -> Result<Self, BatchError> {
        let (mut buf, mut rest, mut kind) = (Vec::new(), bytes, ItemKind::Key);
        // Start and end of the last key and the last cell.
        let (mut key, mut cell) = ((0, 0), (0, 0));
        while !rest.is_empty() {
            let before = match kind {
                ItemKind::Key => &mut key,
                ItemKind::Cell => &mut cell,
            };
            let start = buf.len();
            let Some((header, after)) = decode_part(kind, *before, &mut buf, rest) else {
                return Err(BatchError::Damaged(bytes.len() - rest.len()));
            };
            *before = (start, buf.len());
            kind = if header & MORE == 0 { ItemKind::Key } else { ItemKind::Cell };
            rest = after;
        }
        Self::from_bytes(buf)
    }
}

/// An item in its batch.
#[derive(Clone, Copy, Debug, Default)]
struct Item<'a> {
    /// The batch from the item on, so that a word may be read beyond the end of the item.
    bytes: &'a [u8],
    len: usize,
}

/// Appends the differences between an item and the previous item. This runs for each point, so bytes are compared and
/// copied eight at a time.
fn encode_item(item: Item<'_>, before: Item<'_>, out: &mut Vec<u8>) {
    let mut last_token = None;
    // Bytes that the next token copies.
    let mut copied = 0;
    for window in (0..item.len).step_by(WINDOW) {
        let mut own = own_bytes(item, before, window);
        let mut at = window;
        while own != 0 {
            let equal = own.trailing_zeros();
            own >>= equal;
            let literals = own.trailing_ones();
            own = own.checked_shr(literals).unwrap_or_default();
            copied += equal as usize;
            at += equal as usize;
            while copied > MAX_RUN {
                push_token(MAX_RUN, &[], 0, out);
                copied -= MAX_RUN;
            }
            last_token = Some(out.len());
            push_token(copied, item.bytes.get(at..).unwrap_or_default(), literals as usize, out);
            at += literals as usize;
            copied = 0;
        }
        copied += item.len.min(window + WINDOW) - at;
    }
    match last_token.and_then(|at| out.get_mut(at)) {
        Some(token) => *token |= LAST,
        None => out.push(LAST),
    }
}

/// Own bytes of a token in a window, a bit each: the different bytes, and single equal bytes between them, which
/// would cost as much in a separate token.
fn own_bytes(item: Item<'_>, before: Item<'_>, window: usize) -> u64 {
    let len = (item.len - window).min(WINDOW);
    let mut different = 0;
    for word in (0..len).step_by(8) {
        let at = window + word;
        let (a, b) = (word_at(item.bytes, at), word_at(before.bytes, at));
        different |= different_bytes(a, b) << word;
    }
    let first_bits = |bits: usize| if bits < WINDOW { !(u64::MAX << bits) } else { u64::MAX };
    different |= !first_bits(before.len.saturating_sub(window));
    different &= first_bits(len);
    different | (different << 1 & different >> 1)
}

/// Eight bytes; zeros beyond the end.
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    let word = rest
        .first_chunk()
        .copied()
        .unwrap_or_else(|| std::array::from_fn(|at| rest.get(at).copied().unwrap_or_default()));
    u64::from_le_bytes(word)
}

/// A bit for each byte that differs.
const fn different_bytes(a: u64, b: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let different = a ^ b;
    // Sets the highest bit of each byte that has any bit, moves it to the lowest, and gathers these bits in one byte.
    let highest = (((different & LOW) + LOW) | different) & !LOW;
    (highest >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Appends a token with the first `literals` of `bytes`.
fn push_token(copied: usize, bytes: &[u8], literals: usize, out: &mut Vec<u8>) {
    let (c, l) = (copied.min(MAX_COPIED), literals.min(MAX_LITERALS));
    let token = (c << 3 | l) as u8;
    if c < MAX_COPIED
        && l < MAX_LITERALS
        && let Some([b0, b1, b2, b3, b4, b5]) = bytes.first_chunk()
    {
        let end = out.len() + 1 + l;
        // A copy of constant length.
        out.extend_from_slice(&[token, *b0, *b1, *b2, *b3, *b4, *b5, 0]);
        out.truncate(end);
        return;
    }
    out.push(token);
    if c == MAX_COPIED {
        out.push((copied - c) as u8);
    }
    if l == MAX_LITERALS {
        out.push((literals - l) as u8);
    }
    out.extend_from_slice(bytes.get(..literals).unwrap_or_default());
}

/// Appends an item to `out`, which has the previous item at `before`. Returns its first byte and the rest of `bytes`;
/// `None` if they are not an item.
fn decode_part<'b>(
    kind: ItemKind,
    before: (usize, usize),
    out: &mut Vec<u8>,
    bytes: &'b [u8],
) -> Option<(u8, &'b [u8])> {
    let (start, mut rest) = (out.len(), bytes);
    let copy = |out: &mut Vec<u8>, count: usize| {
        let from = before.0 + (out.len() - start);
        if count > MAX_DELTA_BATCH_BYTES.saturating_sub(out.len()) {
            return None;
        }
        if count > 0 {
            let to = from.checked_add(count).filter(|to| *to <= before.1)?;
            out.extend_from_within(from..to);
        }
        Some(())
    };
    loop {
        let token = *rest.split_off_first()?;
        let mut count = |count: usize, most: usize| {
            let more = if count == most { usize::from(*rest.split_off_first()?) } else { 0 };
            Some(count + more)
        };
        let copied = count(usize::from(token >> 3 & 15), MAX_COPIED)?;
        let literals = count(usize::from(token & 7), MAX_LITERALS)?;
        copy(out, copied)?;
        out.extend_from_slice(rest.split_off(..literals)?);
        if token & LAST != 0 {
            break;
        }
    }
    let done = out.len() - start;
    let (len, header) = kind.measure(|at| {
        let at = if at < done { start + at } else { before.0 + at };
        out.get(at).copied()
    })?;
    copy(out, len.checked_sub(done)?)?;
    Some((header, rest))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;
    use tsd_model::Family;

    use super::*;
    use crate::CellRef;

    fn encoded(batch: &CellBatch) -> Vec<u8> {
        let mut out = Vec::new();
        batch.encode_delta(&mut out);
        out
    }

    fn family() -> impl Strategy<Value = Family> {
        prop::sample::select(vec![Family::T, Family::T, Family::T, Family::Id, Family::Name])
    }

    type TestCell = (Family, Vec<u8>, Vec<u8>, Option<i64>);

    fn rows() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<TestCell>)>> {
        // Few different bytes, so that items are similar; some lengths need the longest headers and runs.
        let bytes = |most: usize| {
            let byte = prop_oneof![6 => 0..3_u8, 1 => any::<u8>()];
            let short = prop::collection::vec(byte, 0..most).boxed();
            let long = (0..3_u8, 0..700_usize).prop_map(|(byte, len)| vec![byte; len]);
            prop_oneof![9 => short, 1 => long]
        };
        let key = bytes(70).prop_filter("a key", |key| !key.is_empty());
        let qualifier = prop_oneof![4 => prop::collection::vec(0..3_u8, 2), 1 => bytes(6)];
        let value = prop_oneof![4 => prop::collection::vec(any::<u8>(), 1..9), 1 => bytes(40)];
        let time = prop::option::weighted(0.1, any::<i64>());
        let cells = prop::collection::vec((family(), qualifier, value, time), 0..5);
        prop::collection::vec((key, cells), 0..12)
    }

    fn batch(rows: &[(Vec<u8>, Vec<TestCell>)]) -> CellBatch {
        let mut batch = CellBatch::new();
        for (key, cells) in rows {
            batch.begin_row(key).unwrap();
            for (family, qualifier, value, timestamp_ms) in cells {
                let timestamp_ms = *timestamp_ms;
                batch.push(CellRef { family: *family, qualifier, value, timestamp_ms }).unwrap();
            }
        }
        batch
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(rows in rows()) {
            let batch = batch(&rows);
            let read = CellBatch::from_delta(&encoded(&batch)).unwrap();
            prop_assert_eq!(read.as_bytes(), batch.as_bytes());
            prop_assert_eq!(read.cell_count(), batch.cell_count());
            prop_assert_eq!(read.row_count(), batch.row_count());
        }

        #[test]
        fn decoding_any_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(batch) = CellBatch::from_delta(&bytes) {
                let again = CellBatch::from_delta(&encoded(&batch)).unwrap();
                prop_assert_eq!(again.as_bytes(), batch.as_bytes());
            }
        }

        #[test]
        fn damaged_batch_does_not_panic(rows in rows(), at: prop::sample::Index, bit in 0..8_u8) {
            let mut bytes = encoded(&batch(&rows));
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
                let _ = CellBatch::from_delta(&bytes);
                bytes.truncate(at);
                let _ = CellBatch::from_delta(&bytes);
            }
        }
    }

    /// Issue 37: each byte of a record stood for a whole value, whatever their sum.
    #[test]
    fn differences_that_stand_for_more_than_the_limit_are_refused() {
        let cell = CellRef {
            family: Family::T,
            qualifier: &[0, 0],
            value: &vec![7; 1 << 20],
            timestamp_ms: None,
        };
        let mut batch = CellBatch::new();
        for _ in 0..2 {
            batch.begin_row(b"k").unwrap();
            batch.push(cell).unwrap();
        }
        let mut bytes = encoded(&batch);
        assert!(bytes.ends_with(&[LAST, LAST]), "the second row is two bytes");
        assert_eq!(CellBatch::from_delta(&bytes).unwrap().as_bytes(), batch.as_bytes());
        bytes.extend([LAST; 200]);
        let error = CellBatch::from_delta(&bytes).unwrap_err();
        assert!(matches!(error, BatchError::Damaged(_)), "{error}");
    }

    #[test]
    fn points_of_one_second_cost_what_differs() {
        let mut batch = CellBatch::new();
        for series in 0..100_u8 {
            // Metric, hour, two tags.
            let key =
                [&[0, 0, 7, 80, 226, 39, 0][..], &[0, 0, 1, 0, 0, series], &[0, 0, 2, 0, 0, 9]];
            batch.begin_row(&key.concat()).unwrap();
            let cell = CellRef {
                family: Family::T,
                qualifier: &[0x12, 0x30],
                value: &[series ^ 0x55],
                timestamp_ms: None,
            };
            batch.push(cell).unwrap();
        }
        assert_eq!(batch.byte_len(), 100 * 24);
        // A token and a byte of the key, a token and the value.
        assert_eq!(encoded(&batch).len(), 24 + 2 + 99 * 4 + 1);
    }
}
