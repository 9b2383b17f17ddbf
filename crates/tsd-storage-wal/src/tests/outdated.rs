//! Writes whose time is over when the committer takes them.

use super::*;

#[tokio::test]
async fn an_outdated_write_is_not_logged() {
    let disk = FaultyDisk::new(1);
    let (store, _) = open(&disk, lazy()).await.unwrap();
    let detector = Standstills::new(boot_ms());
    let before = detector.epoch();
    assert!(detector.mark(boot_ms() + 3_600_000).is_some());
    let far = Duration::from_hours(1);
    let received = |epoch: &Epoch| Receipt::new(epoch.clone(), boot_ms() - 1);
    let (present, table) = (detector.epoch(), data());
    for (row, receipt, is_made) in [
        (b"made", received(&present).within(far), true),
        (b"late", received(&present).within(Duration::ZERO), false),
        (b"past", received(&before).within(far), false),
        (b"void", Receipt::until(None, 0), false),
    ] {
        let permit = BytePermit::exempt(Some(receipt));
        // The first write of a group and the later ones.
        let puts = [b"q", b"r"].map(|qualifier| Write::Put(cells(row, &[(qualifier, b"1")])));
        let [first, second] = puts.map(|put| store.write(&table, put, Some(&permit)));
        let (first, second) = tokio::join!(first, second);
        for written in [first, second] {
            assert_eq!(written.is_ok(), is_made, "{row:?} {written:?}");
        }
    }
    let rows = async |store: &Store| {
        let rows = contents(store, &data()).await;
        rows.into_iter().map(|(key, cells)| (key, cells.len())).collect::<Vec<_>>()
    };
    assert_eq!(rows(&store).await, [(Bytes::from_static(b"made"), 2)]);
    store.stop().await;
    let (store, _) = open(&disk.after_kill(), lazy()).await.unwrap();
    assert_eq!(rows(&store).await, [(Bytes::from_static(b"made"), 2)]);
}
