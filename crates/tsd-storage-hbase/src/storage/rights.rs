//! Checks what the user of this process may do, so that the start finds a missing right, and not the first put.

use std::time::Duration;

use bytes::Bytes;
use hbase_rs::{
    Get as HBaseGet, Mutation, Put as HBasePut, condition::Condition, errors::ExceptionClass,
};
use tsd_model::Family;
use tsd_storage::{StorageError, Table, error_chain};

use super::HBaseStorage;
use crate::{
    error::{invalid, storage_error},
    request::family_name,
};

/// A row, a column and a value that no table has.
const ROW: &[u8] = b"\0rights";

/// Whether the user of this process may do what it has to do with a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    /// It may.
    Granted,
    /// A right is missing. HBase's text has the user, the table and the action.
    Missing(String),
}

impl HBaseStorage {
    /// Returns whether the user of this process may read a table and, if it `writes`, may write it.
    ///
    /// HBase checks both rights before it evaluates the condition of a write. The condition here never holds, so
    /// nothing is written.
    ///
    /// # Errors
    ///
    /// If HBase does not answer in this time.
    pub async fn check_rights(
        &self,
        table: &Table,
        family: Family,
        writes: bool,
        timeout: Duration,
    ) -> Result<Rights, StorageError> {
        let rows = self.context.table(table)?.rows.clone().with_timeout(timeout);
        let value = Bytes::from_static(ROW);
        let condition = Condition::equals(family_name(family), value.clone(), value.clone());
        let put = HBasePut::try_new(value.clone())
            .and_then(|put| put.cell(family.as_str().as_bytes(), ROW, 1, ROW));
        let put = Mutation::from(put.map_err(invalid)?);
        let get = HBaseGet::try_new(value).map_err(invalid)?;
        let checked = self.context.run_abortable(async move {
            if writes {
                rows.check_and_mutate(&condition, put).await.map(|_| ())
            } else {
                rows.exists(get).await.map(|_| ())
            }
        });
        match checked.await? {
            Ok(()) => Ok(Rights::Granted),
            Err(error) if error.class() == Some(ExceptionClass::AccessDenied) => {
                Ok(Rights::Missing(error_chain(&error)))
            }
            Err(error) => Err(storage_error(table, &error)),
        }
    }
}
