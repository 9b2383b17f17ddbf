//! Rights of a user: what is missing ends the start of the daemon, with the user, the table and the action.

use std::{path::Path, process::Command, time::Duration};

use cluster::{Cluster, Kerberos};
use tokio::{task::block_in_place, time::sleep};

use crate::{
    TestResult,
    client::SecureClient,
    failures::seconds,
    programs::{Watched, command, daemon},
    rows::{start, stop, tool},
};

/// Begins the names of the tables.
const TABLES: &str = "rights";

/// Time in which region servers learn of a grant.
const PROPAGATION: Duration = Duration::from_secs(1);

/// Starts daemons and tools as a user who gets one right after the other.
pub(crate) async fn run(cluster: &Cluster, client: SecureClient) -> TestResult<String> {
    let realm = cluster.realm().ok_or("the cluster has no Kerberos")?;
    let directory = tempfile::tempdir()?;
    let mut settings = client.settings(cluster, directory.path()).await?;
    settings.set_tables(TABLES);
    let owner = directory.path().join("owner.conf");
    settings.write(&owner)?;
    block_in_place(|| tool(&settings, &owner, &["table", "create"]))?;
    settings.set("hbase.client.keytab.file", realm.keytab(Kerberos::GUEST).display());
    settings.set("hbase.client.keytab.principal", realm.principal(Kerberos::GUEST));
    let guest = directory.path().join("guest.conf");
    settings.write(&guest)?;

    let log = directory.path().join("log");
    let mut texts = Vec::new();
    let tables = ["data", "uid"].map(|table| format!("{TABLES}-{table}"));
    let tables = tables.each_ref().map(String::as_str);
    for (rights, missing) in [("", "READ"), ("R", "WRITE"), ("W", "READ"), ("RW", "")] {
        if !rights.is_empty() {
            cluster.grant_on(Kerberos::GUEST, rights, &tables).await?;
            sleep(PROPAGATION).await;
        }
        if missing.is_empty() {
            break;
        }
        let denied = ["guest", TABLES, &format!("action={missing}")];
        let after = refused(daemon(&settings, &guest, directory.path()), &denied, &log)?;
        let name = if rights.is_empty() { "no right" } else { rights };
        texts.push(format!("{name}: {missing} is missing {}", seconds(after)));
    }
    block_in_place(|| stop(start(&settings, &guest, &directory.path().join("data"))?))?;
    settings.set_tables("denied");
    settings.write(&guest)?;
    let create = command(&settings, &guest, &["table", "create"]);
    let after = refused(create, &["guest", "default", "action=CREATE"], &log)?;
    texts.push(format!("table create: CREATE is missing {}", seconds(after)));
    Ok(texts.join(", "))
}

/// Runs a program, which must end with an error that has the texts. Returns the time that it took.
fn refused(program: Command, texts: &[&str], log: &Path) -> TestResult<Duration> {
    block_in_place(|| {
        let mut program = Watched::start(program, log)?;
        let (status, after) = program.await_exit()?;
        if status.success() {
            return Err("it succeeded".into());
        }
        program.await_texts(texts)?;
        Ok(after)
    })
}
