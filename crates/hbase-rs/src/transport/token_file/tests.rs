use proptest::prelude::*;

use super::*;
use crate::recorded;

const CLUSTER: &str = "8f8e0d4c-5b7e-4a7b-9d4e-0c1d2e3f4a5b";

fn recorded_file(format: &str) -> Vec<u8> {
    recorded::unhex(recorded::file("token-files.json")[format].as_str().unwrap()).to_vec()
}

fn token(kind: &str, service: &str) -> DelegationToken {
    let (kind, service) = (kind.to_owned(), service.to_owned());
    DelegationToken { identifier: vec![1; 200], password: vec![2], kind, service }
}

#[test]
fn files_of_both_formats_are_read() {
    for format in ["writable", "protobuf"] {
        let tokens = parse(&recorded_file(format)).unwrap();
        assert_eq!(tokens.len(), 2, "{format}");
        let chosen = DelegationToken::choose(tokens).unwrap();
        let expected = DelegationToken {
            identifier: (0..35).collect(),
            password: (200..220).collect(),
            kind: HBASE_KIND.to_owned(),
            service: CLUSTER.to_owned(),
        };
        assert_eq!(chosen, expected, "{format}");
        assert!(!format!("{chosen:?}").contains("200"), "{chosen:?}");
    }
}

#[test]
fn a_cut_file_is_an_error() {
    let file = recorded_file("writable");
    // After the tokens, only secrets follow.
    let tokens_end = file.len() - 9;
    for end in 0..tokens_end {
        assert!(parse(&file[..end]).is_err(), "{end}");
    }
    let file = recorded_file("protobuf");
    for end in 0..file.len() {
        assert!(parse(&file[..end]).is_err(), "{end}");
    }
}

#[test]
fn the_token_of_one_cluster_is_chosen() {
    let (one, other) = (token(HBASE_KIND, "one"), token(HBASE_KIND, "other"));
    let newer = DelegationToken { password: vec![3], ..one.clone() };
    assert_eq!(DelegationToken::choose(vec![one.clone(), newer.clone()]).unwrap(), newer);
    let error = DelegationToken::choose(vec![one, other]).unwrap_err();
    assert!(error.to_string().contains("one, other"), "{error}");
    let error = DelegationToken::choose(vec![token("HDFS", "x")]).unwrap_err();
    assert!(error.to_string().contains("(found HDFS)"), "{error}");
    assert!(matches!(DelegationToken::choose(Vec::new()), Err(TokenFileError::NoToken(_))));
}

#[test]
fn other_files_are_named() {
    assert!(matches!(parse(b"PK\x03\x04"), Err(TokenFileError::Magic)));
    assert!(matches!(parse(b"HDTS\x02"), Err(TokenFileError::Format(2))));
    assert!(matches!(parse(b"HDTS"), Err(TokenFileError::Damaged)));
    let missing = DelegationToken::read(Path::new("no-such-file")).unwrap_err();
    assert!(matches!(missing, TokenFileError::Io(_)), "{missing}");
}

#[test]
fn negative_and_long_numbers_are_rejected() {
    for bad in [&[0x80_u8, 1][..], &[0x88, 1], &[0x87], &[0x88; 9], &[0xff]] {
        let file = [b"HDTS\0", bad].concat();
        assert!(matches!(parse(&file), Err(TokenFileError::Damaged)), "{bad:?}");
    }
    // -1, and a count of 2^56 tokens that are not there.
    assert_eq!(WritableReader(&[0x87, 1]).number(), None);
    assert_eq!(WritableReader(&[0x88, 1, 0, 0, 0, 0, 0, 0, 0]).number(), Some(1 << 56));
    assert!(parse(b"HDTS\0\x88\x01\0\0\0\0\0\0\0").is_err());
}

#[test]
fn encoded_files_equal_those_of_hadoop() {
    // The second token of the recorded file, alone.
    let recorded = recorded_file("writable");
    let start = recorded.len() - 9 - 148;
    let token = DelegationToken::choose(parse(&recorded).unwrap()).unwrap();
    assert_eq!(token.cluster_id(), CLUSTER);
    let expected = [b"HDTS\0\x01", &recorded[start..recorded.len() - 9], b"\0"].concat();
    assert_eq!(token.encode_file(), expected);
}

proptest! {
    #[test]
    fn encoded_files_are_read(
        identifier in prop::collection::vec(any::<u8>(), 0..1000),
        password in prop::collection::vec(any::<u8>(), 0..300),
        service: String,
    ) {
        let kind = HBASE_KIND.to_owned();
        let token = DelegationToken { identifier, password, kind, service };
        prop_assert_eq!(DelegationToken::choose(parse(&token.encode_file()).unwrap()).unwrap(), token);
    }

    #[test]
    fn numbers_are_read_as_written(number: usize) {
        let mut file = Vec::new();
        put_number(&mut file, number);
        prop_assert_eq!(WritableReader(&file).number(), Some(number));
    }

    #[test]
    fn damaged_files_do_not_panic(
        format in 0_u8..2,
        position: prop::sample::Index,
        byte: u8,
        cut: prop::sample::Index,
    ) {
        let mut file = recorded_file(["writable", "protobuf"][format as usize]);
        let at = position.index(file.len());
        file[at] = byte;
        let _ = parse(&file);
        file.truncate(cut.index(file.len()));
        let _ = parse(&file);
    }

    #[test]
    fn any_bytes_are_parsed_without_a_panic(format in 0_u8..3, rest: Vec<u8>) {
        let file = [&b"HDTS"[..], &[format], &rest].concat();
        let _ = parse(&file);
    }
}
