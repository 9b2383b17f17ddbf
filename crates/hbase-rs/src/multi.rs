//! Many actions in one call to a server.
//!
//! Answers are matched by index inside a region, because a server runs reads as it meets them and
//! writes in batches at the end; actions that must all happen or none are matched by place, because
//! there it ignores the indices. Cells lie in the block in the order of the actions, and the server
//! passes over those of actions that it will not run by their count alone, so counts are exact.

use bytes::{Bytes, BytesMut};
use hbase_rs_protobuf as pb;
use pb::region_specifier::RegionSpecifierType;

use crate::{
    cell::CellError,
    exception::RemoteException,
    request::{
        condition::Condition,
        get::Get,
        mutation::{CellPlacement, Mutation},
    },
    row::{CellBlock, RowResult},
};

/// One step of a Multi.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Reads a row.
    Get(Get),
    /// Changes a row; the nonce stays the same on every attempt.
    Mutate(Mutation, Option<u64>),
}

impl From<Get> for Action {
    fn from(get: Get) -> Self {
        Self::Get(get)
    }
}

impl<M: Into<Mutation>> From<M> for Action {
    fn from(mutation: M) -> Self {
        Self::Mutate(mutation.into(), None)
    }
}

impl Action {
    /// Row it is about.
    #[must_use]
    pub const fn row(&self) -> &Bytes {
        match self {
            Self::Get(get) => get.row(),
            Self::Mutate(mutation, _) => mutation.row(),
        }
    }

    /// Bytes of cells it brings along.
    #[must_use]
    pub fn cell_bytes(&self) -> usize {
        match self {
            Self::Get(_) => 0,
            Self::Mutate(mutation, _) => mutation.encoded_cells().len(),
        }
    }
}

/// Actions for one region.
#[derive(Clone, Debug)]
pub struct RegionBatch<'a> {
    /// Whole name of the region.
    pub region: &'a Bytes,
    /// What to do, in the order of the answers.
    pub actions: Vec<&'a Action>,
    /// Whether all must happen or none. They are of one row then, and reads are not among them.
    pub atomic: bool,
    /// What must hold for that; only with `atomic`.
    pub condition: Option<&'a Condition>,
}

/// Names a region towards a region server, which takes whole names only.
pub(crate) fn region_specifier(name: &Bytes) -> pb::RegionSpecifier {
    pb::RegionSpecifier { r#type: RegionSpecifierType::RegionName.into(), value: name.clone() }
}

/// The request; its cells are added to `block`.
#[must_use]
pub fn multi_request(
    batches: &[RegionBatch<'_>],
    nonce_group: u64,
    block: &mut BytesMut,
) -> pb::MultiRequest {
    block.reserve(
        batches.iter().flat_map(|batch| &batch.actions).map(|action| action.cell_bytes()).sum(),
    );
    let region_action = batches.iter().map(|batch| region_action(batch, block)).collect();
    pb::MultiRequest { region_action, nonce_group: Some(nonce_group), condition: None }
}

fn region_action(batch: &RegionBatch<'_>, block: &mut BytesMut) -> pb::RegionAction {
    let action = |(index, action): (usize, &&Action)| {
        let index = Some(index as u32);
        match action {
            Action::Get(get) => {
                pb::Action { index, get: Some(get.to_message()), ..pb::Action::default() }
            }
            Action::Mutate(mutation, nonce) => {
                block.extend_from_slice(mutation.encoded_cells());
                let mutation = Some(mutation.to_message(CellPlacement::Block, *nonce));
                pb::Action { index, mutation, ..pb::Action::default() }
            }
        }
    };
    let row = batch.actions.first().map(|action| action.row());
    pb::RegionAction {
        region: region_specifier(batch.region),
        atomic: batch.atomic.then_some(true),
        condition: batch.condition.zip(row).map(|(condition, row)| condition.to_message(row)),
        action: batch.actions.iter().enumerate().map(action).collect(),
    }
}

/// What became of the actions of one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionOutcome {
    /// Each by itself, in the order of the actions.
    Each(Vec<ActionOutcome>),
    /// All or none.
    Group {
        /// Whether the condition held; true without one.
        processed: bool,
        /// New values of increments and appends.
        result: RowResult,
    },
    /// None was done.
    Failed(RemoteException),
}

/// What became of one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionOutcome {
    /// Done.
    Done(RowResult),
    /// Not done.
    Failed(RemoteException),
    /// The server does not say. It may have been done.
    Lost,
}

/// An answer that does not fit its request. Nobody knows what was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MultiError {
    /// One outcome a region was expected.
    #[error("{found} outcomes for {expected} regions")]
    Regions {
        /// Regions asked.
        expected: usize,
        /// Outcomes that came.
        found: usize,
    },
    /// The cells do not fit their counts.
    #[error("cells of the answer do not fit")]
    Cells(#[from] CellError),
}

