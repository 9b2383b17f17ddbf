//! Decoded points of one series in columnar form, the input of query operators.

mod run_merge;

/// Points in time order: `times_ms[i]` belongs to `bits[i]`.
///
/// `bits` holds `i64 as u64` where the point is an integer and [`f64::to_bits`] where it is
/// floating (single precision widened to double, which is exact).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointColumns {
    /// Epoch milliseconds, strictly increasing.
    pub times_ms: Vec<i64>,
    /// Values, 64 bits each.
    pub bits: Vec<u64>,
    /// Types of the values in `bits`.
    pub kinds: ValueKinds,
}

/// Types of the values. Separate from the values, so that uniform series need no per-point flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ValueKinds {
    /// Every point is an integer; also the kind of empty columns.
    #[default]
    AllIntegers,
    /// Every point is floating.
    AllFloats,
    /// `true` where the point is an integer; as long as the columns.
    Mixed(Vec<bool>),
}

impl ValueKinds {
    /// Appends `count` points of one type to `len` existing ones.
    pub(crate) fn extend(&mut self, len: usize, integer: bool, count: usize) {
        match self {
            kinds if len == 0 => {
                *kinds = if integer { Self::AllIntegers } else { Self::AllFloats };
            }
            Self::AllIntegers if integer => {}
            Self::AllFloats if !integer => {}
            Self::Mixed(flags) => flags.extend(std::iter::repeat_n(integer, count)),
            kinds => {
                let mut flags = vec![*kinds == Self::AllIntegers; len];
                flags.extend(std::iter::repeat_n(integer, count));
                *kinds = Self::Mixed(flags);
            }
        }
    }

    /// Reorders the points from `start` on; `order` has their indexes relative to `start`.
    pub(crate) fn reorder(&mut self, start: usize, order: impl Iterator<Item = usize>) {
        if let Self::Mixed(flags) = self {
            let old = flags.split_off(start.min(flags.len()));
            flags.extend(order.filter_map(|at| old.get(at).copied()));
        }
    }
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Signed 64-bit integer.
    Integer(i64),
    /// Double; singles are widened.
    Float(f64),
}

