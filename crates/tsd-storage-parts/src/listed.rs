//! Finds the series of a sorted list in a section.
//!
//! The list and the names of the section are walked together. Each search starts where the previous one ended,
//! and its steps double. So a list of most series costs about one comparison for each, and a short list skips the
//! names between its entries.

use std::sync::Arc;

use crate::{
    error::PartError, section_reader::SectionReader, series_block::SeriesWalk,
    series_selection::SeriesSelection,
};

/// Yields the series of a sorted list that a section has, in order.
#[derive(Debug)]
pub(crate) struct ListedSeries {
    selection: Arc<SeriesSelection>,
    /// Index of the next series in the list.
    next: usize,
    /// Index of the current block of names and the position of the last search in it; `None` if its names are
    /// lost.
    block: Option<(usize, Option<SeriesWalk>)>,
}

impl ListedSeries {
    /// A selection that is not a list yields no series.
    pub(crate) const fn new(selection: Arc<SeriesSelection>) -> Self {
        Self { selection, next: 0, block: None }
    }

    /// The next series of the list that the section has, with its ordinal; `None` after the last.
    pub(crate) fn next(
        &mut self,
        SectionReader { part, head, how, damage, .. }: &SectionReader,
    ) -> Result<Option<(u32, &[u8])>, PartError> {
        let SeriesSelection::Some(list) = &*self.selection else { return Ok(None) };
        let blocks = &head.series_blocks;
        while let Some(series) = list.get(self.next) {
            let from = self.block.as_ref().map_or(0, |(index, _)| *index);
            let after = gallop(blocks, from, |place| place.first.as_ref() <= series.as_slice());
            let Some((index, place)) =
                after.checked_sub(1).and_then(|index| Some((index, blocks.get(index)?)))
            else {
                // The list begins before the first series of the section.
                let Some(first) = blocks.first() else { return Ok(None) };
                self.next = gallop(list, self.next, |series| series.as_slice() < &*first.first);
                continue;
            };
            let malformed = || part.malformed(place.block.offset);
            let walk = match &mut self.block {
                Some((open, walk)) if *open == index => walk,
                open => {
                    let read = || part.read_series(&place.block, *how);
                    let block = damage.read(part, &place.block, read)?;
                    &mut open.insert((index, block.map(|block| block.walk()))).1
                }
            };
            let Some(walk) = walk else {
                // The reader skips lost names. The head has the first name of the block.
                self.next += 1;
                if *place.first == **series {
                    return Ok(Some((place.first_ordinal, series)));
                }
                continue;
            };
            match walk.seek(series).map_err(malformed())? {
                Some((at, true)) => {
                    let ordinal = place.first_ordinal + at as u32;
                    self.next += 1;
                    return Ok(Some((ordinal, list.get(self.next - 1).map_or(&[], Vec::as_slice))));
                }
                Some((_, false)) => {
                    let current = walk.current();
                    self.next = gallop(list, self.next + 1, |series| series.as_slice() < current);
                }
                None => self.next += 1,
            }
        }
        Ok(None)
    }
}

/// Index of the first item at or after `from` for which `is_before` is false. The items must be partitioned by
/// it.
pub(crate) fn gallop<T>(items: &[T], from: usize, is_before: impl Fn(&T) -> bool) -> usize {
    let rest = items.get(from..).unwrap_or_default();
    let (mut passed, mut step) = (0, 1);
    while rest.get(passed + step - 1).is_some_and(&is_before) {
        passed += step;
        step *= 2;
    }
    let window = rest.get(passed..rest.len().min(passed + step)).unwrap_or_default();
    from + passed + window.partition_point(is_before)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::gallop;

    proptest! {
        #[test]
        fn gallop_finds_the_first_item_that_is_not_before(
            mut items in prop::collection::vec(0_u8..40, 0..80), from in 0_usize..80, wanted in 0_u8..41,
        ) {
            items.sort_unstable();
            let from = from.min(items.partition_point(|item| *item < wanted));
            let expected = items.partition_point(|item| *item < wanted);
            prop_assert_eq!(gallop(&items, from, |item| *item < wanted), expected);
        }
    }
}
