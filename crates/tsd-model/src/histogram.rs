//! Histogram cells in OpenTSDB's format.
//!
//! ```text
//! qualifier  06 | offset u16 seconds or u32 milliseconds
//! value      codec id u8 | payload
//! payload    bucket count u16 | { lower f32 | upper f32 | count varlong } … | underflow varlong
//!            | overflow varlong
//! ```

use std::{cmp::Ordering, fmt::Write as _};

use smallvec::SmallVec;

use crate::{column_kind::HISTOGRAM_PREFIX, float_text::parse_java_single, timestamp::Timestamp};

mod codecs;

pub use codecs::{HistogramCodecs, HistogramCodecsError};

/// Qualifier of a histogram: three bytes for seconds, five for milliseconds. Unlike in
/// annotations, the time is never divided.
#[must_use]
pub fn histogram_qualifier(timestamp: Timestamp) -> SmallVec<[u8; 8]> {
    let mut qualifier: SmallVec<[u8; 8]> = SmallVec::new();
    qualifier.push(HISTOGRAM_PREFIX);
    if timestamp.is_millis() {
        qualifier.extend_from_slice(&timestamp.offset_ms().to_be_bytes());
    } else {
        qualifier.extend_from_slice(&((timestamp.offset_ms() / 1_000) as u16).to_be_bytes());
    }
    qualifier
}

/// Offset of a histogram from the base time in milliseconds; `None` for other
/// qualifiers.
#[must_use]
pub fn histogram_offset_ms(qualifier: &[u8]) -> Option<u32> {
    match *qualifier {
        [HISTOGRAM_PREFIX, a, b] => Some(u32::from(u16::from_be_bytes([a, b])) * 1_000),
        [HISTOGRAM_PREFIX, a, b, c, d] => Some(u32::from_be_bytes([a, b, c, d])),
        _ => None,
    }
}

/// One bucket: values from `lower` up to below `upper`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistogramBucket {
    /// Lower bound.
    pub lower: f32,
    /// Upper bound.
    pub upper: f32,
    /// Number of values.
    pub count: i64,
}

/// The built-in histogram: buckets with counts, underflow and overflow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimpleHistogram {
    /// Ascending by lower, then upper bound; no two with the same bounds.
    buckets: Vec<HistogramBucket>,
    /// Values below all buckets.
    pub underflow: i64,
    /// Values above all buckets.
    pub overflow: i64,
}

/// Bytes or text that are not a histogram.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HistogramError {
    /// The value is truncated.
    #[error("histogram of {0} bytes ends early")]
    Cut(usize),
    /// A payload below OpenTSDB's minimum length.
    #[error("Byte array shorter than 6 bytes detected: {0}")]
    TooShort(String),
    /// A part of the text form that is not `key=count`.
    #[error("\"{0}\" is no part of a histogram")]
    Text(String),
    /// More buckets than 16 bits can count.
    #[error("the histogram has {0} buckets; the limit is {most}", most = u16::MAX)]
    TooManyBuckets(usize),
    /// A bound that is not a number.
    #[error("a bucket bound is not a number")]
    NotANumber,
}

impl SimpleHistogram {
    /// Name of the codec in `tsd.core.histograms.config`.
    pub const CODEC: &'static str = "net.opentsdb.core.SimpleHistogramDecoder";
    /// Minimum length of a payload, bytes.
    const MIN_PAYLOAD: usize = 6;

    /// A histogram of buckets in any order; the last of several buckets with equal bounds wins.
    #[must_use]
    pub fn from_buckets(mut buckets: Vec<HistogramBucket>, underflow: i64, overflow: i64) -> Self {
        let same = |a: &HistogramBucket, b: &HistogramBucket| {
            java_order(a.lower, b.lower).then(java_order(a.upper, b.upper))
        };
        // Stable, so that the last bucket of each bounds can be kept.
        buckets.sort_by(same);
        buckets.dedup_by(|next, kept| {
            let repeated = same(next, kept).is_eq();
            if repeated {
                *kept = *next;
            }
            repeated
        });
        Self { buckets, underflow, overflow }
    }

