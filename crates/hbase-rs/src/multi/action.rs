//! Actions of callers, as messages.

use bytes::Bytes;

use super::encode::{RegionEncoder, RegionShare};
use crate::{
    region::info::RegionLocation,
    request::{condition::Condition, get::Get, mutation::Mutation},
};

/// One action of a Multi.
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
    /// Row that it reads or changes.
    #[must_use]
    pub const fn row(&self) -> &Bytes {
        match self {
            Self::Get(get) => get.row(),
            Self::Mutate(mutation, _) => mutation.row(),
        }
    }

    /// Bytes of its encoded cells.
    #[must_use]
    pub fn cell_bytes(&self) -> usize {
        match self {
            Self::Get(_) => 0,
            Self::Mutate(mutation, _) => mutation.encoded_cells().len(),
        }
    }

    /// True if a retry is safe although a failed attempt may have executed the action.
    pub(crate) fn is_repeatable(&self) -> bool {
        match self {
            Self::Get(_) => true,
            Self::Mutate(mutation, _) => mutation.is_repeatable(),
        }
    }
}

/// Actions of one region in one call, each with its index in the batch of the caller.
#[derive(Debug)]
pub(crate) struct ActionShare<'a> {
    pub(crate) location: RegionLocation,
    pub(crate) actions: Vec<(usize, &'a Action)>,
    /// True if all actions must be executed or none. Then they are mutations of one row.
    pub(crate) atomic: bool,
    /// Condition of an atomic share.
    pub(crate) condition: Option<&'a Condition>,
}

impl<'a> ActionShare<'a> {
    /// Returns a share without actions.
    pub(crate) const fn new(location: RegionLocation) -> Self {
        Self { location, actions: Vec::new(), atomic: false, condition: None }
    }

    /// Returns a share of mutations of one row that are executed together.
    pub(crate) fn atomic(
        location: RegionLocation,
        mutations: &'a [Action],
        condition: Option<&'a Condition>,
    ) -> Self {
        let actions = mutations.iter().enumerate().collect();
        Self { location, actions, atomic: true, condition }
    }
}

impl RegionShare for ActionShare<'_> {
    fn location(&self) -> &RegionLocation {
        &self.location
    }

    fn len(&self) -> usize {
        self.actions.len()
    }

    fn is_atomic(&self) -> bool {
        self.atomic
    }

    fn cell_bytes(&self) -> usize {
        self.actions.iter().map(|(_, action)| action.cell_bytes()).sum()
    }

    fn encode(&self, out: &mut RegionEncoder<'_>) {
        if self.atomic {
            out.atomic();
        }
        for ((_, action), index) in self.actions.iter().zip(0..) {
            match action {
                Action::Get(get) => out.get(index, &get.to_message()),
                Action::Mutate(mutation, nonce) => {
                    out.cells(mutation.encoded_cells());
                    out.mutation(index, &mutation.to_message(*nonce));
                }
            }
        }
        let row = self.actions.first().map(|(_, action)| action.row());
        if let Some((condition, row)) = self.condition.zip(row) {
            out.condition(&condition.to_message(row));
        }
    }
}

#[cfg(test)]
mod tests {
    use hbase_rs_protobuf as pb;
    use prost::Message;

    use super::*;
    use crate::{
        multi::{Encoder, outcome::tests::recorded_message},
        region::{info::Region, name::region_specifier},
        request::{mutation::Put, selection::Selection},
        row::CellBlock,
        server_name::ServerName,
    };

    fn location(start: &str) -> RegionLocation {
        let region = Region::new("t".parse().unwrap(), start.to_owned().into(), Bytes::new(), 7);
        RegionLocation { region: region.into(), server: ServerName::new("rs", 1, 1), seq_num: 1 }
    }

    #[test]
    fn cells_are_in_the_order_of_the_actions() {
        let (expected, expected_block) = recorded_message::<pb::MultiRequest>("multi-request");
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
        let shares = [
            ActionShare { actions: vec![(0, &a)], ..ActionShare::new(location("a")) },
            ActionShare { actions: vec![(1, &b), (2, &c)], ..ActionShare::new(location("m")) },
        ];
        let (message, block) = Encoder::default().encode(&shares, 5);
        let request = pb::MultiRequest::decode(message.0).unwrap();
        assert_eq!(block, expected_block);
        assert_eq!(request.nonce_group, Some(5));
        assert_eq!(request.region_action.len(), 2);
        for ((region, share), expected) in
            request.region_action.iter().zip(&shares).zip(&expected.region_action)
        {
            assert_eq!(region.region, region_specifier(share.location.region.name()));
            assert_eq!((region.atomic, &region.condition), (None, &None));
            for (at, (action, expected)) in region.action.iter().zip(&expected.action).enumerate() {
                assert_eq!(action.index, Some(at as u32));
                let get = |action: &pb::Action| {
                    action.get.as_ref().map(|get| (get.row.clone(), get.column.clone()))
                };
                assert_eq!(get(action), get(expected));
                let count = |action: &pb::Action| action.mutation.as_ref()?.associated_cell_count;
                assert_eq!(count(action), count(expected));
            }
            assert_eq!(region.action.len(), expected.action.len());
        }
    }

    #[test]
    fn atomic_share_has_its_flag_and_condition() {
        let put = Put::try_new("r").unwrap().cell(b"f", b"q", 1, b"v").unwrap();
        let actions = [Action::from(put.clone()), put.into()];
        let condition = Condition::absent("f", "q");
        let share = ActionShare::atomic(location("a"), &actions, Some(&condition));
        let (message, block) = Encoder::default().encode(&[share], 1);
        let request = pb::MultiRequest::decode(message.0).unwrap();
        let region = &request.region_action[0];
        assert_eq!(region.atomic, Some(true));
        assert_eq!(region.condition, Some(condition.to_message(&"r".into())));
        assert_eq!(region.action.len(), 2);
        assert_eq!(region.action[1].index, Some(1));
        assert_eq!(block.len(), actions.iter().map(Action::cell_bytes).sum::<usize>());
    }
}