impl PointColumns {
    /// Number of points.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times_ms.len()
    }

    /// Whether there are no points.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times_ms.is_empty()
    }

    /// Sorts the points by time. Returns false if two times are equal; their points are then in any
    /// order.
    pub fn sort_distinct(&mut self) -> bool {
        if self.times_ms.is_sorted_by(|a, b| a < b) {
            return true;
        }
        let is_mixed = matches!(self.kinds, ValueKinds::Mixed(_));
        if is_mixed || !run_merge::sort_runs(&mut self.times_ms, &mut self.bits) {
            self.sort_points();
        }
        self.times_ms.is_sorted_by(|a, b| a < b)
    }

    fn sort_points(&mut self) {
        let mut order: Vec<(i64, u32)> = self.times_ms.iter().copied().zip(0..).collect();
        order.sort_by_key(|(time, _)| *time);
        let bits = std::mem::take(&mut self.bits);
        self.bits = order.iter().filter_map(|(_, at)| bits.get(*at as usize).copied()).collect();
        self.kinds.reorder(0, order.iter().map(|(_, at)| *at as usize));
        self.times_ms.clear();
        self.times_ms.extend(order.iter().map(|(time, _)| *time));
    }

    /// Allocated size, bytes.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        let flags = match &self.kinds {
            ValueKinds::AllIntegers | ValueKinds::AllFloats => 0,
            ValueKinds::Mixed(flags) => flags.capacity(),
        };
        (self.times_ms.capacity() + self.bits.capacity()) * 8 + flags
    }

    /// Number of NaN values.
    #[must_use]
    pub fn nan_count(&self) -> usize {
        let is_nan = |bits: &u64| f64::from_bits(*bits).is_nan();
        match &self.kinds {
            ValueKinds::AllIntegers => 0,
            ValueKinds::AllFloats => self.bits.iter().filter(|bits| is_nan(bits)).count(),
            ValueKinds::Mixed(integers) => {
                let points = self.bits.iter().zip(integers);
                points.filter(|(bits, integer)| !**integer && is_nan(bits)).count()
            }
        }
    }

    /// Whether point `i` is an integer; false past the end.
    #[must_use]
    pub fn is_integer(&self, i: usize) -> bool {
        match &self.kinds {
            ValueKinds::AllIntegers => i < self.len(),
            ValueKinds::AllFloats => false,
            ValueKinds::Mixed(flags) => flags.get(i).copied().unwrap_or(false),
        }
    }

    /// Value of point `i`.
    #[must_use]
    pub fn value(&self, i: usize) -> Option<Value> {
        let bits = *self.bits.get(i)?;
        Some(if self.is_integer(i) {
            Value::Integer(bits as i64)
        } else {
            Value::Float(f64::from_bits(bits))
        })
    }

    /// Appends one point. The caller ensures increasing times.
    pub fn push(&mut self, time_ms: i64, value: Value) {
        let (bits, integer) = match value {
            Value::Integer(v) => (v as u64, true),
            Value::Float(v) => (v.to_bits(), false),
        };
        self.record_kinds(integer, 1);
        self.times_ms.push(time_ms);
        self.bits.push(bits);
    }

    /// Appends points `from..to` of other columns; nothing if the range exceeds them. The caller
    /// ensures increasing times.
    pub fn extend_range(&mut self, other: &Self, from: usize, to: usize) {
        let (Some(times), Some(bits)) = (other.times_ms.get(from..to), other.bits.get(from..to))
        else {
            return;
        };
        match &other.kinds {
            _ if times.is_empty() => {}
            ValueKinds::AllIntegers => self.record_kinds(true, times.len()),
            ValueKinds::AllFloats => self.record_kinds(false, times.len()),
            ValueKinds::Mixed(_) => {
                for (i, time) in times.iter().enumerate() {
                    if let Some(value) = other.value(from + i) {
                        self.push(*time, value);
                    }
                }
                return;
            }
        }
        self.times_ms.extend_from_slice(times);
        self.bits.extend_from_slice(bits);
    }

    /// Records the type of `count` points that the caller is about to push to the columns directly.
    /// Must be called before the columns grow.
    pub(crate) fn record_kinds(&mut self, integer: bool, count: usize) {
        let len = self.len();
        self.kinds.extend(len, integer, count);
    }

    /// Keeps the first `len` points. Mixed types stay mixed.
    pub fn truncate(&mut self, len: usize) {
        self.times_ms.truncate(len);
        self.bits.truncate(len);
        if let ValueKinds::Mixed(flags) = &mut self.kinds {
            flags.truncate(len);
        }
    }

    /// Keeps the points `from..to`, and releases memory if most of it is unused.
    pub fn keep(&mut self, from: usize, to: usize) {
        let to = to.min(self.len());
        let from = from.min(to);
        self.truncate(to);
        self.times_ms.drain(..from);
        self.bits.drain(..from);
        if let ValueKinds::Mixed(flags) = &mut self.kinds {
            flags.drain(..from);
        }
        if self.len() < self.times_ms.capacity() / 2 {
            self.times_ms.shrink_to_fit();
            self.bits.shrink_to_fit();
            if let ValueKinds::Mixed(flags) = &mut self.kinds {
                flags.shrink_to_fit();
            }
        }
    }

    /// Removes all points and keeps the allocations.
    pub fn clear(&mut self) {
        self.times_ms.clear();
        self.bits.clear();
        self.kinds = ValueKinds::AllIntegers;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn points_are_sorted_with_their_values(
            points in prop::collection::vec((0..200_i64, any::<bool>()), 0..60), runs in 1..60_usize,
            mixed in any::<bool>(),
        ) {
            let mut times: Vec<(i64, bool)> = points;
            for run in times.chunks_mut(runs) {
                run.sort_by_key(|(time, _)| *time);
            }
            let mut columns = PointColumns::default();
            let value = |time: i64, integer: bool| {
                if integer && mixed { Value::Integer(time) } else { Value::Float(time as f64) }
            };
            for (time, integer) in &times {
                columns.push(*time, value(*time, *integer));
            }
            let is_distinct = columns.sort_distinct();
            times.sort_by_key(|(time, _)| *time);
            prop_assert_eq!(is_distinct, times.is_sorted_by(|a, b| a.0 < b.0));
            for (i, (time, integer)) in times.into_iter().enumerate() {
                prop_assert_eq!(columns.times_ms.get(i), Some(&time));
                prop_assert_eq!(columns.value(i), Some(value(time, integer)));
            }
        }

        #[test]
        fn kept_points_are_unchanged(
            integers in prop::collection::vec(any::<bool>(), 0..40), from in 0..50_usize, to in 0..50_usize,
        ) {
            let mut columns = PointColumns::default();
            for (time, integer) in (0..).zip(integers) {
                let value = if integer { Value::Integer(time) } else { Value::Float(time as f64) };
                columns.push(time, value);
            }
            let before: Vec<_> =
                (0..columns.len()).map(|i| (i as i64, columns.value(i).unwrap())).collect();
            columns.keep(from, to);
            let end = to.min(before.len());
            let expected = before.get(from.min(end)..end).unwrap();
            let kept: Vec<_> = columns.times_ms.iter().enumerate()
                .map(|(i, time)| (*time, columns.value(i).unwrap()))
                .collect();
            prop_assert_eq!(kept, expected);
            prop_assert!(columns.memory_bytes() >= 16 * columns.len());
        }
    }
}
