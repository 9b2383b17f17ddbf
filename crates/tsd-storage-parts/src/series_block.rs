//! Series blocks: sorted, front-coded series. Every sixteenth is stored whole, so that a search can start there.

use bytes::Bytes;

use crate::{
    error::Malformed,
    wire::{Cursor, put_varint},
};

/// Distance between two series that are stored whole.
const RESTART: usize = 16;

/// Collects the series of one block in ascending order.
#[derive(Debug, Default)]
pub(crate) struct SeriesBlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    count: usize,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl SeriesBlockBuilder {
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn first(&self) -> &[u8] {
        &self.first
    }

    pub(crate) fn push(&mut self, series: &[u8]) {
        if self.count == 0 {
            self.first.clear();
            self.first.extend_from_slice(series);
        }
        let shared = if self.count.is_multiple_of(RESTART) {
            self.restarts.push(self.bytes.len() as u32);
            0
        } else {
            series.iter().zip(&self.last).take_while(|(a, b)| a == b).count()
        };
        let rest = series.get(shared..).unwrap_or_default();
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, rest.len() as u64);
        self.bytes.extend_from_slice(rest);
        self.last.clear();
        self.last.extend_from_slice(series);
        self.count += 1;
    }

    /// Appends the block to `out` and empties the builder.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes);
        for restart in &self.restarts {
            out.extend_from_slice(&restart.to_le_bytes());
        }
        out.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        self.bytes.clear();
        self.restarts.clear();
        self.count = 0;
    }
}

/// A loaded series block.
#[derive(Clone, Debug)]
pub(crate) struct SeriesBlock {
    bytes: Bytes,
    /// End of the entries, where the offsets of the restarts begin.
    entries: usize,
    restarts: usize,
}

impl SeriesBlock {
    pub(crate) fn open(bytes: Bytes) -> Result<Self, Malformed> {
        const WRONG: Malformed = Malformed("restarts of a series block");
        let tail = bytes.len().checked_sub(4).ok_or(WRONG)?;
        let restarts = Cursor::new(bytes.get(tail..).unwrap_or_default()).u32()? as usize;
        let entries = restarts.checked_mul(4).and_then(|b| tail.checked_sub(b)).ok_or(WRONG)?;
        if restarts == 0 {
            return Err(WRONG);
        }
        Ok(Self { bytes, entries, restarts })
    }

    fn restart(&self, index: usize) -> Result<Cursor<'_>, Malformed> {
        const WRONG: Malformed = Malformed("restart of a series block");
        let at = self.entries + index * 4;
        let offset = Cursor::new(self.bytes.get(at..).ok_or(WRONG)?).u32()? as usize;
        self.bytes.get(offset..self.entries).map(Cursor::new).ok_or(WRONG)
    }

    /// The series that is stored whole at a restart.
    fn whole(&self, index: usize) -> Result<&[u8], Malformed> {
        let mut cursor = self.restart(index)?;
        if cursor.varint()? != 0 {
            return Err(Malformed("a restart that is not whole"));
        }
        let len = cursor.varint()? as usize;
        cursor.take(len)
    }

    /// Index of the first series of the block at or after `series`, and whether it is equal.
    pub(crate) fn search(
        &self,
        series: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(usize, bool), Malformed> {
        let (mut low, mut high) = (0, self.restarts);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.whole(middle)? <= series {
                low = middle;
            } else {
                high = middle;
            }
        }
        let mut cursor = self.restart(low)?;
        scratch.clear();
        let mut index = low * RESTART;
        while cursor.remaining() > 0 {
            next_entry(&mut cursor, scratch)?;
            if scratch.as_slice() >= series {
                return Ok((index, scratch.as_slice() == series));
            }
            index += 1;
        }
        Ok((index, false))
    }

    /// Starts a walk over all series in order.
    pub(crate) fn walk(&self) -> SeriesWalk {
        SeriesWalk { block: self.clone(), at: 0, passed: 0, current: Vec::new() }
    }
}

/// Position in a series block.
#[derive(Clone, Debug)]
pub(crate) struct SeriesWalk {
    block: SeriesBlock,
    at: usize,
    /// Number of series before the next one.
    passed: usize,
    current: Vec<u8>,
}

