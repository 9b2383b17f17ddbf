//! Writes from the past: their sender has gone, or the node stood still since it received them.

use tsd_storage::Requester;

use super::*;

#[tokio::test]
async fn an_outdated_write_is_made_neither_here_nor_by_another_node() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    let detector = Standstills::new(boot_ms());
    let before = detector.epoch();
    assert!(detector.mark(boot_ms() + 3_600_000).is_some());
    let received = |epoch: Epoch, ago: Duration| {
        Receipt::new(epoch, boot_ms().saturating_sub(ago.as_millis() as u64))
    };
    let table = table();
    for series in [1, 2].map(|node| series_of(&shared, node)) {
        let put = |receipt: Receipt| {
            let (writes, table) = (&nodes[0].writes, &table);
            async move {
                let permit = BytePermit::exempt(Some(receipt));
                let put = Write::Put(batch([series], b"1"));
                writes.write(table, put, Some(&permit)).await
            }
        };
        let error = put(received(before.clone(), Duration::ZERO)).await.unwrap_err();
        assert!(matches!(error, StorageError::StoodStill), "{error}");
        let error = put(received(detector.epoch(), TIMEOUT * 2)).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert_eq!(holders(&nodes, series).await, [0; 0]);
        put(received(detector.epoch(), TIMEOUT / 2)).await.unwrap();
        assert_eq!(holders(&nodes, series).await, [owner(&shared, series)]);
    }
}

#[tokio::test]
async fn a_write_whose_sender_has_gone_is_not_sent_to_the_next_owner() {
    for is_gone in [true, false] {
        let shared = Arc::<SharedRow>::default();
        let mut nodes = nodes(2, &shared, TIMEOUT).await;
        settled(&nodes).await;
        nodes[1].server = None;
        nodes[1].slots.stop();
        let series = series_of(&shared, 2);
        let requester = Requester::default();
        let epoch = Standstills::new(boot_ms()).epoch();
        let receipt = Receipt::new(epoch, boot_ms()).awaited_by(&requester);
        let first = Arc::clone(&nodes[0].writes);
        let write = tokio::spawn(async move {
            let permit = BytePermit::exempt(Some(receipt));
            first.write(&table(), Write::Put(batch([series], b"1")), Some(&permit)).await
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!write.is_finished());
        let kept = (!is_gone).then_some(requester);
        nodes[0].membership.members.lock().pop();
        nodes[0].membership.settlement.send_replace(Some(Settlement::Stored));
        let written = write.await.unwrap();
        drop(kept);
        assert_eq!(written.is_err(), is_gone, "{written:?}");
        let expected: &[u64] = if is_gone { &[] } else { &[1] };
        assert_eq!(holders(&nodes, series).await, expected);
    }
}
