//! Waiting for the master's procedures.

use hbase_rs_protobuf as pb;
use pb::get_procedure_result_response::State;
use prost::Message;

use super::Admin;
use crate::{
    attempts::Attempts,
    exception::RemoteException,
    operation_error::{Failure, OperationError},
    table_name::TableName,
};

/// Procedure that flushes a table on masters without `FlushTable`.
const FLUSH_PROCEDURE: &str = "flush-table-proc";

/// Response to every request that starts a procedure.
#[derive(Clone, PartialEq, prost::Message)]
struct ProcedureStarted {
    #[prost(uint64, optional, tag = "1")]
    proc_id: Option<u64>,
}

impl Admin {
    /// Executes an operation that consists of one procedure.
    pub(super) async fn execute<M: Message>(
        &self,
        operation: &'static str,
        method: &'static str,
        request: &M,
    ) -> Result<(), OperationError> {
        self.run_procedure(method, request, &mut self.attempts(operation)).await
    }

    /// Calls a method of the master. If the method starts a procedure, waits for its completion.
    pub(super) async fn run_procedure<M: Message>(
        &self,
        method: &'static str,
        request: &M,
        attempts: &mut Attempts,
    ) -> Result<(), OperationError> {
        let started: ProcedureStarted = self.call(method, request, attempts).await?;
        let Some(proc_id) = started.proc_id else { return Ok(()) };
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
