//! Waiting for what the master has begun.

use hbase_rs_protobuf as pb;
use pb::get_procedure_result_response::State;

use super::Admin;
use crate::{
    attempts::Attempts,
    error::{Failure, OperationError},
    exception::RemoteException,
    table_name::TableName,
};

/// Name of the procedure that flushes a table where there is no method for it.
const FLUSH: &str = "flush-table-proc";

impl Admin {
    /// Waits for a procedure's end. An answer without one has nothing to wait for.
    pub(super) async fn finish(
        &self,
        id: Option<u64>,
        attempts: &mut Attempts,
    ) -> Result<(), OperationError> {
        let Some(proc_id) = id else { return Ok(()) };
        let request = pb::GetProcedureResultRequest { proc_id };
        // Asking is no attempt at anything.
        let mut asking = attempts.fresh();
        loop {
            let answer: pb::GetProcedureResultResponse =
                self.call("getProcedureResult", &request, attempts).await?;
            if let Some(exception) = &answer.exception {
                let exception = RemoteException::from_foreign(exception);
                return Err(attempts.fail(Failure::Procedure(exception), false));
            }
            // One that is not found has ended so long ago that its result was dropped.
            if answer.state() != State::Running {
                return Ok(());
            }
            asking.poll(Failure::Running).await?;
        }
    }

    /// Waits until all regions of a new table have a server.
    pub(super) async fn wait_for_regions(
        &self,
        table: &TableName,
        regions: usize,
        attempts: &mut Attempts,
    ) -> Result<(), OperationError> {
        let mut asking = attempts.fresh();
        loop {
            let rows = self.client.locator().regions(table, attempts).await?;
            let open = rows.iter().filter(|row| row.location().is_some()).count();
            if open >= regions {
                return Ok(());
            }
            asking
                .poll(Failure::InTransition(format!("{open} of {regions} regions are open")))
                .await?;
        }
    }

    /// Flushes where the master has no method for it.
    pub(super) async fn flush_by_older_procedure(
        &self,
        table: &TableName,
        attempts: &mut Attempts,
    ) -> Result<(), OperationError> {
        let procedure = pb::ProcedureDescription {
            signature: FLUSH.to_owned(),
            instance: Some(table.to_string()),
            creation_time: None,
            configuration: Vec::new(),
        };
        let request = pb::ExecProcedureRequest { procedure: procedure.clone() };
        self.call::<_, pb::ExecProcedureResponse>("ExecProcedure", &request, attempts).await?;
        let request = pb::IsProcedureDoneRequest { procedure: Some(procedure) };
        let mut asking = attempts.fresh();
        loop {
            let answer: pb::IsProcedureDoneResponse =
                self.call("IsProcedureDone", &request, attempts).await?;
            if answer.done() {
                return Ok(());
            }
            asking.poll(Failure::Running).await?;
        }
    }
}
