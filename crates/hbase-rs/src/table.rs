//! Operations on the rows of a table.
//!
//! The deadline of an operation covers its lookups, calls and pauses. The error of an operation tells
//! whether HBase may have executed it: in doubt, changes that must not be executed twice are not
//! repeated.

mod batch;
mod conditions;
mod single;

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    attempts::Attempts,
    client::Client,
    multi::Action,
    operation_error::{Failure, OperationError},
    region::{
        info::RegionLocation,
        meta::{MetaRow, RegionTarget},
    },
    request::{condition::Condition, get::Get, mutation::Mutation, scan::Scan},
    row::Row,
    scanner::Scanner,
    table_name::TableName,
    table_state::TableState,
    trace,
};

/// A table of a cluster.
#[derive(Clone, Debug)]
pub struct Table {
    client: Client,
    name: TableName,
    timeout: Option<Duration>,
}

impl Client {
    /// Returns a handle of a table without a call: if the table does not exist, the first use fails.
    #[must_use]
    pub fn table(&self, name: TableName) -> Table {
        Table { client: self.clone(), name, timeout: None }
    }
}

impl Table {
    /// Returns the client of the table.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Timeout of its operations.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(self.client.config().operation_timeout)
    }

    /// Replaces the configured timeout of operations.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns the name of the table.
    #[must_use]
    pub const fn name(&self) -> &TableName {
        &self.name
    }

    /// Reads a row. A row that does not exist is empty.
    ///
    /// # Errors
    ///
    /// If the row cannot be read before the deadline.
    pub async fn get(&self, get: &Get) -> Result<Row, OperationError> {
        Ok(self.read(get).await?.row)
    }

    /// Returns true if a read would return a cell.
    ///
    /// # Errors
    ///
    /// If the row cannot be read before the deadline.
    pub async fn exists(&self, get: Get) -> Result<bool, OperationError> {
        let result = self.read(&get.existence_only()).await?;
        Ok(result.exists.unwrap_or(!result.row.is_empty()))
    }

    /// Changes a row: [`Put`](crate::Put), [`Delete`](crate::Delete), [`Increment`](crate::Increment)
    /// or [`Append`](crate::Append). Returns the new values of the last two.
    ///
    /// # Errors
    ///
    /// If the change is not confirmed before the deadline.
    pub async fn mutate(&self, mutation: impl Into<Mutation>) -> Result<Row, OperationError> {
        Ok(self.change("mutate", &mutation.into(), None).await?.0)
    }

    /// Changes a row if the condition holds. Returns whether it held.
    ///
    /// # Errors
    ///
    /// If the change is not confirmed before the deadline. After a lost response the error is in
    /// doubt: read the row to find out. A condition with a filter or a time range is an error on
    /// servers before HBase 2.4, which would ignore it.
    pub async fn check_and_mutate(
        &self,
        condition: &Condition,
        mutation: impl Into<Mutation>,
    ) -> Result<bool, OperationError> {
        Ok(self.change("check and mutate", &mutation.into(), Some(condition)).await?.1)
    }

    /// Reads many rows.
    ///
    /// # Errors
    ///
    /// If a row cannot be read before the deadline.
    pub async fn get_many(&self, gets: Vec<Get>) -> Result<Vec<Row>, OperationError> {
        let results = self.batch(gets.into_iter().map(Action::from).collect()).await;
        results.into_iter().map(|result| Ok(result?.row)).collect()
    }

    /// Reads the rows of a range as a stream.
    #[must_use]
    pub fn scan(&self, scan: Scan) -> Scanner {
        Scanner::start(self.client.clone(), self.name.clone(), scan, self.timeout)
    }

    /// Returns the location of the region that holds a row.
    ///
    /// # Errors
    ///
    /// If the region is not found before the deadline.
    pub async fn locate(&self, row: Bytes) -> Result<RegionLocation, OperationError> {
        let mut attempts = self.attempts("locate").reading();
        self.client.locator().locate(&self.name, &RegionTarget::Holding(row), &mut attempts).await
    }

    /// Reads all regions of the table from hbase:meta and caches their locations.
    ///
    /// # Errors
    ///
    /// If they cannot be read before the deadline.
    pub async fn regions(&self) -> Result<Vec<MetaRow>, OperationError> {
        let mut attempts = self.attempts("list regions").reading();
        self.client.locator().regions(&self.name, &mut attempts).await
    }

    /// Reads the state of the table from hbase:meta, without the master. `None` means that the table
    /// does not exist.
    ///
    /// # Errors
    ///
    /// If hbase:meta cannot be read before the deadline.
    pub async fn state(&self) -> Result<Option<TableState>, OperationError> {
        let mut attempts = self.attempts("table state").reading();
        self.client.locator().table_state(&self.name, &mut attempts).await
    }

    /// Caches the locations of all regions of the table, so that the first operations need no
    /// lookups. Returns the number of open regions. Takes one call for every thousand regions.
    ///
    /// # Errors
    ///
    /// If they cannot be read before the deadline.
    pub async fn prefetch(&self) -> Result<usize, OperationError> {
        let regions = self.regions().await?;
        Ok(regions.iter().filter(|region| region.location().is_some()).count())
    }

    pub(crate) fn attempts(&self, operation: &'static str) -> Attempts {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let attempts =
            Attempts::new(operation, self.client.config(), self.client.metrics(), deadline);
        let span = trace::operation(operation, Some(&self.name), attempts.deadline());
        attempts.in_span(span)
    }

    /// Returns an error for a cell that servers would reject.
    fn check(&self, mutation: &Mutation, attempts: &Attempts) -> Result<(), OperationError> {
        let (length, limit) = (mutation.longest_cell(), self.client.config().max_cell);
        if length <= limit {
            return Ok(());
        }
        Err(attempts.fail(Failure::CellTooLong { length, limit }, false))
    }
}