/// Matches an answer with the batches it is for: of each the number of actions, and whether atomic.
///
/// # Errors
///
/// When regions or cells do not add up.
pub fn multi_outcomes(
    batches: &[(usize, bool)],
    response: &pb::MultiResponse,
    block: Bytes,
) -> Result<Vec<RegionOutcome>, MultiError> {
    let results = &response.region_action_result;
    if results.len() != batches.len() {
        return Err(MultiError::Regions { expected: batches.len(), found: results.len() });
    }
    let mut block = CellBlock::new(block);
    let outcomes = batches
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
        // An index that was not sent has its cells taken off the block all the same.
        if let Some(place) = outcomes.get_mut(entry.index() as usize) {
            *place = outcome;
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
    let processed = result.processed.unwrap_or(true);
    Ok(RegionOutcome::Group { processed, result: merged.unwrap_or_default() })
}

fn action_outcome(
    entry: &pb::ResultOrException,
    block: &mut CellBlock,
) -> Result<ActionOutcome, CellError> {
    Ok(match (&entry.exception, &entry.result) {
        (Some(exception), _) => ActionOutcome::Failed(RemoteException::from_pair(exception)),
        (None, Some(result)) => ActionOutcome::Done(RowResult::decode(result, block)?),
        // Entries of a group have an index and nothing else.
        (None, None) => ActionOutcome::Lost,
    })
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::{
        exception::Recovery,
        recorded,
        request::{mutation::Put, selection::Selection},
    };

    fn message<M: Message + Default>(vector: &str) -> (M, Bytes) {
        let mut rest = recorded::vector(vector).slice(4..);
        let header = prost::decode_length_delimiter(&mut rest).unwrap();
        let mut rest = rest.slice(header..);
        let length = prost::decode_length_delimiter(&mut rest).unwrap();
        (M::decode(rest.split_to(length)).unwrap(), rest)
    }

    #[test]
    fn cells_lie_in_the_order_of_the_actions() {
        let (expected, expected_block) = message::<pb::MultiRequest>("multi-request");
        let put = |action: &pb::Action, cells: &mut Bytes| {
            let mutation = action.mutation.as_ref().unwrap();
            let count = mutation.associated_cell_count() as usize;
            let row = CellBlock::new(cells.clone()).take(count).unwrap();
            *cells = cells.slice(row.encoded().len()..);
            let empty = Put::try_new(mutation.row.clone().unwrap()).unwrap();
            let add = |put: Put, cell: crate::cell::Cell<'_>| {
                put.cell(cell.family, cell.qualifier, cell.timestamp, cell.value).unwrap()
            };
            Action::Mutate(row.cells().fold(empty, add).into(), None)
        };
        let mut cells = expected_block.clone();
        let [first, second] = &expected.region_action[..] else { panic!() };
        let a = put(&first.action[0], &mut cells);
        let b = put(&second.action[0], &mut cells);
        let get = second.action[1].get.as_ref().unwrap();
        let selection = get
            .column
            .iter()
            .fold(Selection::all(), |all, column| all.family(column.family.clone()));
        let c = Action::Get(Get::try_new(get.row.clone()).unwrap().select(selection));
        let batch =
            |region, actions| RegionBatch { region, actions, atomic: false, condition: None };
        let batches =
            [batch(&first.region.value, vec![&a]), batch(&second.region.value, vec![&b, &c])];
        let mut block = BytesMut::new();
        let request = multi_request(&batches, 5, &mut block);
        assert_eq!(block, expected_block);
        assert_eq!(request.region_action.len(), 2);
        let counts = |request: &pb::MultiRequest| -> Vec<Vec<Option<i32>>> {
            let count = |action: &pb::Action| {
                action.mutation.as_ref().and_then(|mutation| mutation.associated_cell_count)
            };
            request
                .region_action
                .iter()
                .map(|region| region.action.iter().map(count).collect())
                .collect()
        };
        assert_eq!(counts(&request), counts(&expected));
        assert_eq!(request.nonce_group, Some(5));
    }

    #[test]
    fn outcomes_are_matched_by_index() {
        let (response, block) = message::<pb::MultiResponse>("multi-response");
        let outcomes = multi_outcomes(&[(1, false), (3, false)], &response, block).unwrap();
        assert_eq!(
            outcomes[0],
            RegionOutcome::Each(vec![ActionOutcome::Done(RowResult::default())])
        );
        let RegionOutcome::Each(second) = &outcomes[1] else { panic!() };
        // The region's answer speaks of the indices 2 and 1, in that order.
        assert_eq!(second[0], ActionOutcome::Lost);
        assert!(
            matches!(&second[1], ActionOutcome::Failed(busy) if busy.recovery() == Recovery::SamePlace)
        );
        assert!(matches!(&second[2], ActionOutcome::Done(result) if result.row.len() == 1));
    }

    #[test]
    fn a_region_fails_as_a_whole() {
        let (response, block) = message::<pb::MultiResponse>("multi-response-region-exception");
        let outcomes = multi_outcomes(&[(1, false), (2, false)], &response, block).unwrap();
        assert!(matches!(&outcomes[0], RegionOutcome::Each(_)));
        assert!(
            matches!(&outcomes[1], RegionOutcome::Failed(error) if error.recovery() == Recovery::Relocate)
        );
    }

    #[test]
    fn regions_and_cells_must_add_up() {
        let (response, block) = message::<pb::MultiResponse>("multi-response");
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
    fn a_group_is_one_outcome() {
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
            let expected = RegionOutcome::Group { processed, result: RowResult::default() };
            assert_eq!(outcomes, [expected]);
        }
    }
}
