use super::*;

#[track_caller]
fn check(splits: Splits, expected: &[&[u8]]) {
    assert_eq!(splits.keys(), expected);
}

#[test]
fn salted_tables_have_a_region_a_bucket() {
    check(Splits::None, &[]);
    check(Splits::Salt { width: 0, buckets: 20 }, &[]);
    check(Splits::Salt { width: 1, buckets: 1 }, &[]);
    check(Splits::Salt { width: 1, buckets: 4 }, &[&[1], &[2], &[3]]);
    check(Splits::Salt { width: 2, buckets: 3 }, &[&[0, 1], &[0, 2]]);
    let wide = Splits::Salt { width: 1, buckets: 300 }.keys();
    assert_eq!(wide.len(), 255, "buckets beyond the salt's values share regions");
    let long = Splits::Salt { width: 8, buckets: 2 }.keys();
    assert_eq!(long, [&[0, 0, 0, 0, 0, 0, 0, 1][..]]);
}

#[test]
fn metrics_drawn_by_chance_are_spread_evenly() {
    check(Splits::Metrics { width: 3, regions: 4 }, &[&[0x40, 0, 0], &[0x80, 0, 0], &[0xC0, 0, 0]]);
    check(Splits::Metrics { width: 1, regions: 1 }, &[]);
    check(Splits::Metrics { width: 0, regions: 9 }, &[]);
    let all = Splits::Metrics { width: 1, regions: 1_000 }.keys();
    assert!(all.is_sorted() && all.first().is_some_and(|key| **key != [0]));
}
