//! Operations on the rows of a table.
//!
//! Every operation has a deadline that covers its lookups, calls and pauses. An operation that failed
//! says whether it may have been done all the same: changes that must not happen twice are not
//! repeated in doubt.

mod batch;
mod single;

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    attempts::Attempts,
    client::Client,
    error::{Failure, OperationError},
    multi::Action,
    region::{
        info::RegionLocation,
        meta::{MetaRow, RegionTarget},
    },
    request::{condition::Condition, get::Get, mutation::Mutation, scan::Scan},
    row::{Row, RowResult},
    scanner::Scanner,
    table_name::TableName,
};

/// A table of a cluster.
#[derive(Clone, Debug)]
pub struct Table {
    client: Client,
    name: TableName,
    timeout: Option<Duration>,
}

impl Client {
    /// Returns a handle of a table. No call is made: a table that does not exist fails on first use.
    #[must_use]
    pub fn table(&self, name: TableName) -> Table {
        Table { client: self.clone(), name, timeout: None }
    }
}

impl Table {
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Time of its operations.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(self.client.config().operation_timeout)
    }

    /// Gives each operation this long, instead of what the configuration says.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &TableName {
        &self.name
    }

    /// Reads a row; an empty one if there is no such.
    ///
    /// # Errors
    ///
    /// When it cannot be read in time.
    pub async fn get(&self, get: &Get) -> Result<Row, OperationError> {
        Ok(self.read(get).await?.row)
    }

    /// Whether a read would bring a cell.
    ///
    /// # Errors
    ///
    /// When it cannot be told in time.
    pub async fn exists(&self, get: Get) -> Result<bool, OperationError> {
        let result = self.read(&get.existence_only()).await?;
        Ok(result.exists.unwrap_or(!result.row.is_empty()))
    }

    /// Changes a row: [`Put`](crate::Put), [`Delete`](crate::Delete), [`Increment`](crate::Increment)
    /// or [`Append`](crate::Append). The last two bring their new values.
    ///
    /// # Errors
    ///
    /// When it cannot be done in time, or nobody knows whether it was.
    pub async fn mutate(&self, mutation: impl Into<Mutation>) -> Result<Row, OperationError> {
        Ok(self.change("mutate", &mutation.into(), None).await?.0)
    }

    /// Changes a row if the condition holds, and says whether it did.
    ///
    /// # Errors
    ///
    /// When it cannot be done in time. With the answer lost, nobody knows whether it was done; then
    /// the row tells.
    pub async fn check_and_mutate(
        &self,
        condition: &Condition,
        mutation: impl Into<Mutation>,
    ) -> Result<bool, OperationError> {
        Ok(self.change("check and mutate", &mutation.into(), Some(condition)).await?.1)
    }

    /// Does all changes of one row or none, under a condition or without; says whether they were done.
    ///
    /// # Errors
    ///
    /// When it cannot be done in time, or nobody knows whether it was.
    pub async fn mutate_row(
        &self,
        mutations: Vec<Mutation>,
        condition: Option<&Condition>,
    ) -> Result<bool, OperationError> {
        self.change_together(mutations, condition).await
    }

    /// Does many things, each by itself, with few calls. Outcomes are in the order of the actions;
    /// between actions of one batch no order holds.
    pub async fn batch(&self, actions: Vec<Action>) -> Vec<Result<RowResult, OperationError>> {
        batch::run(self, actions).await
    }

    /// Reads many rows.
    ///
    /// # Errors
    ///
    /// When one of them cannot be read in time.
    pub async fn get_many(&self, gets: Vec<Get>) -> Result<Vec<Row>, OperationError> {
        let results = self.batch(gets.into_iter().map(Action::from).collect()).await;
        results.into_iter().map(|result| Ok(result?.row)).collect()
    }

    /// Reads the rows of a range as a stream.
    #[must_use]
    pub fn scan(&self, scan: Scan) -> Scanner {
        Scanner::start(self.client.clone(), self.name.clone(), scan, self.timeout)
    }

    /// Where a row is.
    ///
    /// # Errors
    ///
    /// When it cannot be found out in time.
    pub async fn locate(&self, row: Bytes) -> Result<RegionLocation, OperationError> {
        let mut attempts = self.attempts("locate").reading();
        self.client.locator().locate(&self.name, &RegionTarget::Holding(row), &mut attempts).await
    }

    /// Reads all regions of the table from hbase:meta and keeps where they are.
    ///
    /// # Errors
    ///
    /// When they cannot be read in time.
    pub async fn regions(&self) -> Result<Vec<MetaRow>, OperationError> {
        let mut attempts = self.attempts("list regions").reading();
        self.client.locator().regions(&self.name, &mut attempts).await
    }

    /// Learns where all regions of the table are, so that the first operations need no lookups, and
    /// returns how many are open. Costs a call for every thousand regions.
    ///
    /// # Errors
    ///
    /// When they cannot be read in time.
    pub async fn prefetch(&self) -> Result<usize, OperationError> {
        let regions = self.regions().await?;
        Ok(regions.iter().filter(|region| region.location().is_some()).count())
    }

    pub(crate) fn attempts(&self, operation: &'static str) -> Attempts {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        Attempts::new(operation, self.client.config(), self.client.metrics(), deadline)
    }

    /// Errs on a cell that servers would refuse.
    fn check(&self, mutation: &Mutation, attempts: &Attempts) -> Result<(), OperationError> {
        let (length, limit) = (mutation.longest_cell(), self.client.config().max_cell);
        if length <= limit {
            return Ok(());
        }
        Err(attempts.fail(Failure::CellTooLong { length, limit }, false))
    }
}