    /// The buckets, ascending.
    #[must_use]
    pub fn buckets(&self) -> &[HistogramBucket] {
        &self.buckets
    }

    /// Count of the bucket with these bounds; 0 if absent.
    #[must_use]
    pub fn count_of(&self, lower: f32, upper: f32) -> i64 {
        let place = self.buckets.binary_search_by(|other| {
            java_order(other.lower, lower).then(java_order(other.upper, upper))
        });
        place.ok().and_then(|at| self.buckets.get(at)).map_or(0, |bucket| bucket.count)
    }

    /// Adds the counts of another histogram, bucket by bucket; the sum has the buckets of both.
    pub fn add(&mut self, other: &Self) {
        self.underflow = self.underflow.wrapping_add(other.underflow);
        self.overflow = self.overflow.wrapping_add(other.overflow);
        let same = |a: &HistogramBucket, b: &HistogramBucket| {
            java_order(a.lower, b.lower).then(java_order(a.upper, b.upper))
        };
        // Usually the buckets are the same.
        if self.buckets.len() == other.buckets.len()
            && self.buckets.iter().zip(&other.buckets).all(|(a, b)| same(a, b).is_eq())
        {
            for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
                bucket.count = bucket.count.wrapping_add(more.count);
            }
            return;
        }
        let mut sum = Vec::with_capacity(self.buckets.len().max(other.buckets.len()));
        let (mut mine, mut others) =
            (self.buckets.iter().peekable(), other.buckets.iter().peekable());
        while let Some(order) = match (mine.peek(), others.peek()) {
            (None, None) => None,
            (Some(_), None) => Some(Ordering::Less),
            (None, Some(_)) => Some(Ordering::Greater),
            (Some(a), Some(b)) => Some(same(a, b)),
        } {
            let a = if order.is_le() { mine.next() } else { None };
            let b = if order.is_ge() { others.next() } else { None };
            let count = |bucket: Option<&HistogramBucket>| bucket.map_or(0, |b| b.count);
            sum.extend(a.or(b).map(|bucket| HistogramBucket {
                count: count(a).wrapping_add(count(b)),
                ..*bucket
            }));
        }
        self.buckets = sum;
    }

    /// Approximate size in memory, bytes.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.buckets.capacity() * size_of::<HistogramBucket>()
    }

    /// Encodes the cell value.
    pub fn encode(&self, codec_id: u8) -> Result<Vec<u8>, HistogramError> {
        let count = u16::try_from(self.buckets.len())
            .map_err(|_| HistogramError::TooManyBuckets(self.buckets.len()))?;
        let mut out = vec![codec_id];
        out.extend_from_slice(&count.to_be_bytes());
        for bucket in &self.buckets {
            out.extend_from_slice(&bucket.lower.to_be_bytes());
            out.extend_from_slice(&bucket.upper.to_be_bytes());
            put_varlong(bucket.count, &mut out);
        }
        put_varlong(self.underflow, &mut out);
        put_varlong(self.overflow, &mut out);
        Ok(out)
    }

    /// Decodes a cell value: codec id and histogram.
    pub fn decode(value: &[u8]) -> Result<(u8, Self), HistogramError> {
        let (id, payload) = value.split_first().ok_or(HistogramError::Cut(0))?;
        Ok((*id, Self::read(payload)?))
    }

    /// Decodes a client's payload: the value without codec id.
    pub fn decode_payload(payload: &[u8]) -> Result<Self, HistogramError> {
        if payload.len() < Self::MIN_PAYLOAD {
            return Err(HistogramError::TooShort(pretty_bytes(payload)));
        }
        Self::read(payload)
    }

    fn read(payload: &[u8]) -> Result<Self, HistogramError> {
        let parts = || {
            let (count, mut rest) = payload.split_first_chunk::<2>()?;
            let mut buckets = Vec::new();
            for _ in 0..u16::from_be_bytes(*count) {
                let (lower, tail) = rest.split_first_chunk::<4>()?;
                let (upper, tail) = tail.split_first_chunk::<4>()?;
                let (lower, upper) = (f32::from_be_bytes(*lower), f32::from_be_bytes(*upper));
                let (count, tail) = take_varlong(tail)?;
                buckets.push(HistogramBucket { lower, upper, count });
                rest = tail;
            }
            let (underflow, rest) = take_varlong(rest)?;
            let (overflow, _) = take_varlong(rest)?;
            Some(Self::from_buckets(buckets, underflow, overflow))
        };
        parts().ok_or(HistogramError::Cut(payload.len()))
    }

    /// Parses the telnet form, `u=0:o=1:0,1=42:1,5=24`.
    pub fn parse(text: &str) -> Result<Self, HistogramError> {
        let (mut buckets, mut underflow, mut overflow) = (Vec::new(), 0, 0);
        for part in text.split(':') {
            let bad = || HistogramError::Text(part.to_owned());
            let (key, count) = part.split_once('=').ok_or_else(bad)?;
            let count = count.parse::<i64>().map_err(|_| bad())?;
            if key.eq_ignore_ascii_case("u") {
                underflow = count;
            } else if key.eq_ignore_ascii_case("o") {
                overflow = count;
            } else {
                let (lower, upper) = key.split_once(',').ok_or_else(bad)?;
                buckets.push(parse_bounds(lower, upper, count)?);
            }
        }
        Ok(Self::from_buckets(buckets, underflow, overflow))
    }
}

