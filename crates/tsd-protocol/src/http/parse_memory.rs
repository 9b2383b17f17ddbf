//! Reserves the memory of a parsed body before it is allocated.
//!
//! The reservation of a body has the size of its text, but its points may need a multiple of that:
//! `null,` is a rejected point. So the parser of points reserves memory from a [`ParseMemory`] as its
//! lists grow. The text of other bodies bounds their memory ([`BodyShape`]).

use super::{
    exp_request::MAX_EXPRESSION_BYTES, put_error::PutBodyError, query_request::MAX_REGEXPS,
};

/// Source of the memory of a parsed body.
pub trait ParseMemory {
    /// Reserves `bytes` more; false if there is not enough.
    fn take(&mut self, bytes: usize) -> bool;
}

/// Memory without a bound, for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnlimitedMemory;

impl ParseMemory for UnlimitedMemory {
    fn take(&mut self, _: usize) -> bool {
        true
    }
}

/// Elements up to this size convert within the reservations that follow them, bytes.
const SMALL_ELEMENT: usize = 4 << 10;
/// Memory of one rejected point: the point, its error, and the copies of both in the outcome, without
/// the texts of the point; bytes.
const REJECTED_BYTES: usize = 240;
/// Memory of the texts of a point in its error and in the copies, as a multiple of the point.
const TEXT_FACTOR: usize = 4;

/// Reserves the temporary memory for the conversion of an element of `bytes` bytes.
#[inline]
pub(super) fn take_element(memory: &mut dyn ParseMemory, bytes: usize) -> Result<(), PutBodyError> {
    if bytes > SMALL_ELEMENT { take(memory, bytes * TEXT_FACTOR) } else { Ok(()) }
}

/// Reserves the memory of a rejected element of `bytes` bytes.
#[cold]
pub(super) fn take_rejected(
    memory: &mut dyn ParseMemory,
    bytes: usize,
) -> Result<(), PutBodyError> {
    take(memory, REJECTED_BYTES + bytes * TEXT_FACTOR)
}

pub(super) fn take(memory: &mut dyn ParseMemory, bytes: usize) -> Result<(), PutBodyError> {
    if memory.take(bytes) { Ok(()) } else { Err(PutBodyError::NoMemory) }
}

/// Makes room for `more` elements in a list. Keeps the reservations of smaller allocations, since a
/// growing list has two allocations.
#[inline]
pub(super) fn grow<T>(
    list: &mut Vec<T>,
    more: usize,
    memory: &mut dyn ParseMemory,
) -> Result<(), PutBodyError> {
    if list.capacity() - list.len() >= more {
        return Ok(());
    }
    let capacity = (list.len() + more).max(list.capacity() * 2).max(16);
    take(memory, capacity * size_of::<T>())?;
    list.reserve_exact(capacity - list.len());
    Ok(())
}

/// Sizes that bound the memory of a parsed body without points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyShape {
    /// Bytes of the text.
    pub bytes: usize,
    /// Bytes that can begin a value, a member, or an element of a filter or an expression.
    pub items: usize,
    /// Maximum number of regular expressions.
    pub patterns: usize,
}

/// Maximum bytes of a compiled regular expression and its cache.
const PATTERN_BYTES: usize = 3 << 19;

impl BodyShape {
    /// Measures a text in one pass.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let is_item = |b: &&u8| matches!(b, b',' | b'{' | b'[' | b'(' | b'|' | b'*');
        let items = text.iter().filter(is_item).count();
        // A name may have escapes; at least one of them is an ASCII letter.
        let is_letter = |at: &usize| matches!(text.get(at + 4), Some(b'4'..=b'7'));
        let escapes = memchr::memmem::find_iter(text, br"\u00").filter(is_letter).count();
        let is_regexp = |at: &usize| {
            let found = text.get(*at..*at + b"regexp".len());
            found.is_some_and(|found| found.eq_ignore_ascii_case(b"regexp"))
        };
        let regexps = memchr::memchr2_iter(b'r', b'R', text).filter(is_regexp).count();
        Self { bytes: text.len(), items, patterns: (regexps + escapes).min(MAX_REGEXPS) }
    }

    /// Returns the shape of two texts together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            items: self.items + other.items,
            patterns: (self.patterns + other.patterns).min(MAX_REGEXPS),
        }
    }
}

/// Kinds of bodies whose memory is bounded by their shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedKind {
    /// `/api/query` and `/api/query/gexp`.
    Query,
    /// `/api/query/exp`.
    Expressions,
    /// Lists of names and of annotations: `/api/query/last`, `/api/search`, `/api/annotation`.
    List,
    /// A JSON tree: `/api/uid`, `/api/suggest` and administration.
    Tree,
}

impl ParsedKind {
    /// Returns the most bytes of memory that a body of this shape needs in addition to its text. The
    /// factors come from the worst bodies: `tests/body_memory.rs`.
    #[must_use]
    pub fn memory(self, shape: BodyShape) -> usize {
        let BodyShape { bytes, items, patterns } = shape;
        let text = bytes * 8;
        match self {
            Self::Query => text + items * 320 + patterns * PATTERN_BYTES,
            Self::Expressions => {
                let parsed = bytes.min(MAX_EXPRESSION_BYTES) * 72;
                text + parsed + items * 320 + patterns * PATTERN_BYTES
            }
            Self::List => text + items * 200,
            Self::Tree => text + items * 700,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_bounds_values_and_regular_expressions() {
        let shape = |text: &str| {
            let BodyShape { bytes, items, patterns } = BodyShape::of(text.as_bytes());
            assert_eq!(bytes, text.len());
            (items, patterns)
        };
        assert_eq!(shape(""), (0, 0));
        assert_eq!(shape(r#"{"a":[{},{}]}"#), (5, 0));
        assert_eq!(shape(r#"{"type":"regexp"}"#), (1, 1));
        assert_eq!(shape(r#"["ReGeXP(a|b)","\u0072egexp(c*)"]"#), (6, 2));
        assert_eq!(shape(r"r \u00e9 \u00"), (0, 0));
        assert_eq!(shape(&"regexp".repeat(1_000)), (0, MAX_REGEXPS));
        let both = BodyShape::of(b"[1]").and(BodyShape::of(b"regexp(a)"));
        assert_eq!(both, BodyShape { bytes: 12, items: 2, patterns: 1 });
    }
}