impl SeriesWalk {
    /// Moves to the next series; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Malformed> {
        let rest = self.block.bytes.get(self.at..self.block.entries).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let mut cursor = Cursor::new(rest);
        next_entry(&mut cursor, &mut self.current)?;
        self.at += rest.len() - cursor.remaining();
        self.passed += 1;
        Ok(Some(&self.current))
    }

    /// Moves forward to the first series at or after `series`, starting with the current one. Returns its index
    /// in the block and whether it is equal; `None` if all series are less.
    pub(crate) fn seek(&mut self, series: &[u8]) -> Result<Option<(usize, bool)>, Malformed> {
        if self.passed > 0 && self.current.as_slice() >= series {
            return Ok(Some((self.passed - 1, self.current == series)));
        }
        self.jump(series)?;
        while let Some(current) = self.next()? {
            let order = current.cmp(series);
            if order.is_ge() {
                return Ok(Some((self.passed - 1, order.is_eq())));
            }
        }
        Ok(None)
    }

    /// Jumps to the last whole series that is not greater than `series`, if it is ahead.
    fn jump(&mut self, series: &[u8]) -> Result<(), Malformed> {
        let mut high = self.passed.div_ceil(RESTART);
        let (mut low, mut step) = (None, 1);
        while high < self.block.restarts && self.block.whole(high)? <= series {
            low = Some(high);
            high += step;
            step *= 2;
        }
        let Some(mut low) = low else { return Ok(()) };
        high = high.min(self.block.restarts);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.block.whole(middle)? <= series {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.start_at(low)
    }

    /// Moves forward to the series with an index in the block, or to one of the fifteen before it. Returns the
    /// number of series before the one that [`Self::next`] returns.
    pub(crate) fn skip_to(&mut self, index: usize) -> Result<usize, Malformed> {
        let restart = (index / RESTART).min(self.block.restarts - 1);
        if restart * RESTART > self.passed {
            self.start_at(restart)?;
        }
        Ok(self.passed)
    }

    /// Continues at a series that is stored whole.
    fn start_at(&mut self, restart: usize) -> Result<(), Malformed> {
        self.at = self.block.entries - self.block.restart(restart)?.remaining();
        self.passed = restart * RESTART;
        self.current.clear();
        Ok(())
    }

    pub(crate) fn current(&self) -> &[u8] {
        &self.current
    }
}

fn next_entry(cursor: &mut Cursor<'_>, series: &mut Vec<u8>) -> Result<(), Malformed> {
    let [shared, len] = [cursor.varint()? as usize, cursor.varint()? as usize];
    if shared > series.len() {
        return Err(Malformed("a series shares more than there is"));
    }
    series.truncate(shared);
    series.extend_from_slice(cursor.take(len)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn series() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0_u8..4, 0..6)
    }

    proptest! {
        #[test]
        fn search_and_walk_find_what_was_pushed(
            all in prop::collection::btree_set(series(), 1..200), wanted in series(),
        ) {
            let all: BTreeSet<Vec<u8>> = all;
            let mut builder = SeriesBlockBuilder::default();
            for series in &all {
                builder.push(series);
            }
            let mut bytes = Vec::new();
            builder.finish(&mut bytes);
            let block = SeriesBlock::open(bytes.into()).unwrap();
            let mut walk = block.walk();
            let mut found = Vec::new();
            while let Some(series) = walk.next().unwrap() {
                found.push(series.to_vec());
            }
            prop_assert!(found.iter().eq(all.iter()));
            let expected = all.range(..wanted.clone()).count();
            let got = block.search(&wanted, &mut Vec::new()).unwrap();
            prop_assert_eq!(got, (expected, all.contains(&wanted)));
        }

        #[test]
        fn seek_finds_ascending_series(
            all in prop::collection::btree_set(series(), 1..300),
            wanted in prop::collection::btree_set(series(), 0..300),
        ) {
            let mut builder = SeriesBlockBuilder::default();
            for series in &all {
                builder.push(series);
            }
            let mut bytes = Vec::new();
            builder.finish(&mut bytes);
            let mut walk = SeriesBlock::open(bytes.into()).unwrap().walk();
            for series in &wanted {
                let index = all.range(..series.clone()).count();
                let expected = (index < all.len()).then(|| (index, all.contains(series)));
                prop_assert_eq!(walk.seek(series).unwrap(), expected);
                if let Some((index, _)) = expected {
                    prop_assert_eq!(walk.current(), all.iter().nth(index).unwrap().as_slice());
                }
            }
        }

        #[test]
        fn skipped_series_are_those_before_an_index(
            all in prop::collection::btree_set(series(), 1..300),
            wanted in prop::collection::btree_set(0_usize..300, 0..20),
        ) {
            let mut builder = SeriesBlockBuilder::default();
            for series in &all {
                builder.push(series);
            }
            let mut bytes = Vec::new();
            builder.finish(&mut bytes);
            let mut walk = SeriesBlock::open(bytes.into()).unwrap().walk();
            let mut next = 0;
            for index in wanted.into_iter().filter(|index| *index < all.len()) {
                let passed = walk.skip_to(index).unwrap();
                prop_assert!(passed >= next && passed <= index && index - passed < RESTART + 1);
                for _ in passed..=index {
                    walk.next().unwrap();
                }
                next = index + 1;
                prop_assert_eq!(walk.current(), all.iter().nth(index).unwrap().as_slice());
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(
            bytes in prop::collection::vec(prop_oneof![0_u8..5, any::<u8>()], 0..80),
            wanted in series(),
        ) {
            let Ok(block) = SeriesBlock::open(bytes.into()) else { return Ok(()) };
            let _ = block.search(&wanted, &mut Vec::new());
            let _ = block.walk().seek(&wanted);
            let mut walk = block.walk();
            while let Ok(Some(_)) = walk.next() {}
        }
    }
}
