//! The response to a Multi, matched with its request.
//!
//! Results are matched by index in their region, because a server executes reads immediately and
//! writes in batches at the end. Atomic actions have one result for all: their indices are ignored
//! by the server.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::encoding::decode_varint;

use crate::{
    cell::CellError,
    exception::RemoteException,
    row::{CellBlock, RowResult},
};

/// Outcome of the actions of one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionOutcome {
    /// Each action by itself, in the order of the request.
    Each(Vec<ActionOutcome>),
    /// All actions or none.
    Group {
        /// True if the condition held, or the actions had no condition. Servers before 2.4 do not
        /// report it.
        processed: Option<bool>,
        /// New values of increments and appends.
        result: RowResult,
    },
    /// None was executed.
    Failed(RemoteException),
}

/// Outcome of one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionOutcome {
    /// Executed.
    Done(RowResult),
    /// Not executed.
    Failed(RemoteException),
    /// Missing in the response. The action may have been executed.
    Lost,
}

/// A response that does not fit its request. Any of the actions may have been executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MultiError {
    /// The number of regions differs.
    #[error("{found} outcomes for {expected} regions")]
    Regions {
        /// Regions of the request.
        expected: usize,
        /// Regions of the response.
        found: usize,
    },
    /// The cells do not match their counts.
    #[error("cells of the response do not match their counts")]
    Cells(#[from] CellError),
}

/// Matches a response with its request: for each region the number of actions, and whether they
/// were atomic.
///
/// # Errors
///
/// If the regions or the cells do not add up.
pub fn multi_outcomes(
    regions: &[(usize, bool)],
    response: &pb::MultiResponse,
    block: Bytes,
) -> Result<Vec<RegionOutcome>, MultiError> {
    let results = &response.region_action_result;
    if results.len() != regions.len() {
        return Err(MultiError::Regions { expected: regions.len(), found: results.len() });
    }
    let mut block = CellBlock::new(block);
    let outcomes = regions
        .iter()
        .zip(results)
        .map(|((actions, atomic), result)| region_outcome(*actions, *atomic, result, &mut block))
        .collect::<Result<_, _>>()?;
    block.finish()?;
    Ok(outcomes)
}

fn region_outcome(
    actions: usize,
    atomic: bool,
    result: &pb::RegionActionResult,
    block: &mut CellBlock,
) -> Result<RegionOutcome, CellError> {
    if let Some(exception) = &result.exception {
        return Ok(RegionOutcome::Failed(RemoteException::from_pair(exception)));
    }
    if atomic {
        return group_outcome(result, block);
    }
    let mut outcomes = vec![ActionOutcome::Lost; actions];
    for entry in &result.result_or_exception {
        let outcome = action_outcome(entry, block)?;
        // The cells of an unknown index have been read from the block too.
        if let Some(slot) = outcomes.get_mut(entry.index() as usize) {
            *slot = outcome;
        }
    }
    Ok(RegionOutcome::Each(outcomes))
}

fn group_outcome(
    result: &pb::RegionActionResult,
    block: &mut CellBlock,
) -> Result<RegionOutcome, CellError> {
    let mut merged = None;
    for entry in &result.result_or_exception {
        match action_outcome(entry, block)? {
            ActionOutcome::Failed(exception) => return Ok(RegionOutcome::Failed(exception)),
            ActionOutcome::Done(result) => {
                merged.get_or_insert(result);
            }
            ActionOutcome::Lost => {}
        }
    }
    let processed = result.processed;
    Ok(RegionOutcome::Group { processed, result: merged.unwrap_or_default() })
}

fn action_outcome(
    entry: &pb::ResultOrException,
    block: &mut CellBlock,
) -> Result<ActionOutcome, CellError> {
    Ok(match (&entry.exception, &entry.result) {
        (Some(exception), _) => ActionOutcome::Failed(RemoteException::from_pair(exception)),
        (None, Some(result)) => ActionOutcome::Done(RowResult::decode(result, block)?),
        // Entries of atomic actions have an index only.
        (None, None) => ActionOutcome::Lost,
    })
}

