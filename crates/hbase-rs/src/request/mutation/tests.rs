use prost::Message;

use super::*;
use crate::recorded;

/// Mutation and cell block of a recorded request.
fn recorded_mutation(vector: &str) -> (pb::MutationProto, Bytes) {
    let mut rest = recorded::vector(vector).slice(4..);
    let header = prost::decode_length_delimiter(&mut rest).unwrap();
    let mut rest = rest.slice(header..);
    let length = prost::decode_length_delimiter(&mut rest).unwrap();
    let request = pb::MutateRequest::decode(rest.split_to(length)).unwrap();
    (request.mutation, rest)
}

/// Compares with a recorded mutation, which says defaults that we leave out.
#[track_caller]
fn check(vector: &str, mutation: &Mutation, place: CellPlace, nonce: Option<u64>) {
    let (mut expected, block) = recorded_mutation(vector);
    expected.timestamp = expected.timestamp.filter(|time| *time != SERVER_TIME);
    expected.durability = expected.durability.filter(|durability| *durability != 0);
    for value in expected.column_value.iter_mut().flat_map(|family| &mut family.qualifier_value) {
        value.timestamp = value.timestamp.filter(|time| *time != SERVER_TIME);
        if value.delete_type.is_some() {
            value.value = None;
        }
    }
    expected.time_range = expected.time_range.filter(|range| range.to != Some(SERVER_TIME));
    expected.nonce = expected.nonce.filter(|nonce| *nonce != 0);
    assert_eq!(mutation.to_message(place, nonce), expected);
    if place == CellPlace::Block {
        assert_eq!(mutation.encoded_cells(), block);
    }
}

const ROW: [u8; 13] = [0, 0, 1, 0x65, 0x52, 0, 0, 0, 0, 1, 0, 0, 2];
const TIME: u64 = 1_700_000_000_123;

fn put() -> Put {
    Put::try_new(ROW.to_vec()).unwrap().cell(b"t", &[0, 0xf3], TIME, &[0, 0, 0, 42]).unwrap()
}

#[test]
fn a_put_travels_in_the_message_or_in_the_block() {
    check("mutate-put-protobuf", &put().into(), CellPlace::Message, None);
    check("mutate-put-cellblock", &put().into(), CellPlace::Block, None);
}

#[test]
fn a_delete_says_how_far_it_reaches() {
    let (expected, _) = recorded_mutation("mutate-delete-column");
    let time = expected.column_value[0].qualifier_value[0].timestamp.unwrap_or(SERVER_TIME);
    let delete = Delete::try_new(ROW.to_vec()).unwrap().column(b"t", &[0, 0xf3], time).unwrap();
    check("mutate-delete-column", &delete.into(), CellPlace::Message, None);
}

#[test]
fn increments_and_appends_carry_a_nonce() {
    let (expected, _) = recorded_mutation("mutate-increment");
    let increment = Increment::try_new(vec![0]).unwrap().counter(b"id", b"metrics", 1).unwrap();
    check("mutate-increment", &increment.into(), CellPlace::Message, expected.nonce);
    let (expected, _) = recorded_mutation("mutate-append");
    let value = expected.column_value[0].qualifier_value[0].value.clone().unwrap();
    let append = Append::try_new(ROW.to_vec()).unwrap().value(b"t", &[5, 0, 0], &value).unwrap();
    check(
        "mutate-append",
        &append.into(),
        CellPlace::Message,
        expected.nonce.filter(|nonce| *nonce != 0),
    );
}

#[test]
fn a_whole_row_is_deleted_without_cells_or_count() {
    let delete: Mutation = Delete::try_new("r").unwrap().up_to(7).into();
    for place in [CellPlace::Block, CellPlace::Message] {
        let message = delete.to_message(place, None);
        assert_eq!(message.associated_cell_count, None);
        assert_eq!(message.timestamp, Some(7));
        assert!(message.column_value.is_empty());
    }
    assert!(delete.encoded_cells().is_empty());
}

#[test]
fn an_empty_value_is_present_in_a_put() {
    let put: Mutation = Put::try_new("r").unwrap().cell(b"f", b"", 1, b"").unwrap().into();
    let message = put.to_message(CellPlace::Message, None);
    assert_eq!(message.column_value[0].qualifier_value[0].value, Some(Bytes::new()));
}

#[test]
fn only_the_newest_version_is_not_deleted_twice() {
    let delete = || Delete::try_new("r").unwrap();
    let newest: Mutation = delete().version(b"f", b"q", SERVER_TIME).unwrap().into();
    assert!(!newest.is_repeatable());
    let one: Mutation = delete().version(b"f", b"q", 5).unwrap().into();
    assert!(one.is_repeatable());
    let column: Mutation = delete().column(b"f", b"q", SERVER_TIME).unwrap().into();
    assert!(column.is_repeatable());
    assert!(Mutation::from(put()).is_repeatable());
    assert!(!Mutation::from(put()).needs_nonce());
}

#[test]
fn results_that_nobody_wants_are_not_asked_for() {
    let increment =
        Increment::try_new("r").unwrap().counter(b"f", b"q", 1).unwrap().without_result();
    let message = Mutation::from(increment).to_message(CellPlace::Block, Some(9));
    let names: Vec<_> =
        message.attribute.iter().map(|pair| (pair.name.as_str(), pair.value())).collect();
    assert_eq!(names, [("_rr_", &[0][..])]);
    assert_eq!(message.nonce, Some(9));
}

#[test]
fn what_no_server_takes_is_refused_here() {
    assert_eq!(Put::try_new(""), Err(RequestError::EmptyRow));
    assert!(Put::try_new(vec![0; 40_000]).is_err());
    assert!(put().cell(&[b'f'; 128], b"q", 1, b"").is_err());
    assert!(put().cell(b"f", b"q", u64::MAX, b"").is_err());
    assert_eq!(Mutation::from(put()).longest_cell(), recorded::vector("cell-put").len());
}
