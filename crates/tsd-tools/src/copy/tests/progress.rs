//! The estimate of the share of a copy that is done.

use super::*;

#[tokio::test]
async fn copied_share_is_that_of_the_rows_where_all_are_in_few_keys() {
    // A day of one metric; many series of one hour; the last metric of many.
    for (metrics, hours, hosts) in [(1, 24, 40), (1, 1, 1_500), (60, 2, 12)] {
        for schema in [unsalted(), TableSchema::try_new(3, 3, 3, 1, 1).unwrap()] {
            let f = Fixture::new(schema, schema);
            for metric in 0..metrics {
                for host in 0..hosts {
                    for hour in 0..hours {
                        let (metric, host) = (format!("m{metric}"), format!("h{host}"));
                        f.from.points(&metric, &host, HOUR + hour * 3_600, 1).await;
                    }
                }
            }
            let rows = f.copy(CopyRun { threads: 1, ..run() }).await.unwrap();
            let shares = std::mem::take(&mut *f.progress.shares.lock());
            let of_table = u64::from(metrics * hours * hosts);
            let others = rows.rows - of_table;
            assert!(shares.len() > 4, "{shares:?}");
            for (copied, share) in shares {
                let expected = (copied - others) as f64 / of_table as f64;
                assert!((share - expected).abs() < 0.06, "{share} of {expected}");
            }
        }
    }
}