/// True if a response reports that every action was executed, and nothing else. Takes the number
/// of actions of each region.
///
/// False means only that the response must be decoded.
pub(super) fn all_done(message: &[u8], mut regions: impl Iterator<Item = usize>) -> bool {
    let mut rest = message;
    while !rest.is_empty() {
        match field(&mut rest) {
            Some((1, FieldValue::Bytes(region))) => {
                let Some(actions) = regions.next() else { return false };
                if region_done(region, actions) != Some(true) {
                    return false;
                }
            }
            // Result of a condition, and load of the regions.
            Some((2 | 3, _)) => {}
            _ => return false,
        }
    }
    regions.next().is_none()
}

fn region_done(mut rest: &[u8], actions: usize) -> Option<bool> {
    let mut seen = vec![0_u64; actions.div_ceil(64)];
    let mut count = 0;
    while !rest.is_empty() {
        match field(&mut rest)? {
            (1, FieldValue::Bytes(entry)) => {
                let index = usize::try_from(entry_done(entry)?).ok().filter(|at| *at < actions)?;
                let word = seen.get_mut(index / 64)?;
                let bit = 1 << (index % 64);
                if *word & bit != 0 {
                    return Some(false);
                }
                *word |= bit;
                count += 1;
            }
            (3, _) => {}
            _ => return Some(false),
        }
    }
    Some(count == actions)
}

/// Returns the index of an entry that has a result and no exception.
fn entry_done(mut rest: &[u8]) -> Option<u64> {
    let (mut index, mut done) = (0, false);
    while !rest.is_empty() {
        match field(&mut rest)? {
            (1, FieldValue::Varint(at)) => index = at,
            // A result with cells belongs to an action whose result is not used.
            (2, FieldValue::Bytes(_)) => done = true,
            // Load and metrics.
            (5 | 6, _) => {}
            _ => return None,
        }
    }
    done.then_some(index)
}

