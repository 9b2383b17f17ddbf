//! Commands of a telnet connection that have a reply. Points, which have none, are in `lines.rs`.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::io::AsyncWrite;
use tracing::info;
use tsd_protocol::{AdminCommand, TelnetCommands, reply as telnet_reply};

use super::write_buffer::WriteBuffer;
use crate::{auth::Identity, server_state::ServerState, stats::Stats};

/// Executes commands with a reply: everything but the points.
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
        let refused = self.check_admin(command);
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
        let write_timeout = state.config.limits.write_timeout;
        self.write_buffer.reply(io, reply.as_bytes(), write_timeout).await?;
        if matches!(command, AdminCommand::DieDieDie) && refused.is_none() {
            state.stop_requested.cancel();
            return Ok(false);
        }
        Ok(true)
    }

    /// Returns the reply to a command that this peer may not send.
    fn check_admin(&self, command: AdminCommand) -> Option<String> {
        let operation = match command {
            AdminCommand::DropCaches => "dropcaches",
            AdminCommand::DieDieDie => "diediedie",
            _ => return None,
        };
        let refused = &self.state.metrics.forbidden_telnet;
        let error =
            self.state.check_admin(self.peer.ip(), self.identity, operation, refused).err()?;
        Some(format!("{error}\n"))
    }
}
