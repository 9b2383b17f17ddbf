//! Mutations of one region in one call, encoded directly from their batches.
//!
//! They are sent in row order. A region server inserts mutations into a sorted map, where
//! consecutive rows share most of the search path. If rows of many callers are mixed, that search is
//! most of the server's cost of a put. The index of a mutation is its position before this sort, so
//! results need no mapping.

use super::{
    batch::{MutationBatch, MutationForm, prefix},
    pending_batch::MutationRange,
};
use crate::{
    multi::{ActionPosition, RegionEncoder, RegionShare},
    region::info::RegionLocation,
};

/// Mutations of one region in one call.
#[derive(Debug)]
pub(super) struct MutationShare {
    pub(super) location: RegionLocation,
    pub(super) ranges: Vec<MutationRange>,
    pub(super) mutations: usize,
}

impl MutationShare {
    pub(super) const fn new(location: RegionLocation) -> Self {
        Self { location, ranges: Vec::new(), mutations: 0 }
    }

    /// Returns the batch that has the mutation.
    fn batch(&self, position: &ActionPosition) -> Option<&MutationBatch> {
        self.ranges.get(position.list as usize).map(|range| &range.pending.batch)
    }

    fn row(&self, position: &ActionPosition) -> &[u8] {
        self.batch(position).map_or(&[], |batch| batch.row(position.at as usize))
    }

    /// Sorts the mutations by row; mutations of one row keep their order.
    fn sort(&self, order: &mut Vec<ActionPosition>) {
        let ranges = self.ranges.iter().zip(0..);
        let mutations = ranges
            .flat_map(|(range, list)| (range.from..range.to).map(move |at| (range, list, at)));
        order.clear();
        order.extend(mutations.zip(0..).map(|((range, list, at), index)| {
            let prefix = u128::from_be_bytes(prefix(range.pending.batch.row(at as usize)));
            ActionPosition { prefix, list, at, index }
        }));
        // Ranges are mostly sorted, which this sort takes advantage of.
        order.sort_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| self.row(a).cmp(self.row(b))));
    }
}

impl RegionShare for MutationShare {
    fn location(&self) -> &RegionLocation {
        &self.location
    }

    fn len(&self) -> usize {
        self.mutations
    }

    fn cell_bytes(&self) -> usize {
        self.ranges.iter().map(|range| range.cells().len()).sum()
    }