/// Value of a protobuf field.
pub(super) enum FieldValue<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// Reads the next field.
pub(super) fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, FieldValue<'a>)> {
    let key = decode_varint(rest).ok()?;
    let value = match key & 7 {
        0 => FieldValue::Varint(decode_varint(rest).ok()?),
        2 => {
            let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
            FieldValue::Bytes(rest.split_off(..length)?)
        }
        _ => return None,
    };
    Some((key >> 3, value))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::{collection::vec, prelude::*};
    use prost::Message;

    use super::*;
    use crate::{exception::Recovery, recorded};

    /// Message and cell block of a recorded frame.
    pub(crate) fn recorded_message<M: Message + Default>(vector: &str) -> (M, Bytes) {
        let mut rest = recorded::vector(vector).slice(4..);
        let header = prost::decode_length_delimiter(&mut rest).unwrap();
        let mut rest = rest.slice(header..);
        let length = prost::decode_length_delimiter(&mut rest).unwrap();
        (M::decode(rest.split_to(length)).unwrap(), rest)
    }

    #[test]
    fn outcomes_are_matched_by_index() {
        let (response, block) = recorded_message::<pb::MultiResponse>("multi-response");
        let outcomes = multi_outcomes(&[(1, false), (3, false)], &response, block).unwrap();
        assert_eq!(
            outcomes[0],
            RegionOutcome::Each(vec![ActionOutcome::Done(RowResult::default())])
        );
        let RegionOutcome::Each(second) = &outcomes[1] else { panic!() };
        // The response has the indices 2 and 1, in that order.
        assert_eq!(second[0], ActionOutcome::Lost);
        assert!(
            matches!(&second[1], ActionOutcome::Failed(busy) if busy.recovery() == Recovery::SamePlace)
        );
        assert!(matches!(&second[2], ActionOutcome::Done(result) if result.row.len() == 1));
    }

    #[test]
    fn region_exception_fails_all_its_actions() {
        let (response, block) =
            recorded_message::<pb::MultiResponse>("multi-response-region-exception");
        let outcomes = multi_outcomes(&[(1, false), (2, false)], &response, block).unwrap();
        assert!(matches!(&outcomes[0], RegionOutcome::Each(_)));
        assert!(
            matches!(&outcomes[1], RegionOutcome::Failed(error) if error.recovery() == Recovery::Relocate)
        );
    }

    #[test]
    fn regions_and_cells_must_add_up() {
        let (response, block) = recorded_message::<pb::MultiResponse>("multi-response");
        let short = multi_outcomes(&[(1, false)], &response, block.clone());
        assert!(matches!(short, Err(MultiError::Regions { expected: 1, found: 2 })));
        let twice = Bytes::from([&block[..], &block[..]].concat());
        assert!(matches!(
            multi_outcomes(&[(1, false), (3, false)], &response, twice),
            Err(MultiError::Cells(_))
        ));
        let none = multi_outcomes(&[(1, false), (3, false)], &response, Bytes::new());
        assert!(matches!(none, Err(MultiError::Cells(_))));
    }

    #[test]
    fn atomic_actions_have_one_outcome() {
        let entry = |index| pb::ResultOrException {
            index: Some(index),
            ..pb::ResultOrException::default()
        };
        for processed in [false, true] {
            let result = pb::RegionActionResult {
                result_or_exception: vec![entry(0), entry(1)],
                processed: Some(processed),
                exception: None,
            };
            let response = pb::MultiResponse {
                region_action_result: vec![result],
                ..pb::MultiResponse::default()
            };
            let outcomes = multi_outcomes(&[(2, true)], &response, Bytes::new()).unwrap();
            let processed = Some(processed);
            let expected = RegionOutcome::Group { processed, result: RowResult::default() };
            assert_eq!(outcomes, [expected]);
        }
    }

    /// Actions of each region of a request.
    const TWO_REGIONS: [usize; 2] = [2, 1];

    fn entry(index: u32) -> pb::ResultOrException {
        let result = Some(pb::Result::default());
        pb::ResultOrException { index: Some(index), result, ..pb::ResultOrException::default() }
    }

    fn response(regions: &[Vec<pb::ResultOrException>]) -> pb::MultiResponse {
        let region = |entries: &Vec<_>| pb::RegionActionResult {
            result_or_exception: entries.clone(),
            processed: Some(true),
            exception: None,
        };
        pb::MultiResponse {
            region_action_result: regions.iter().map(region).collect(),
            processed: Some(true),
            ..pb::MultiResponse::default()
        }
    }

    #[track_caller]
    fn check(response: &pb::MultiResponse, expected: bool) {
        assert_eq!(all_done(&response.encode_to_vec(), TWO_REGIONS.into_iter()), expected);
    }

    #[test]
    fn all_is_done_if_every_action_has_a_result() {
        check(&response(&[vec![entry(0), entry(1)], vec![entry(0)]]), true);
        check(&response(&[vec![entry(1), entry(0)], vec![entry(0)]]), true);
        let mut loaded = entry(0);
        loaded.load_stats = Some(pb::RegionLoadStats::default());
        check(&response(&[vec![loaded, entry(1)], vec![entry(0)]]), true);
    }

    #[test]
    fn any_other_response_is_decoded() {
        check(&response(&[vec![entry(0), entry(1)]]), false);
        check(&response(&[vec![entry(0), entry(1)], vec![entry(0)], vec![]]), false);
        check(&response(&[vec![entry(0)], vec![entry(0)]]), false);
        check(&response(&[vec![entry(0), entry(0)], vec![entry(0)]]), false);
        check(&response(&[vec![entry(0), entry(2)], vec![entry(0)]]), false);
        check(&response(&[vec![entry(0), entry(1), entry(1)], vec![entry(0)]]), false);
        let exception = pb::NameBytesPair { name: "x".to_owned(), value: None };
        let mut failed = entry(1);
        failed.result = None;
        check(&response(&[vec![entry(0), failed.clone()], vec![entry(0)]]), false);
        failed.exception = Some(exception.clone());
        check(&response(&[vec![entry(0), failed.clone()], vec![entry(0)]]), false);
        failed.result = Some(pb::Result::default());
        check(&response(&[vec![entry(0), failed], vec![entry(0)]]), false);
        let mut region = response(&[vec![entry(0), entry(1)], vec![entry(0)]]);
        region.region_action_result[0].exception = Some(exception);
        check(&region, false);
    }

    proptest! {
        #[test]
        fn any_bytes_are_done_only_if_every_action_is(bytes in vec(any::<u8>(), 0..60)) {
            let bytes = Bytes::from(bytes);
            if all_done(&bytes, TWO_REGIONS.into_iter()) {
                let response = pb::MultiResponse::decode(bytes).unwrap();
                let outcomes = multi_outcomes(&[(2, false), (1, false)], &response, Bytes::new()).unwrap();
                for outcome in outcomes {
                    let RegionOutcome::Each(each) = outcome else { panic!("{outcome:?}") };
                    prop_assert!(each.iter().all(|one| matches!(one, ActionOutcome::Done(_))));
                }
            }
        }
    }
}
