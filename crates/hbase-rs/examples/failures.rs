//! Decides by the error whether an operation was executed.
//!
//! `cargo run -p hbase-rs --example failures -- 127.0.0.1:2181 example`; the table needs the family `f`.

use std::{error::Error, time::Duration};

use hbase_rs::{
    Client, ClientConfig, Get, OperationError, Put, SERVER_TIME, Table,
    condition::Condition,
    discovery::ZooKeeperDiscovery,
    errors::{ExceptionClass, Failure},
};

/// Takes a lock. Returns true if `owner` has it, also after a lost response.
pub(crate) async fn run(table: &Table, owner: &str) -> Result<bool, Box<dyn Error>> {
    // The default timeout survives the crash of a server. Somebody waits for this operation.
    let table = table.clone().with_timeout(Duration::from_secs(5));
    let put = Put::try_new("lock")?.cell(b"f", b"owner", SERVER_TIME, owner.as_bytes())?;
    match table.check_and_mutate(&Condition::absent("f", "owner"), put).await {
        Ok(taken) => Ok(taken),
        // A condition is not repeated in doubt, since it would see the effect of the first attempt.
        Err(error) if error.in_doubt => {
            let row = table.get(&Get::try_new("lock")?).await?;
            Ok(row.value(b"f", b"owner") == Some(owner.as_bytes()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Says what a person should do about an error.
pub(crate) fn advice(error: &OperationError) -> &'static str {
    match &*error.cause {
        Failure::NoTable(_) => "create the table",
        Failure::TableDisabled(_) => "enable the table",
        Failure::Discovery(_) => "check the quorum and the network",
        Failure::Time => "try again",
        _ => match error.class() {
            Some(ExceptionClass::AccessDenied) => "ask for the right to do so",
            Some(ExceptionClass::NoSuchFamily) => "add the column family",
            _ => "see the causes of the error",
        },
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let quorum = arguments.next().ok_or("missing argument: ZooKeeper quorum")?;
    let table = arguments.next().ok_or("missing argument: table")?.parse()?;
    let discovery = ZooKeeperDiscovery::new(&quorum, "/hbase");
    let table = Client::new(ClientConfig::new("example"), discovery).table(table);
    match run(&table, "example").await {
        Ok(taken) => println!("taken: {taken}"),
        Err(error) => match error.downcast_ref::<OperationError>() {
            Some(error) => println!("{error}: {}", advice(error)),
            None => return Err(error),
        },
    }
    Ok(())
}