    fn encode(&self, out: &mut RegionEncoder<'_>) {
        let mut order = std::mem::take(out.order);
        self.sort(&mut order);
        // Adjacent mutations are copied together.
        let adjacent =
            |a: &ActionPosition, b: &ActionPosition| a.list == b.list && a.at + 1 == b.at;
        for positions in order.chunk_by(adjacent) {
            if let [first, ..] = positions
                && let Some(batch) = self.batch(first)
            {
                let from = first.at as usize;
                out.cells(batch.cells(from..from + positions.len()));
            }
        }
        for position in &order {
            let Some(batch) = self.batch(position) else { continue };
            let Some(entry) = batch.entry(position.at as usize) else { continue };
            match entry.form {
                MutationForm::Message(at) => {
                    if let Some(message) = batch.message(at) {
                        out.mutation(position.index, message);
                    }
                }
                MutationForm::Plain(kind) => {
                    let row = batch.row(position.at as usize);
                    out.plain_mutation(position.index, row, kind, entry.count);
                }
            }
        }
        *out.order = order;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use hbase_rs_protobuf as pb;
    use prost::Message;
    use tokio::{sync::Semaphore, time::Instant};

    use super::*;
    use crate::{
        buffer::{buffer_pool::BufferPool, pending_batch::PendingBatch},
        cell::Cells,
        multi::{Action, ActionShare, Encoder},
        region::info::Region,
        request::mutation::{Append, Delete, Mutation, Put},
        server_name::ServerName,
    };

    fn location(start: &str) -> RegionLocation {
        let region = Region::new("t".parse().unwrap(), start.to_owned().into(), Bytes::new(), 7);
        RegionLocation { region: Arc::new(region), server: ServerName::new("rs", 1, 1), seq_num: 1 }
    }

    fn share(location: RegionLocation, batch: MutationBatch) -> MutationShare {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_many_owned(1).unwrap();
        let pool = Arc::new(BufferPool::new(Arc::default()));
        let (pending, _) = PendingBatch::new(batch, Instant::now(), permit, Arc::default(), &pool);
        let whole = MutationRange::whole(Arc::new(pending));
        let mutations = whole.len();
        // The split of a batch makes no difference.
        let middle = mutations as u32 / 2;
        let ranges = vec![whole.part(0, middle), whole.part(middle, whole.to)];
        MutationShare { location, ranges, mutations }
    }

    fn batch(mutations: &[Mutation]) -> MutationBatch {
        let mut batch = MutationBatch::default();
        for mutation in mutations {
            batch.push(mutation.clone()).unwrap();
        }
        batch
    }

    fn put(row: &str, cells: u64) -> Mutation {
        let add = |put: Put, at: u64| put.cell(b"f", b"q", at, b"value").unwrap();
        (0..cells).fold(Put::try_new(row.to_owned()).unwrap(), add).into()
    }

    #[test]
    fn request_equals_that_of_actions() {
        let delete = Delete::try_new("d").unwrap();
        let column = Delete::try_new("e").unwrap().column(b"f", b"q", 9).unwrap();
        let append =
            Append::try_new("x").unwrap().value(b"f", b"q", b"!").unwrap().without_result();
        let first = vec![put("a", 1), put("b", 200), delete.into(), column.into()];
        let second: Vec<_> =
            (0..300).map(|at| put(&format!("m{at:03}"), 2)).chain([append.into()]).collect();
        let shares = [share(location("a"), batch(&first)), share(location("m"), batch(&second))];
        let mut encoder = Encoder::default();
        let (message, cells) = encoder.encode(&shares, 77);
        let encoded = pb::MultiRequest::decode(&message.0[..]).unwrap();

        let actions = |mutations: Vec<Mutation>| -> Vec<Action> {
            mutations.into_iter().map(Action::from).collect()
        };
        let (first, second) = (actions(first), actions(second));
        let of = |share: &MutationShare, actions: &'static [Action]| ActionShare {
            actions: actions.iter().enumerate().collect(),
            ..ActionShare::new(share.location.clone())
        };
        let expected = [of(&shares[0], first.leak()), of(&shares[1], second.leak())];
        let (expected, block) = Encoder::default().encode(&expected, 77);
        let expected = pb::MultiRequest::decode(expected.0).unwrap();
        // Each encoding of an append has a new nonce.
        let without_nonces = |mut request: pb::MultiRequest| {
            for action in request.region_action.iter_mut().flat_map(|region| &mut region.action) {
                if let Some(mutation) = &mut action.mutation {
                    mutation.nonce = None;
                }
            }
            request
        };
        assert!(encoded.region_action[1].action[300].mutation.as_ref().unwrap().nonce() > 0);
        assert_eq!(without_nonces(encoded), without_nonces(expected));
        assert_eq!(cells, block);

        // The encoder reuses the memory.
        encoder.recycle(message, cells);
        let capacity = encoder.capacity();
        assert!(capacity >= block.len());
        let (message, cells) = encoder.encode(&shares[1..], 78);
        let seen = pb::MultiRequest::decode(&message.0[..]).unwrap();
        assert_eq!((seen.region_action.len(), seen.nonce_group), (1, Some(78)));
        assert_eq!(Cells::new(&cells).map(Result::unwrap).count(), 601);
        encoder.recycle(message, cells);
        assert_eq!(encoder.capacity(), capacity);
    }

    #[test]
    fn mutations_of_a_region_are_sorted_by_row_and_keep_their_indices() {
        // Rows with a long common prefix, with a short one, and one that occurs twice.
        let rows =
            ["m-and-so-on-until-7", "n", "m-and-so-on-until-5", "m", "n", "m-and-so-on-until-6"];
        let mutations: Vec<_> = rows.iter().zip(1..).map(|(row, cells)| put(row, cells)).collect();
        let mut one = share(location("m"), batch(&mutations[..4]));
        let other = share(location("m"), batch(&mutations[4..]));
        one.mutations += other.mutations;
        one.ranges.extend(other.ranges);
        let (message, block) = Encoder::default().encode(&[one], 1);
        let request = pb::MultiRequest::decode(&message.0[..]).unwrap();
        let seen: Vec<_> = request.region_action[0]
            .action
            .iter()
            .map(|action| {
                let mutation = action.mutation.as_ref().unwrap();
                let row = String::from_utf8(mutation.row().to_vec()).unwrap();
                (row, action.index(), mutation.associated_cell_count())
            })
            .collect();
        // The batch has sorted its mutations by row prefix before; these are the indices after that.
        let expected = [
            ("m", 0, 4),
            ("m-and-so-on-until-5", 2, 3),
            ("m-and-so-on-until-6", 4, 6),
            ("m-and-so-on-until-7", 1, 1),
            ("n", 3, 2),
            ("n", 5, 5),
        ]
        .map(|(row, index, cells)| (row.to_owned(), index, cells));
        assert_eq!(seen, expected);
        let mut cells = Cells::new(&block);
        for (row, _, count) in seen {
            for _ in 0..count {
                assert_eq!(cells.next().unwrap().unwrap().row, row.as_bytes());
            }
        }
        assert!(cells.next().is_none());
    }
}