/// A bucket from the texts of its bounds.
pub fn parse_bounds(
    lower: &str,
    upper: &str,
    count: i64,
) -> Result<HistogramBucket, HistogramError> {
    let bound = |text: &str| {
        let value = parse_java_single(text.as_bytes())
            .map_err(|_| HistogramError::Text(text.to_owned()))?;
        if value.is_nan() { Err(HistogramError::NotANumber) } else { Ok(value) }
    };
    Ok(HistogramBucket { lower: bound(lower)?, upper: bound(upper)?, count })
}

/// `Float.compare`: −0.0 before 0.0, NaN last and equal to itself.
fn java_order(a: f32, b: f32) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.total_cmp(&b),
        (a, b) => a.cmp(&b),
    }
}

/// Seven bits per byte, least significant first; the rest after eight bytes is a whole ninth byte.
fn put_varlong(number: i64, out: &mut Vec<u8>) {
    let mut rest = number as u64;
    for _ in 0..8 {
        if rest < 0x80 {
            break;
        }
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn take_varlong(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut number = 0_u64;
    let mut rest = bytes;
    for at in 0..9 {
        let (byte, tail) = rest.split_first()?;
        rest = tail;
        let bits = if at == 8 { *byte } else { *byte & 0x7F };
        number |= u64::from(bits) << (7 * at);
        if at == 8 || *byte < 0x80 {
            break;
        }
    }
    Some((number as i64, rest))
}

/// Bytes as the HBase client of OpenTSDB prints them: as text unless most of them are not printable.
fn pretty_bytes(bytes: &[u8]) -> String {
    let printable = bytes.iter().filter(|byte| (b' '..=b'~').contains(byte)).count();
    if printable < bytes.len() / 2 {
        let signed: Vec<i8> = bytes.iter().map(|byte| byte.cast_signed()).collect();
        return format!("{signed:?}");
    }
    let mut out = String::from("\"");
    for byte in bytes {
        match byte {
            b' '..=b'~' => out.push(char::from(*byte)),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            _ => {
                let _ = write!(out, "\\x{byte:02X}");
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, hex: &str) {
        let histogram = SimpleHistogram::parse(text).unwrap();
        assert_eq!(crate::to_hex(&histogram.encode(42).unwrap()), hex, "{text}");
    }

    #[test]
    fn short_payloads_are_printed_as_opentsdb_prints_bytes() {
        assert_eq!(pretty_bytes(b""), "\"\"");
        assert_eq!(pretty_bytes(&[0, 0, 255]), "[0, 0, -1]");
        assert_eq!(pretty_bytes(b"ab\n\x01"), "\"ab\\n\\x01\"");
    }

    #[test]
    fn text_in_any_order_is_one_value() {
        let value = "2A0002000000003F8000002A3F80000040A00000180001";
        check("u=0:o=1:0,1=42:1,5=24", value);
        check("1,5=24:0,1=42:O=1:U=0", value);
        check("u=3", "2A00000300");
        check("0,1=1:0,1=2", "2A0001000000003F800000020000");
        check("1,0=5", "2A00013F80000000000000050000");
        check("-0.0,1=5:0.0,1=6", "2A0002800000003F80000005000000003F800000060000");
    }

    #[test]
    fn bad_texts_are_errors() {
        for text in ["x", "0,1", "0,1=x", "0=1", "u", "0,1=1.5", ":", "a,b=1", "NaN,1=5", ""] {
            assert!(SimpleHistogram::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sums_have_the_buckets_of_both() {
        let mut sum = SimpleHistogram::parse("u=1:0,10=1:5,10=7").unwrap();
        sum.add(&SimpleHistogram::parse("o=2:0,10=2:10,20=5").unwrap());
        assert_eq!(sum, SimpleHistogram::parse("u=1:o=2:0,10=3:5,10=7:10,20=5").unwrap());
        sum.add(&sum.clone());
        assert_eq!((sum.count_of(0.0, 10.0), sum.count_of(0.0, 9.0)), (6, 0));
    }

    #[test]
    fn short_payloads_have_opentsdbs_message() {
        let error = SimpleHistogram::decode_payload(b"").unwrap_err();
        assert_eq!(error.to_string(), "Byte array shorter than 6 bytes detected: \"\"");
        assert!(SimpleHistogram::decode(&[0x2A, 0, 0, 3, 0]).is_ok());
        assert_eq!(SimpleHistogram::decode(&[0x2A, 0, 1, 0]), Err(HistogramError::Cut(3)));
    }

    #[test]
    fn offsets_are_in_the_unit_of_the_time() {
        let qualifier = |n| histogram_qualifier(Timestamp::try_new(n).unwrap());
        assert_eq!(histogram_offset_ms(&qualifier(1_356_998_401)), Some(1_000));
        assert_eq!(histogram_offset_ms(&qualifier(1_356_998_401_005)), Some(1_005));
        assert_eq!(histogram_offset_ms(&[6, 0]), None);
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(
            buckets in prop::collection::vec((any::<f32>(), any::<f32>(), any::<i64>()), 0..20),
            underflow: i64, overflow in 0..100_000_i64, shift in 0..64_u32, id: u8,
        ) {
            let buckets = buckets.into_iter();
            let buckets = buckets.map(|(lower, upper, count)| {
                HistogramBucket { lower, upper, count: count >> shift }
            });
            let histogram = SimpleHistogram::from_buckets(buckets.collect(), underflow, overflow);
            let bytes = histogram.encode(id).unwrap();
            prop_assert_eq!(SimpleHistogram::decode(&bytes), Ok((id, histogram.clone())));
            let mut twice: Vec<HistogramBucket> =
                histogram.buckets().iter().rev().map(|b| HistogramBucket { count: 0, ..*b }).collect();
            twice.extend(histogram.buckets().iter().rev());
            let rebuilt = SimpleHistogram::from_buckets(twice, underflow, overflow);
            prop_assert_eq!(rebuilt, histogram.clone());
            let short = bytes.len() <= SimpleHistogram::MIN_PAYLOAD;
            prop_assert!(short || SimpleHistogram::decode_payload(bytes.get(1..).unwrap()) == Ok(histogram));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = SimpleHistogram::decode(&bytes);
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "[u=o:0-9,.eNa-]{0,20}") {
            let _ = SimpleHistogram::parse(&text);
        }
    }
}
