//! Waiting for the master's procedures.

use hbase_rs_protobuf as pb;
use pb::get_procedure_result_response::State;

use super::Admin;
use crate::{
    attempts::Attempts,
    error::{Failure, OperationError},
    exception::RemoteException,
    table_name::TableName,
};

/// Procedure that flushes a table on masters without `FlushTable`.
const FLUSH_PROCEDURE: &str = "flush-table-proc";

impl Admin {
    /// Waits for the completion of a procedure, if there is one.
    pub(super) async fn finish(
        &self,
        id: Option<u64>,
        attempts: &mut Attempts,
    ) -> Result<(), OperationError> {
        let Some(proc_id) = id else { return Ok(()) };
        let request = pb::GetProcedureResultRequest { proc_id };
        // Polls do not count as attempts.
        let mut polls = attempts.fresh();
        loop {
            let response: pb::GetProcedureResultResponse =
                self.call("getProcedureResult", &request, attempts).await?;
            if let Some(exception) = &response.exception {
                let exception = RemoteException::from_foreign(exception);
                return Err(attempts.fail(Failure::Procedure(exception), false));
            }
            // A procedure that is not found has completed and its result has expired.
            if response.state() != State::Running {
                return Ok(());
            }
            polls.poll(Failure::Running).await?;
        }
    }

    /// Waits until all regions of a new table are assigned.
    pub(super) async fn wait_for_regions(
        &self,
        table: &TableName,
        regions: usize,
        attempts: &mut Attempts,
    ) -> Result<(), OperationError> {
        let mut polls = attempts.fresh();
        loop {
            let rows = self.client.locator().regions(table, attempts).await?;
            let open = rows.iter().filter(|row| row.location().is_some()).count();
            if open >= regions {
                return Ok(());
            }
            polls
                .poll(Failure::InTransition(format!("{open} of {regions} regions are open")))
                .await?;
        }
    }

    /// Flushes a table on a master without `FlushTable`.
    pub(super) async fn flush_by_older_procedure(
        &self,
        table: &TableName,
        attempts: &mut Attempts,
    ) -> Result<(), OperationError> {
        let procedure = pb::ProcedureDescription {
            signature: FLUSH_PROCEDURE.to_owned(),
            instance: Some(table.to_string()),
            creation_time: None,
            configuration: Vec::new(),
        };
        let request = pb::ExecProcedureRequest { procedure: procedure.clone() };
        self.call::<_, pb::ExecProcedureResponse>("ExecProcedure", &request, attempts).await?;
        let request = pb::IsProcedureDoneRequest { procedure: Some(procedure) };
        let mut polls = attempts.fresh();
        loop {
            let response: pb::IsProcedureDoneResponse =
                self.call("IsProcedureDone", &request, attempts).await?;
            if response.done() {
                return Ok(());
            }
            polls.poll(Failure::Running).await?;
        }
    }
}
