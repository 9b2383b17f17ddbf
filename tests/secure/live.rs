//! Runs the tests of hbase-rs for a real HBase on a secured one.

use std::process::Command;

use cluster::{Cluster, Kerberos, Protection};
use tokio::task::block_in_place;

use crate::{TestResult, programs::one_line};

/// Runs the program that is built with this one. Its tests of other security are left out.
pub(crate) fn run(cluster: &Cluster, protection: Protection) -> TestResult<String> {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs.sh"));
    command.args(["run", "hbase-rs/live", "--ignored", "--skip", "secured::"]);
    command.env("HBASE_QUORUM", cluster.client_quorum());
    command.env("HBASE_MASTERS", cluster.masters().join(","));
    if let Some(realm) = cluster.realm() {
        command.env("KRB5_CONFIG", realm.krb5_conf());
        command.env("HBASE_KEYTAB", realm.keytab(Kerberos::USER));
        command.env("HBASE_PRINCIPAL", realm.principal(Kerberos::HBASE));
        command.env("HBASE_PROTECTION", protection.to_string());
    }
    let output = block_in_place(|| command.output())?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, one_line(&text)).into());
    }
    let result = text.lines().find_map(|line| line.strip_prefix("test result: ok. "));
    let passed = result.and_then(|counts| counts.split(';').next());
    Ok(passed.ok_or("no result of the tests")?.to_owned())
}
