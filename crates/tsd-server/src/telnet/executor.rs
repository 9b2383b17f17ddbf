//! Telnet commands with a reply. `lines.rs` handles points, which have no reply.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::io::AsyncWrite;
use tracing::info;
use tsd_protocol::{AdminCommand, TelnetCommands, reply as telnet_reply};

use super::write_buffer::WriteBuffer;
use crate::{
    audit::{ActOutcome, AuditLine, NotAudited, OpenAct, Protocol},
    auth::{Audited, Identity, Requirement, audited_telnet, of_telnet},
    client::Client,
    server_state::ServerState,
    stats::Stats,
};

/// Executes commands with a reply: all lines except points.
pub(super) struct Executor<'a> {
    pub(super) state: &'a Arc<ServerState>,
    pub(super) peer: SocketAddr,
    pub(super) identity: Option<&'a Identity>,
    pub(super) commands: TelnetCommands,
    pub(super) write_buffer: &'a mut WriteBuffer,
}

impl Executor<'_> {
    /// Executes a command. Returns false to close the connection.
    pub(super) async fn execute<S: AsyncWrite + Unpin>(
        &mut self,
        command: AdminCommand,
        io: &mut S,
    ) -> io::Result<bool> {
        let state = Arc::clone(self.state);
        let mut refused = self.refusal(command);
        let sender = (self.identity.map(Identity::name), self.peer);
        let act = match begin_act(&state, command, sender, refused.as_deref()).await {
            Ok(act) => act,
            Err(error) => {
                refused = Some(format!("{error}\n"));
                None
            }
        };
        let reply = match command {
            AdminCommand::Exit => return Ok(false),
            _ if let Some(reply) = &refused => reply.clone(),
            AdminCommand::Stats => Stats::collect_with_threads(&state).await.text(),
            AdminCommand::Version => state.config.build.render_text(),
            AdminCommand::Status => telnet_reply::status(state.health().await.state()),
            AdminCommand::Help => telnet_reply::help(self.commands),
            AdminCommand::DropCaches => {
                state.engine.drop_caches();
                telnet_reply::CACHES_DROPPED.to_owned()
            }
            AdminCommand::DieDieDie => {
                info!("a client requested a stop");
                telnet_reply::CLEANING_UP.to_owned()
            }
        };
        if let Some(act) = act {
            act.end(ActOutcome::Done).await;
        }
        let write_timeout = state.config.limits.write_timeout;
        self.write_buffer.reply(io, reply.as_bytes(), write_timeout).await?;
        if matches!(command, AdminCommand::DieDieDie) && refused.is_none() {
            state.stop_requested.cancel();
            return Ok(false);
        }
        Ok(true)
    }

    /// Returns the reply to a command that this peer may not send.
    fn refusal(&self, command: AdminCommand) -> Option<String> {
        let requirement = of_telnet(command);
        let refused = &self.state.metrics.forbidden_telnet;
        if let Requirement::Administer(operation) = requirement {
            let client = Client::direct(self.peer);
            let error = self.state.check_admin(client, self.identity, operation, refused).err()?;
            return Some(format!("{error}\n"));
        }
        // Without authentication there is no user.
        let (permission, identity) = (requirement.permission()?, self.identity?);
        if identity.may(permission) {
            return None;
        }
        let (user, lacks) = (identity.name(), permission.as_str());
        let error = format!("user {user:?} does not have the permission {lacks}");
        self.state.log_refusal(self.peer.ip(), refused, &error);
        Some(format!("{error}\n"))
    }
}

/// Begins the act of a command for the audit log, or writes why it was refused.
async fn begin_act(
    state: &ServerState,
    command: AdminCommand,
    (user, peer): (Option<&str>, SocketAddr),
    refused: Option<&str>,
) -> Result<Option<OpenAct>, NotAudited> {
    let (Some(log), Audited::Always(act)) = (&state.config.audit, audited_telnet(command)) else {
        return Ok(None);
    };
    let line = AuditLine::new(act).sent_by(user, peer, Protocol::Telnet);
    let Some(reason) = refused else { return log.begin(line).await.map(Some) };
    let reason = reason.trim_end().to_owned();
    log.write_refusal(line.ended(&ActOutcome::Refused { status: None, reason })).await;
    Ok(None)
}
